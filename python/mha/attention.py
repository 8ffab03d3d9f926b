"""`scaled_dot_product_attention` with torch's signature, and what it returns.

Torch's conventions (axis order, broadcasting, masks, grouped heads) are translated here, once, to what mha._core takes. Calls with a torch
query come through mha._torch first, which knows torch.compile and torch's generator."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mha import _arrays, _core

Shape = tuple[int, ...]


class RowStatistics(NamedTuple):
    """What each row of weights is like, before dropout, computed without holding any of it. All [..., heads, q_len], f32 (f64 for f64) but for
    keys. Hidden keys take no part. A row that sees no key has max_score -inf, keys -1 and 0 in the rest. None where not asked for: links come
    with `links`, the others with return_stats."""

    max_score: Any = None
    """The largest score (scaled, capped, with mask added) before softmax."""
    max_key: Any = None
    """int64: its key, the first among equals."""
    entropy: Any = None
    """-sum of w ln w, in nats; a sink takes its share and is not counted."""
    distance: Any = None
    """Mean of |position of the query - key|, over keys as they weigh among themselves."""
    distance_variance: Any = None
    """Its variance."""
    first_weight: Any = None
    """The weight of key 0."""
    chosen_weight: Any = None
    """The weight of all chosen_keys together; None without."""
    link_weights: Any = None
    """[..., heads, q_len, links]: the largest weights of the row from the largest down; 0 beyond the keys it sees."""
    link_keys: Any = None
    """int64, [..., heads, q_len, links]: their keys, the earlier first among equal scores; -1 beyond."""


class AttentionOutputs(NamedTuple):
    """What was asked for; the rest is None."""

    out: Any
    """[..., heads, q_len, value_dim], of the query's dtype."""
    lse: Any = None
    """[..., heads, q_len]: natural log of each row's softmax denominator, a sink included; -inf where a row sees no key. f32 (f64 for f64)."""
    weights: Any = None
    """[..., heads, q_len, kv_len], before dropout; each row sums to 1 (less by a sink's share) or is 0. f32 (f64 for f64)."""
    stats: Any = None
    """RowStatistics."""


@dataclass(slots=True)
class Call:
    """One call, as scaled_dot_product_attention got it."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    window: Sequence[int] | None = None
    softcap: float | None = None
    sinks: Any = None
    alibi_slopes: Any = None
    causal_align: str = "top_left"
    return_lse: bool = False
    return_weights: bool = False
    return_stats: bool = False
    chosen_keys: Any = None
    links: int = 0
    seed: int | None = None
    num_threads: int | None = None
    out: Any = None


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: Sequence[int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    causal_align: str = "top_left",
    return_lse: bool = False,
    return_weights: bool = False,
    return_stats: bool = False,
    chosen_keys: Any = None,
    links: int = 0,
    seed: int | None = None,
    num_threads: int | None = None,
    out: Any = None,
) -> Any:
    """Exact attention, softmax(query key^T * scale + bias, masked) value, as torch.nn.functional.scaled_dot_product_attention defines it.

    Arrays are of NumPy, torch (CPU), JAX (CPU) or anything with DLPack, with any strides; nothing is copied. One dtype for query, key and
    value: f32, f64, f16, bf16 (torch's, or NumPy's by ml_dtypes). 16-bit arrays are computed in f32 and rounded once.

    query: [..., heads, q_len, head_dim], or [q_len, head_dim].
    key: [..., heads, kv_len, head_dim]. Leading axes (heads too) broadcast as torch has it.
    value: [..., heads, kv_len, value_dim].
    attn_mask: broadcastable to [..., heads, q_len, kv_len]. bool: True = may attend. Floats are added to the scores; -inf hides.
    dropout_p: probability of dropping a weight. Always applied: there is no training flag.
    is_causal: query i sees keys j <= i (see causal_align). Together with attn_mask, which torch refuses, both must let a key be seen.
    scale: factor of the scores. None: 1 / sqrt(head_dim).
    enable_gqa: grouped heads: key and value may have fewer heads, of which the query's are a multiple. They are not repeated in memory.

    window: (left, right): only keys from `left` before to `right` after the query's position, inclusive; -1 = no limit.
    softcap: scores become softcap * tanh(score / softcap), before masks.
    sinks: one logit per head that joins the softmax's denominator only. Held as f32, like alibi_slopes and dropout_p, in f64 calls too.
    alibi_slopes: one per head: -slope * |distance| is added (`mha.alibi_slopes(heads)` are the paper's). Not with a float attn_mask.
    causal_align: where query 0 sits for is_causal, window and alibi_slopes: "top_left" (at key 0) or "bottom_right" (at key kv_len - q_len).
    return_lse, return_weights, return_stats, links: the result is then an AttentionOutputs instead of an array.
    chosen_keys: bool, broadcastable to [..., kv_len] (... being the batch axes): the keys whose weight return_stats adds up.
    links: so many strongest links of each row, 1 to 32, as link_weights and link_keys of stats; 0: none.
    seed: of the dropout, 0 to 2^64 - 1. None: drawn from torch's generator for a torch query (torch.manual_seed), else from NumPy's global one
        (numpy.random.seed). What is dropped depends on the seed and the index only (leading axes as given), never on threads.
    num_threads: at most so many threads. None: all cores this process may use. The result is bitwise the same for any number.
    out: an array of the result's shape and dtype to write to; it must not overlap an input.

    Returns [..., heads, q_len, value_dim] of the query's framework (NumPy for anything but torch and JAX). A row that may see nothing is 0.
    Ctrl-C interrupts; `out` is then half written. Raises ValueError (shapes, options, memory that is not the CPU's, a tensor that requires
    grad) and TypeError (dtypes, objects that are no arrays), before anything is written.
    """
    call = Call(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, window, softcap, sinks, alibi_slopes, causal_align,
                return_lse, return_weights, return_stats, chosen_keys, _links(links), seed, num_threads, out)
    if _arrays.is_torch(query):
        from mha import _torch

        result = _torch.attend(call)
    else:
        result = attend(call)
    return result if return_lse or return_weights or return_stats or call.links > 0 else result.out


def attention_forward(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: _core.Mask | None = None,
    align: str = "unset",
    allowed: Any = None,
    bias: Any = None,
    kv_lengths: Iterable[int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink_logits: Iterable[float] | None = None,
    alibi_slopes: Iterable[float] | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    return_lse: bool = False,
    return_weights: bool = False,
    return_stats: bool = False,
    chosen: Any = None,
    links: int = 0,
    num_threads: int | None = None,
    out: Any = None,
) -> AttentionOutputs:
    """Exact attention under the names and with the axis order of the C++ library: length before heads, masks as rules, nothing broadcast.

    q: [batch, q_len, heads, head_dim]. k: [batch, kv_len, kv_heads, head_dim], heads a multiple of kv_heads. v: [batch, kv_len, kv_heads,
    value_dim]. One dtype (f32, f64, f16, bf16), any strides, any framework, as scaled_dot_product_attention has it.
    mask: `mha.causal() & mha.window(255)` and the like. align: "top_left" or "bottom_right", where q_len and kv_len differ and a mask asks.
    allowed: bool, True = may attend; bias: floats, added. Both [batch | 1, heads | 1, q_len | 1, kv_len | 1].
    kv_lengths: per batch entry; keys at and beyond it do not exist.
    scale, softcap, sink_logits, alibi_slopes, num_threads: as in scaled_dot_product_attention. dropout: its probability, by `seed`.
    chosen: bool, [batch | 1, kv_len]: the keys whose weight return_stats adds up. links: as in scaled_dot_product_attention. out: [batch, q_len, heads, value_dim], to write to.

    Returns AttentionOutputs: out [batch, q_len, heads, value_dim], and where asked for lse [batch, heads, q_len], weights [batch, heads,
    q_len, kv_len] and stats (align must say where queries sit where q_len and kv_len differ). Raises ValueError or TypeError. Not for torch.compile."""
    spec = spec_of(mask, align, scale, softcap, sink_logits, alibi_slopes)
    spec.dropout = _number(dropout, "dropout")
    spec.seed = _seed(seed)
    queries, keys, values = _arrays.read(q, "q"), _arrays.read(k, "k"), _arrays.read(v, "v")
    for array, name in ((queries, "q"), (keys, "k"), (values, "v")):
        if len(array.shape) != 4:
            raise ValueError(f"{name} has shape {list(array.shape)}, must be [batch, length, heads, dim]")
    batch, q_len, heads, _ = queries.shape
    shape = (batch, q_len, heads, values.shape[3])
    table = (batch, heads, q_len, keys.shape[1])
    wide = "f64" if queries.dtype == "f64" else "f32"
    written = _arrays.empty(q, queries.dtype, shape) if out is None else out
    lse = _arrays.empty(q, wide, table[:3]) if return_lse else None
    weights = _arrays.empty(q, wide, table) if return_weights else None
    arrays = _core.AttentionArrays(queries, keys, values, _arrays.read(written, "out", writable=True))
    for name, given in (("lse", lse), ("weights", weights)):
        setattr(arrays, name, None if given is None else _arrays.read(given, name, writable=True))
    for name, given in (("allowed", allowed), ("bias", bias)):
        setattr(arrays, name, None if given is None else _arrays.read(given, name))
    arrays.kv_lengths = lengths_of(kv_lengths, "kv_lengths")
    marked = _chosen(chosen, "chosen", return_stats)
    stats = _statistics(arrays, _Wanted(return_stats, marked, _links(links)), lambda whole, tail: _arrays.empty(q, "i64" if whole else wide, (*table[:3], *tail)), 3)
    _core.attention_forward(spec, arrays, threads_of(num_threads))
    return AttentionOutputs(_arrays.finish(q, written) if out is None else out, _arrays.finish(q, lse), _arrays.finish(q, weights),
                            _finish_statistics(q, stats))


def attend(call: Call) -> AttentionOutputs:
    """The call, computed. Raises as scaled_dot_product_attention does."""
    q, k, v = (_arrays.read(array, name) for array, name in ((call.query, "query"), (call.key, "key"), (call.value, "value")))
    if q.dtype not in ("f32", "bf16", "f16", "f64"):
        raise TypeError(f"query is {q.dtype}, must be f32, bf16, f16 or f64")
    spec = _spec(call)
    shapes = Shapes.of(call, q, k, v)
    out = _new_out(call, q, shapes) if call.out is None else call.out
    arrays = _core.AttentionArrays(
        q.broadcast_to(shapes.full(shapes.heads, *q.shape[-2:])).swap_axes(-2, -3),
        k.broadcast_to(shapes.full(shapes.kv_heads, *k.shape[-2:])).swap_axes(-2, -3),
        v.broadcast_to(shapes.full(shapes.kv_heads, *v.shape[-2:])).swap_axes(-2, -3),
        _result(out, "out", q.dtype, shapes.out, shapes).swap_axes(-2, -3),
    )
    if call.attn_mask is not None:
        _set_mask(arrays, _arrays.read(call.attn_mask, "attn_mask"), shapes)
    wide = "f64" if q.dtype == "f64" else "f32"
    lse = weights = None
    if call.return_lse:
        lse = _arrays.empty(call.query, wide, shapes.lse)
        arrays.lse = _result(lse, "lse", wide, shapes.lse, shapes, axes=2)
    if call.return_weights:
        weights = _arrays.empty(call.query, wide, shapes.weights)
        arrays.weights = _result(weights, "weights", wide, shapes.weights, shapes)
    chosen = _chosen(call.chosen_keys, "chosen_keys", call.return_stats)
    chosen = None if chosen is None else chosen.broadcast_to(shapes.full(shapes.kv_len))
    stats = _statistics(arrays, _Wanted(call.return_stats, chosen, call.links),
                        lambda whole, tail: _arrays.empty(call.query, "i64" if whole else wide, (*shapes.lse, *tail)), len(shapes.batch) + 2)
    _core.attention_forward(spec, arrays, threads_of(call.num_threads))
    if call.out is None:
        out = _arrays.finish(call.query, out)
    return AttentionOutputs(out, _arrays.finish(call.query, lse), _arrays.finish(call.query, weights), _finish_statistics(call.query, stats))


def numbers_of_rows(stats: bool, chosen: bool, links: int) -> dict[str, tuple[bool, Shape]]:
    """Of each number that is asked for: whether it is an integer, and its axes beyond those of a row."""
    of_links = ("link_weights", "link_keys")
    wanted = {name: links > 0 if name in of_links else stats and (name != "chosen_weight" or chosen) for name in RowStatistics._fields}
    return {name: (name in ("max_key", "link_keys"), (links,) if name in of_links else ()) for name, asked in wanted.items() if asked}


@dataclass(slots=True)
class _Wanted:
    stats: bool
    chosen: _core.Array | None
    links: int


def _statistics(arrays: _core.AttentionArrays, wanted: _Wanted, make: Callable[[bool, Shape], Any], rank: int) -> RowStatistics | None:
    """New arrays for what is wanted of each row, given to the call with axes added in front up to `rank` and those of links. `make` is told
    whether one is of integers, and its axes beyond those of a row."""
    made = {}
    for name, (whole, tail) in numbers_of_rows(wanted.stats, wanted.chosen is not None, wanted.links).items():
        made[name] = make(whole, tail)
        seen = _arrays.read(made[name], name, writable=True)
        setattr(arrays, name, seen.broadcast_to((1,) * (rank + len(tail) - len(seen.shape)) + tuple(seen.shape)))
    arrays.chosen = wanted.chosen
    return RowStatistics(**made) if made else None


def _links(links: Any) -> int:
    number = _integer(links, "links")
    if not 0 <= number <= 32:
        raise ValueError(f"links is {number}, must be 0 to 32")
    return number


def _chosen(keys: Any, name: str, wanted: bool) -> _core.Array | None:
    if keys is None:
        return None
    if not wanted:
        raise ValueError(f"{name} is given, but return_stats is not asked for")
    return _arrays.read(keys, name)


def _finish_statistics(like: Any, stats: RowStatistics | None) -> RowStatistics | None:
    return None if stats is None else RowStatistics(*(_arrays.finish(like, array) for array in stats))


@dataclass(slots=True)
class Shapes:
    """Sizes of a call: what the results look like, and what the library is given."""

    batch: Shape  # leading axes as the library sees them: at least one
    heads: int
    kv_heads: int
    rank: int  # of the results, as the caller sees them
    q_len: int
    kv_len: int
    value_dim: int

    @staticmethod
    def of(call: Call, q: Any, k: Any, v: Any) -> Shapes:
        """Of the call and whatever has the shapes of its query, key and value."""
        shapes = q_shape, k_shape, v_shape = tuple(q.shape), tuple(k.shape), tuple(v.shape)
        for shape, name in zip(shapes, ("query", "key", "value")):
            if len(shape) < 2:
                raise ValueError(f"{name} has shape {list(shape)}, must be [..., heads, length, dim]")
        rank = max(len(q_shape), len(k_shape), len(v_shape))
        if len(q_shape) >= 4 and q_shape[:-2] == k_shape[:-2] == v_shape[:-2]:  # the usual case, without ado
            return Shapes(q_shape[:-3], q_shape[-3], q_shape[-3], rank, q_shape[-2], k_shape[-2], v_shape[-1])
        full = [(1,) * (max(rank, 4) - len(shape)) + shape for shape in shapes]
        batch = _broadcast([shape[:-3] for shape in full], "batch axes")
        if call.enable_gqa:
            heads = full[0][-3]
            (kv_heads,) = _broadcast([full[1][-3:-2], full[2][-3:-2]], "heads of key and value")
        else:
            sizes = [shape[-3] for shape in full]
            (heads,) = _broadcast([(size,) for size in sizes], "heads of query, key and value (enable_gqa=True takes grouped heads)")
            kv_heads = 1 if sizes[1] == sizes[2] == 1 and heads > 0 else heads
        return Shapes(batch, heads, kv_heads, rank, q_shape[-2], k_shape[-2], v_shape[-1])

    def full(self, *tail: int) -> Shape:
        return (*self.batch, *tail)

    def _seen(self, *tail: int) -> Shape:
        lead = (*self.batch, self.heads)
        return (*lead[len(lead) - (self.rank - 2):], *tail)

    @property
    def out(self) -> Shape:
        return self._seen(self.q_len, self.value_dim)

    @property
    def lse(self) -> Shape:
        return self._seen(self.q_len)

    @property
    def weights(self) -> Shape:
        return self._seen(self.q_len, self.kv_len)


def _broadcast(shapes: list[Shape], what: str) -> Shape:
    result = []
    for sizes in zip(*shapes):
        found = 1
        for size in sizes:  # sizes may be symbols of torch: compared, never hashed
            if size != 1 and found != 1 and size != found:
                raise ValueError(f"{what} do not broadcast: {' and '.join(str(list(shape)) for shape in shapes)}")
            found = found if size == 1 else size
        result.append(found)
    return tuple(result)


def length_first(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether a query's memory goes [length, heads, dim], as a projection leaves it: the output's then does too, and joining heads is free."""
    return len(shape) > 2 and shape[-3] > 1 and shape[-2] > 1 and abs(strides[-3]) < abs(strides[-2])


def _new_out(call: Call, q: _core.Array, shapes: Shapes) -> Any:
    shape = shapes.out
    if not length_first(q.shape, q.strides):
        return _arrays.empty(call.query, q.dtype, shape)
    return _arrays.empty(call.query, q.dtype, (*shape[:-3], shape[-2], shape[-3], shape[-1])).swapaxes(-2, -3)


def _result(array: Any, name: str, dtype: str, shape: Shape, shapes: Shapes, axes: int = 3) -> _core.Array:
    """An array to write to, with axes added in front for the library: [*batch, heads, ...], `axes` of them after batch."""
    result = _arrays.read(array, name, writable=True)
    if tuple(result.shape) != shape:
        raise ValueError(f"{name} has shape {list(result.shape)}, must be {list(shape)}")
    if result.dtype != dtype:
        raise TypeError(f"{name} is {result.dtype}, must be {dtype}")
    return result.broadcast_to((1,) * (len(shapes.batch) + axes - len(shape)) + shape)


def _set_mask(arrays: _core.AttentionArrays, mask: _core.Array, shapes: Shapes) -> None:
    """Sizes of 1 stay in the last three axes, which the library broadcasts itself and checks."""
    rank = len(shapes.batch) + 3
    if len(mask.shape) > rank:
        raise ValueError(f"attn_mask has shape {list(mask.shape)}, which does not broadcast to {list(shapes.weights)}")
    tail = ((1,) * 3 + tuple(mask.shape))[-3:]
    mask = mask.broadcast_to(shapes.full(*tail))
    if mask.dtype == "bool":
        arrays.allowed = mask
    else:
        arrays.bias = mask


def _integer(value: Any, name: str, most: int = 2**63 - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} is {value!r}, must be an integer") from error
    if not -(2**63) <= number <= most:
        raise ValueError(f"{name} is {number}, which is beyond 64 bits")
    return number


def threads_of(num_threads: int | None) -> int | None:
    """num_threads as the extension takes it; more than there are cores is all of them. TypeError or ValueError."""
    return None if num_threads is None else _integer(num_threads, "num_threads")


def _number(value: Any, name: str) -> float:
    _arrays.refuse_grad(value, name)
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} is {value!r}, must be a number")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is {value!r}, must be a number") from error
    except OverflowError as error:
        raise ValueError(f"{name} is {value}, which is beyond f64") from error


def _numbers(values: Iterable[Any], name: str) -> list[float]:
    """One number per head, from any sequence or array of rank 1."""
    _arrays.refuse_grad(values, name)
    listed = values.tolist() if hasattr(values, "tolist") else values
    try:
        return [_number(value, name) for value in listed]
    except TypeError as error:
        raise TypeError(f"{name} must hold one number per head") from error


def _spec(call: Call) -> _core.AttentionSpec:
    mask = _core.causal() if call.is_causal else _core.Mask()
    if call.window is not None:
        try:
            left, right = call.window
        except (TypeError, ValueError) as error:
            raise type(error)(f"window is {call.window!r}, must be (left, right)") from error
        mask = mask & _core.window(_integer(left, "window"), _integer(right, "window"))
    if call.causal_align not in ("top_left", "bottom_right"):
        raise ValueError(f'causal_align is {call.causal_align!r}, must be "top_left" or "bottom_right"')
    spec = spec_of(mask, call.causal_align, call.scale, call.softcap, call.sinks, call.alibi_slopes, "sinks")
    probability = _number(call.dropout_p, "dropout_p")
    spec.dropout = probability
    if probability > 0:
        spec.seed = _seed(call.seed)
    return spec


def spec_of(
    mask: _core.Mask | None,
    align: str,
    scale: float | None,
    softcap: float | None,
    sink_logits: Iterable[float] | None,
    alibi_slopes: Iterable[float] | None,
    sinks_name: str = "sink_logits",
) -> _core.AttentionSpec:
    """A specification without dropout, from what users give. ValueError or TypeError."""
    spec = _core.AttentionSpec()
    if mask is not None:
        if not isinstance(mask, _core.Mask):
            raise TypeError(f"mask is a {type(mask).__name__}, must be a Mask such as mha.causal(); a boolean table is `allowed`")
        spec.mask = mask
    if not isinstance(align, str):
        raise TypeError(f'align is {align!r}, must be "top_left", "bottom_right" or "unset"')
    spec.align = align
    if scale is not None:
        spec.scale = _number(scale, "scale")
    if softcap is not None:
        spec.softcap = _number(softcap, "softcap")
    if sink_logits is not None:
        spec.sink_logits = _numbers(sink_logits, sinks_name)
    if alibi_slopes is not None:
        spec.alibi_slopes = _numbers(alibi_slopes, "alibi_slopes")
    return spec


def lengths_of(lengths: Iterable[int] | None, name: str) -> list[int]:
    """Whole numbers of any sequence or array; none for None."""
    if lengths is None:
        return []
    listed = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    try:
        return [_integer(length, name) for length in listed]
    except TypeError as error:
        raise TypeError(f"{name} must hold one integer per batch entry") from error


def _seed(seed: int | None) -> int:
    if seed is None:
        return int(np.random.randint(2**63, dtype=np.int64))
    number = _integer(seed, "seed", 2**64 - 1)
    if number < 0:
        raise ValueError(f"seed is {number}, must be 0 to 2^64 - 1")
    return number
