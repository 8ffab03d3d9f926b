"""Attention in float64 by NumPy, from torch's text, and how near the library must come to it. Used by all tests of the package."""

import numpy as np

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def attend(q, k, v, seen=True, bias=0.0, scale=None, softcap=None, sinks=None):
    """(out, lse, weights) in float64. q, k, v [..., heads, length, dim] with equally many heads; `seen` and `bias` broadcast to the scores."""
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(seen, scores + np.asarray(bias, np.float64), -np.inf)
    logits = scores if sinks is None else np.concatenate([scores, np.broadcast_to(np.reshape(sinks, (-1, 1, 1)), (*scores.shape[:-1], 1))], -1)
    top = logits.max(-1, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    total = np.exp(logits - shift).sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + shift)[..., 0]
    weights = np.divide(np.exp(scores - shift), total, out=np.zeros_like(scores), where=total > 0)
    return weights @ v, lse, weights


def repeat_heads(array, heads):
    """[..., kv_heads, length, dim] with each head repeated for its group."""
    return np.repeat(array, heads // array.shape[-3], -3)


def causal(q_len, kv_len, offset=0):
    """[q_len, kv_len]: True where key j <= query i + offset."""
    return np.arange(kv_len) <= np.arange(q_len)[:, None] + offset


def tolerance(dtype, head_dim, kv_len, largest_score=12.0):
    """Relative error of a weighted sum of values (docs/numerics.md, e and u_s), for scores up to `largest_score`."""
    arithmetic = min(ROUNDOFF[str(dtype)], ROUNDOFF["float32"])
    storage = ROUNDOFF[str(dtype)] if ROUNDOFF[str(dtype)] > arithmetic else 0.0
    return 2 * ((head_dim + 3) * largest_score + kv_len + 16) * arithmetic + storage


def check(found, exact, v, dtype, head_dim):
    """`found` is the weighted sum `exact` of values `v`, each element within tolerance of the largest value."""
    assert found.shape == exact.shape
    bound = tolerance(dtype, head_dim, v.shape[-2]) * max(np.abs(np.asarray(v, np.float64)).max(initial=0), 2.0**-14)
    error = np.abs(np.asarray(found, np.float64) - exact).max(initial=0)
    assert error <= bound, (error, bound)
