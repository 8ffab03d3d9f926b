import { describe, expect, it } from 'vitest';
import { findRelations, ranked, usualAt } from '../src/finder';
import { Table } from '../src/table';

const usual = Table.of([1, 2, 65], Float32Array.from({ length: 130 }, (_, i) => i / 1000));
// weight(layer, head, from, to): told apart by every argument.
const weight = (layer: number, head: number, from: number, to: number): number => (head ? 0.1 : 0.4) + layer * 0.01 + from * 0.001 + to * 0.002;

describe('the relation finder', () => {
  it('knows what is usual at a distance, and that far ones were not measured', () => {
    expect(usualAt(usual, 1, -32)).toBeCloseTo(0.065);
    expect(usualAt(usual, 0, 3)).toBeCloseTo(0.035);
    expect(usualAt(usual, 0, 33)).toBeNaN();
    expect(usualAt(null, 0, 1)).toBeNaN();
  });

  it('finds both directions, contrast, chain and lift of every head', () => {
    const found = findRelations([2], weight, { a: 2, b: 8, c: 5 }, usual);
    expect(found.map((one) => one.head)).toEqual([[0, 0], [0, 1]]);
    const first = found[0];
    expect(first.weight).toBeCloseTo(0.418);
    expect(first.back).toBeCloseTo(0.412);
    expect(first.contrast).toBeCloseTo(0.006);
    expect(first.chain).toBeCloseTo(0.418);
    expect(first.lift).toBeCloseTo(0.418 / 0.038);
    expect(found[1].lift).toBeCloseTo(0.118 / 0.103);
  });

  it('ranks by what is asked for; what cannot be said comes last', () => {
    const found = findRelations([2, 1], (l, h) => [[0.1, NaN], [0.3]][l][h], { a: 0, b: 1, c: -1 }, null);
    expect(ranked(found, 'weight').map((one) => one.head.join('.'))).toEqual(['1.0', '0.0', '0.1']);
    expect(ranked(found, 'contrast').every((one) => Number.isNaN(one.contrast))).toBe(true);
  });
});
