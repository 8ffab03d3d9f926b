"""Where ONNX Runtime's CPU kernels differ from the operators' texts and from this library, named one by one, and what they refuse. Used by
onnxruntime_live.py: a difference must be exactly what an entry here says ONNX Runtime computes; any other is a failure."""

import dataclasses
import re
import typing

import numpy as np

import umpire

VERSION = "1.32.0"  # of ONNX Runtime, with which all of this was seen


@dataclasses.dataclass
class Disagreement:
    op: str
    name: str
    theirs: str
    right: str
    applies: typing.Callable  # (case, rows) -> whether it may show in this problem
    change: typing.Callable  # (case, rows): makes of the operator's rows what ONNX Runtime computes


@dataclasses.dataclass
class Refusal:
    op: str
    name: str
    message: str  # a regular expression found in the error
    applies: typing.Callable  # (case) -> whether it may be refused for this


def _mask_of(case):
    return case.inputs.get("attn_mask")


def _decode_sees_all(case, rows):
    """The mask and the padding stay; only the causal rule is lost."""
    mask = case.inputs["attn_mask"]
    rows.visible[...] = True
    if mask is not None and mask.dtype == bool:
        rows.visible[..., : mask.shape[-1]] &= mask
        rows.visible[..., mask.shape[-1] :] = False
    left, right, at = case.attrs.get("left_window_size", -1), case.attrs.get("right_window_size", -1), case.inputs["past_key"].shape[2]
    j = np.arange(rows.visible.shape[3])
    if left >= 0:
        rows.visible &= j >= at - left
    if right >= 0:
        rows.visible &= j <= at + right


def _one_column(case):
    return _mask_of(case) is not None and _mask_of(case).shape[-1] == 1


def _one_column_for_all(case, rows):
    """Undoes what a short mask hides, then applies its one column to every key."""
    unmasked = dataclasses.replace(case, inputs=case.inputs | {"attn_mask": None})
    rows.visible, rows.bias = umpire.attention_rows(unmasked).visible, np.zeros(rows.bias.shape)
    mask = case.inputs["attn_mask"]
    if mask.dtype == bool:
        rows.visible &= mask
    else:
        rows.bias = rows.bias + mask


def _last_row_sees_all(_, rows):
    rows.positions[:, :, -1] = True
    rows.visible = rows.positions & rows.padding


def _padding_is_forgotten(_, rows):
    """A row whose every key is padding: mask_filter_value on each score changes nothing but their last bits."""
    empty = ~rows.visible.any(axis=3)
    rows.visible[empty] = rows.positions[empty]
    rows.score_error = 2.0**-10  # two roundings of numbers near 10000


DISAGREEMENTS = [
    Disagreement(
        "Attention",
        "a single query after a past ignores is_causal",
        "with past_key and q_len 1 all new keys are seen, though there is more than one of them",
        "the query stands at position past_length: key j is seen iff j <= past_length",
        lambda case, rows: case.attrs.get("is_causal") and case.inputs["past_key"] is not None and rows.q.shape[2] == 1,
        _decode_sees_all,
    ),
    Disagreement(
        "Attention",
        "a mask of one column is broadcast over the keys",
        "f64 of opset 23 has no kernel, and the function body used instead does not pad a short mask: its one column serves all keys",
        "it is shorter than the keys, which are hidden from its end on",
        lambda case, rows: case.inputs["Q"].dtype == np.float64 and case.opset == 23 and _one_column(case) and rows.k.shape[2] > 1,
        _one_column_for_all,
    ),
    Disagreement(
        "MultiHeadAttention",
        "the last row of unidirectional attention sees every key",
        "the causal mask is written for all rows but the last, which is right only where there are as many new keys as queries",
        "row i sees keys up to past_length + i, the last row too",
        lambda case, rows: case.attrs.get("unidirectional") and not rows.positions[:, :, -1].all(),
        _last_row_sees_all,
    ),
    Disagreement(
        "MultiHeadAttention",
        "a row whose keys are all padding is computed as if none were",
        "mask_filter_value (-10000) is added to each of its scores, which cancels",
        "a row that sees no key gives 0",
        lambda case, rows: case.inputs["key_padding_mask"] is not None,
        _padding_is_forgotten,
    ),
]


def _keys(case):
    k, past = case.inputs["K"], case.inputs["past_key"]
    return k.shape[-2 if k.ndim == 4 else 1] + (0 if past is None else past.shape[2])


def _gqa_dim(case):
    heads, kv_heads, query = case.attrs["num_heads"], case.attrs["kv_num_heads"], case.inputs["query"]
    return query.shape[2] // (heads if case.inputs["key"] is not None else heads + 2 * kv_heads)


REFUSALS = [
    Refusal("Attention", "mask of rank 1", "attn_mask must be 2D or 3D or 4D",
            lambda c: _mask_of(c) is not None and _mask_of(c).ndim == 1),
    Refusal("Attention", "mask broadcast over queries", "inconsistent q_sequence_length",
            lambda c: _mask_of(c) is not None and _mask_of(c).ndim > 1 and _mask_of(c).shape[-2] == 1),
    Refusal("Attention", "mask shorter than the keys",
            "inconsistent total_sequence_length|Op \\(Add\\) .* Incompatible dimensions|running Add node.*Attempting to broadcast",
            lambda c: _mask_of(c) is not None and _mask_of(c).shape[-1] < _keys(c)),
    Refusal("MultiHeadAttention", "packed QKV on the CPU", "Packed QKV .* not implemented for CPU",
            lambda c: c.inputs["query"].ndim == 5),
    Refusal("MultiHeadAttention", "packed KV on the CPU", "Packed KV not implemented for CPU",
            lambda c: c.inputs["key"] is not None and c.inputs["key"].ndim == 5),
    Refusal("MultiHeadAttention", "value_dim != head_dim with a past", "'past_value' dimension 3 should be same as head_size",
            lambda c: c.inputs["past_value"] is not None),
    Refusal("MultiHeadAttention", "value_dim != head_dim in [batch, heads, length, dim]", "'key' and 'value' shall have same shape",
            lambda c: c.inputs["key"] is not None and c.inputs["key"].ndim == 4),
    Refusal("GroupQueryAttention", "head_dim that is no multiple of 8", "head_size must be a multiple of 8",
            lambda c: _gqa_dim(c) % 8 != 0),
]


def refusal(case, message):
    """The name under which an error of ONNX Runtime falls, or None."""
    for entry in REFUSALS:
        if entry.op == case.op and re.search(entry.message, message) and entry.applies(case):
            return entry.name
    return None
