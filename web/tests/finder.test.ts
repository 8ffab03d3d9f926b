import { describe, expect, it } from 'vitest';
import { distanceOf, findRelations, ranked, usualAt, weightsOf } from '../src/finder';
import { RunData } from '../src/run_data';
import { kDefaults } from '../src/state';
import { Table } from '../src/table';
import { fakeSource, runOf } from './fake_source';

const usual = Table.of([1, 2, 65], Float32Array.from({ length: 130 }, (_, i) => i / 1000));
// weight(layer, head, from, to): told apart by every argument.
const weight = (layer: number, head: number, from: number, to: number): number => (head ? 0.1 : 0.4) + layer * 0.01 + from * 0.001 + to * 0.002;

describe('the relation finder', () => {
  it('knows what is usual at a distance, and that far ones were not measured', () => {
    expect(usualAt(usual, 1, -32)).toBeCloseTo(0.065);
    expect(usualAt(usual, 0, 3)).toBeCloseTo(0.035);
    expect(usualAt(usual, 0, 33)).toBeNaN();
    expect(usualAt(null, 0, 1)).toBeNaN();
    expect(usualAt(usual, 0, NaN)).toBeNaN();
  });

  it('finds both directions, contrast, chain, lift and times of every head', () => {
    const found = findRelations([2], weight, { a: 2, b: 8, c: 5, distance: 6, usual, exact: true });
    expect(found.map((one) => one.head)).toEqual([[0, 0], [0, 1]]);
    const first = found[0];
    expect(first.weight).toBeCloseTo(0.418);
    expect(first.back).toBeCloseTo(0.412);
    expect(first.contrast).toBeCloseTo(0.006);
    expect(first.chain).toBeCloseTo(0.418);
    expect(first.lift).toBeCloseTo(0.418 - 0.038);
    expect(first.times).toBeCloseTo(0.418 / 0.038);
    expect(found[1].lift).toBeCloseTo(0.118 - 0.103);
    expect(found[1].times).toBeCloseTo(0.118 / 0.103);
  });

  it('divides no bytes, and knows no usual weight of a special token', () => {
    const bytes = findRelations([1], weight, { a: 2, b: 8, c: -1, distance: 6, usual, exact: false })[0];
    expect(bytes.times).toBeNaN();
    expect(bytes.lift).toBeCloseTo(0.38);
    const units = [true, false, false, true].map((special) => ({ text: '', special }));
    expect([distanceOf(units, 1, 2), distanceOf(units, 2, 1)]).toEqual([1, -1]);
    expect([distanceOf(units, 0, 1), distanceOf(units, 1, 3)]).toEqual([NaN, NaN]);
    const special = findRelations([1], weight, { a: 0, b: 1, c: -1, distance: NaN, usual, exact: true })[0];
    expect([special.lift, special.times]).toEqual([NaN, NaN]);
  });

  it('reads small weights from the rows of the words chosen, not from bytes', async () => {
    const { source } = fakeSource();
    const data = new RunData(source, await runOf(source, 'one two three four five six seven eight nine ten'));
    await data.loadWeights(0, 'word');
    const weights = weightsOf(data, kDefaults);
    const coarse = Array.from({ length: 12 }, (_, head) => weights(0, head, 1, 9));
    expect(coarse.every((value) => Number.isInteger(Math.round(value * 255 * 1e6) / 1e6))).toBe(true);
    expect(data.exactAt('word', [0, 0], 1, 9)).toBeUndefined();
    await data.loadExact('word', 1);
    const fine = Array.from({ length: 12 }, (_, head) => weights(0, head, 1, 9));
    expect(fine.some((value, head) => value > 0 && Math.abs(value - coarse[head]) > 0.05 * value)).toBe(true);
    fine.forEach((value, head) => expect(Math.abs(value - coarse[head])).toBeLessThan(0.5 / 255 + 2 ** -11));
    expect(weights(0, 3, 9, 1)).toBe(data.exactAt('word', [0, 3], 9, 1));
  });

  it('ranks by what is asked for; what cannot be said comes last', () => {
    const found = findRelations([2, 1], (l, h) => [[0.1, NaN], [0.3]][l][h], { a: 0, b: 1, c: -1, distance: 1, usual: null, exact: true });
    expect(ranked(found, 'weight').map((one) => one.head.join('.'))).toEqual(['1.0', '0.0', '0.1']);
    expect(ranked(found, 'contrast').every((one) => Number.isNaN(one.contrast))).toBe(true);
  });
});
