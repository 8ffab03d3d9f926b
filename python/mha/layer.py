"""The library's own layer, `MultiHeadAttention`: axes, masks and names as in the C++ headers.

torch's layer, with torch's conventions, is `mha.MultiheadAttention` (multihead_attention.py). Used by users; knows nothing of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


from mha import _arrays, _core, attention
from mha._core import Mask, Trace

Hook = Callable[[Trace], object]


class LayerOutputs(NamedTuple):
    """What a layer gives where weights are asked for."""

    y: Any
    """[batch, q_len, d_model], the dtype and framework of x."""
    weights: Any
    """[batch, heads, q_len, keys], before dropout; a row sums to 1 (less by a sink's share) or is 0."""


def _size(value: int | None, name: str) -> int:
    return 0 if value is None else attention._integer(value, name)


class MultiHeadAttention:
    """Multi-head attention with grouped heads, a head_dim of its own, masks as rules, and a hook between attention and W_O.

    d_model: width of x and of the result. heads: of the queries.
    kv_heads: of keys and values, heads is a multiple of it; None: heads. head_dim: None: d_model / heads.
    key_width, value_width: of the arrays keys and values are projected from; None: d_model, key_width.
    bias: whether all four projections have one. learned_key, zero_key: whether a learned key and value, and a key and value of zeros, follow
        those of the input: all that speaks of keys (weights, allowed, bias) then counts them, and mask rules and ALiBi are refused.
    mask: rules of position (`mha.causal()`, `mha.window(left, right)`, ..., joined by &). align: "top_left" or "bottom_right", needed by
        rules where q_len and the number of keys differ.
    scale (None: 1 / sqrt(head_dim)), softcap, sink_logits (one per head), alibi_slopes (one per head): as in scaled_dot_product_attention.
    dropout: probability of dropping a weight, in training only.
    weights: arrays by name, torch's [outputs, inputs]: wq [heads * head_dim, d_model], wk [kv_heads * head_dim, key_width],
        wv [kv_heads * head_dim, value_width], wo [d_model, heads * head_dim], bq, bk, bv, bo, learned_k, learned_v; f32, bf16, f16, or all
        f64. They are copied. None: Xavier uniform weights drawn by `seed` (f32).

    Raises ValueError (sizes, with the numbers) or TypeError (dtypes). May be used from several threads at once."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        key_width: int | None = None,
        value_width: int | None = None,
        bias: bool = True,
        learned_key: bool = False,
        zero_key: bool = False,
        mask: Mask | None = None,
        align: str = "unset",
        scale: float | None = None,
        softcap: float | None = None,
        sink_logits: Iterable[float] | None = None,
        alibi_slopes: Iterable[float] | None = None,
        dropout: float = 0.0,
        weights: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        config = _core.MhaConfig()
        config.d_model = attention._integer(d_model, "d_model")
        config.heads = attention._integer(heads, "heads")
        config.kv_heads = _size(kv_heads, "kv_heads")
        config.head_dim = _size(head_dim, "head_dim")
        config.key_width = _size(key_width, "key_width")
        config.value_width = _size(value_width, "value_width")
        config.bias, config.learned_key, config.zero_key = bool(bias), bool(learned_key), bool(zero_key)
        spec = attention.spec_of(mask, align, scale, softcap, sink_logits, alibi_slopes)
        spec.dropout = attention._number(dropout, "dropout")
        config.attention = spec
        if weights is None:
            weights = _core.xavier_parameters(config, attention._seed(seed))
        self._layer = _core.MultiHeadAttention(config, {name: _arrays.read(array, name) for name, array in weights.items()})
        self._config = self._layer.config
        self._dtype = "f64" if _arrays.read(weights["wq"], "wq").dtype == "f64" else "f32"

    @property
    def config(self) -> dict[str, int | bool]:
        """Every size and switch of the layer, resolved."""
        names = ("d_model", "heads", "kv_heads", "head_dim", "key_width", "value_width", "bias", "learned_key", "zero_key")
        return {name: getattr(self._config, name) for name in names}

    def forward(
        self,
        x: Any,
        key: Any = None,
        value: Any = None,
        *,
        allowed: Any = None,
        bias: Any = None,
        kv_lengths: Iterable[int] | None = None,
        training: bool = False,
        seed: int | None = None,
        temperature: float = 1.0,
        return_weights: bool = False,
        hook: Hook | None = None,
        num_threads: int | None = None,
    ) -> Any:
        """The layer's result [batch, q_len, d_model], of the framework of x; or LayerOutputs where weights are asked for.

        x: [batch, q_len, d_model], f32 (f64 where the weights are). key: [batch, kv_len, key_width], None: x. value: None: key.
        allowed: bool, True = may attend; bias: floats added to the scores; both [batch | 1, heads | 1, q_len | 1, keys | 1].
        kv_lengths: per batch entry, keys at and beyond it do not exist. Not with appended keys.
        training: whether dropout acts; seed: of this call, None: drawn from NumPy's global generator.
        temperature: every head's scores are divided by it, > 0.
        hook: called once with a Trace: q, k, v, lse and head_out as NumPy arrays. What it writes into head_out is what W_O gets, so zeros
            ablate a head. What it raises is raised here. num_threads: None: all cores.

        Raises ValueError or TypeError before anything is computed."""
        y = _arrays.empty(x, self._dtype, tuple(_arrays.read(x, "x").shape))
        call = _core.LayerCall(_arrays.read(x, "x"), _arrays.read(y, "y", writable=True))
        for name, array in (("key", key), ("value", value), ("allowed", allowed), ("bias", bias)):
            if array is not None:
                setattr(call, name, _arrays.read(array, name))
        call.kv_lengths = attention.lengths_of(kv_lengths, "kv_lengths")
        call.training = bool(training)
        if training and self._config.attention.dropout > 0:
            call.seed = attention._seed(seed)
        call.temperature = attention._number(temperature, "temperature")
        weights = None
        if return_weights:
            weights = self._new_weights(x, x if key is None else key)
            call.weights = _arrays.read(weights, "weights", writable=True)
        self._layer.forward(call, hook, attention.threads_of(num_threads))
        y = _arrays.finish(x, y)
        return LayerOutputs(y, _arrays.finish(x, weights)) if return_weights else y

    __call__ = forward

    def _new_weights(self, x: Any, key: Any) -> Any:
        rows, keys = _arrays.read(x, "x").shape, _arrays.read(key, "key").shape
        if len(rows) != 3 or len(keys) != 3:
            raise ValueError(f"x has shape {list(rows)}, key {list(keys)}: [batch, length, width] is wanted")
        return _arrays.empty(x, self._dtype, (rows[0], self._config.heads, rows[1], keys[1] + self._config.appended_keys))

    def __repr__(self) -> str:
        return f"MultiHeadAttention({', '.join(f'{name}={value}' for name, value in self.config.items())})"
