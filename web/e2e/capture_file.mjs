// Writes a small capture (docs/formats.md) of made-up causal heads that share keys, for what the page shows of tensors of any origin and
// length. The numbers come from a fixed seed.
import { writeFileSync } from 'node:fs';

function random(seed) {
  let state = seed;
  return () => (state = (state * 48271) % 2147483647) / 2147483647 - 0.5;
}

/** Log-sum-exp of each causal row, [heads, length]. */
function logSums(q, k, { heads, kvHeads, length, dim }, scale) {
  const out = new Float32Array(heads * length);
  const scores = new Float64Array(length);
  for (let h = 0; h < heads; ++h) {
    const kv = Math.floor((h * kvHeads) / heads);
    for (let i = 0; i < length; ++i) {
      let most = -Infinity;
      for (let j = 0; j <= i; ++j) {
        let score = 0;
        for (let d = 0; d < dim; ++d) score += q[(h * length + i) * dim + d] * k[(kv * length + j) * dim + d];
        scores[j] = score * scale;
        if (scores[j] > most) most = scores[j];
      }
      let sum = 0;
      for (let j = 0; j <= i; ++j) sum += Math.exp(scores[j] - most);
      out[h * length + i] = most + Math.log(sum);
    }
  }
  return out;
}

export function writeCapture(path, { layers, heads, kvHeads, length, dim }) {
  const next = random(7);
  const tensors = [];
  const about = [];
  const scale = 1 / Math.sqrt(dim);
  for (let l = 0; l < layers; ++l) {
    const q = Float32Array.from({ length: heads * length * dim }, () => 4 * next());
    const k = Float32Array.from({ length: kvHeads * length * dim }, () => 4 * next());
    const lse = logSums(q, k, { heads, kvHeads, length, dim }, scale);
    tensors.push([`layers.${l}.q`, [1, heads, length, dim], q], [`layers.${l}.k`, [1, kvHeads, length, dim], k], [`layers.${l}.lse`, [1, heads, length], lse]);
    about.push({
      name: `decoder.${l}`, heads, kv_heads: kvHeads, head_dim: dim, q_len: length, kv_len: length, scale, softcap: null, causal: true, window: null,
      align: 'top_left', allowed: null, bias: null, sinks: null, queries: null, keys: null,
    });
  }
  const header = { __metadata__: { format: 'mha.capture', version: '1', model: 'made up', architecture: 'none', layers: JSON.stringify(about) } };
  let at = 0;
  for (const [name, shape, values] of tensors) {
    header[name] = { dtype: 'F32', shape, data_offsets: [at, at + values.byteLength] };
    at += values.byteLength;
  }
  const json = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(json.length));
  writeFileSync(path, Buffer.concat([size, json, ...tensors.map(([, , values]) => Buffer.from(values.buffer))]));
}
