// The relation finder's arithmetic: every head's weight from A to B (and back, and to C), what is usual at that distance, and the ranking.
// Pure; panel_find.tsx shows it.
import type { Head, UnitLabel } from './contract';
import type { RunData } from './run_data';
import type { FindBy, State } from './state';
import type { Table } from './table';

export interface Found {
  head: Head;
  /** A -> B. */
  weight: number;
  /** B -> A. */
  back: number;
  /** A -> B less A -> C. */
  contrast: number;
  /** A -> B less what this head usually gives at that distance, and over it: as `mha find` has them. */
  lift: number;
  times: number;
  /** The lesser of A -> B and B -> C. */
  chain: number;
}

const kReach = 32;

/** What head `index` (by layer, then head) usually gives at a distance in words; NaN where it was not measured. */
export function usualAt(usual: Table | null, index: number, distance: number): number {
  if (!usual || !(Math.abs(distance) <= kReach)) return NaN;
  return usual.flat(index * (2 * kReach + 1) + distance + kReach);
}

type Weight = (layer: number, head: number, from: number, to: number) => number;

/** Weights by what is there, halves before bytes; NaN where nothing is. */
export function weightsOf(data: RunData, state: State): Weight {
  return (layer, head, from, to) => data.exactAt(state.unit, [layer, head], from, to) ?? data.weightAt(state.unit, [layer, head], from, to);
}

/** The signed distance in words; NaN where one of the two is a special token, which stands at no usual distance. */
export function distanceOf(units: UnitLabel[], a: number, b: number): number {
  return units[a]?.special || units[b]?.special ? NaN : b - a;
}

/** What is looked for. */
export interface Asked {
  a: number;
  b: number;
  c: number;
  distance: number;
  usual: Table | null;
  /** Whether weights are exact enough to be divided by what is usual: bytes are not. */
  exact: boolean;
}

export function findRelations(headsOf: number[], weight: Weight, { a, b, c, distance, usual, exact }: Asked): Found[] {
  const found: Found[] = [];
  headsOf.forEach((heads, layer) => {
    for (let head = 0; head < heads; ++head) {
      const there = weight(layer, head, a, b);
      const expected = usualAt(usual, found.length, distance);
      found.push({
        head: [layer, head],
        weight: there,
        back: weight(layer, head, b, a),
        contrast: c < 0 ? NaN : there - weight(layer, head, a, c),
        lift: there - expected,
        times: exact && expected > 0 ? there / expected : NaN,
        chain: c < 0 ? NaN : Math.min(there, weight(layer, head, b, c)),
      });
    }
  });
  return found;
}

/** The best first; what cannot be said comes last. */
export function ranked(found: Found[], by: FindBy): Found[] {
  const of = (one: Found): number => (Number.isNaN(one[by]) ? -Infinity : one[by]);
  return [...found].sort((x, y) => of(y) - of(x));
}
