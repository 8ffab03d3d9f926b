"""com.microsoft.MultiHeadAttention and com.microsoft.GroupQueryAttention (without rotary embedding and quantised caches) in terms of this
library: which call of attention_forward computes a node, and how the node's outputs come from it. Used by onnxruntime_live.py."""

import dataclasses

import numpy as np

from onnx_semantics import Call, place_rows


@dataclasses.dataclass
class Lowered:
    call: Call
    adapted: dict = dataclasses.field(default_factory=dict)

    def outputs(self, results):
        y = results["out"]
        named = {"output": y.reshape(y.shape[0], y.shape[1], y.shape[2] * y.shape[3]), **self.adapted}
        if self.call.weights:
            named["output_qk"] = results["weights"]
        return named


def _by_length(tensor, heads):
    return tensor.reshape(tensor.shape[0], tensor.shape[1], heads, tensor.shape[2] // heads)


def _mha_projected(attrs, inputs):
    """q, k, v as [batch, length, heads, dim] from any of the operator's forms."""
    heads, query, key, value = attrs["num_heads"], inputs["query"], inputs.get("key"), inputs.get("value")
    if query.ndim == 5:
        q, k, v = query[:, :, :, 0], query[:, :, :, 1], query[:, :, :, 2]
    else:
        q = _by_length(query, heads)
        if key.ndim == 5:
            k, v = key[:, :, :, 0], key[:, :, :, 1]
        elif key.ndim == 4:
            k, v = key.transpose(0, 2, 1, 3), value.transpose(0, 2, 1, 3)
        else:
            k, v = _by_length(key, heads), _by_length(value, heads)
    if inputs.get("bias") is not None:
        width = q.shape[2] * q.shape[3]
        b_q, b_k, b_v = np.split(inputs["bias"], [width, 2 * width])
        q, k, v = (t + b.reshape(t.shape[2:]) for t, b in ((q, b_q), (k, b_k), (v, b_v)))
    return q, k, v


def lower_mha(attrs, inputs, outputs):
    q, k, v = _mha_projected(attrs, inputs)
    past, new_len = inputs.get("past_key"), k.shape[1]
    if past is not None:
        k = np.concatenate([past.transpose(0, 2, 1, 3), k], axis=1)
        v = np.concatenate([inputs["past_value"].transpose(0, 2, 1, 3), v], axis=1)
    mask, allowed, lengths = inputs.get("key_padding_mask"), None, None
    if mask is not None and mask.ndim == 1:
        lengths = mask[: len(q)].astype(np.int64)  # what follows in the form of 3 * batch + 2 says nothing more
    elif mask is not None:
        allowed = (mask != 0)[:, None, None] if mask.ndim == 2 else (mask != 0)[:, None]
    rules, align, table = [], "top_left", None
    if attrs.get("unidirectional", 0):  # row i is at position past + i, whatever the lengths; these would move BottomRight
        if lengths is not None:
            allowed, lengths = (np.arange(k.shape[1]) < lengths[:, None])[:, None, None], None
        rules, align, table = place_rows([{"rule": "causal"}], k.shape[1] - new_len, q.shape[1], k.shape[1])
    if table is not None:
        allowed = table if allowed is None else allowed & table
    call = Call(q=q, k=k, v=v, allowed=allowed, bias=inputs.get("attention_bias"), kv_lengths=lengths, mask=rules, align=align,
                scale=attrs.get("scale"))
    present = {n: t.transpose(0, 2, 1, 3) for n, t in (("present_key", k), ("present_value", v)) if n in outputs}
    return Lowered(call, present)


def lower_gqa(attrs, inputs, outputs):
    heads, kv_heads, query = attrs["num_heads"], attrs["kv_num_heads"], inputs["query"]
    if inputs.get("key") is None:
        parts = query.reshape(*query.shape[:2], heads + 2 * kv_heads, -1)
        q, k, v = parts[:, :, :heads], parts[:, :, heads : heads + kv_heads], parts[:, :, heads + kv_heads :]
    else:
        q, k, v = _by_length(query, heads), _by_length(inputs["key"], kv_heads), _by_length(inputs["value"], kv_heads)
    lengths = inputs["seqlens_k"].astype(np.int64) + 1
    total, align = int(inputs["total_sequence_length"].reshape(-1)[0]), "top_left"
    if total != q.shape[1]:  # not a first prompt: each entry's new keys follow its own past
        align = "bottom_right"
        past = [inputs[n].transpose(0, 2, 1, 3) for n in ("past_key", "past_value")]
        joined = [np.zeros((len(q), total, kv_heads, new.shape[3]), dtype=new.dtype) for new in (k, v)]
        for whole, old, new in zip(joined, past, (k, v)):
            for b, length in enumerate(lengths):
                whole[b, :length] = np.concatenate([old[b, : length - q.shape[1]], new[b]])
        k, v = joined
    rules = [{"rule": "causal"}] if attrs.get("causal", 1) else []
    if attrs.get("local_window_size", -1) > 0:  # counts the token itself
        rules.append({"rule": "window", "left": attrs["local_window_size"] - 1, "right": 0})
    sinks = inputs.get("head_sink")
    if sinks is None and attrs.get("smooth_softmax", 0):
        sinks = np.zeros(heads)
    call = Call(q=q, k=k, v=v, bias=inputs.get("attention_bias"), kv_lengths=lengths, mask=rules, align=align,
                sinks=None if sinks is None else sinks.astype(np.float32), scale=attrs.get("scale", 0.0) or None,
                softcap=attrs.get("softcap", 0.0) or None, weights="output_qk" in outputs)
    return Lowered(call)
