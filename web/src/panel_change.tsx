// Intervene: zero or mean any heads, hide a word, change the temperature; the run is done again, and what moved is shown against the run
// before the change.
import type { JSX } from 'preact';
import type { Head } from './contract';
import { visible } from './scene';
import { changeOf } from './state';
import type { Store } from './store';

export function PanelChange({ store }: { store: Store }): JSX.Element {
  const { layer, head, hidden, zeroed, mean, temperature } = store.state;
  if (!store.source.live) return <p class="hint panel">This file holds one run. Start mha serve to change heads.</p>;
  if (!store.info?.model || store.state.tensors) return <p class="hint panel">These are tensors of another program: there is no model here to run again.</p>;
  const name = store.headName([layer, head]);
  const removed = store.isRemoved(layer, head);
  const at = store.wordOf(store.state.pin);
  const word = store.data?.queries('word')[at];
  return (
    <div class="panel">
      <div class="buttons">
        <button disabled={removed} onClick={() => store.toggle('zeroed', layer, head)}>
          {store.isZeroed(layer, head) ? 'Give back' : 'Zero'} {name} <kbd>x</kbd>
        </button>
        <button disabled={removed} onClick={() => store.toggle('mean', layer, head)} title="Its output is replaced by its mean over the text">
          {store.isMean(layer, head) ? 'Give back' : 'Mean of'} {name}
        </button>
        {word && !word.special && (
          <button onClick={() => store.toggleHidden(at)} dir="auto">
            {hidden.includes(at) ? 'Show' : 'Hide'} “{visible(word.text).slice(0, 24)}”
          </button>
        )}
      </div>
      {removed && <p class="hint">{name} was removed from the model: there is nothing to zero.</p>}
      <label class="rank">
        Temperature{' '}
        <input
          type="number"
          min={0.05}
          max={20}
          step={0.25}
          value={temperature}
          onChange={(event) => {
            const value = Number(event.currentTarget.value);
            if (value > 0) store.change({ temperature: value });
          }}
        />
      </label>
      <Outcome store={store} />
      <Changed store={store} heads={zeroed} which="zeroed" />
      <Changed store={store} heads={mean} which="mean" />
      <Hidden store={store} />
      {store.state.atlas !== 'effect' && (
        <button class="link" onClick={() => store.update({ atlas: 'effect' })}>
          Which heads matter to the output? Colour the atlas by the effect of taking each out.
        </button>
      )}
    </div>
  );
}

/** Words that nobody may attend to. */
function Hidden({ store }: { store: Store }): JSX.Element | null {
  const { hidden } = store.state;
  if (!hidden.length) return null;
  return (
    <ul class="chips" aria-label="Hidden words">
      {hidden.map((at) => {
        const word = visible(store.data?.queries('word')[at]?.text ?? String(at)).slice(0, 24);
        return (
          <li key={at}>
            <button onClick={() => store.toggleHidden(at)} title="Let it be attended to again" dir="auto">
              hidden <bdi>{word}</bdi> · {at} ×
            </button>
          </li>
        );
      })}
    </ul>
  );
}

function Changed({ store, heads, which }: { store: Store; heads: Head[]; which: 'zeroed' | 'mean' }): JSX.Element | null {
  if (!heads.length) return null;
  return (
    <ul class="chips" aria-label={which === 'zeroed' ? 'Zeroed heads' : 'Heads replaced by their mean'}>
      {heads.map(([layer, head]) => (
        <li key={`${layer}.${head}`}>
          <button onClick={() => store.toggle(which, layer, head)} aria-label={`Give back ${store.headName([layer, head])}`}>
            {which === 'zeroed' ? '' : 'mean '}
            {store.headName([layer, head])} ×
          </button>
        </li>
      ))}
    </ul>
  );
}

function Outcome({ store }: { store: Store }): JSX.Element {
  const changed = changeOf(store.state);
  const cosine = store.data?.run.output?.cosine;
  if (!changed) return <p class="hint">Nothing is changed. Choose a head in the atlas, then zero it.</p>;
  return (
    <div class="outcome">
      <p>
        Cosine of the output with and without the changes: <b class="number">{cosine === undefined ? '…' : cosine.toFixed(4)}</b>
      </p>
      <p class="buttons">
        <button
          aria-pressed={store.state.against === 'before'}
          onClick={() => store.update({ against: store.state.against === 'before' ? '' : 'before' })}
        >
          Show what moved
        </button>
        <button onClick={() => store.change({ zeroed: [], mean: [], hidden: [], temperature: 1 })}>Undo all</button>
      </p>
    </div>
  );
}
