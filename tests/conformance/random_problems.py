"""Random problems for ai.onnx Attention, com.microsoft.MultiHeadAttention and com.microsoft.GroupQueryAttention: any form their texts
allow, in small sizes, many of them odd. Used by onnxruntime_live.py; problem n of a seed is the same whatever else is drawn."""

import dataclasses

import numpy as np

LENGTHS = [1, 1, 1, 2, 2, 3, 3, 4, 5, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65, 130]
DIMS = [1, 2, 3, 4, 5, 7, 8, 8, 11, 16, 16, 24, 33, 64]


@dataclasses.dataclass
class Case:
    op: str
    domain: str
    opset: int
    attrs: dict
    inputs: dict  # name -> array, in the operator's order; None = absent
    outputs: list  # names in the operator's order, "" = absent

    def __str__(self):
        shapes = {n: f"{x.dtype}{list(x.shape)}" for n, x in self.inputs.items() if x is not None}
        return f"{self.op}-{self.opset} {self.attrs} {shapes} -> {[o for o in self.outputs if o]}"


class Draw:
    """Numbers for one problem."""

    def __init__(self, seed, number):
        self.rng = np.random.default_rng([seed, number])

    def chance(self, p):
        return self.rng.random() < p

    def one(self, options):
        return options[int(self.rng.integers(len(options)))]

    def between(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def normal(self, *shape, dtype=np.float32):
        return self.rng.standard_normal(shape).astype(dtype)

    def some_axes(self, shape):
        """The shape with some axes 1, to broadcast."""
        return [1 if self.chance(0.3) else size for size in shape]

    def boolean(self, shape):
        """True where a key may be seen; now and then a whole row sees none."""
        mask = self.rng.random(shape) < self.one([0.4, 0.7, 0.9])
        if self.chance(0.3) and mask.ndim >= 2:
            mask[..., self.between(0, mask.shape[-2] - 1), :] = False
        return mask

    def floats(self, shape, dtype):
        """A float mask, half of the time with -inf in it."""
        mask = self.normal(*shape, dtype=dtype)
        if self.chance(0.5):
            mask[~self.boolean(shape)] = -np.inf
        return mask

    def heads(self):
        kv_heads = self.one([1, 2, 3])
        return kv_heads * self.one([1, 1, 2, 3]), kv_heads


def _onnx_mask(d, shape, dtype, shortest):
    """A mask of rank 1 to 4, bool or float, perhaps shorter than the keys."""
    rank = 1 if d.chance(0.08) else d.one([2, 3, 4, 4])
    mask_shape = shape[:1] + shape[1:] if rank == 4 else shape[4 - rank :]
    mask_shape = d.some_axes(mask_shape[:-2]) + mask_shape[-2:]
    if d.chance(0.1) and rank > 1:
        mask_shape[-2] = 1
    if d.chance(0.2):
        mask_shape[-1] = d.between(shortest, mask_shape[-1])
    return d.boolean(mask_shape) if d.chance(0.5) else d.floats(mask_shape, dtype)


def _onnx_attributes(d, opset):
    attrs = {}
    if d.chance(0.4):
        attrs["is_causal"] = 1
    if d.chance(0.3):
        attrs["scale"] = float(np.float32(d.one([0.05, 0.3, 1.0, 2.0])))
    if d.chance(0.25):
        attrs["softcap"] = d.one([0.5, 2.0, 20.0])
    if d.chance(0.15):
        attrs["softmax_precision"] = d.one([1, 11])
    if opset == 25 and d.chance(0.7):
        attrs["left_window_size"], attrs["right_window_size"] = d.one([-1, 0, 1, 2, 5, 16]), d.one([-1, 0, 1, 3])
    return attrs


def onnx_attention(d):
    dtype = d.one([np.float16, np.float16, np.float64] + 12 * [np.float32])
    batch, (heads, kv_heads) = d.between(1, 3), d.heads()
    q_len, new_len, dim = d.one(LENGTHS), d.one(LENGTHS), d.one(DIMS)
    if d.chance(0.3):
        new_len = q_len
    value_dim = dim if d.chance(0.6) else d.one(DIMS)
    cache = d.one(["none", "none", "past", "nonpad"])
    if cache == "past" and d.chance(0.2):
        q_len = 1
    opset = d.one([24, 25] if cache == "nonpad" else [23, 24, 25])
    attrs = _onnx_attributes(d, opset)
    past_len = d.one(LENGTHS) if cache == "past" else 0
    total, past, nonpad, mask = past_len + new_len, (None, None), None, None
    if cache == "nonpad":
        nonpad = np.array([d.between(1, new_len) for _ in range(batch)], dtype=np.int64)
    if d.chance(0.55):
        mask = _onnx_mask(d, [batch, heads, q_len, total], dtype, 1 if nonpad is None else int(nonpad.max()))
    q = d.normal(batch, heads, q_len, dim, dtype=dtype)
    k, v = (d.normal(batch, kv_heads, new_len, width, dtype=dtype) for width in (dim, value_dim))
    if d.chance(0.4):
        q, k, v = (t.transpose(0, 2, 1, 3).reshape(batch, t.shape[2], -1) for t in (q, k, v))
        attrs |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    outputs = ["Y", "", ""]
    if past_len:
        past = d.normal(batch, kv_heads, past_len, dim, dtype=dtype), d.normal(batch, kv_heads, past_len, value_dim, dtype=dtype)
        outputs = ["Y", "present_key", "present_value"]
    if d.chance(0.3):
        attrs["qk_matmul_output_mode"] = 3
        outputs.append("qk_matmul_output")
    inputs = {"Q": q, "K": k, "V": v, "attn_mask": mask, "past_key": past[0], "past_value": past[1], "nonpad_kv_seqlen": nonpad}
    return Case("Attention", "", opset, attrs, inputs, outputs)


def _mha_tensors(d, form, batch, heads, sizes):
    """query, key, value in one of the operator's forms."""
    q_len, new_len, dim, value_dim = sizes
    if form == "qkv":
        return d.normal(batch, q_len, heads, 3, dim), None, None
    query = d.normal(batch, q_len, heads * dim)
    if form == "kv":
        return query, d.normal(batch, new_len, heads, 2, dim), None
    if form == "heads_first":
        return query, d.normal(batch, heads, new_len, dim), d.normal(batch, heads, new_len, value_dim)
    return query, d.normal(batch, new_len, heads * dim), d.normal(batch, new_len, heads * value_dim)


def _padding_mask(d, batch, q_len, total):
    kind = d.one(["lengths", "keys", "table"])  # with a past, what a mask of the new keys alone would mean is not said: all keys
    if kind == "lengths":
        lengths = np.array([d.between(0 if d.chance(0.2) else 1, total) for _ in range(batch)], dtype=np.int32)
        if d.chance(0.5):
            return lengths
        starts = [np.append(0, np.cumsum(each)) for each in (np.full(batch, q_len), lengths)]
        return np.concatenate([lengths, *starts]).astype(np.int32)
    mask = d.boolean((batch, total) if kind == "keys" else (batch, q_len, total)).astype(np.int32)
    if d.chance(0.6):
        mask[..., 0] = 1
    return mask


def multi_head_attention(d):
    batch, heads = d.between(1, 3), d.between(1, 5)
    q_len, new_len, dim = d.one(LENGTHS), d.one(LENGTHS), d.one(DIMS)
    form = d.one(["qkv", "kv"]) if d.chance(0.06) else d.one(["separate", "separate", "heads_first"])  # the CPU has no packed forms
    if form == "qkv" or d.chance(0.4):
        new_len = q_len
    past_len = d.one(LENGTHS) if form == "separate" and d.chance(0.35) else 0
    # Where the CPU takes no other value_dim, one is tried seldom.
    other = 0.0 if form in ("qkv", "kv") else 0.06 if past_len or form == "heads_first" else 0.4
    value_dim = d.one(DIMS) if d.chance(other) else dim
    query, key, value = _mha_tensors(d, form, batch, heads, (q_len, new_len, dim, value_dim))
    attrs, past = {"num_heads": heads}, (None, None)
    if past_len:
        past = d.normal(batch, heads, past_len, dim), d.normal(batch, heads, past_len, value_dim)
    total = past_len + new_len
    if d.chance(0.3):
        attrs["scale"] = float(np.float32(d.one([0.05, 0.3, 1.0])))
    if d.chance(0.3):
        attrs["unidirectional"] = 1
    bias = d.normal(heads * (2 * dim + value_dim)) if form in ("separate", "qkv") and d.chance(0.4) else None
    mask = _padding_mask(d, batch, q_len, total) if d.chance(0.5) else None
    added = None
    if d.chance(0.4):
        added = d.normal(*d.some_axes([batch, heads]), q_len, total)
    outputs = ["output", "present_key", "present_value"] if past_len else ["output", "", ""]
    inputs = {"query": query, "key": key, "value": value, "bias": bias, "key_padding_mask": mask, "attention_bias": added,
              "past_key": past[0], "past_value": past[1]}
    return Case("MultiHeadAttention", "com.microsoft", 1, attrs, inputs, outputs)


def _gqa_step(d, batch):
    """(q_len, total, seqlens_k, past): a first prompt, perhaps right-padded, or a step after a past."""
    kind = d.one(["prompt", "prompt", "token", "chunk"])
    if kind == "prompt":
        q_len = d.one(LENGTHS)
        lengths = [q_len] * batch if d.chance(0.5) else [d.between(1, q_len) for _ in range(batch)]
        lengths[d.between(0, batch - 1)] = q_len
        return q_len, q_len, lengths, 0
    q_len = 1 if kind == "token" or batch > 1 else d.one(LENGTHS)
    past = d.one(LENGTHS)
    lengths = [past + q_len] * batch if d.chance(0.5) else [d.between(q_len, past + q_len) for _ in range(batch)]
    lengths[d.between(0, batch - 1)] = past + q_len
    return q_len, past + q_len, lengths, past


def _gqa_attributes(d):
    attrs = {}
    if d.chance(0.3):
        attrs["scale"] = float(np.float32(d.one([0.05, 0.3, 1.0])))
    if d.chance(0.3):
        attrs["softcap"] = d.one([0.5, 2.0, 20.0])
    if d.chance(0.15):
        attrs["causal"] = 0
    elif d.chance(0.4):
        attrs["local_window_size"] = d.one([1, 2, 3, 5, 16])
    if d.chance(0.2):
        attrs["smooth_softmax"] = 1
    return attrs


def group_query_attention(d):
    dtype = np.float16 if d.chance(0.2) else np.float32
    batch, (heads, kv_heads), dim = d.between(1, 3), d.heads(), d.one([8, 16, 24, 64, 72] if d.chance(0.93) else DIMS)
    q_len, total, lengths, past_len = _gqa_step(d, batch)
    attrs = {"num_heads": heads, "kv_num_heads": kv_heads} | _gqa_attributes(d)
    width, kv_width = heads * dim, kv_heads * dim
    query, key, value = (d.normal(batch, q_len, w, dtype=dtype) for w in (width, kv_width, kv_width))
    if d.chance(0.3):
        query, key, value = np.concatenate([query, key, value], axis=2), None, None
    past = tuple(d.normal(batch, kv_heads, past_len, dim, dtype=dtype) for _ in range(2)) if past_len else (None, None)
    added = d.normal(*d.some_axes([batch, heads]), q_len, total, dtype=dtype) if d.chance(0.3) else None
    sink = d.normal(heads, dtype=dtype) if "smooth_softmax" not in attrs and d.chance(0.3) else None
    outputs = ["output", "present_key", "present_value"]
    if d.chance(0.2):
        attrs["qk_output"] = 2
        outputs.append("output_qk")
    inputs = {"query": query, "key": key, "value": value, "past_key": past[0], "past_value": past[1],
              "seqlens_k": np.array(lengths, dtype=np.int32) - 1, "total_sequence_length": np.array([total], dtype=np.int32),
              "cos_cache": None, "sin_cache": None, "position_ids": None, "attention_bias": added, "head_sink": sink}
    return Case("GroupQueryAttention", "com.microsoft", 1, attrs, inputs, outputs)


def problem(seed, number):
    """Problem `number` of a seed; the three operators take turns."""
    d = Draw(seed, number)
    return (onnx_attention, multi_head_attention, group_query_attention)[number % 3](d)
