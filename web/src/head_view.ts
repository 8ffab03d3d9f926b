// What the detail shows of the selected head: its table as asked for (raw, sinks taken out, norms), or its difference from the other
// run's, with what was removed and what has to be said. The detail, the table, the live region and the saved files all read this.
import { useEffect, useState } from 'preact/hooks';
import type { Change, UnitLabel } from './contract';
import { difference, sinksOf, strongest, withoutSinks, type Link } from './matrix_math';
import type { RunData } from './run_data';
import type { State } from './state';
import type { Store } from './store';
import type { Matrix } from './table';

export interface HeadView {
  matrix: Matrix;
  queries: UnitLabel[];
  keys: UnitLabel[];
  /** What each row gave to sinks, where they are taken out. */
  removed: Float32Array | null;
  signed: boolean;
  /** The value of the strongest colour. */
  most: number;
  note: string;
  /** What it is a view of, as it was when it was asked for. */
  of: ViewOf;
}

export interface ViewOf extends Pick<State, 'layer' | 'head' | 'unit' | 'kind'> {
  text: string;
  changed: Change | null;
  /** What was subtracted: '' = nothing, the same text without the changes, or the second text. */
  against: State['against'];
  second: string | null;
}

/** The first of a few round numbers that holds them all. */
function roundMost(values: Float32Array): number {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  return [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10].find((n) => n >= most) ?? most;
}

async function matrixOf(data: RunData, state: State, exact: boolean): Promise<{ matrix: Matrix; removed: Float32Array | null }> {
  const { layer, head, unit, kind } = state;
  const matrix = await data.matrix(layer, head, unit, kind === 'norm' ? 'norm' : 'weight', exact);
  if (kind !== 'sinkless') return { matrix, removed: null };
  return withoutSinks(matrix, sinksOf(data.keys(unit), data.run.layers[layer].causal));
}

const kCoarse = 'This file holds these numbers in steps of 1/255 only; mha serve has them exactly.';

/** The view of the store's state; `exact` where its numbers are to be read or kept (a difference always is). */
export async function headView(store: Store, exact: boolean): Promise<HeadView> {
  const { data, other, state } = store;
  const { layer, head, unit, kind } = state;
  const { matrix, removed } = await matrixOf(data!, state, exact || other !== null);
  const of: ViewOf = { text: data!.run.text, changed: data!.run.changed, layer, head, unit, kind, against: '', second: null };
  const about = { queries: data!.queries(unit), keys: data!.keys(unit), removed, of };
  const plain = { ...about, matrix, signed: false, most: 1, note: exact && matrix.coarse ? kCoarse : '' };
  if (!other) return plain;
  const fits = other.queries(state.unit).length === matrix.rows && other.keys(state.unit).length === matrix.columns;
  const known = state.layer < other.run.layers.length && state.head < other.run.layers[state.layer].heads;
  if (!fits || !known) {
    const count = `${matrix.rows} and ${other.queries(state.unit).length} ${state.unit}s`;
    return { ...plain, note: `The two texts have ${count}, so their tables cannot be subtracted: this is the first one’s. Measures can: colour the atlas by one.` };
  }
  const signed = difference(matrix, (await matrixOf(other, state, true)).matrix);
  const what = state.against === 'before' ? 'with the changes − without' : 'this text − the second';
  of.against = state.against;
  of.second = state.against === 'text' ? other.run.text : null;
  return { ...about, matrix: signed, signed: true, most: roundMost(signed.values), note: `Difference: ${what}.` };
}

export interface Loaded {
  view: HeadView | null;
  problem: string;
}

/** The view of the store's state, as soon as it is there; the one before stays until then. */
export function useHeadView(store: Store): Loaded {
  const [loaded, set] = useState<Loaded>({ view: null, problem: '' });
  const { layer, head, unit, kind, against } = store.state;
  const exact = store.state.view === 'table';
  const { data, other } = store;
  useEffect(() => {
    if (!data || data.isLong(unit, data.run.layers[layer])) return set({ view: null, problem: '' });
    let wanted = true;
    headView(store, exact).then(
      (view) => wanted && set({ view, problem: '' }),
      (problem) => wanted && set({ view: null, problem: problem instanceof Error ? problem.message : String(problem) }),
    );
    return () => {
      wanted = false;
    };
  }, [data, other, layer, head, unit, kind, against, exact]);
  return loaded;
}

/** The strongest links of a view: at most `most`, none below a hundredth of the scale. */
export function linksOf(view: HeadView, most: number): Link[] {
  return strongest(view.matrix, most, view.most * 0.02);
}

/** A number as the readout gives it. */
export function weightText(value: number, signed: boolean): string {
  if (Number.isNaN(value)) return 'hidden';
  const text = value.toFixed(3);
  return signed && value > 0 ? `+${text}` : text.replace('-', '−');
}

/** "L5 H11: man → telescope 0.388", or what the row's strongest is. */
export function readout(store: Store, view: HeadView): string {
  const { layer, head } = store.state;
  const { key } = store.hover.value;
  const { matrix } = view;
  const active = store.active;
  const name = store.headName([layer, head]);
  const removed = active >= 0 && view.removed ? ` · ${view.removed[active].toFixed(3)} went to sinks` : '';
  const of = (i: number, j: number): string =>
    `${view.queries[i].text} → ${view.keys[j].text} ${weightText(matrix.values[i * matrix.columns + j], view.signed)}`;
  if (active >= matrix.rows || key >= matrix.columns) return name;
  if (active >= 0 && key >= 0) return `${name}: ${of(active, key)}${removed}`;
  if (active < 0) return name;
  let best = -1;
  for (let j = 0; j < matrix.columns; ++j) {
    const value = Math.abs(matrix.values[active * matrix.columns + j]);
    if (value > (best < 0 ? 0 : Math.abs(matrix.values[active * matrix.columns + best]))) best = j;
  }
  return best < 0 ? `${name}: ${view.queries[active].text} attends to nothing here${removed}` : `${name}: ${of(active, best)}${removed}`;
}
