"""The umpire between this library and ONNX Runtime: each operator in float64, row by row, written from the operators' texts and from the
rules of semantics.md (a hidden key changes nothing, a row that sees no key gives 0) and from nothing of this library's code. Beside every
number goes a bound on what f32 arithmetic (f16: with one rounding to f16) may make of it."""

import dataclasses

import numpy as np

from attend import LEAST_WEIGHT, ROUNDOFF, SUBNORMAL


@dataclasses.dataclass
class Verdict:
    """Output name -> exact values, the error this library may make at each, and what is allowed to ONNX Runtime (infinite where the
    operator's text says nothing). `empty` marks the rows [batch, heads, q_len] that see no key."""

    exact: dict
    ours: dict
    theirs: dict
    empty: np.ndarray


@dataclasses.dataclass
class Rows:
    """All that one row needs; q [batch, heads, q_len, dim], k and v [batch, kv_heads, kv_len, dim]."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    visible: np.ndarray  # bool, [batch, heads, q_len, kv_len]
    bias: np.ndarray  # as visible
    scale: float
    softcap: float = 0.0
    sinks: np.ndarray = None  # [heads]
    unsaid: np.ndarray = None  # rows the operator's text says nothing of; broadcastable to [batch, heads, q_len]
    positions: np.ndarray = None  # what the rules of position alone let each row see (MultiHeadAttention)
    padding: np.ndarray = None  # what the key_padding_mask alone lets each row see (MultiHeadAttention)
    score_error: float = 0.0  # of any score, beyond roundings of its terms: see disagreements.py


def _row(rows, b, h, i, group):
    """(output, weights, lse, what relative errors of weights are to be multiplied with for the output, the same for absolute ones, largest
    score's magnitude, keys) of one row that sees a key, else None."""
    key, value = rows.k[b, h // group], rows.v[b, h // group]
    see = np.flatnonzero(rows.visible[b, h, i] & (rows.bias[b, h, i] != -np.inf))
    if len(see) == 0:
        return None
    raw = rows.scale * (key[see] @ rows.q[b, h, i])
    score = rows.softcap * np.tanh(raw / rows.softcap) if rows.softcap else raw
    score = score + rows.bias[b, h, i, see]
    magnitude = abs(rows.scale) * (np.abs(key[see]) @ np.abs(rows.q[b, h, i])) + np.abs(rows.bias[b, h, i, see])
    sink = -np.inf if rows.sinks is None else rows.sinks[h]
    top = max(score.max(), sink)
    exps = np.exp(score - top)
    weights = np.zeros(len(key))
    denominator = exps.sum() + np.exp(sink - top)
    weights[see] = exps / denominator
    values = np.abs(value[see])
    magnitude = max(magnitude.max(), abs(top))
    return weights @ value, weights, top + np.log(denominator), weights[see] @ values, values.sum(axis=0), magnitude, len(see)


def _arithmetic(stored):
    return ROUNDOFF[np.dtype(np.float64 if stored == np.float64 else np.float32)]


def _errors(magnitude, count, dim, stored, half):
    """Relative error of a row's weights. Its scores are off by dim + 8 roundings of their largest term (softcap's included), which exp
    turns into a relative error, twice (numerator and denominator); exp itself and the sums over `count` keys add as much as 16 + count
    roundings, twice. half: scores and weights are kept in f16 between the steps, which rounds them a few times more."""
    error = 2 * ((dim + 8) * magnitude + count + 16) * _arithmetic(stored)
    return error + 2 * (4 * magnitude + 4) * ROUNDOFF[stored] if half else error


@dataclasses.dataclass
class Attended:
    """Arrays by what they are: [exact, allowed to us, allowed to ONNX Runtime], and the rows that see no key."""

    out: np.ndarray
    weights: np.ndarray
    lse: np.ndarray
    empty: np.ndarray


def attend_rows(rows, stored):
    """All rows; `stored` is the dtype of inputs and outputs. ONNX Runtime gets 8 times our allowance; it keeps f16 scores in f16, and its
    scale of f64 tensors in f32."""
    batch, heads, q_len, dim = rows.q.shape
    group = heads // rows.k.shape[1] if heads else 1
    kv_len, value_dim = rows.v.shape[2:]
    rounded = ROUNDOFF[stored] if stored == np.float16 else 0
    zeros = lambda *last: np.zeros((3, batch, heads, q_len, *last))
    done = Attended(zeros(value_dim), zeros(kv_len), zeros(), np.zeros((batch, heads, q_len), dtype=bool))
    for at in np.ndindex(batch, heads, q_len):
        row = _row(rows, *at, group)
        if row is None:
            done.empty[at], done.lse[0][at] = True, -np.inf if rows.sinks is None else rows.sinks[at[1]]
            continue
        done.out[0][at], done.weights[0][at], done.lse[0][at], spread, values, magnitude, count = row
        ours = _errors(magnitude, count, dim, stored, False)
        theirs = 8 * _errors(magnitude, count, dim, min(stored, np.dtype(np.float32)), rounded > 0) + 2 * rows.score_error
        for n, error in ((1, ours), (2, theirs)):
            done.out[n][at] = error * spread + rounded * np.abs(row[0]) + LEAST_WEIGHT * values
            done.weights[n][at] = (error + rounded) * row[1]
            done.lse[n][at] = error
    done.out[1:] += SUBNORMAL[stored]
    done.weights[1:] += max(SUBNORMAL[stored], LEAST_WEIGHT)
    done.lse[1:] += _arithmetic(stored) * np.where(done.empty, np.abs(done.lse[0]), 0)
    return done


def _heads(tensor, heads):
    """A 3-D [batch, length, heads * dim] as [batch, heads, length, dim], in float64."""
    batch, length, width = tensor.shape
    return np.stack([tensor[:, :, h * (width // heads) : (h + 1) * (width // heads)] for h in range(heads)], axis=1).astype(np.float64)


def _side_by_side(tensor):
    """[batch, heads, length, dim] as [batch, length, heads * dim]."""
    return np.concatenate([tensor[:, h] for h in range(tensor.shape[1])], axis=2)


def attention_rows(case):
    """ai.onnx Attention."""
    a, x = case.attrs.get, case.inputs.get
    split = lambda t, n: _heads(t, n) if t.ndim == 3 else t.astype(np.float64)
    q, k, v = split(x("Q"), a("q_num_heads")), split(x("K"), a("kv_num_heads")), split(x("V"), a("kv_num_heads"))
    offset = np.zeros(len(q), dtype=int)
    if x("past_key") is not None:
        offset += x("past_key").shape[2]
        k, v = (np.concatenate([past.astype(np.float64), new], axis=2) for past, new in ((x("past_key"), k), (x("past_value"), v)))
    shape = q.shape[:3] + k.shape[2:3]
    i, j = np.arange(shape[2])[:, None], np.arange(shape[3])[None, :]
    visible, bias = np.ones(shape, dtype=bool), np.zeros(shape)
    if x("nonpad_kv_seqlen") is not None:
        offset += x("nonpad_kv_seqlen") - shape[2]
        visible &= (j < x("nonpad_kv_seqlen")[:, None, None])[:, None]
    at = i + offset[:, None, None, None]
    if a("is_causal", 0):
        visible &= j <= at
    if a("left_window_size", -1) >= 0:
        visible &= j >= at - a("left_window_size")
    if a("right_window_size", -1) >= 0:
        visible &= j <= at + a("right_window_size")
    if x("attn_mask") is not None:
        mask = x("attn_mask")
        given = mask.shape[-1]
        visible[..., given:] = False
        if mask.dtype == bool:
            visible[..., :given] &= mask
        else:
            bias[..., :given] = mask
    scale = a("scale") if a("scale") is not None else q.shape[3] ** -0.5
    return Rows(q, k, v, visible, bias, scale, a("softcap", 0.0))


def _mha_inputs(case):
    """q, k, v of com.microsoft.MultiHeadAttention as [batch, heads, length, dim], the projections' bias added, and whether k and v are
    whole (not to be joined with a past)."""
    x, n = case.inputs.get, case.attrs["num_heads"]
    query, key, value = x("query"), x("key"), x("value")
    if query.ndim == 5:  # [batch, length, heads, 3, dim]
        q, k, v = (query[:, :, :, part].transpose(0, 2, 1, 3).astype(np.float64) for part in range(3))
    elif key.ndim == 5:
        q = _heads(query, n)
        k, v = (key[:, :, :, part].transpose(0, 2, 1, 3).astype(np.float64) for part in range(2))
    elif key.ndim == 4:
        q, k, v = _heads(query, n), key.astype(np.float64), value.astype(np.float64)
    else:
        q, k, v = _heads(query, n), _heads(key, n), _heads(value, n)
    if x("bias") is not None:
        bias = x("bias").astype(np.float64)
        width = q.shape[1] * q.shape[3]
        for tensor, part in ((q, bias[:width]), (k, bias[width : 2 * width]), (v, bias[2 * width :])):
            tensor += part.reshape(1, n, 1, -1)
    return q, k, v


def _mha_padding(case, shape):
    """What the key_padding_mask alone lets each row see."""
    mask, visible = case.inputs.get("key_padding_mask"), np.ones(shape, dtype=bool)
    j = np.arange(shape[3])
    if mask is None:
        return visible
    if mask.ndim == 1:  # lengths, or lengths followed by where each entry's queries and keys start
        visible &= (j[None, :] < mask[: shape[0], None])[:, None, None]
    elif mask.ndim == 2:
        visible &= (mask != 0)[:, None, None]
    else:
        visible &= (mask != 0)[:, None]
    return visible


def mha_rows(case):
    """com.microsoft.MultiHeadAttention."""
    a, x = case.attrs.get, case.inputs.get
    q, k, v = _mha_inputs(case)
    past = 0
    if x("past_key") is not None:
        past = x("past_key").shape[2]
        k, v = (np.concatenate([old.astype(np.float64), new], axis=2) for old, new in ((x("past_key"), k), (x("past_value"), v)))
    shape = q.shape[:3] + k.shape[2:3]
    positions, bias = np.ones(shape, dtype=bool), np.zeros(shape)
    if a("unidirectional", 0):
        positions &= np.arange(shape[3])[None, :] <= np.arange(shape[2])[:, None] + past
    if x("attention_bias") is not None:
        bias += x("attention_bias")
    scale = a("scale") if a("scale") is not None else q.shape[3] ** -0.5
    padding = _mha_padding(case, shape)
    return Rows(q, k, v, positions & padding, bias, scale, positions=positions, padding=padding)


def gqa_rows(case):
    """com.microsoft.GroupQueryAttention. Rows of a right-padded prompt beyond its length are left unsaid."""
    a, x = case.attrs.get, case.inputs.get
    n, m = case.attrs["num_heads"], case.attrs["kv_num_heads"]
    query = x("query")
    if x("key") is None:
        dim = query.shape[2] // (n + 2 * m)
        query, key, value = np.split(query, [n * dim, (n + m) * dim], axis=2)
    else:
        key, value = x("key"), x("value")
    q, k_new, v_new = _heads(query, n), _heads(key, m), _heads(value, m)
    batch, q_len = q.shape[0], q.shape[2]
    totals = x("seqlens_k").astype(int) + 1
    longest = int(x("total_sequence_length").reshape(-1)[0])
    first = longest == q_len  # a prompt: rows at and beyond the entry's own length are padding
    k, v = np.zeros((batch, m, longest, k_new.shape[3])), np.zeros((batch, m, longest, v_new.shape[3]))
    past = np.zeros(batch, dtype=int) if first else totals - q_len
    for b in range(batch):
        fresh = min(q_len, totals[b] - past[b])
        for whole, old, new in ((k, x("past_key"), k_new), (v, x("past_value"), v_new)):
            if past[b]:
                whole[b, :, : past[b]] = old[b, :, : past[b]]
            whole[b, :, past[b] : past[b] + fresh] = new[b, :, :fresh]
    shape = (batch, n, q_len, longest)
    j = np.arange(longest)
    at = np.arange(q_len)[None, :, None] + past[:, None, None]
    visible = np.broadcast_to(j < totals[:, None, None], (batch, q_len, longest)).copy()
    if a("causal", 1):
        visible &= j <= at
    if a("local_window_size", -1) > 0:
        visible &= j > at - a("local_window_size")
    bias = np.zeros(shape) if x("attention_bias") is None else np.broadcast_to(x("attention_bias"), shape).astype(np.float64)
    sinks = x("head_sink").astype(np.float64) if x("head_sink") is not None else np.zeros(n) if a("smooth_softmax", 0) else None
    scale = a("scale", 0.0) or q.shape[3] ** -0.5
    beyond = at[:, None, :, 0] >= totals[:, None, None]
    return Rows(q, k, v, np.broadcast_to(visible[:, None], shape).copy(), bias, scale, a("softcap", 0.0), sinks, beyond)


ROWS = {"Attention": attention_rows, "MultiHeadAttention": mha_rows, "GroupQueryAttention": gqa_rows}


def judge(case, rows=None):
    """The verdict on a problem; `rows` are the operator's own unless something else is to be tried."""
    rows = rows or ROWS[case.op](case)
    first = next(iter(case.inputs.values()))
    done = attend_rows(rows, first.dtype)
    if rows.unsaid is not None:
        for arrays in (done.out, done.weights, done.lse):
            arrays[1:, np.broadcast_to(rows.unsaid, done.empty.shape)] = np.inf
    join = _side_by_side if first.ndim != 4 else lambda t: t
    named = {case.outputs[0]: [join(t) for t in done.out], "qk_matmul_output": done.weights, "output_qk": done.weights, "lse": done.lse}
    if case.op != "GroupQueryAttention":
        # Adding a projection's bias rounds once.
        rounding = ROUNDOFF[first.dtype] if case.inputs.get("bias") is not None else 0
        named |= {name: [t, np.abs(t) * rounding, np.abs(t) * rounding] for name, t in (("present_key", rows.k), ("present_value", rows.v))}
    return Verdict(*({name: arrays[n] for name, arrays in named.items()} for n in range(3)), done.empty)
