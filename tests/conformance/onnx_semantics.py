"""ONNX `Attention` (opsets 23 to 25) in terms of this library: which call of attention_forward computes a node, and how the node's outputs
come from it. Used by the conformance scripts; pure NumPy. What the library has no feature for is said in `Lowered.missing`."""

import dataclasses

import numpy as np

RAW_SCORES = "raw scores (qk_matmul_output_mode {}) are not kept by the library"
_FLOAT64 = 11  # onnx.TensorProto.DOUBLE


@dataclasses.dataclass
class Call:
    """The arguments of one attention_forward. q, k, v: [batch, length, heads, dim]; allowed, bias: broadcastable to
    [batch, heads, q, k]."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    allowed: np.ndarray = None
    bias: np.ndarray = None
    kv_lengths: np.ndarray = None
    sinks: np.ndarray = None
    mask: list = dataclasses.field(default_factory=list)
    align: str = "top_left"
    scale: float = None
    softcap: float = None
    lse: bool = False
    weights: bool = False


@dataclasses.dataclass
class Lowered:
    call: Call
    dtype: np.dtype  # of the node's outputs
    packed: bool  # 3-D layout
    adapted: dict = dataclasses.field(default_factory=dict)  # outputs that need no attention: the new cache, by concatenation
    missing: dict = dataclasses.field(default_factory=dict)  # output -> why the library cannot give it

    def outputs(self, results):
        """The node's outputs by name, from the results of the call."""
        y = results["out"].astype(self.dtype)
        y = y.reshape(y.shape[0], y.shape[1], y.shape[2] * y.shape[3]) if self.packed else y.transpose(0, 2, 1, 3)
        named = {"Y": y, **self.adapted}
        if self.call.weights:
            named["qk_matmul_output"] = results["weights"].astype(self.dtype)
        return named


def position_rules(is_causal, left, right):
    """Mask rules of a node; the library's window is ONNX's: inclusive distances, -1 = unbounded."""
    rules = [{"rule": "causal"}] if is_causal else []
    if left >= 0 or right >= 0:
        rules.append({"rule": "window", "left": int(left), "right": int(right)})
    return rules


def place_rows(rules, offset, q_len, kv_len):
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


def mask_arguments(attn_mask, kv_len, dtype):
    """(allowed, bias) of a mask of rank 1 to 4, right-aligned; one shorter than the keys hides what lies beyond it."""
    if attn_mask is None:
        return None, None
    if not 1 <= attn_mask.ndim <= 4:
        raise ValueError(f"attn_mask has shape {list(attn_mask.shape)}, must have one to four axes")
    short = kv_len - attn_mask.shape[-1]
    if short < 0:
        raise ValueError(f"attn_mask has shape {list(attn_mask.shape)}, there are {kv_len} keys")
    hide = False if attn_mask.dtype == bool else -np.inf
    mask = np.pad(attn_mask, [(0, 0)] * (attn_mask.ndim - 1) + [(0, short)], constant_values=hide)
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return (mask, None) if mask.dtype == bool else (None, mask.astype(dtype))


def _by_length(tensor, heads, name):
    """[batch, length, heads, dim] of a 3-D or 4-D input, without a copy."""
    if tensor.ndim == 4:
        return tensor.transpose(0, 2, 1, 3)
    if tensor.ndim != 3 or not heads or tensor.shape[2] % heads:
        raise ValueError(f"{name} has shape {list(tensor.shape)} and {heads} heads")
    return tensor.reshape(tensor.shape[0], tensor.shape[1], heads, tensor.shape[2] // heads)


def _with_past(past, new):
    """Past [batch, heads, length, dim] and new keys or values as one; returns both the call's axis order and the node's."""
    present = np.concatenate([past, new.transpose(0, 2, 1, 3)], axis=2)
    return present.transpose(0, 2, 1, 3), present


def lower(attrs, inputs, outputs=("Y",)):
    """The call for a node with these attributes, inputs (by name; an absent one is None or not there) and wanted outputs. Throws
    ValueError where they contradict each other beyond what attention_forward itself checks."""
    given = inputs.get
    q_in = given("Q")
    packed = q_in.ndim == 3
    q = _by_length(q_in, attrs.get("q_num_heads"), "Q")
    k = _by_length(given("K"), attrs.get("kv_num_heads"), "K")
    v = _by_length(given("V"), attrs.get("kv_num_heads"), "V")
    adapted, missing = {}, {}
    rules = position_rules(attrs.get("is_causal", 0), attrs.get("left_window_size", -1), attrs.get("right_window_size", -1))
    align, lengths, table = "top_left", given("nonpad_kv_seqlen"), None
    if given("past_key") is not None:
        if lengths is not None or given("past_value") is None:
            raise ValueError("past_key goes with past_value and without nonpad_kv_seqlen")
        offset = given("past_key").shape[2]
        k, adapted["present_key"] = _with_past(given("past_key"), k)
        v, adapted["present_value"] = _with_past(given("past_value"), v)
        rules, align, table = place_rows(rules, offset, q.shape[1], k.shape[1])
    elif lengths is not None:
        align = "bottom_right"
    dtype = q.dtype
    compute = np.dtype(np.float64) if attrs.get("softmax_precision") == _FLOAT64 else dtype  # else f32 for f16 and f32, f64 for f64
    allowed, bias = mask_arguments(given("attn_mask"), k.shape[1], compute)
    if table is not None:
        allowed = table if allowed is None else allowed & table
    mode = attrs.get("qk_matmul_output_mode", 0)
    wanted = "qk_matmul_output" in outputs
    if wanted and mode != 3:
        missing["qk_matmul_output"] = RAW_SCORES.format(mode)
    call = Call(q=q, k=k, v=v, allowed=allowed, bias=bias, mask=rules, align=align, scale=attrs.get("scale"),
                softcap=attrs.get("softcap") or None, weights=wanted and mode == 3,
                kv_lengths=None if lengths is None else np.asarray(lengths, dtype=np.int64))
    for name in "qkv" if compute != dtype else "":
        setattr(call, name, np.asarray(getattr(call, name), dtype=compute, order="K"))
    return Lowered(call=call, dtype=dtype, packed=packed, adapted=adapted, missing=missing)
