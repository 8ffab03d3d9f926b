"""What each head of a run does: norms of what it carries, rollout, how heads resemble each other, scores on repeated tokens.

    captured = mha.capture_heads(model, tokenizer.encode(text).ids)
    mha.plane_map(mha.head_distances(captured)).points

The measures of mha/analysis, under its names; formulas and sources are in docs/numerics.md. They read a Capture: of a model of ours
(capture_heads), or of any Hugging Face model (mha.capture, load_capture). Called by users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mha import _arrays, _core, attention
from mha.captures import Capture, CapturedLayer
from mha.model import Transformer

Numbers = npt.NDArray[np.float64]


def capture_heads(model: Transformer, ids: Any, *, num_threads: int | None = None) -> Capture:
    """Runs the model on one text's ids, [length], and keeps q, k, v, lse and the output of every head. Memory grows with the length. Errors
    as of Transformer.forward."""
    layers: list[CapturedLayer] = []

    def keep(layer: int, trace: _core.Trace) -> None:
        q, k, v, out = (np.swapaxes(array, 1, 2) for array in (trace.q, trace.k, trace.v, trace.head_out))
        layers.append(CapturedLayer(f"layers.{layer}", "tokens", "tokens", q=q, k=k, v=v, lse=trace.lse, head_out=out))

    numbers = np.atleast_2d(np.asarray(ids))
    if len(numbers) != 1:
        raise ValueError(f"ids has shape {list(numbers.shape)}: one text is wanted")
    model.forward(numbers, hook=keep, num_threads=num_threads)
    return Capture("", model.config.family, None, {}, {"tokens": numbers.astype(np.int64)}, layers)


def value_norms(layer: CapturedLayer, output_projection: Any, head: int, batch: int = 0) -> Numbers:
    """| f(x_j) | of every key j, [kv_len], f(x_j) = v_j W_O^h (Kobayashi et al. 2020): times the weights on j, the length of what the head
    carries from there. output_projection: W_O of the layer, [d_model, heads * value_dim]. ValueError, also where the capture has no v."""
    projection = _arrays.read(output_projection, "output_projection")
    return np.array(_core.value_norms(_core_capture([layer]), projection, _whole(head, "head"), _whole(batch, "batch")))


def rollout(
    captured: Capture, first: int, count: int = 1, *, layers: int | None = None, batch: int = 0, num_threads: int | None = None
) -> Numbers:
    """Attention rollout (Abnar & Zuidema 2020): the share of each piece of the text in the hidden state of one piece, or the mean of `count`
    pieces of a word, [pieces]. layers: after so many layers, from below; None: after all. No table is held. ValueError."""
    start = [_whole(number, name) for number, name in ((first, "first"), (count, "count"), (batch, "batch"))]
    depth = None if layers is None else _whole(layers, "layers")
    return np.array(_core.rollout(_core_capture(captured.layers), start, depth, attention.threads_of(num_threads)))


def head_distances(captures: Capture | Sequence[Capture], *, num_threads: int | None = None) -> Numbers:
    """Jensen-Shannon divergences of all heads' rows of weights, summed over the rows of all texts, [heads, heads], layer by layer (Clark et
    al. 2019; smoothed as their code does). The first batch entry of each capture. NaN in the row and column of a head that was removed from
    the model: every other keeps its place. ValueError."""
    return _square(_core.head_distances(_core_captures(captures), attention.threads_of(num_threads)), captures)


def head_similarities(captures: Capture | Sequence[Capture], *, num_threads: int | None = None) -> Numbers:
    """Linear CKA of all heads' outputs over the rows of all texts together, [heads, heads] (Kornblith et al. 2019). NaN for a head whose
    output never changes, and for one that was removed from the model. It is biased upward where rows are few. ValueError, also where a capture
    has no head_out: files have none."""
    return _square(_core.head_similarities(_core_captures(captures), attention.threads_of(num_threads)), captures)


class PlaneMap(NamedTuple):
    """Heads as points of a plane."""

    points: Numbers
    """[heads, 2]; their mean is 0. NaN for heads without a distance."""
    shown: float
    """The share of the variance that two dimensions show."""


def plane_map(distances: Any) -> PlaneMap:
    """Classical multidimensional scaling of [heads, heads] distances (Torgerson 1952). Heads whose
    row is all NaN, which were removed from the model, are left out. ValueError where others are not finite, or the table is not square."""
    table = np.asarray(distances, np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"distances has shape {list(table.shape)}, must be [heads, heads]")
    there = ~np.isnan(table).all(1)
    found, shown = _core.plane_map(table[np.ix_(there, there)].ravel().tolist(), int(there.sum()))
    points = np.full((len(table), 2), np.nan)
    points[there] = np.reshape(found, (-1, 2))
    return PlaneMap(points, shown)


class RepeatedText(NamedTuple):
    """Random tokens twice, in the tokenizer's frame."""

    ids: list[int]
    first: int
    """The place of the first random token."""
    period: int
    """The same tokens begin again at first + period."""


class RepeatedScores(NamedTuple):
    """Mean weights, [layers, heads] each."""

    previous: Numbers
    """On the token before."""
    duplicate: Numbers
    """On the same token in the first copy, from the second."""
    induction: Numbers
    """On what followed it there."""


def repeated_text(tokenizer: _core.Tokenizer, period: int = 24, seed: int = 1) -> RepeatedText:
    """`period` different whole words of the vocabulary, drawn by a seed, twice. ValueError where it has fewer."""
    length, number = _whole(period, "period"), _whole(seed, "seed")
    ids, first = _core.repeated_text(tokenizer, length, number)
    return RepeatedText(ids, first, length)


def repeated_scores(captured: Capture, text: RepeatedText, *, num_threads: int | None = None) -> RepeatedScores:
    """Previous-token, duplicate-token and induction scores (Olsson et al. 2022) of a run over that text. They look back only, though the
    tokens of an encoder see both copies. ValueError where the capture is of another text, or layers have different numbers of heads."""
    scores = np.array(_core.repeated_scores(_core_capture(captured.layers), text.ids, text.first, text.period,
                                            attention.threads_of(num_threads)))
    if len(scores) % len(captured.layers) != 0:
        raise ValueError(f"{len(scores)} heads in {len(captured.layers)} layers")
    return RepeatedScores(*(scores[:, i].reshape(len(captured.layers), -1) for i in range(3)))


def _core_capture(layers: Sequence[CapturedLayer]) -> _core.HeadCapture:
    built = _core.HeadCapture()
    for layer in layers:
        if layer.ready is not None:
            built.add_ready(_arrays.read(layer.ready, "weights"))
            continue
        v, out = (None if array is None else _arrays.read(array.swapaxes(1, 2), name)
                  for array, name in ((layer.v, "v"), (layer.head_out, "head_out")))
        built.add(layer.former_call(), v, out)
    return built


def _core_captures(captures: Capture | Sequence[Capture]) -> list[_core.HeadCapture]:
    several = [captures] if isinstance(captures, Capture) else captures
    return [_core_capture(one.layers) for one in several]


def _square(numbers: list[float], captures: Capture | Sequence[Capture]) -> Numbers:
    """The numbers of the heads that there are, [heads, heads] in the places of all."""
    layers = (captures if isinstance(captures, Capture) else captures[0]).layers
    there = np.concatenate([_is_there(layer) for layer in layers])
    square = np.full((len(there), len(there)), np.nan)
    square[np.ix_(there, there)] = np.reshape(numbers, (there.sum(), there.sum()))
    return square


def _is_there(layer: CapturedLayer) -> npt.NDArray[np.bool_]:
    """Of each head, whether it was not removed from the model: such a one has an lse of infinity."""
    if layer.lse is None:
        return np.ones(0 if layer.ready is None else layer.ready.shape[1], bool)
    there: npt.NDArray[np.bool_] = ~np.isposinf(layer.lse[0]).all(-1)
    return there


def _whole(value: Any, name: str) -> int:
    return attention._integer(value, name)
