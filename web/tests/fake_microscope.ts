// A made-up server for working on the page and for its unit tests: answers the contract (docs/http-api.md) with tables that look like
// heads (previous, next, first, self, broad) for any text. Nothing here is a model; no figure is taken from it.
import type { Info, Run, Word } from '../src/contract';

export interface FakeReply {
  status: number;
  type: string;
  shape?: number[];
  dtype?: string;
  bytes: Uint8Array;
}

const kLayers = 6;
const kHeads = 12;
const runs = new Map<string, Run>();

const kInfo: Info = {
  version: 'made up',
  model: { name: 'made-up-model', family: 'bert', layers: kLayers, heads: kHeads, head_dim: 32, max_positions: 512 },
  tensors: null,
  examples: [
    {
      text: 'The man saw the astronomer with a telescope.',
      readings: [
        { name: 'the man has the telescope', links: [['man', 'telescope']] },
        { name: 'the astronomer has the telescope', links: [['man', 'astronomer'], ['astronomer', 'telescope']] },
      ],
    },
  ],
  measures: [
    { name: 'special', meaning: 'share given to special pieces', share: true },
    { name: 'entropy', meaning: 'entropy of the rows, in nats', share: false },
    { name: 'previous', meaning: 'share given to the previous unit', share: true },
    { name: 'distance', meaning: 'mean distance attended over', share: false },
  ],
  limits: { body: 1 << 20, tokens: 512, seconds: 10 },
};

function hash(text: string): number {
  let h = 2166136261;
  for (const letter of text) h = Math.imul(h ^ letter.codePointAt(0)!, 16777619) >>> 0;
  return h;
}

function noise(seed: number): number {
  let x = Math.imul(seed ^ (seed >>> 15), 0x2c1b3c6d);
  x = Math.imul(x ^ (x >>> 12), 0x297a2d39);
  return ((x ^ (x >>> 15)) >>> 0) / 4294967296;
}

function makeRun(body: string): Run {
  const { text, ...changed } = JSON.parse(body);
  const words: Word[] = [{ text: '[CLS]', first: 0, count: 1, special: true }];
  const read = (text as string).match(/[\p{L}\p{N}\p{M}]+|\p{Extended_Pictographic}|[^\s]/gu) ?? [];
  for (const word of read.slice(0, 510)) words.push({ text: word, first: words.length, count: 1, special: false });
  words.push({ text: '[SEP]', first: words.length, count: 1, special: true });
  const n = words.length;
  const layer = { heads: kHeads, kv_heads: kHeads, q_len: n, kv_len: n, causal: false, window: null };
  return {
    run: hash(body).toString(16),
    text,
    cut: read.length > 510 ? { read: 510, of: read.length } : null,
    layers: Array.from({ length: kLayers }, (_, l) => ({ name: `layer ${l}`, ...layer })),
    queries: { words, pieces: words.map((word, i) => ({ text: word.text, word: i, special: word.special })) },
    keys: null,
    output: Object.keys(changed).length ? { cosine: 0.973 } : null,
    changed,
    milliseconds: 12.3,
  };
}

/** One made-up row: a softmax of a head's taste and noise. */
function row(run: Run, layer: number, head: number, i: number): Float32Array {
  const n = run.queries.words.length;
  const taste = hash(`${layer} ${head}`) % 6;
  const out = new Float32Array(n);
  let sum = 0;
  for (let j = 0; j < n; ++j) {
    let score = 2 * noise(hash(run.queries.words[i].text) ^ hash(run.queries.words[j].text + layer * kHeads + head) ^ (i * 977 + j));
    if (taste === 0 && j === i - 1) score += 5;
    if (taste === 1 && j === i + 1) score += 4;
    if (taste === 2 && j === 0) score += 5;
    if (taste === 3 && j === n - 1) score += 6;
    if (taste === 4 && j === i) score += 3;
    sum += out[j] = Math.exp(score);
  }
  const zeroed = run.changed?.zeroed?.length ? 0.9 : 1;
  return out.map((value) => (value / sum) * zeroed + (1 - zeroed) / n);
}

function half(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  if (value < 2 ** -14) return Math.round(value * 2 ** 24);
  const exponent = Math.floor(Math.log2(value));
  return ((exponent + 15) << 10) + Math.round((value / 2 ** exponent - 1) * 1024);
}

function numbers(shape: number[], dtype: string, values: Float32Array): FakeReply {
  let bytes = new Uint8Array(values.buffer);
  if (dtype === 'u8') bytes = Uint8Array.from(values, (value) => Math.round(255 * value));
  if (dtype === 'f16') bytes = new Uint8Array(Uint16Array.from(values, half).buffer);
  return { status: 200, type: 'application/octet-stream', shape, dtype, bytes };
}

function json(value: unknown, status = 200): FakeReply {
  return { status, type: 'application/json', bytes: new TextEncoder().encode(JSON.stringify(value)) };
}

const perHead = (of: (layer: number, head: number) => number): number[][] =>
  Array.from({ length: kLayers }, (_, l) => Array.from({ length: kHeads }, (_, h) => of(l, h)));

function about(run: Run, what: string, given: URLSearchParams): FakeReply {
  const n = run.queries.words.length;
  const number = (name: string): number => Number(given.get(name));
  if (what === 'weights') {
    const out = new Float32Array(kHeads * n * n);
    for (let h = 0; h < kHeads; ++h) for (let i = 0; i < n; ++i) out.set(row(run, number('layer'), h, i), (h * n + i) * n);
    return numbers([kHeads, n, n], given.get('dtype') ?? 'f16', out);
  }
  if (what === 'row') {
    const out = new Float32Array(kLayers * kHeads * 2 * n);
    for (let head = 0; head < kLayers * kHeads; ++head) {
      const at = (i: number): Float32Array => row(run, Math.floor(head / kHeads), head % kHeads, i);
      out.set(at(number('index')), head * 2 * n);
      for (let i = 0; i < n; ++i) out[(head * 2 + 1) * n + i] = at(i)[number('index')];
    }
    return numbers([kLayers * kHeads, 2, n], 'f16', out);
  }
  if (what === 'map') {
    const [rows, columns] = [number('rows'), number('columns')];
    return numbers([rows, columns], 'f16', Float32Array.from({ length: rows * columns }, (_, i) => noise(i)));
  }
  if (what === 'measures') {
    return json({ values: Object.fromEntries(kInfo.measures.map((m) => [m.name, perHead((l, h) => noise(hash(m.name) + l * 50 + h))])) });
  }
  if (what === 'effects') return json({ values: perHead((l, h) => 0.02 * noise(l * 77 + h)) });
  return json({ error: `no ${what} here`, remedy: 'ask for what docs/http-api.md lists' }, 404);
}

export function respond(method: string, target: string, body: string): FakeReply {
  const url = new URL(target, 'http://made.up');
  if (url.pathname === '/api/info') return json(kInfo);
  if (url.pathname === '/api/usual') {
    return numbers([kLayers, kHeads, 65], 'f32', new Float32Array(kLayers * kHeads * 65).fill(0.05));
  }
  if (url.pathname === '/api/runs' && method === 'POST') {
    const run = makeRun(body);
    runs.set(run.run, run);
    return json(run);
  }
  const [, id, what] = /^\/api\/runs\/([^/]+)(?:\/(.*))?$/.exec(url.pathname) ?? [];
  const run = runs.get(id ?? '');
  if (!run) return json({ error: `no run ${id}`, remedy: 'post the text again' }, 404);
  return what ? about(run, what, url.searchParams) : json(run);
}
