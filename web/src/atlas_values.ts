// One number per head for the atlas: a measure, the effect of taking the head out, the link of the finder, or how much it differs from
// the run compared with. Pure but for reading the store.
import { kViridis, type Palette, type Theme } from './colour';
import type { Head } from './contract';
import { distanceOf } from './matrix_math';
import type { Store } from './store';

export interface AtlasValues {
  values: number[][];
  least: number;
  most: number;
  palette: Palette;
  meaning: string;
}

export interface AtlasChoice {
  value: string;
  name: string;
}

/** What the atlas can be coloured by, as things stand. */
export function atlasChoices(store: Store): AtlasChoice[] {
  const measures = store.info?.measures.filter((measure) => !store.data?.measures || measure.name in store.data.measures) ?? [];
  return [
    { value: 'row', name: 'tables, or the word under the pointer' },
    { value: 'link', name: 'link from the word to the pinned one' },
    ...measures.map((measure) => ({ value: measure.name, name: measure.name })),
    ...(store.info?.model && !store.state.tensors && store.data?.hasEffects ? [{ value: 'effect', name: 'effect: output moves without the head' }] : []),
    ...(store.other ? [{ value: 'difference', name: 'difference of tables' }] : []),
  ];
}

const largest = (values: number[][]): number => Math.max(1e-9, ...values.flat().filter(Number.isFinite).map(Math.abs));

/** Weights from `from` to `to`, per head; null where nothing is chosen. */
export function linkValues(store: Store, from: number, to: number): number[][] | null {
  const { data, state } = store;
  if (!data || from < 0 || to < 0) return null;
  return data.run.layers.map((layer, l) => Array.from({ length: layer.heads }, (_, h) => data.weightAt(state.unit, [l, h], from, to)));
}

/** The link that the atlas shows: from the word under the pointer to the pinned one, else the finder's. */
function linkShown(store: Store): [number, number] {
  const { pin, a, b } = store.state;
  const { query } = store.hover.value;
  if (pin >= 0 && query >= 0 && query !== pin) return [query, pin];
  return [a, b];
}

function differenceValues(store: Store): number[][] | null {
  const { data, other, state } = store;
  if (!data || !other) return null;
  return data.run.layers.map((layer, l) => {
    const [mine, theirs] = [data.weights(l, state.unit), other.weights(l, state.unit)];
    return Array.from({ length: layer.heads }, (_, h) => (mine && theirs ? distanceOf(mine, theirs, h) : NaN));
  });
}

/** null, which stands for what has no meaning here, as NaN. */
const numbersOf = (values?: (number | null)[][]): number[][] | null => values?.map((row) => row.map((value) => value ?? NaN)) ?? null;

/** A measure of this run, or its signed difference from the run compared with. */
function measureValues(store: Store, name: string, theme: Theme): AtlasValues | null {
  const values = numbersOf(store.data?.measures?.[name]);
  if (!values) return null;
  const about = store.info?.measures.find((measure) => measure.name === name);
  const read = store.data?.rowsRead;
  const meaning = `${about?.meaning ?? name}${read ? ` (of ${read.read} rows of ${read.of})` : ''}`;
  const others = numbersOf(store.other?.measures?.[name]);
  if (!others) return { values, least: 0, most: about?.share ? 1 : largest(values), palette: kViridis, meaning };
  const signed = values.map((row, l) => row.map((value, h) => value - (others[l]?.[h] ?? NaN)));
  const most = largest(signed);
  return { values: signed, least: -most, most, palette: theme.signed, meaning: `the difference: ${meaning}` };
}

/** What colours the cells, or null where the atlas shows tables. */
export function atlasValues(store: Store, theme: Theme): AtlasValues | null {
  const mode = store.state.atlas;
  if (mode === 'row') return null;
  if (mode === 'link') {
    const values = linkValues(store, ...linkShown(store));
    return values && { values, least: 0, most: 1, palette: kViridis, meaning: 'weight of that link' };
  }
  if (mode === 'effect') {
    const values = numbersOf(store.data?.effects?.effect);
    return values ? { values, least: 0, most: largest(values), palette: kViridis, meaning: '1 - cosine of the output with and without the head' } : null;
  }
  if (mode === 'difference') {
    const values = differenceValues(store);
    return values && { values, least: 0, most: largest(values), palette: kViridis, meaning: 'share of each row that moved, on the mean' };
  }
  return measureValues(store, mode, theme);
}

/** Heads from the largest value down. */
export function sortedHeads(values: number[][]): Head[] {
  const heads = values.flatMap((row, l) => row.map((_, h): Head => [l, h]));
  const of = ([l, h]: Head): number => (Number.isFinite(values[l][h]) ? values[l][h] : -Infinity);
  return heads.sort((x, y) => of(y) - of(x));
}
