import { describe, expect, it } from 'vitest';
import type { Layer, Units } from '../src/contract';
import { cellBounds, difference, distanceOf, hideMasked, sinksOf, strongest, thumbnail, withoutSinks } from '../src/matrix_math';
import { Table, type Matrix } from '../src/table';

const matrixOf = (rows: number[][]): Matrix => ({ rows: rows.length, columns: rows[0].length, values: Float32Array.from(rows.flat()) });
const piecesOf = (n: number): Units => ({ pieces: Array.from({ length: n }, (_, i) => ({ text: `p${i}`, word: i, special: false })), words: [] });
const layerOf = (about: Partial<Layer>): Layer => ({ name: '', heads: 1, kv_heads: 1, q_len: 4, kv_len: 4, causal: false, window: null, ...about });
const seen = (matrix: Matrix): string[] =>
  Array.from({ length: matrix.rows }, (_, i) =>
    Array.from(matrix.values.subarray(i * matrix.columns, (i + 1) * matrix.columns), (value) => (Number.isNaN(value) ? '.' : 'x')).join(''),
  );
const ones = (rows: number, columns: number): Matrix => ({ rows, columns, values: new Float32Array(rows * columns).fill(1) });

describe('what is hidden', () => {
  it('is nothing without a mask', () => {
    const matrix = ones(3, 3);
    hideMasked(matrix, layerOf({}), piecesOf(3), piecesOf(3), 'piece');
    expect(seen(matrix)).toEqual(['xxx', 'xxx', 'xxx']);
  });

  it('is what comes later, and what a window leaves behind', () => {
    const matrix = ones(4, 4);
    hideMasked(matrix, layerOf({ causal: true, window: [1, 0] }), piecesOf(4), piecesOf(4), 'piece');
    expect(seen(matrix)).toEqual(['x...', 'xx..', '.xx.', '..xx']);
  });

  it('stands at the end of the keys where aligned there', () => {
    const matrix = ones(2, 4);
    hideMasked(matrix, layerOf({ causal: true, q_len: 2, align: 'bottom-right' }), piecesOf(2), piecesOf(4), 'piece');
    expect(seen(matrix)).toEqual(['xxx.', 'xxxx']);
  });

  it('goes by whole words by word', () => {
    const words = [
      { text: 'a', first: 0, count: 2, special: false },
      { text: 'b', first: 2, count: 2, special: false },
    ];
    const matrix = ones(2, 2);
    hideMasked(matrix, layerOf({ causal: true }), { pieces: [], words }, { pieces: [], words }, 'word');
    expect(seen(matrix)).toEqual(['x.', 'xx']);
  });
});

describe('sinks', () => {
  const units = [{ text: '[CLS]', special: true }, { text: 'a', special: false }, { text: 'b', special: false }];
  it('are special units, and the first where causal', () => {
    expect(sinksOf(units, false)).toEqual([true, false, false]);
    expect(sinksOf(units.slice(1), true)).toEqual([true, false]);
  });

  it('are taken out, the rest divided by what is left, and what they got is told', () => {
    const { matrix, removed } = withoutSinks(matrixOf([[0.5, 0.25, 0.25], [1, 0, 0]]), [true, false, false]);
    expect(matrix.values[0]).toBeNaN();
    expect(Array.from(matrix.values.slice(1, 3))).toEqual([0.5, 0.5]);
    expect(Array.from(removed)).toEqual([0.5, 1]);
    expect(Array.from(matrix.values.slice(4))).toEqual([0, 0]);
  });
});

describe('strongest', () => {
  it('gives what sorting all would, for any size', () => {
    let seed = 7;
    const random = (): number => (seed = (seed * 48271) % 2147483647) / 2147483647;
    for (const [rows, columns, most] of [[1, 1, 1], [5, 7, 3], [40, 40, 25], [30, 60, 500]]) {
      const values = Float32Array.from({ length: rows * columns }, () => 2 * random() - 1);
      const got = strongest({ rows, columns, values }, most, 0.1).map(([i, j, value]) => [i * columns + j, value]);
      const all = Array.from(values, (value, i) => [i, value]).filter(([, value]) => Math.abs(value) >= Math.fround(0.1) || Math.abs(value) >= 0.1);
      all.sort((x, y) => Math.abs(y[1]) - Math.abs(x[1]));
      expect(got).toEqual(all.slice(0, most).reverse());
    }
  });

  it('leaves hidden cells out', () => {
    expect(strongest(matrixOf([[NaN, 0.5]]), 5, 0)).toEqual([[0, 1, 0.5]]);
  });
});

describe('pooling', () => {
  it('cells cover everything once where there are enough places', () => {
    for (const [cells, length] of [[3, 10], [7, 7], [36, 512]]) {
      const bounds = Array.from({ length: cells }, (_, i) => cellBounds(i, cells, length));
      expect(bounds[0][0]).toBe(0);
      expect(bounds[cells - 1][1]).toBe(length);
      bounds.slice(1).forEach(([from], i) => expect(from).toBe(bounds[i][1]));
    }
    expect(cellBounds(4, 10, 3)).toEqual([1, 2]);
  });

  it('a thumbnail holds the largest of each cell of its head', () => {
    const bytes = Uint8Array.from([0, 0, 0, 0, 9, 1, 2, 3]);
    expect(Array.from(thumbnail(Table.decode([2, 2, 2], 'u8', bytes), 1, 1, 2))).toEqual([9, 3]);
  });
});

describe('differences', () => {
  it('are signed; hidden on both sides stays hidden', () => {
    expect(Array.from(difference(matrixOf([[1, NaN, NaN]]), matrixOf([[0.25, 0.5, NaN]])).values)).toEqual([0.75, -0.5, NaN]);
  });

  it('of tables: the share of each row that moved', () => {
    const a = Table.decode([1, 1, 2], 'u8', Uint8Array.from([255, 0]));
    const b = Table.decode([1, 1, 2], 'u8', Uint8Array.from([0, 255]));
    expect(distanceOf(a, b, 0)).toBe(1);
    expect(distanceOf(a, a, 0)).toBe(0);
    expect(distanceOf(a, Table.decode([1, 2, 1], 'u8', Uint8Array.from([1, 2])), 0)).toBeNaN();
  });
});
