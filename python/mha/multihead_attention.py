"""`MultiheadAttention`: the layer with the signature, the masks (True = ignore) and the names of torch.nn.MultiheadAttention.

torch's conventions are translated here, once, to the library's layer (mha._core.MultiHeadAttention): axis orders, masks, packed weights.
Works without torch. The library's own layer is `mha.MultiHeadAttention` (layer.py)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from mha import _arrays, _core, attention

Shape = tuple[int, ...]
_DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


class IncompatibleKeys(NamedTuple):
    """What load_state_dict did not find, and what it did not know."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class MultiheadAttention:
    """torch.nn.MultiheadAttention, forward only: same arguments, same weights, same results.

    embed_dim: width of query and of the result. num_heads: divides it. dropout: probability of dropping a weight, in training only.
    bias: whether the projections have one. add_bias_kv: a learned key and value follow those of the input. add_zero_attn: a key and a value
        of zeros follow, last. kdim, vdim: widths of key and value; None: embed_dim.
    batch_first: arrays are [batch, length, width] instead of [length, batch, width].
    device: None or the CPU. dtype: of the weights and of query, key and value, as NumPy's, torch's or a name; None: float32. 16-bit arrays
        are computed in f32 and rounded once.
    seed: of the initial weights (Xavier uniform; torch draws others, load_state_dict brings them); None: drawn from NumPy's global generator.

    A new layer is in training mode, as in torch. May be used from several threads at once while no one changes its weights or mode.

    Differences from torch: there are no gradients, so a torch tensor that requires grad, under grad mode, is refused; a row that may see
    nothing gives weights of 0 and the output projection's bias, where torch gives NaN with need_weights=True; is_causal is never more than
    a hint, attn_mask decides; need_weights=True in training with dropout runs attention twice, since weights come back dropped (ask for none
    where none are looked at); errors are ValueError and TypeError. Raises ValueError for sizes that cannot be, with the numbers."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        seed: int | None = None,
    ) -> None:
        self.embed_dim = attention._integer(embed_dim, "embed_dim")
        self.num_heads = attention._integer(num_heads, "num_heads")
        self.kdim = self.embed_dim if kdim is None else attention._integer(kdim, "kdim")
        self.vdim = self.embed_dim if vdim is None else attention._integer(vdim, "vdim")
        for name in ("embed_dim", "num_heads", "kdim", "vdim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.embed_dim % self.num_heads != 0:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        if device is not None and getattr(device, "type", str(device)) != "cpu":
            raise ValueError(f"device is {device}, must be the CPU")
        self.head_dim = self.embed_dim // self.num_heads
        self.batch_first = bool(batch_first)
        self.add_zero_attn = bool(add_zero_attn)
        self.training = True
        self._dtype = _dtype_name(dtype)
        self._config = self._new_config(attention._number(dropout, "dropout"), bool(bias), bool(add_bias_kv))
        like = _torch_scalar() if type(dtype).__module__ == "torch" else None
        self._state = {name: _owned(array, name, self._dtype, like) for name, array in self._initial(attention._seed(seed)).items()}
        self._layer = self._new_layer(self._state)

    @property
    def dropout(self) -> float:
        """Probability of dropping a weight, in training."""
        return self._config.attention.dropout

    # ---- mode and weights

    def train(self, mode: bool = True) -> Self:
        """Whether dropout acts; returns the layer."""
        self.training = bool(mode)
        return self

    def eval(self) -> Self:
        """train(False)."""
        return self.train(False)

    def state_dict(self) -> dict[str, Any]:
        """The weights by torch's names, as copies: NumPy arrays, or torch tensors where torch tensors were loaded last (or dtype was torch's).

        in_proj_weight [3 * embed_dim, embed_dim], or q_proj_weight [embed_dim, embed_dim], k_proj_weight [embed_dim, kdim] and v_proj_weight
        [embed_dim, vdim] where kdim or vdim differ from embed_dim; in_proj_bias [3 * embed_dim]; bias_k, bias_v [1, 1, embed_dim];
        out_proj.weight [embed_dim, embed_dim], out_proj.bias [embed_dim]."""
        return {name: array.clone() if _arrays.is_torch(array) else array.copy() for name, array in self._state.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Takes copies of weights by torch's names, NumPy or torch (or anything with DLPack), converted to the layer's dtype.

        Returns the missing and unexpected names. Raises ValueError that lists them, where strict, and every shape that is not the layer's;
        TypeError for what is no array of floats. Then nothing is changed."""
        shapes = self._shapes()
        missing = [name for name in shapes if name not in state_dict]
        unexpected = [str(name) for name in state_dict if name not in shapes]
        faults = []
        if strict and missing:
            faults.append(f"missing: {', '.join(missing)}")
        if strict and unexpected:
            faults.append(f"unexpected: {', '.join(unexpected)}")
        for name, wanted in shapes.items():
            found = tuple(_arrays.read(_detached(state_dict[name]), name).shape) if name in state_dict else wanted
            if found != wanted:
                faults.append(f"{name} has shape {list(found)}, the layer's is {list(wanted)}")
        if faults:
            raise ValueError(f"load_state_dict: {'; '.join(faults)}")
        state = {name: _owned(state_dict[name], name, self._dtype) if name in state_dict else self._state[name] for name in shapes}
        self._layer, self._state = self._new_layer(state), state
        return IncompatibleKeys(missing, unexpected)

    def _new_config(self, dropout: float, bias: bool, learned_key: bool) -> _core.MhaConfig:
        config = _core.MhaConfig()
        config.d_model, config.heads = self.embed_dim, self.num_heads
        config.key_width, config.value_width = self.kdim, self.vdim
        config.bias, config.learned_key, config.zero_key = bias, learned_key, self.add_zero_attn
        spec = _core.AttentionSpec()
        spec.dropout = dropout
        config.attention = spec
        return config

    @property
    def _packed(self) -> bool:
        return self.kdim == self.embed_dim and self.vdim == self.embed_dim

    def _shapes(self) -> dict[str, Shape]:
        """Of the weights, in torch's order."""
        width = self.embed_dim
        shapes: dict[str, Shape] = {}
        if self._packed:
            shapes["in_proj_weight"] = (3 * width, width)
        else:
            shapes |= {"q_proj_weight": (width, width), "k_proj_weight": (width, self.kdim), "v_proj_weight": (width, self.vdim)}
        if self._config.bias:
            shapes["in_proj_bias"] = (3 * width,)
        if self._config.learned_key:
            shapes |= {"bias_k": (1, 1, width), "bias_v": (1, 1, width)}
        shapes["out_proj.weight"] = (width, width)
        if self._config.bias:
            shapes["out_proj.bias"] = (width,)
        return shapes

    def _initial(self, seed: int) -> dict[str, Any]:
        drawn = _core.xavier_parameters(self._config, seed)
        state: dict[str, Any] = {"out_proj.weight": drawn["wo"]}
        if self._packed:
            state["in_proj_weight"] = np.concatenate([drawn["wq"], drawn["wk"], drawn["wv"]])
        else:
            state |= {f"{role}_proj_weight": drawn[f"w{role}"] for role in "qkv"}
        if self._config.bias:
            state |= {"in_proj_bias": np.concatenate([drawn["bq"], drawn["bk"], drawn["bv"]]), "out_proj.bias": drawn["bo"]}
        if self._config.learned_key:
            state |= {f"bias_{role}": drawn[f"learned_{role}"].reshape(1, 1, -1) for role in "kv"}
        return {name: state[name] for name in self._shapes()}

    def _new_layer(self, state: Mapping[str, Any]) -> _core.MultiHeadAttention:
        width = self.embed_dim
        weights = {"wo": state["out_proj.weight"]}
        for place, role in enumerate("qkv"):
            rows = slice(place * width, (place + 1) * width)
            weights[f"w{role}"] = state["in_proj_weight"][rows] if self._packed else state[f"{role}_proj_weight"]
            if self._config.bias:
                weights[f"b{role}"] = state["in_proj_bias"][rows]
        if self._config.bias:
            weights["bo"] = state["out_proj.bias"]
        if self._config.learned_key:
            weights |= {f"learned_{role}": state[f"bias_{role}"].reshape(width) for role in "kv"}
        return _core.MultiHeadAttention(self._config, {name: _arrays.read(array, name) for name, array in weights.items()})

    # ---- forward

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any | None]:
        """(result, weights): the result in the shape of query; the weights, or None where they are not needed.

        query: [q_len, batch, embed_dim]; key: [kv_len, batch, kdim]; value: [kv_len, batch, vdim]; with batch_first, batch is the first axis.
            Without an axis of batch: [q_len, embed_dim] and so on. Strides may be any. One dtype, the layer's.
        key_padding_mask: [batch, kv_len] ([kv_len] without batch). attn_mask: [q_len, kv_len] or [batch * num_heads, q_len, kv_len], number
            batch * num_heads + head. bool: True = ignore. Floats are added to the scores; -inf ignores. Both may be given, of either kind.
            The keys of add_bias_kv and add_zero_attn are seen by all.
        need_weights: whether weights are wanted: [batch, q_len, keys], the mean over heads, or with average_attn_weights=False [batch,
            num_heads, q_len, keys]. In training they are those after dropout, as in torch: a row need not sum to 1.
        is_causal: a hint that attn_mask, which must be given, is the causal mask.

        Dropout's seed is drawn from torch's generator for a torch query, else from NumPy's global one.
        Raises ValueError (shapes, memory that is not the CPU's, a tensor that requires grad under grad mode) or TypeError (dtypes)."""
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is a hint that attn_mask is the causal mask: attn_mask must be given with it")
        sizes, arrays = self._read(query, key, value)
        allowed, bias = self._masks(attn_mask, key_padding_mask, sizes)
        wide = "f64" if self._dtype == "f64" else "f32"
        y = _arrays.empty(query, wide, sizes.result)
        call = _core.LayerCall(arrays[0], self._batch_first(_arrays.read(y, "y", writable=True)))
        call.key, call.value = arrays[1], arrays[2]
        call.allowed = None if allowed is None else _arrays.read(allowed, "attn_mask")
        call.bias = None if bias is None else _arrays.read(bias, "attn_mask")
        call.training = self.training
        call.seed = _drawn_seed(query) if self.training and self.dropout > 0 else None
        weights = _arrays.empty(query, wide, (sizes.batch, self.num_heads, sizes.q_len, sizes.keys)) if need_weights else None
        if need_weights and call.seed is not None:
            seen: list[_core.Trace] = []
            self._layer.forward(call, lambda trace: seen.append(_looked_at(trace)))
            self._drop(call, seen[0], weights)
        else:
            call.weights = None if weights is None else _arrays.read(weights, "weights", writable=True)
            self._layer.forward(call)
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights[0] if not sizes.batched else weights
        return self._finish(query, y), self._finish(query, weights)

    __call__ = forward

    def _batch_first(self, array: _core.Array) -> _core.Array:
        """[batch, length, width], the same memory."""
        if len(array.shape) == 2:
            return array.broadcast_to((1, *array.shape))
        return array if self.batch_first else array.swap_axes(0, 1)

    def _read(self, query: Any, key: Any, value: Any) -> tuple[_Sizes, list[_core.Array]]:
        """The sizes of a call, and its arrays as [batch, length, width] in the dtype the layer computes in."""
        given = {"query": (query, self.embed_dim), "key": (key, self.kdim), "value": (value, self.vdim)}
        read = {name: _arrays.read(array, name) for name, (array, _) in given.items()}
        shape = tuple(read["query"].shape)
        for name, (_, width) in given.items():
            found = tuple(read[name].shape)
            if read[name].dtype != self._dtype:
                raise TypeError(f"{name} is {read[name].dtype}, the layer is {self._dtype}")
            if len(shape) not in (2, 3) or len(found) != len(shape):
                raise ValueError(f"{name} has shape {list(found)}, query {list(shape)}: all must have 3 axes, or 2 without batch")
            if found[-1] != width:
                raise ValueError(f"{name} has shape {list(found)}, its last axis must be {width}")
        if self._dtype in ("f16", "bf16"):
            read = {name: _arrays.read(_as_f32(array), name) for name, (array, _) in given.items()}
        arrays = [self._batch_first(array) for array in read.values()]
        (batch, q_len), kv_len = arrays[0].shape[:2], arrays[1].shape[1]
        for name, array in zip(("key", "value"), arrays[1:]):
            if tuple(array.shape[:2]) != (batch, kv_len):
                raise ValueError(f"{name} has batch {array.shape[0]} and length {array.shape[1]}, must have query's batch {batch} and key's"
                                 f" length {kv_len}")
        return _Sizes(len(shape) == 3, batch, q_len, kv_len, kv_len + self._config.appended_keys, shape), arrays

    def _masks(self, attn_mask: Any, key_padding_mask: Any, sizes: _Sizes) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
        """What may be seen (True = may attend) and what is added to the scores, [batch | 1, heads | 1, q_len | 1, keys]."""
        masks = []
        if attn_mask is not None:
            table = (sizes.q_len, sizes.kv_len)
            mask = _mask(attn_mask, "attn_mask", self._dtype, (table, (sizes.batch * self.num_heads, *table)))
            masks.append(mask.reshape(1, 1, *table) if mask.ndim == 2 else mask.reshape(sizes.batch, self.num_heads, *table))
        if key_padding_mask is not None:
            wanted = (sizes.batch, sizes.kv_len) if sizes.batched else (sizes.kv_len,)
            mask = _mask(key_padding_mask, "key_padding_mask", self._dtype, (wanted,))
            masks.append(mask.reshape(sizes.batch, 1, 1, sizes.kv_len))
        ignored = [mask for mask in masks if mask.dtype == np.bool_]
        added = [mask for mask in masks if mask.dtype != np.bool_]
        allowed = ~(ignored[0] if len(ignored) == 1 else ignored[0] | ignored[1]) if ignored else None
        bias = (added[0] if len(added) == 1 else added[0] + added[1]) if added else None
        return _padded(allowed, sizes, True), _padded(bias, sizes, 0)

    def _drop(self, call: _core.LayerCall, trace: _core.Trace, weights: Any) -> None:
        """The weights after dropout: attention over values that are the unit vectors, one per key, gives them exactly."""
        shape = trace.k.shape
        units = np.eye(shape[1], dtype=trace.k.dtype).reshape(shape[1], 1, shape[1])
        spec = _core.AttentionSpec()
        spec.dropout = self.dropout
        spec.seed = call.seed if call.seed is not None else 0
        arrays = _core.AttentionArrays(
            _arrays.read(trace.q, "q"),
            _arrays.read(trace.k, "k"),
            _arrays.read(units, "v").broadcast_to((*shape[:3], shape[1])),
            _arrays.read(weights, "weights", writable=True).swap_axes(1, 2),
        )
        arrays.allowed, arrays.bias = call.allowed, call.bias
        _core.attention_forward(spec, arrays)

    def _finish(self, query: Any, result: Any) -> Any:
        if result is None:
            return None
        if self._dtype in ("f16", "bf16"):
            rounded = _arrays.empty(query, self._dtype, tuple(result.shape))
            rounded[...] = result
            result = rounded
        return _arrays.finish(query, result)

    def __repr__(self) -> str:
        return (f"MultiheadAttention(embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}, bias={self._config.bias}, "
                f"add_bias_kv={self._config.learned_key}, add_zero_attn={self.add_zero_attn}, kdim={self.kdim}, vdim={self.vdim}, "
                f"batch_first={self.batch_first})")


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of one call."""

    batched: bool
    batch: int
    q_len: int
    kv_len: int
    keys: int  # kv_len and the appended ones
    result: Shape  # as the caller sees it


def _dtype_name(dtype: Any) -> str:
    if dtype is None:
        return "f32"
    text = str(dtype) if type(dtype).__module__ == "torch" or isinstance(dtype, str) else np.dtype(dtype).name
    name = _DTYPES.get(text.removeprefix("torch."))
    if name is None:
        raise TypeError(f"dtype is {text}, must be float32, float64, float16 or bfloat16")
    return name


def _torch_scalar() -> Any:
    return sys.modules["torch"].empty(0)


def _detached(array: Any) -> Any:
    """A weight that requires grad is only copied, which loses no gradient."""
    return array.detach() if _arrays.is_torch(array) else array


def _to_numpy(array: Any) -> npt.NDArray[Any]:
    """The same numbers; without a copy where NumPy has the dtype."""
    if _arrays.is_torch(array):
        return np.asarray((array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy(force=True))
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        return np.asarray(array)
    return np.asarray(array) if hasattr(array, "__array__") else np.from_dlpack(array)


def _as_f32(array: Any) -> Any:
    return array.detach().float() if _arrays.is_torch(array) else _to_numpy(array).astype(np.float32)


def _owned(array: Any, name: str, dtype: str, like: Any = None) -> Any:
    """A dense copy in `dtype`: torch's where `array` (or `like`) is, else NumPy's. TypeError for what is no array of floats."""
    array = _detached(array)
    read = _arrays.read(array, name)
    if read.dtype not in ("f32", "f64", "f16", "bf16"):
        raise TypeError(f"{name} is {read.dtype}, must be f32, f64, f16 or bf16")
    copy = _arrays.empty(array if like is None else like, dtype, tuple(read.shape))
    if like is not None and not _arrays.is_torch(array):
        array = sys.modules["torch"].from_numpy(_to_numpy(array))
    copy[...] = array if _arrays.is_torch(array) else _to_numpy(array)
    return copy


def _mask(mask: Any, name: str, dtype: str, shapes: tuple[Shape, ...]) -> npt.NDArray[Any]:
    """A bool or float mask of one of `shapes`. ValueError or TypeError."""
    _arrays.read(mask, name)
    array = _to_numpy(mask)
    if array.dtype != np.bool_ and array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name} is {array.dtype}, must be bool (True = ignore) or floats")
    if array.dtype == np.float64 and dtype != "f64":
        raise TypeError(f"{name} is f64, the layer is {dtype}")
    if array.shape not in shapes:
        raise ValueError(f"{name} has shape {list(array.shape)}, must be {' or '.join(str(list(shape)) for shape in shapes)}")
    return array


def _padded(mask: npt.NDArray[Any] | None, sizes: _Sizes, seen: float) -> npt.NDArray[Any] | None:
    """With columns for the appended keys, which all may see."""
    if mask is None or sizes.keys == sizes.kv_len:
        return mask
    return np.pad(mask, [(0, 0)] * 3 + [(0, sizes.keys - sizes.kv_len)], constant_values=seen)


def _looked_at(trace: _core.Trace) -> _core.Trace:
    """Copies of q and k, which outlive the call."""
    _ = trace.q, trace.k
    return trace


def _drawn_seed(query: Any) -> int:
    if _arrays.is_torch(query):
        return int(sys.modules["torch"].randint(2**63 - 1, ()))
    return attention._seed(None)
