"""ONNX `Attention` (opsets 23 to 25) in terms of this library: which call computes a node, and how the node's outputs come from it. Used by
mha.onnx, and by the scripts of tests/conformance, which load this file alone: pure NumPy, no import of the package. What the library has no
feature for is said in `Lowered.missing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Rules = list[dict[str, Any]]

RAW_SCORES = "raw scores (qk_matmul_output_mode {}) are not kept by the library"
_FLOAT64 = 11  # onnx.TensorProto.DOUBLE
_FLT_MAX = float(np.finfo(np.float32).max)


@dataclass
class Call:
    """The arguments of one call of attention. q, k, v: [batch, length, heads, dim]; allowed (True = may attend), bias: broadcastable to
    [batch, heads, q, k]."""

    q: Array
    k: Array
    v: Array
    allowed: Array | None = None
    bias: Array | None = None
    kv_lengths: Array | None = None
    sinks: Array | None = None
    mask: Rules = field(default_factory=list)
    align: str = "top_left"
    scale: float | None = None
    softcap: float | None = None
    lse: bool = False
    weights: bool = False


@dataclass
class Lowered:
    """A node as a call, and how its outputs are made of the results."""

    call: Call
    dtype: np.dtype[Any]  # of Y and qk_matmul_output
    packed: bool  # 3-D layout
    adapted: dict[str, Array] = field(default_factory=dict)  # outputs that need no attention: the new cache, by concatenation
    missing: dict[str, str] = field(default_factory=dict)  # output -> why the library cannot give it

    def outputs(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """The node's outputs by name, from the results of the call: "out" [batch, q_len, heads, value_dim] and, where asked for, "weights"
        [batch, heads, q_len, kv_len]."""
        y = results["out"].astype(self.dtype, copy=False)
        y = y.reshape(y.shape[0], y.shape[1], y.shape[2] * y.shape[3]) if self.packed else y.transpose(0, 2, 1, 3)
        named = {"Y": y, **self.adapted}
        if self.call.weights:
            named["qk_matmul_output"] = results["weights"].astype(self.dtype)
        return named


def position_rules(is_causal: int, left: int, right: int) -> Rules:
    """Mask rules of a node; the library's window is ONNX's: inclusive distances, -1 = unbounded. ValueError for lesser ones."""
    if left < -1 or right < -1:
        raise ValueError(f"left_window_size is {left}, right_window_size {right}: both must be -1 or more")
    rules: Rules = [{"rule": "causal"}] if is_causal else []
    if left >= 0 or right >= 0:
        rules.append({"rule": "window", "left": int(left), "right": int(right)})
    return rules


def place_rows(rules: Rules, offset: int, q_len: int, kv_len: int) -> tuple[Rules, str, Array | None]:
    """(rules, align, table): how the library is told that query row i sits at key position offset + i. It knows offsets 0 and
    kv_len - q_len; for any other the rules become a boolean table."""
    if offset == kv_len - q_len or not rules:
        return rules, "bottom_right", None
    if offset == 0:
        return rules, "top_left", None
    distance = np.arange(kv_len)[None, :] - (np.arange(q_len)[:, None] + offset)
    visible = np.ones((q_len, kv_len), dtype=bool)
    for rule in rules:
        left, right = (-1, 0) if rule["rule"] == "causal" else (rule["left"], rule["right"])
        if left >= 0:
            visible &= distance >= -left
        if right >= 0:
            visible &= distance <= right
    return [], "bottom_right", visible[None, None]


def mask_arguments(attn_mask: Array | None, kv_len: int, compute: np.dtype[Any]) -> tuple[Array | None, Array | None]:
    """(allowed, bias) of a mask of rank 1 to 4, right-aligned; one shorter than the keys hides what lies beyond it. Its dtype is its own
    (any number): nothing finite becomes infinite here, which would hide a key."""
    if attn_mask is None:
        return None, None
    if not 1 <= attn_mask.ndim <= 4:
        raise ValueError(f"attn_mask has shape {list(attn_mask.shape)}, must have one to four axes")
    short = kv_len - attn_mask.shape[-1]
    if short < 0:
        raise ValueError(f"attn_mask has shape {list(attn_mask.shape)}, there are {kv_len} keys")
    mask, hide = attn_mask, 0.0
    if mask.dtype != bool:
        hide = -np.inf
        if compute == np.float64:
            mask = mask.astype(np.float64)
        elif mask.dtype.kind in "iu" or mask.dtype == np.float64:
            mask = np.where(np.isfinite(mask), np.clip(mask, -_FLT_MAX, _FLT_MAX), mask).astype(np.float32)
    mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=hide) if short else mask
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return (mask, None) if mask.dtype == bool else (None, mask)


def _by_length(tensor: Array, heads: int | None, name: str) -> Array:
    """[batch, length, heads, dim] of a 3-D or 4-D input, without a copy."""
    if tensor.ndim == 4:
        return tensor.transpose(0, 2, 1, 3)
    if tensor.ndim != 3 or not heads or heads < 1 or tensor.shape[2] % heads:
        raise ValueError(f"{name} has shape {list(tensor.shape)} and {heads} heads")
    return tensor.reshape(tensor.shape[0], tensor.shape[1], heads, tensor.shape[2] // heads)


def _with_past(past: Array | None, new: Array, name: str) -> tuple[Array, Array]:
    """Past [batch, heads, length, dim] and new keys or values as one; returns both the call's axis order and the node's."""
    fresh = new.transpose(0, 2, 1, 3)
    if past is None:
        return new, fresh
    if past.ndim != 4 or past.dtype != new.dtype or any(past.shape[axis] != fresh.shape[axis] for axis in (0, 1, 3)):
        raise ValueError(f"{name} is {past.dtype}{list(past.shape)}, what it continues {fresh.dtype}{list(fresh.shape)}")
    present = np.concatenate([past, fresh], axis=2)
    return present.transpose(0, 2, 1, 3), present


def _check_shapes(q: Array, k: Array, v: Array) -> None:
    """What [batch, length, heads, dim] must share: ONNX broadcasts none of it. Only V may have another dtype."""
    if q.dtype != k.dtype:
        raise ValueError(f"Q is {q.dtype}, K is {k.dtype}")
    for a, b, axes in (((q, "Q"), (k, "K"), {0: "batch", 3: "head_dim"}), ((k, "K"), (v, "V"), {0: "batch", 1: "length", 2: "heads"})):
        for axis, what in axes.items():
            if a[0].shape[axis] != b[0].shape[axis]:
                raise ValueError(f"{a[1]} has {what} {a[0].shape[axis]}, {b[1]} has {b[0].shape[axis]}")


def _compute_dtype(q: np.dtype[Any], v: np.dtype[Any], softmax_precision: int | None) -> np.dtype[Any]:
    """What the call is made in: the tensors' own dtype, or f32 or f64 where Q and V differ or the softmax is asked for in f64. (16-bit
    tensors are computed in f32 anyway.)"""
    if np.float64 in (q, v) or softmax_precision == _FLOAT64:
        return np.dtype(np.float64)
    return q if q == v else np.dtype(np.float32)


def lower(attrs: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Sequence[str] = ("Y",)) -> Lowered:
    """The call for a node with these attributes, inputs (by name; an absent one is None or not there) and wanted outputs. Throws
    ValueError where they contradict each other beyond what attention itself checks."""
    given = inputs.get
    q_in = inputs["Q"]
    if not q_in.ndim == inputs["K"].ndim == inputs["V"].ndim:
        raise ValueError("Q, K and V have " + ", ".join(str(inputs[name].ndim) for name in "QKV") + " axes, must all have three or four")
    q = _by_length(q_in, attrs.get("q_num_heads"), "Q")
    k = _by_length(inputs["K"], attrs.get("kv_num_heads"), "K")
    v = _by_length(inputs["V"], attrs.get("kv_num_heads"), "V")
    rules = position_rules(attrs.get("is_causal", 0), attrs.get("left_window_size", -1), attrs.get("right_window_size", -1))
    align, lengths, table, added = "top_left", given("nonpad_kv_seqlen"), None, None
    adapted: dict[str, Array] = {}
    if given("past_key") is not None or given("past_value") is not None:
        if lengths is not None or given("past_value") is None or given("past_key") is None:
            raise ValueError("past_key goes with past_value and without nonpad_kv_seqlen")
        added = k.shape[1]
    k, present_key = _with_past(given("past_key"), k, "past_key")
    v, present_value = _with_past(given("past_value"), v, "past_value")
    _check_shapes(q, k, v)
    for name, array in (("present_key", present_key), ("present_value", present_value)):
        if added is not None or name in outputs:
            adapted[name] = array
    if added is not None:  # rows follow the past
        rules, align, table = place_rows(rules, k.shape[1] - added, q.shape[1], k.shape[1])
    elif lengths is not None:
        align = "bottom_right"
        if lengths.dtype.kind not in "iu":
            raise ValueError(f"nonpad_kv_seqlen is {lengths.dtype}, must be integers")
    compute = _compute_dtype(q.dtype, v.dtype, attrs.get("softmax_precision"))
    allowed, bias = mask_arguments(given("attn_mask"), k.shape[1], compute)
    if table is not None:
        allowed = table if allowed is None else allowed & table
    mode = attrs.get("qk_matmul_output_mode", 0)
    wanted = "qk_matmul_output" in outputs
    q, k, v = (np.asarray(tensor, dtype=compute, order="K") for tensor in (q, k, v))
    call = Call(q=q, k=k, v=v, allowed=allowed, bias=bias, mask=rules, align=align, scale=attrs.get("scale"),
                softcap=attrs.get("softcap") or None, weights=wanted and mode == 3,
                kv_lengths=None if lengths is None else np.asarray(lengths, dtype=np.int64))
    missing = {"qk_matmul_output": RAW_SCORES.format(mode)} if wanted and mode != 3 else {}
    return Lowered(call=call, dtype=q_in.dtype, packed=q_in.ndim == 3, adapted=adapted, missing=missing)
