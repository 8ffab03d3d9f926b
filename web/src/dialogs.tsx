// The two dialogs: what to save, and help. Native <dialog>: focus goes in and comes back, Esc closes.
import { useEffect, useRef } from 'preact/hooks';
import type { ComponentChildren, JSX } from 'preact';
import { headView } from './head_view';
import { save, type Form } from './save';
import { encodeState } from './state';
import type { Store } from './store';

function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => element.current?.showModal(), []);
  return (
    <dialog ref={element} aria-label={title} onClose={close} onClick={(event) => event.target === element.current && element.current?.close()}>
      <div class="sheet">
        <div class="bar">
          <h2 class="grow">{title}</h2>
          <button onClick={() => element.current?.close()}>Close</button>
        </div>
        {children}
      </div>
    </dialog>
  );
}

const kForms: { form: Form; name: string; about: string }[] = [
  { form: 'svg', name: 'SVG', about: 'the picture, as vectors' },
  { form: 'png', name: 'PNG', about: 'the picture, as pixels' },
  { form: 'csv', name: 'CSV', about: 'every weight of this head to four digits, a line each' },
  { form: 'json', name: 'JSON', about: 'words and the table of this head' },
];

export function SaveDialog({ store, close }: { store: Store; close: () => void }): JSX.Element {
  const keep = async (form: Form): Promise<void> => {
    try {
      await save({ store, view: await headView(store, form === 'csv' || form === 'json') }, form);
      close();
    } catch (problem) {
      store.report(problem);
      close();
    }
  };
  const { layer, head } = store.state;
  const long = store.data?.isLong(store.state.unit) ?? false;
  return (
    <Dialog title={`Save ${store.headName([layer, head])}`} close={close}>
      {long && <p class="hint">This text is too long for its tables to be sent whole: mha export --form png writes a map of any size.</p>}
      <div class="choices">
        {!long &&
          kForms.map(({ form, name, about }) => (
            <button key={form} onClick={() => void keep(form)}>
              <b>{name}</b> <span class="quiet">{about}</span>
            </button>
          ))}
        {store.source.live && store.data && (
          <a class="button" href={store.data.pageFile(encodeState(store.state))} download="mha.html">
            <b>HTML</b> <span class="quiet">this page with this run in one file: opens without a server</span>
          </a>
        )}
      </div>
    </Dialog>
  );
}

const kKeys: [string, string][] = [
  ['← →', 'previous, next word'],
  ['↑ ↓', 'previous, next head (in the atlas: all four move)'],
  ['[ ]', 'previous, next layer'],
  ['Enter', 'pin the word'],
  ['Esc', 'unpin'],
  ['/', 'find heads that link two words'],
  ['x', 'zero the selected head, or give it back'],
  ['v', 'links, matrix, table'],
  ['+ − 0', 'zoom the matrix (when it has the focus); then arrows move it'],
  ['s', 'save'],
  ['?', 'this help'],
];

export function HelpDialog({ store, close }: { store: Store; close: () => void }): JSX.Element {
  const { info } = store;
  return (
    <Dialog title="Help" close={close}>
      <p>
        Point at a word: every head shows at once where that word looks. Click it to keep it. Choose a head in the atlas to see it large.
      </p>
      <dl class="keys">
        {kKeys.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p>
        A weight says where a head reads, not what it does with it: weight is not importance. Zero the head to see what the output owes to it. Heads
        need not mean anything; what is seen here is one model on one text.
      </p>
      <p>
        Tables are sent as bytes (steps of 0.004) for the atlas, with three digits for the selected head where the text is short, and
        wherever its numbers are read, subtracted or saved. By word, a weight is
        summed over the pieces of the word attended to and averaged over those of the word that attends.
      </p>
      <label class="check">
        <input type="checkbox" checked={store.state.one} onChange={() => store.update({ one: !store.state.one }, 'replace')} /> count layers and heads
        from 1
      </label>
      <p class="quiet">
        mha {info?.version} {store.source.live && <a href="/notices.txt">Notices of the parts made by others</a>}
      </p>
    </Dialog>
  );
}
