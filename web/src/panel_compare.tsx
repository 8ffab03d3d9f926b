// Compare: a second text, or the run before the changes; the detail and the atlas show signed differences.
import { useState } from 'preact/hooks';
import type { JSX } from 'preact';
import { visible } from './scene';
import type { Store } from './store';

export function PanelCompare({ store }: { store: Store }): JSX.Element {
  const { second, against, unit, hidden } = store.state;
  const [text, setText] = useState(second);
  if (!store.source.live || !store.info?.model || store.state.tensors) {
    return <p class="hint panel">A second text needs a model: start mha serve with one.</p>;
  }
  const compare = (event: Event): void => {
    event.preventDefault();
    store.update({ second: text, against: text.trim() ? 'text' : '' });
  };
  const mine = store.data?.queries(unit).length ?? 0;
  const theirs = store.other?.queries(unit).length ?? 0;
  return (
    <form class="panel" onSubmit={compare}>
      <label class="block">
        Second text
        <textarea dir="auto" rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <div class="buttons">
        <button type="submit">Compare</button>
        {against !== '' && (
          <button type="button" onClick={() => store.update({ against: '' })}>
            Stop comparing
          </button>
        )}
      </div>
      {against === 'text' && store.other && (
        <p class="hint">
          {mine === theirs
            ? `Both have ${mine} ${unit}s: tables are subtracted, this text less the second, place by place.`
            : `${mine} and ${theirs} ${unit}s: tables cannot be subtracted. Colour the atlas by a measure to see its difference.`}
        </p>
      )}
      {against === 'text' && hidden.length > 0 && <p class="hint">Words are hidden in the first text only; all other changes hold for both.</p>}
      {against === 'text' && store.other && mine === theirs && <Pairs store={store} />}
      {against === 'before' && <p class="hint">Compared with the run before the changes.</p>}
    </form>
  );
}

/** Where the two texts differ, so that nobody reads one word's difference as another's. */
function Pairs({ store }: { store: Store }): JSX.Element | null {
  const { unit } = store.state;
  const mine = store.data!.queries(unit);
  const theirs = store.other!.queries(unit);
  const pairs = mine.map((one, i) => [one.text, theirs[i].text]).filter(([x, y]) => x !== y);
  if (!pairs.length) return null;
  return (
    <ul class="pairs" aria-label="Words that differ">
      {pairs.slice(0, 20).map(([x, y], i) => (
        <li key={i}>
          <bdi>{visible(x)}</bdi> − <bdi>{visible(y)}</bdi>
        </li>
      ))}
    </ul>
  );
}
