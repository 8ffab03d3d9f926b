// Arithmetic on one head's table: what is hidden, sinks taken out, differences, the strongest links, pooling. Pure; no drawing.
import type { Layer, UnitKind, UnitLabel, Units } from './contract';
import type { Matrix, Table } from './table';

/** Marks as NaN what a causal mask or a window hides, where a table of bytes could not say so. */
export function hideMasked(matrix: Matrix, layer: Layer, queries: Units, keys: Units, unit: UnitKind): void {
  if (!layer.causal && !layer.window) return;
  const spans = (units: Units): [number, number][] =>
    unit === 'word' ? units.words.map((word) => [word.first, word.first + word.count - 1]) : units.pieces.map((_, i) => [i, i]);
  const shift = /right/.test(String(layer.align ?? '')) ? layer.kv_len - layer.q_len : 0;
  const [before, after] = windowOf(layer);
  const ofQueries = spans(queries);
  const ofKeys = spans(keys);
  for (let i = 0; i < matrix.rows; ++i) {
    const [firstQuery, lastQuery] = ofQueries[i].map((place) => place + shift);
    for (let j = 0; j < matrix.columns; ++j) {
      const [firstKey, lastKey] = ofKeys[j];
      if (firstKey > lastQuery + after || lastKey < firstQuery - before) matrix.values[i * matrix.columns + j] = NaN;
    }
  }
}

function windowOf(layer: Layer): [before: number, after: number] {
  let before = Infinity;
  let after = layer.causal ? 0 : Infinity;
  if (typeof layer.window === 'number' && layer.window >= 0) before = layer.window;
  if (Array.isArray(layer.window)) {
    if (layer.window[0] >= 0) before = layer.window[0];
    if (layer.window[1] >= 0) after = Math.min(after, layer.window[1]);
  }
  return [before, after];
}

/** Which keys are sinks: special units, and the first key where attention is causal. */
export function sinksOf(keys: UnitLabel[], causal: boolean): boolean[] {
  return keys.map((key, i) => key.special || (causal && i === 0));
}

/** The table without its sinks, each row divided by what is left; `removed` is what each row gave to sinks. */
export function withoutSinks(matrix: Matrix, sinks: boolean[]): { matrix: Matrix; removed: Float32Array } {
  const out = new Float32Array(matrix.values);
  const removed = new Float32Array(matrix.rows);
  for (let i = 0; i < matrix.rows; ++i) {
    const row = out.subarray(i * matrix.columns, (i + 1) * matrix.columns);
    let total = 0;
    row.forEach((value, j) => {
      if (Number.isNaN(value)) return;
      total += value;
      if (sinks[j]) removed[i] += value;
    });
    const left = total - removed[i];
    row.forEach((value, j) => {
      row[j] = sinks[j] ? NaN : left > 1e-6 ? value / left : value;
    });
  }
  return { matrix: { ...matrix, values: out }, removed };
}

/** a - b, cell by cell; a cell hidden on both sides stays hidden, one hidden on one side counts as 0 there. */
export function difference(a: Matrix, b: Matrix): Matrix {
  const values = a.values.map((value, i) => {
    const other = b.values[i];
    if (Number.isNaN(value) && Number.isNaN(other)) return NaN;
    return (Number.isNaN(value) ? 0 : value) - (Number.isNaN(other) ? 0 : other);
  });
  return { ...a, values, coarse: a.coarse || b.coarse };
}

export type Link = [from: number, to: number, value: number];

/** The `most` cells of largest magnitude that reach `least`, the strongest last (so that they are drawn on top). */
export function strongest(matrix: Matrix, most: number, least: number): Link[] {
  const links: Link[] = [];
  let bar = least;
  for (let i = 0; i < matrix.values.length; ++i) {
    const value = matrix.values[i];
    if (!(Math.abs(value) >= bar)) continue;
    links.push([Math.floor(i / matrix.columns), i % matrix.columns, value]);
    if (links.length < 4 * most) continue;
    links.sort((x, y) => Math.abs(y[2]) - Math.abs(x[2]));
    links.length = most;
    bar = Math.abs(links[most - 1][2]);
  }
  links.sort((x, y) => Math.abs(y[2]) - Math.abs(x[2]));
  return links.slice(0, most).reverse();
}

/** Bounds of cell `i` of `cells` over `length` places: never empty, together all of it. */
export function cellBounds(i: number, cells: number, length: number): [number, number] {
  const from = Math.floor((i * length) / cells);
  return [from, Math.max(from + 1, Math.floor(((i + 1) * length) / cells))];
}

/** The largest of each cell of a rows x columns picture of one head of a byte table, as steps of a palette. */
export function thumbnail(table: Table, head: number, rows: number, columns: number): Uint8Array {
  const [, queries, keys] = table.shape;
  const out = new Uint8Array(rows * columns);
  const raw = table.raw as Uint8Array;
  const base = head * queries * keys;
  for (let r = 0; r < rows; ++r) {
    const [top, bottom] = cellBounds(r, rows, queries);
    for (let c = 0; c < columns; ++c) {
      const [left, right] = cellBounds(c, columns, keys);
      let most = 0;
      for (let i = top; i < bottom; ++i) {
        const row = base + i * keys;
        for (let j = left; j < right; ++j) if (raw[row + j] > most) most = raw[row + j];
      }
      out[r * columns + c] = most;
    }
  }
  return out;
}

/** Mean absolute difference of two heads' tables of bytes, 0 to 1; NaN where their shapes differ. */
export function distanceOf(a: Table, b: Table, head: number): number {
  if (a.shape.join() !== b.shape.join()) return NaN;
  const [, rows, columns] = a.shape;
  let sum = 0;
  const from = head * rows * columns;
  for (let i = from; i < from + rows * columns; ++i) sum += Math.abs(a.flat(i) - b.flat(i));
  return sum / Math.max(1, 2 * rows);
}
