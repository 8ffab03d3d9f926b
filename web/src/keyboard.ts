// Keys that work wherever the focus is, but in a field: the panels' own (arrows inside a grid or list) come first and stop there.
import type { Store } from './store';
import type { View } from './state';

const kViews: View[] = ['links', 'matrix', 'table'];

function inField(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return target.closest('input:not([type="radio"]):not([type="checkbox"]), select, textarea, dialog') !== null;
}

function moveWord(store: Store, by: number): void {
  const { data, state } = store;
  if (!data) return;
  const last = data.queries(state.unit).length - 1;
  const from = store.active;
  store.hover.set({ query: from < 0 ? (by > 0 ? 0 : last) : Math.max(0, Math.min(last, from + by)), key: -1 });
}

function moveHead(store: Store, layers: number, heads: number): void {
  const { data, state } = store;
  if (!data) return;
  const layer = Math.max(0, Math.min(data.run.layers.length - 1, state.layer + layers));
  const head = Math.max(0, Math.min(data.run.layers[layer].heads - 1, state.head + heads));
  const hovered = store.hover.value;
  void store.update({ layer, head }, 'replace');
  store.hover.set(hovered);
}

function pin(store: Store): void {
  const { query } = store.hover.value;
  if (query >= 0) void store.update({ pin: query === store.state.pin ? -1 : query });
}

/** Opens the finder, starting from the pinned word. */
function find(store: Store): void {
  const { pin: pinned, a } = store.state;
  void store.update({ panel: 'find', ...(pinned >= 0 && a < 0 ? { a: pinned } : {}) });
  requestAnimationFrame(() => document.getElementById(store.state.a < 0 ? 'find-a' : 'find-b')?.focus());
}

export function listenToKeys(store: Store, open: (dialog: 'save' | 'help') => void): () => void {
  const actions: Record<string, () => void> = {
    ArrowLeft: () => moveWord(store, -1),
    ArrowRight: () => moveWord(store, 1),
    ArrowUp: () => moveHead(store, 0, -1),
    ArrowDown: () => moveHead(store, 0, 1),
    '[': () => moveHead(store, -1, 0),
    ']': () => moveHead(store, 1, 0),
    Enter: () => pin(store),
    '/': () => find(store),
    x: () => store.canChange && store.toggle('zeroed', store.state.layer, store.state.head),
    v: () => void store.update({ view: kViews[(kViews.indexOf(store.state.view) + 1) % kViews.length] }),
    s: () => open('save'),
    '?': () => open('help'),
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === 'Escape' && !document.querySelector('dialog[open]')) {
      (document.activeElement as HTMLElement | null)?.blur();
      return void store.update({ pin: -1 });
    }
    if (inField(event) || !actions[event.key]) return;
    const target = event.target as HTMLElement;
    const own = target.closest('button, a, [type="radio"], [type="checkbox"], .scroller');
    if (own && (event.key === 'Enter' || event.key.startsWith('Arrow'))) return;
    actions[event.key]();
    event.preventDefault();
  };
  document.addEventListener('keydown', onKey);
  return () => document.removeEventListener('keydown', onKey);
}
