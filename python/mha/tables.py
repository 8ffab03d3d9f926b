"""What comes back to a former call's weights by its q, k and lse: rectangles, what keys receive, maps. No table is ever held.

Axes, masks and names as in the C++ header. Called by users and by captures.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from mha import _arrays, _core, attention


class FormerOptions(TypedDict, total=False):
    """How the former call was made; all as in attention_forward."""

    allowed: Any
    bias: Any
    kv_lengths: Iterable[int] | None
    mask: _core.Mask | None
    align: str
    scale: float | None
    softcap: float | None
    sink_logits: Iterable[float] | None
    alibi_slopes: Iterable[float] | None
    num_threads: int | None


class WeightsMap(NamedTuple):
    """A picture of a head's table, [rows, columns], f32."""

    mean: npt.NDArray[np.float32]
    """Over all pairs of a cell; hidden ones weigh 0."""
    max: npt.NDArray[np.float32]


def attention_weights(
    q: Any,
    k: Any,
    lse: Any,
    head: int,
    batch: int = 0,
    queries: Sequence[int] | None = None,
    keys: Sequence[int] | None = None,
    **options: Unpack[FormerOptions],
) -> npt.NDArray[np.float32]:
    """Exact weights (before dropout) of a rectangle of one head's table, [queries, keys], f32: recomputed from q, k and the lse that a former
    call of attention with the same masks and options gave.

    q: [batch, q_len, heads, head_dim]. k: [batch, kv_len, kv_heads, head_dim]. lse: [batch, heads, q_len], f32. Not for f64.
    queries, keys: (begin, end); None: all. options: those of the former call, as in attention_forward; with others, rows add up to anything
    but 1. (scaled_dot_product_attention has heads before length: hand its arrays on with those axes exchanged.)

    Raises ValueError or TypeError."""
    call, sizes = _former(q, k, lse, options)
    region = _region(sizes, head, batch, queries, keys)
    out = np.empty((region[3] - region[2], region[5] - region[4]), np.float32)
    _core.attention_weights(call, region, _arrays.read(out, "weights", writable=True), attention.threads_of(options.get("num_threads")))
    return out


def attention_received(q: Any, k: Any, lse: Any, **options: Unpack[FormerOptions]) -> npt.NDArray[np.float32]:
    """What every key receives: the sum over all queries of their weights on it (before dropout), [batch, heads, kv_len], f32. Arguments,
    precision and errors as in attention_weights."""
    call, sizes = _former(q, k, lse, options)
    out = np.empty((sizes[0], sizes[2], sizes[3]), np.float32)
    _core.attention_received(call, _arrays.read(out, "received", writable=True), attention.threads_of(options.get("num_threads")))
    return out


def attention_map(
    q: Any,
    k: Any,
    lse: Any,
    head: int,
    batch: int = 0,
    queries: Sequence[int] | None = None,
    keys: Sequence[int] | None = None,
    *,
    shape: Sequence[int] = (512, 512),
    **options: Unpack[FormerOptions],
) -> WeightsMap:
    """A rectangle of one head's table at a chosen size: mean and maximum of the weights in every cell.

    shape: (rows, columns), cut down to the rectangle's own. Cell (r, c) holds queries r * n // rows up to (r + 1) * n // rows of the
    rectangle's n, and keys likewise. The other arguments, precision and errors as in attention_weights."""
    call, sizes = _former(q, k, lse, options)
    region = _region(sizes, head, batch, queries, keys)
    wanted = [attention._integer(size, "shape") for size in shape]
    if len(wanted) != 2 or min(wanted) < 0:
        raise ValueError(f"shape is {tuple(shape)}, must be (rows, columns)")
    cells = min(wanted[0], region[3] - region[2]), min(wanted[1], region[5] - region[4])
    result = WeightsMap(np.empty(cells, np.float32), np.empty(cells, np.float32))
    mean, top = (_arrays.read(array, name, writable=True) for array, name in zip(result, ("mean", "max")))
    _core.attention_map(call, region, mean, top, attention.threads_of(options.get("num_threads")))
    return result


def _former(q: Any, k: Any, lse: Any, options: FormerOptions) -> tuple[_core.FormerCall, tuple[int, int, int, int]]:
    """The former call, and its batch, q_len, heads and kv_len."""
    unknown = sorted(set(options) - set(FormerOptions.__annotations__))
    if unknown:
        raise TypeError(f"unexpected argument {unknown[0]}: options are {', '.join(FormerOptions.__annotations__)}")
    spec = attention.spec_of(options.get("mask"), options.get("align", "unset"), options.get("scale"), options.get("softcap"),
                             options.get("sink_logits"), options.get("alibi_slopes"))
    queries, keys = _arrays.read(q, "q"), _arrays.read(k, "k")
    if len(queries.shape) != 4 or len(keys.shape) != 4:
        raise ValueError(f"q has shape {list(queries.shape)}, k {list(keys.shape)}: [batch, length, heads, head_dim] is wanted")
    call = _core.FormerCall(spec, queries, keys, _arrays.read(lse, "lse"))
    for name, array in (("allowed", options.get("allowed")), ("bias", options.get("bias"))):
        if array is not None:
            setattr(call, name, _arrays.read(array, name))
    call.kv_lengths = attention.lengths_of(options.get("kv_lengths"), "kv_lengths")
    return call, (queries.shape[0], queries.shape[1], queries.shape[2], keys.shape[1])


def _region(
    sizes: tuple[int, int, int, int], head: int, batch: int, queries: Sequence[int] | None, keys: Sequence[int] | None
) -> list[int]:
    rows, columns = range_of(queries, sizes[1], "queries"), range_of(keys, sizes[3], "keys")
    return [attention._integer(batch, "batch"), attention._integer(head, "head"), *rows, *columns]


def range_of(bounds: Sequence[int] | None, length: int, name: str) -> tuple[int, int]:
    if bounds is None:
        return 0, length
    numbers = [attention._integer(bound, name) for bound in bounds]
    if len(numbers) != 2:
        raise ValueError(f"{name} has {len(numbers)} numbers, must be (begin, end)")
    if not 0 <= numbers[0] <= numbers[1] <= length:
        raise ValueError(f"{name} is ({numbers[0]}, {numbers[1]}), must lie in 0 to {length}")
    return numbers[0], numbers[1]
