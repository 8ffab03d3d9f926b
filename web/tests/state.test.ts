import { describe, expect, it } from 'vitest';
import { changeOf, decodeState, encodeState, kDefaults, type State } from '../src/state';

const kFull: State = {
  text: 'a & b = c # d\n<b>"é"</b> مرحبا',
  tensors: 'f00',
  unit: 'piece',
  layer: 3,
  head: 11,
  pin: 7,
  view: 'matrix',
  kind: 'sinkless',
  atlas: 'entropy',
  sorted: true,
  lift: true,
  panel: 'compare',
  a: 1,
  b: 2,
  c: 3,
  by: 'chain',
  zeroed: [[5, 11], [0, 3]],
  mean: [[1, 2]],
  hidden: [4, 6],
  temperature: 0.5,
  against: 'text',
  second: 'other = text',
  one: true,
  zoom: [2.5, 10.25, 0],
};

describe('state in the address', () => {
  it('keeps everything', () => {
    expect(decodeState(`#${encodeState(kFull)}`)).toEqual(kFull);
    for (const key of Object.keys(kDefaults) as (keyof State)[]) expect(kFull[key], key).not.toEqual(kDefaults[key]);
  });

  it('is empty for the defaults, and the defaults for an empty one', () => {
    expect(encodeState(kDefaults)).toBe('');
    expect(decodeState('')).toEqual(kDefaults);
  });

  it('takes a default for what is wrong', () => {
    const wrong = decodeState('#layer=-4&head=x&view=cube&unit=letter&zoom=0,1&zeroed=1,2.3,a.b,-1.2&temperature=-1&pin=99999999999&nonsense=1&__proto__=1');
    expect(wrong).toEqual({ ...kDefaults, zeroed: [[2, 3]] });
  });

  it('asks for no change where nothing is changed', () => {
    expect(changeOf(kDefaults)).toBeUndefined();
    expect(changeOf({ ...kDefaults, zeroed: [[1, 2]], temperature: 2 })).toEqual({ zeroed: [[1, 2]], temperature: 2 });
  });
});
