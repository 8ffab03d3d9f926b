"""`Transformer`: a pretrained encoder of the BERT family from a Hugging Face folder, with a hook on every layer's heads.

Its tokenizer is `mha.Tokenizer`. Used by users; knows nothing of torch or of the package transformers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from mha import _arrays, _core, attention
from mha._core import Trace, TransformerConfig

LayerHook = Callable[[int, Trace], object]


class Transformer:
    """The encoder of a folder with config.json and model.safetensors, of model_type bert or distilbert. It computes in f32.

    Raises OSError where a file is missing, ValueError where one is malformed or the weights contradict the config (name and both shapes).
    May be used from several threads at once."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._model = _core.Transformer.load(os.fspath(folder))

    @property
    def config(self) -> TransformerConfig:
        """What config.json says, in this library's vocabulary."""
        return self._model.config

    def output_projection(self, layer: int) -> npt.NDArray[np.float32]:
        """W_O of a layer as the file has it, [d_model, heads * head_dim]: head h reads columns h * head_dim to (h + 1) * head_dim. ValueError
        for a layer that is not there."""
        config = self.config
        out = np.empty((config.d_model, config.heads * config.head_dim), np.float32)
        self._model.output_projection(attention._integer(layer, "layer"), _arrays.read(out, "out", writable=True))
        return out

    def forward(
        self,
        ids: Any,
        *,
        lengths: Iterable[int] | None = None,
        token_types: Any = None,
        allowed: Any = None,
        temperature: float = 1.0,
        hook: LayerHook | None = None,
        num_threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """The last layer's hidden states, [batch, length, d_model], or [length, d_model] for ids of one text.

        ids: whole numbers, [batch, length] or [length]. lengths: per batch entry, tokens that exist; None: all. token_types: like ids, None: 0.
        allowed: bool, True = may attend, [batch | 1, heads | 1, length | 1, length | 1], in every layer.
        temperature: every head's scores are divided by it, > 0.
        hook: called once per layer with the layer's number and a Trace (as of MultiHeadAttention). num_threads: None: all cores.

        Raises ValueError for an id outside the vocabulary, a length beyond max_positions, or what attention refuses, and TypeError for ids
        that are no whole numbers, before anything is computed."""
        numbers = _whole_numbers(ids, "ids")
        rows = np.atleast_2d(numbers)
        hidden = np.empty((*rows.shape, self.config.d_model), np.float32)
        call = _core.TransformerCall(_arrays.read(rows, "ids"), _arrays.read(hidden, "hidden", writable=True))
        if token_types is not None:
            call.token_types = _arrays.read(np.atleast_2d(_whole_numbers(token_types, "token_types")), "token_types")
        if allowed is not None:
            call.allowed = _arrays.read(allowed, "allowed")
        call.lengths = attention.lengths_of(lengths, "lengths")
        call.temperature = attention._number(temperature, "temperature")
        self._model.forward(call, hook, attention.threads_of(num_threads))
        return hidden[0] if numbers.ndim == 1 else hidden

    __call__ = forward


def _whole_numbers(values: Any, name: str) -> npt.NDArray[np.int64]:
    """[batch, length] or [length], dense."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size > 0:
        raise TypeError(f"{name} is {array.dtype}, must be whole numbers")
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} has shape {list(array.shape)}, must be [batch, length] or [length]")
    return np.ascontiguousarray(array, dtype=np.int64)
