import { afterEach, describe, expect, it, vi } from 'vitest';
import { RunData } from '../src/run_data';
import { csvOf } from '../src/save';
import { Source, type Snapshot } from '../src/source';
import { boxOf, levelFor, tilesIn } from '../src/tiles';
import type { Info, Run } from '../src/contract';
import { respond } from './fake_microscope';

/** The made-up server, recorded as a self-contained file would hold it. */
function recordedFile(): Snapshot {
  const run = JSON.parse(new TextDecoder().decode(respond('POST', '/api/runs', '{"text":"a <b> c"}').bytes)) as Run;
  const targets = ['/api/info', `/api/runs/${run.run}`, `/api/runs/${run.run}/weights?layer=0&unit=word&dtype=u8&kind=weight`];
  const responses: Snapshot['responses'] = {};
  for (const target of targets) {
    const reply = respond('GET', target, '');
    const shape = reply.shape ?? null;
    responses[`GET ${target}`] = { type: reply.type, shape, dtype: reply.dtype ?? null, body: Buffer.from(reply.bytes).toString('base64') };
  }
  return { responses, state: 'layer=0' };
}

afterEach(() => vi.unstubAllGlobals());

describe('a self-contained file', () => {
  it('answers what it holds and says what it does not', async () => {
    const source = Source.ofSnapshot(recordedFile());
    expect(source.live).toBe(false);
    expect((await source.json<Info>('GET', '/api/info')).model?.layers).toBe(6);
    const run = await source.json<Run>('GET', source.onlyRun());
    expect(run.queries.words.map((word) => word.text)).toContain('<');
    await expect(source.table(`/api/runs/${run.run}/row?index=0`)).rejects.toThrow('does not hold');
  });

  it('shows a head by its bytes where it has no halves', async () => {
    const source = Source.ofSnapshot(recordedFile());
    const data = new RunData(source, await source.json<Run>('GET', source.onlyRun()));
    const matrix = await data.matrix(0, 3, 'word', 'weight');
    const sums = Array.from({ length: matrix.rows }, (_, i) => matrix.values.subarray(i * matrix.columns, (i + 1) * matrix.columns).reduce((x, y) => x + y, 0));
    for (const sum of sums) expect(Math.abs(sum - 1)).toBeLessThan(matrix.columns / 510);
    await expect(data.matrix(0, 3, 'word', 'norm')).rejects.toThrow('does not hold');
  });
});

describe('the server', () => {
  it('is asked once for a table, and again after a failure', async () => {
    let calls = 0;
    vi.stubGlobal('fetch', async (target: string) => {
      ++calls;
      if (calls === 1) return new Response('{"error":"no","remedy":"wait"}', { status: 503 });
      const reply = respond('GET', target, '');
      return new Response(reply.bytes as BodyInit, { headers: { 'X-Mha-Shape': reply.shape!.join(','), 'X-Mha-Dtype': reply.dtype! } });
    });
    vi.stubGlobal('document', { getElementById: () => null });
    const run = JSON.parse(new TextDecoder().decode(respond('POST', '/api/runs', '{"text":"one two"}').bytes)) as Run;
    const data = new RunData(Source.ofPage(), run);
    await expect(data.loadWeights(1, 'word')).rejects.toMatchObject({ status: 503, message: 'no', remedy: 'wait' });
    await Promise.all([data.loadWeights(1, 'word'), data.loadWeights(1, 'word')]);
    expect(calls).toBe(2);
    expect(data.weights(1, 'word')?.shape).toEqual([12, 4, 4]);
    expect(data.source.received).toBeGreaterThan(12 * 16);
  });

  it('that is busy is asked again', async () => {
    vi.useFakeTimers();
    let calls = 0;
    vi.stubGlobal('fetch', async () => (++calls < 3 ? new Response('{}', { status: 429 }) : new Response('{"a":1}')));
    vi.stubGlobal('document', { getElementById: () => null });
    const answer = Source.ofPage().json('GET', '/api/info');
    await vi.advanceTimersByTimeAsync(2500);
    expect(await answer).toEqual({ a: 1 });
    vi.useRealTimers();
  });

  it('that is gone is said in words', async () => {
    vi.stubGlobal('fetch', async () => {
      throw new TypeError('failed');
    });
    vi.stubGlobal('document', { getElementById: () => null });
    await expect(Source.ofPage().json('GET', '/api/info')).rejects.toMatchObject({ status: 0, remedy: expect.stringContaining('mha serve') });
  });
});

describe('tiles', () => {
  it('cover the box in view, at a level where a cell is about a pixel', () => {
    expect([0.1, 1, 2, 200].map(levelFor)).toEqual([0, 0, 1, 8]);
    const tiles = tilesIn(1, { top: 600, bottom: 1100, left: 0, right: 512 });
    expect(tiles.map(({ row, column }) => [row, column])).toEqual([[1, 0], [2, 0]]);
    expect(boxOf(tiles[1], 1100, 400)).toEqual({ top: 1024, bottom: 1100, left: 0, right: 400 });
  });
});

describe('CSV', () => {
  it('quotes words and leaves hidden cells out', () => {
    const units = [{ text: 'a "b", c', special: false }];
    const view = { matrix: { rows: 1, columns: 1, values: Float32Array.of(0.5) }, queries: units, keys: units, removed: null, signed: false, most: 1, note: '' };
    expect(csvOf(view)).toBe('from_index,from,to_index,to,weight\r\n0,"a ""b"", c",0,"a ""b"", c",0.5\r\n');
    expect(csvOf({ ...view, matrix: { rows: 1, columns: 1, values: Float32Array.of(NaN) } })).toBe('from_index,from,to_index,to,weight\r\n');
  });
});
