"""Captures: q, k, lse and tokens of every head of a Hugging Face model in one safetensors file, and what any head weighs, from that file.

    mha.capture(model, "The man saw the astronomer with a telescope", "telescope.safetensors")
    weights = mha.load_capture("telescope.safetensors").layers[5].weights(head=11)

The layout is docs/formats.md's. `capture` wants torch and transformers, `load_capture` only NumPy.
What is computed is attention_weights'; this file knows what is written where."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mha import _arrays, _core, tables

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from mha.transformers import Observed

FORMAT = "mha.capture"
VERSION = "1"

_Path = str | os.PathLike[str]


# --- reading


@dataclass(frozen=True, slots=True)
class CapturedLayer:
    """One call of attention: its arrays, in the file, and what its scores went through."""

    name: str
    """The module, as the model calls it."""
    queries: str | None
    """Which tokens the queries are: "tokens" or "decoder_tokens"; None: unknown."""
    keys: str | None
    """Which tokens the keys are."""
    ready: npt.NDArray[Any] | None = None
    """[batch, heads, q_len, kv_len]: weights, where the file holds them instead of what they are made of; all below is then absent."""
    q: npt.NDArray[Any] | None = None
    """[batch, heads, q_len, head_dim], as scored: after norms and rotary embedding. f32, f16 or bf16 (ml_dtypes)."""
    k: npt.NDArray[Any] | None = None
    """[batch, kv_heads, kv_len, head_dim]."""
    v: npt.NDArray[Any] | None = None
    """[batch, kv_heads, kv_len, value_dim], where it was asked for."""
    lse: npt.NDArray[np.float32] | None = None
    """[batch, heads, q_len]: natural log of the softmax denominator, a sink included; -inf for a row that sees nothing."""
    scale: float | None = None
    softcap: float | None = None
    causal: bool = False
    window: tuple[int, int] | None = None
    """(left, right), -1: no limit."""
    align: str = "top_left"
    """Where query 0 sits for causal and window: "top_left" or "bottom_right"."""
    sinks: npt.NDArray[Any] | None = None
    """[heads]."""
    allowed: npt.NDArray[np.bool_] | None = None
    """[batch | 1, heads | 1, q_len | 1, kv_len | 1], True = may attend."""
    bias: npt.NDArray[Any] | None = None
    """The same shape: added to the scores."""
    head_out: npt.NDArray[np.float32] | None = None
    """[batch, heads, q_len, value_dim]: the heads' output before W_O, where capture_heads made the capture; files have none."""

    def weights(
        self, head: int, batch: int = 0, queries: Sequence[int] | None = None, keys: Sequence[int] | None = None
    ) -> npt.NDArray[np.float32]:
        """Exact weights (before dropout) of a rectangle of a head's table, [queries, keys]: `queries`, `keys` are (begin, end), None: all.
        Any size of model and text: only the rectangle is computed. ValueError."""
        if self.ready is not None:
            sizes = self.ready.shape
            if not (0 <= batch < sizes[0] and 0 <= head < sizes[1]):
                raise ValueError(f"batch {batch}, head {head}: {self.name} has {sizes[0]} and {sizes[1]}")
            rows, columns = tables.range_of(queries, sizes[2], "queries"), tables.range_of(keys, sizes[3], "keys")
            return self.ready[batch, head, slice(*rows), slice(*columns)].astype(np.float32)
        assert self.q is not None and self.k is not None
        return tables.attention_weights(self.q.swapaxes(1, 2), self.k.swapaxes(1, 2), self.lse, head, batch, queries, keys, **self._options())

    def former_call(self) -> _core.FormerCall:
        """The call, for the extension. Not where weights are ready."""
        assert self.q is not None and self.k is not None
        return tables._former(self.q.swapaxes(1, 2), self.k.swapaxes(1, 2), self.lse, self._options())[0]

    def _options(self) -> tables.FormerOptions:
        mask = _core.causal() if self.causal else _core.Mask()
        if self.window is not None:
            mask = mask & _core.window(*self.window)
        return {"allowed": self.allowed, "bias": self.bias, "mask": mask, "align": self.align, "scale": self.scale, "softcap": self.softcap,
                "sink_logits": None if self.sinks is None else self.sinks.astype(np.float32)}


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture file, mapped: arrays are read when they are looked at."""

    model: str
    """The model's name or folder, as transformers knows it."""
    architecture: str
    """The model's class."""
    texts: list[str] | None
    """The texts of the batch, where text was given."""
    pieces: dict[str, list[list[str]]]
    """Per array of tokens, the vocabulary's strings; empty where no tokenizer was given."""
    tokens: dict[str, npt.NDArray[Any]]
    """"tokens" [batch, length], i64; perhaps "tokens.mask" (bool, True = no padding), "tokens.offsets" [batch, length, 2] (characters of
    the text), "tokens.words" (number of the word, -1: none); the same of "decoder_tokens"."""
    layers: list[CapturedLayer]
    """In the order of their calls."""


def load_capture(path: _Path) -> Capture:
    """The capture in a file. OSError where it cannot be read, ValueError where it is no capture of a version this package knows."""
    name = os.fspath(path)
    file = _core.SafetensorsFile(name)
    metadata = file.metadata()
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{name}: no capture: its metadata has no format={FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise ValueError(f"{name}: a capture of version {metadata.get('version')!r}, this package reads {VERSION!r}")
    try:
        listed, texts, pieces = (json.loads(metadata.get(key, absent)) for key, absent in
                                 (("layers", "null"), ("texts", "null"), ("pieces", "{}")))
        for what, found, kind in (("layers", listed, list), ("pieces", pieces, dict)):
            if not isinstance(found, kind):
                raise TypeError(f"{what} is no {kind.__name__}")
        layers = [_read_layer(file, index, said) for index, said in enumerate(listed)]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name}: its metadata is no capture's: {type(error).__name__}: {error}") from error
    tokens = {key: _tensor(file, key) for key in file.names() if key.partition(".")[0] in ("tokens", "decoder_tokens")}
    return Capture(metadata.get("model", ""), metadata.get("architecture", ""), texts, pieces, tokens, layers)


def _tensor(file: _core.SafetensorsFile, name: str) -> Any:
    array = np.asarray(file.tensor(name))
    if file.dtype(name) != "BF16":
        return array
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise ImportError(f"{name} is bf16, which NumPy knows by the package ml_dtypes: it is not installed") from error
    return array.view(bfloat16)


def _read_layer(file: _core.SafetensorsFile, index: int, said: dict[str, Any]) -> CapturedLayer:
    names, prefix = set(file.names()), f"layers.{index}."
    name, queries, keys = str(said["name"]), said["queries"], said["keys"]
    if prefix + "weights" in names:
        return CapturedLayer(name, queries, keys, ready=_of_rank(name, 4, _tensor(file, prefix + "weights")))

    def named(role: str) -> Any:
        return None if said[role] is None else _tensor(file, said[role])

    window = said["window"]
    if window is not None:
        left, right = (int(bound) for bound in window)
        window = (left, right)
        if max(abs(left), abs(right)) >= 2**63:
            raise ValueError(f"window is {list(window)}, beyond 64 bits")
    if not isinstance(said["causal"], bool):
        raise TypeError(f"causal is {said['causal']!r}, must be true or false")
    return CapturedLayer(
        name, queries, keys, q=_of_rank(name, 4, _tensor(file, prefix + "q")), k=_of_rank(name, 4, _tensor(file, prefix + "k")),
        v=_of_rank(name, 4, _tensor(file, prefix + "v")) if prefix + "v" in names else None,
        lse=_of_rank(name, 3, _tensor(file, prefix + "lse")), scale=float(said["scale"]),
        softcap=None if said["softcap"] is None else float(said["softcap"]), causal=said["causal"], window=window,
        align=str(said["align"]), sinks=named("sinks"), allowed=named("allowed"), bias=named("bias"))


def _of_rank(name: str, rank: int, array: Any) -> Any:
    if array.ndim != rank:
        raise ValueError(f"{name}: an array has shape {list(array.shape)}, {rank} axes are wanted")
    return array


# --- writing


def capture(
    model: PreTrainedModel,
    inputs: str | Sequence[str] | Mapping[str, Any] | torch.Tensor,
    path: _Path,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    values: bool = False,
) -> Capture:
    """Runs a Hugging Face torch model once and writes q, k (as scored: after norms and rotary embedding), lse and tokens of every head of
    every call of attention into one safetensors file, laid out as docs/formats.md says. The model computes with this library meanwhile and
    is left as it was.

    inputs: a text or several, token ids [batch, length] or [length], or the model's keyword arguments.
    tokenizer: of texts, and to name the pieces of given ids. None: for texts the one beside the model, where it was loaded from.
    values: also writes v.

    Returns the capture, as load_capture gives it. The file is written at once or not at all. Raises OSError where it cannot be written
    (before the model runs), ValueError for text where no tokenizer is known, a model in training, f64, or one that does not go through the
    attention interface of transformers, TypeError for what is no model of transformers; and whatever the model raises."""
    name = _place(path)
    given = _inputs(inputs, tokenizer, getattr(model, "name_or_path", ""))
    calls = _observe(model, given.arguments)
    writer = _Writer(model, given, values)
    for call in calls:
        writer.add(call)
    _core.save_safetensors(name, {key: _arrays.read(array, key) for key, array in writer.arrays.items()}, writer.metadata())
    return load_capture(name)


def _place(path: _Path) -> str:
    """The path, if a file can be written there. OSError."""
    name = os.fspath(path)
    if os.path.isdir(name):
        raise IsADirectoryError(f"{name} is a directory, a file is wanted")
    with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(name))):
        return name


@dataclass(slots=True)
class _Inputs:
    arguments: dict[str, Any]
    texts: list[str] | None
    tokenizer: PreTrainedTokenizerBase | None
    tokens: dict[str, Any]  # what the file has of them, as in Capture


def _inputs(inputs: Any, tokenizer: PreTrainedTokenizerBase | None, origin: str) -> _Inputs:
    """`origin`: where the model was loaded from; empty where it was made."""
    import torch

    texts = [inputs] if isinstance(inputs, str) else None
    if isinstance(inputs, Sequence) and not isinstance(inputs, str) and inputs and all(isinstance(text, str) for text in inputs):
        texts = list(inputs)
    if texts is not None:
        if tokenizer is None:
            if not origin:
                raise ValueError("inputs are text, which wants a tokenizer: capture(model, text, path, tokenizer=tokenizer)")
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(origin)
        encoded = tokenizer(texts, return_tensors="pt", padding=len(texts) > 1, return_offsets_mapping=tokenizer.is_fast)
        offsets = encoded.pop("offset_mapping", None)
        found = _Inputs(dict(encoded), texts, tokenizer, {})
        if offsets is not None:
            words = [[-1 if word is None else word for word in encoded.word_ids(entry)] for entry in range(len(texts))]
            found.tokens = {"tokens.offsets": offsets.to(torch.int64), "tokens.words": torch.tensor(words, dtype=torch.int64)}
    elif isinstance(inputs, torch.Tensor):
        found = _Inputs({"input_ids": inputs[None] if inputs.ndim == 1 else inputs}, None, tokenizer, {})
    elif isinstance(inputs, Mapping):
        found = _Inputs(dict(inputs), None, tokenizer, {})
    else:
        raise TypeError(f"inputs are a {type(inputs).__name__}, must be text, several texts, a tensor of ids or a mapping of arguments")
    for name, ids, mask in (("tokens", "input_ids", "attention_mask"), ("decoder_tokens", "decoder_input_ids", "decoder_attention_mask")):
        if found.arguments.get(ids) is not None:
            found.tokens[name] = found.arguments[ids].to(torch.int64)
            kept = found.arguments.get(mask)
            if kept is not None and kept.ndim == 2:
                found.tokens[f"{name}.mask"] = kept.to(torch.bool)
    return found


def _observe(model: Any, arguments: dict[str, Any]) -> list[Observed]:
    """Every call of attention of one forward pass."""
    import torch

    from mha import transformers as ours

    if not hasattr(model, "set_attn_implementation"):
        raise TypeError(f"model is a {type(model).__name__}, must be a model of transformers (a PreTrainedModel)")
    if model.training:
        raise ValueError("model is in training, where dropout would be part of what is seen: call model.eval() first")
    calls: list[Observed] = []
    with _switched(model, ours.NAME), torch.no_grad():
        before = ours.observer.set(calls.append)
        try:
            model(**arguments)
        finally:
            ours.observer.reset(before)
    if not calls:
        raise ValueError(f"{type(model).__name__} does not go through the attention interface of transformers: there is nothing to capture")
    return calls


@contextlib.contextmanager
def _switched(model: PreTrainedModel, name: str) -> Iterator[None]:
    """The model and its parts on another attn_implementation, and back."""
    configs: dict[int, Any] = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    before = [(config, config._attn_implementation) for config in configs.values() if hasattr(config, "_attn_implementation")]
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation  # the public setter would also change the parts of this config


class _Writer:
    """Gathers the arrays and the metadata of a file."""

    def __init__(self, model: Any, inputs: _Inputs, values: bool) -> None:
        self.arrays: dict[str, Any] = dict(inputs.tokens)
        self._model, self._inputs, self._values = model, inputs, values
        self._names = {id(module): name for name, module in model.named_modules()}
        self._decoder = set()
        if model.config.is_encoder_decoder:
            self._decoder = {id(module) for module in model.get_decoder().modules()}
        self._tables = 0
        self._layers: list[dict[str, Any]] = []

    def add(self, call: Observed) -> None:
        index = len(self._layers)
        name = self._names.get(id(call.module), type(call.module).__name__)
        parts = {"q": call.query, "k": call.key, "lse": call.lse} | ({"v": call.value} if self._values else {})
        if str(call.query.dtype) == "torch.float64":
            raise ValueError(f"{name} computes in f64, whose weights cannot be recomputed from lse: use model.float()")
        self.arrays |= {f"layers.{index}.{part}": array.detach() for part, array in parts.items()}
        options, mask = call.options, call.options.get("attn_mask")
        boolean = mask is not None and mask.dtype.is_floating_point is False
        scale, window = options["scale"], options.get("window")
        heads, kv_heads = call.query.shape[1], call.key.shape[1]
        self._layers.append({
            "name": name, "heads": heads, "kv_heads": kv_heads, "head_dim": call.query.shape[3], "q_len": call.query.shape[2],
            "kv_len": call.key.shape[2], "scale": 1 / math.sqrt(call.query.shape[3]) if scale is None else float(scale),
            "softcap": options["softcap"], "causal": bool(options.get("is_causal", False)),
            "window": None if window is None else list(window), "align": options.get("causal_align", "top_left"),
            "sinks": self._table(options["sinks"]), "allowed": self._table(mask if boolean else None, rank=4),
            "bias": self._table(None if boolean else mask, rank=4), **self._sides(call, name)})

    def _sides(self, call: Observed, name: str) -> dict[str, str | None]:
        """Which tokens a call's queries and keys are, as far as the model's names and the lengths tell."""
        own = "decoder_tokens" if id(call.module) in self._decoder else "tokens"
        across = own != "tokens" and any(word in name.lower() for word in ("encoder_attn", "encdec", "cross"))
        found = {}
        for side, source, length in (("queries", own, call.query.shape[2]), ("keys", "tokens" if across else own, call.key.shape[2])):
            tokens = self._inputs.tokens.get(source)
            found[side] = source if tokens is not None and tokens.shape[1] == length else None
        return found

    def _table(self, table: torch.Tensor | None, rank: int = 0) -> str | None:
        """The name under which a table is in the file; one that several layers share is there once."""
        if table is None:
            return None
        table = table.detach().reshape((1,) * (rank - table.ndim) + tuple(table.shape))
        for name, known in self.arrays.items():
            if name.startswith("tables.") and known.shape == table.shape and known.dtype == table.dtype and bool((known == table).all()):
                return name
        self._tables += 1
        name = f"tables.{self._tables - 1}"
        self.arrays[name] = table
        return name

    def metadata(self) -> dict[str, str]:
        model, inputs = self._model, self._inputs
        said = {"format": FORMAT, "version": VERSION, "model": str(getattr(model.config, "_name_or_path", "") or model.config.model_type),
                "architecture": type(model).__name__, "layers": json.dumps(self._layers)}
        if inputs.texts is not None:
            said["texts"] = json.dumps(inputs.texts)
        if inputs.tokenizer is not None:
            convert = inputs.tokenizer.convert_ids_to_tokens
            pieces = {name: [convert(entry) for entry in ids.tolist()] for name, ids in inputs.tokens.items() if "." not in name}
            said["pieces"] = json.dumps(pieces)
        return said
