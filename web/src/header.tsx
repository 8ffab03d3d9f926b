// The top: the text and its Run, the example's readings, words or pieces, and what has to be said about the text (what was cut, what went
// wrong).
import { useEffect, useState } from 'preact/hooks';
import type { JSX } from 'preact';
import type { UnitKind } from './contract';
import { showReading } from './reading';
import { Segments } from './segments';
import type { State } from './state';
import type { Store } from './store';

export function Header({ store, open }: { store: Store; open: (dialog: 'save' | 'help') => void }): JSX.Element {
  const { info, state } = store;
  return (
    <header>
      <h1>
        mha <span class="quiet">{info?.model?.name ?? info?.tensors?.file ?? ''}</span>
      </h1>
      {info?.tensors?.runs.length ? <RunChoice store={store} /> : null}
      {info?.model && <TextForm store={store} />}
      {info?.model && store.source.live && <Readings store={store} />}
      <Segments
        label="Unit"
        choices={[
          { value: 'word', name: 'words' },
          { value: 'piece', name: 'pieces' },
        ]}
        value={state.unit}
        onChange={(unit: UnitKind) => store.update({ unit, pin: -1, a: -1, b: -1, c: -1, zoom: [1, 0, 0] })}
      />
      <button class="plain" onClick={() => open('save')}>
        Save <kbd>s</kbd>
      </button>
      <button class="plain" onClick={() => open('help')} aria-label="Help">
        <kbd>?</kbd>
      </button>
    </header>
  );
}

function TextForm({ store }: { store: Store }): JSX.Element {
  const [text, setText] = useState(store.state.text);
  useEffect(() => setText(store.state.text), [store.state.text]);
  if (!store.source.live) {
    return (
      <p class="grow recorded" dir="auto">
        {store.data?.run.text}
      </p>
    );
  }
  const run = (event: Event): void => {
    event.preventDefault();
    if (!text.trim()) return;
    const fresh: Partial<State> = { pin: -1, a: -1, b: -1, c: -1, hidden: [], zoom: [1, 0, 0] };
    void store.update(text === store.state.text && !store.state.tensors ? {} : { ...fresh, text, tensors: '' });
  };
  return (
    <form class="grow text" onSubmit={run}>
      <input type="text" aria-label="Text" dir="auto" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <button type="submit" class="main" disabled={store.busy && !store.data}>
        Run
      </button>
    </form>
  );
}

function Readings({ store }: { store: Store }): JSX.Element | null {
  const example = store.info?.examples[0];
  if (!example) return null;
  const here = store.state.text === example.text;
  return (
    <span class="readings" title={example.text}>
      {example.readings.map((reading, i) => (
        <button
          key={i}
          title={reading.name}
          aria-pressed={here && store.state.a >= 0 && (store.state.by === 'chain') === reading.links.length > 1}
          onClick={() => void showReading(store, example, i)}
        >
          Reading {i + 1}
        </button>
      ))}
    </span>
  );
}

function RunChoice({ store }: { store: Store }): JSX.Element {
  const choose = (run: string): void => void store.update({ tensors: run, pin: -1, a: -1, b: -1, c: -1, layer: 0, head: 0, zoom: [1, 0, 0] });
  return (
    <label class={store.info?.model ? '' : 'grow'}>
      <span class="unseen">Tensors</span>
      <select value={store.state.tensors} onChange={(event) => choose(event.currentTarget.value)}>
        {store.info?.model && <option value="">the text</option>}
        {store.info?.tensors?.runs.map((one) => (
          <option key={one.run} value={one.run}>
            {one.name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A sentence, whatever the server left out of one. */
const sentence = (text: string): string => text && text[0].toUpperCase() + text.slice(1).replace(/([^.!?…])$/, '$1.');

function Cut({ cut, which }: { cut: { read: number; of: number }; which: string }): JSX.Element {
  return (
    <p>
      The model has positions for {cut.read} pieces and {which} has {cut.of}: the last {cut.of - cut.read} were cut and are not seen here.
    </p>
  );
}

/** What has to be said before anything is read off the picture. */
export function Notes({ store }: { store: Store }): JSX.Element | null {
  const { problem, data, other, state } = store;
  const cut = data?.run.cut;
  const otherCut = state.against === 'text' ? other?.run.cut : null;
  if (!cut && !otherCut && !problem && store.source.live) return null;
  return (
    <aside class="notes" aria-label="Notes">
      {problem && (
        <p role="alert">
          <b>{sentence(problem.message)}</b> {sentence(problem.remedy)}
          {store.isStale && data?.run.text && (
            <>
              {' '}
              What is shown is still “<bdi>{data.run.text}</bdi>”{data.run.changed && Object.keys(data.run.changed).length ? ' with the changes before' : ''}.
            </>
          )}
        </p>
      )}
      {cut && <Cut cut={cut} which="the text" />}
      {otherCut && <Cut cut={otherCut} which="the second text" />}
      {!store.source.live && <p>A file with one recorded run: new texts and changes need mha serve.</p>}
    </aside>
  );
}
