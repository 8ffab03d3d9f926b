// What is saved and subtracted is never made of bytes, however long the text; and a file says what it is of.
import { describe, expect, it } from 'vitest';
import { headView } from '../src/head_view';
import { RunData } from '../src/run_data';
import { csvOf, jsonOf, save } from '../src/save';
import { kDefaults, type State } from '../src/state';
import type { Store } from '../src/store';
import { fakeSource, runOf } from './fake_source';

const longText = 'The quick brown fox jumps over the lazy dog and runs. '.repeat(20);  // 12 heads of it are more than 2^19 cells

async function shown(patch: Partial<State>, texts: string[], live = true): Promise<{ store: Store; asked: string[] }> {
  const { source, asked } = fakeSource(live);
  const [data, other = null] = await Promise.all(texts.map(async (text) => new RunData(source, await runOf(source, text))));
  return { store: { state: { ...kDefaults, ...patch }, data, other, info: null, headName: () => 'L0 H0' } as unknown as Store, asked };
}

const rowSums = (csv: string): number[] => {
  const sums: number[] = [];
  for (const line of csv.trim().split('\r\n').slice(1)) {
    const [from, weight] = [Number(line.split(',')[0]), Number(line.split(',').at(-1))];
    sums[from] = (sums[from] ?? 0) + weight;
  }
  return sums;
};

describe('numbers of a long text', () => {
  it('are saved from halves: every row sums to 1', async () => {
    const { store, asked } = await shown({ text: 'not the run that is shown' }, [longText]);
    const view = await headView(store, true);
    expect(view.matrix.rows).toBeGreaterThan(210);
    expect(asked.some((target) => target.includes('dtype=u8'))).toBe(false);
    // 222 weights, each within 2^-11 of itself, and the digits cut: the row is within 1e-3 of 1.
    for (const sum of rowSums(csvOf(view))) expect(Math.abs(sum - 1)).toBeLessThan(1e-3);
    const json = JSON.parse(jsonOf({ store, view }));
    expect([json.text, json.difference, json.against, json.second]).toEqual([longText, false, null, null]);
    expect(Math.max(...json.weights.flat().map((value: number) => String(value).replace(/e.*|\.|^0\.0*/g, '').length))).toBeLessThanOrEqual(4);
  });

  it('are subtracted as halves, and the file says from what', async () => {
    const second = longText.replace('quick', 'slow');
    const { store, asked } = await shown({ against: 'text', second: 'typed since' }, [longText, second]);
    const view = await headView(store, false);
    expect(asked.filter((target) => target.includes('/weights')).every((target) => target.includes('dtype=f16'))).toBe(true);
    const json = JSON.parse(jsonOf({ store, view }));
    expect([json.difference, json.against, json.second]).toEqual([true, 'text', second]);
    expect(json.weights.flat().every((value: number) => Math.abs(value * 1e4 - Math.round(value * 1e4)) < 1e-6)).toBe(true);
  });

  it('come as bytes where only colours are wanted', async () => {
    const { store, asked } = await shown({}, [longText]);
    expect((await headView(store, false)).matrix.coarse).toBe(true);
    expect(asked.some((target) => target.includes('dtype=f16'))).toBe(false);
  });

  it('are not saved where a self-contained file has but bytes', async () => {
    const { store } = await shown({}, [longText], false);
    const view = await headView(store, true);
    expect(view.note).toMatch(/steps of 1\/255/);
    await expect(save({ store, view }, 'csv')).rejects.toThrow(/too coarse/);
  });
});
