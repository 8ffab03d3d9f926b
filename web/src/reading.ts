// One reading of an example: its words in the finder and the head that holds its links most strongly, one click away.
import type { Example } from './contract';
import { findRelations, ranked, weightsOf } from './finder';
import type { State } from './state';
import type { Store } from './store';

/** Shows one reading of an example: its text, its words in the finder, and the head that holds its links most strongly. */
export async function showReading(store: Store, example: Example, index: number, how: 'push' | 'replace' = 'push'): Promise<void> {
  const reading = example.readings[index];
  const clean: Partial<State> = { zeroed: [], mean: [], hidden: [], temperature: 1, against: '' };
  const hash = location.hash;
  await store.update({ ...clean, text: example.text, tensors: '', unit: 'word', panel: 'find', atlas: 'row', kind: 'raw', zoom: [1, 0, 0] }, how);
  const { data } = store;
  if (!data) return;
  const place = (text: string): number => data.queries('word').findIndex((word) => word.text.toLowerCase() === text.toLowerCase());
  const [first, second] = reading.links;
  const [a, b, c] = [place(first[0]), place(first[1]), second ? place(second[1]) : -1];
  if (a < 0 || b < 0) return;
  const by = second ? 'chain' : 'weight';
  const heads = data.run.layers.map((layer) => layer.heads);
  const best = ranked(findRelations(heads, weightsOf(data, store.state), { a, b, c, distance: NaN, usual: null, exact: false }), by)[0];
  await store.update({ a, b, c, by, pin: a, layer: best.head[0], head: best.head[1] }, location.hash === hash ? how : 'replace');
}
