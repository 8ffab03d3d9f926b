"""`import mha.transformers` registers `attn_implementation="mha"`: Hugging Face models then run on this library, their code untouched.

    import mha.transformers
    model = AutoModel.from_pretrained(name, attn_implementation="mha")   # or model.set_attn_implementation("mha")

Works wherever "eager" does through the attention interface, `output_attentions=True` (as an argument of the call) included, and gives the
same. It computes no gradients: use it under `torch.no_grad()` or `torch.inference_mode()`, in `model.eval()`.
Torch's conventions are translated here; what is computed is `scaled_dot_product_attention`'s. captures.py listens through `observer`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
from transformers.utils import output_capturing
from transformers.utils.import_utils import is_tracing

from mha import _core
from mha.attention import AttentionOutputs, scaled_dot_product_attention

NAME = "mha"

MaskFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which keys a query sees, said in positions: all that most masks of transformers are."""

    causal: bool = False
    left: int = -1  # keys so far before the query's position at most, -1: no limit
    right: int = -1
    q_len: int = 0
    kv_len: int = 0  # keys there are; those beyond `offset + q_len` are nobody's where `causal`
    offset: int = 0  # query 0 sits at this key
    padding: torch.Tensor | None = None  # bool [batch, kv_len], True = a token; None: all are

    @property
    def keys(self) -> int:
        """Keys to hand to the library: without the empty places behind the last query that static caches have."""
        return min(self.kv_len, self.offset + self.q_len) if self.causal else self.kv_len

    @property
    def align(self) -> str:
        """Where query 0 sits among `keys`, or "" where the library has no word for it."""
        if self.causal or self.left >= 0 or self.right >= 0:
            return "bottom_right" if self.offset == self.keys - self.q_len else "top_left" if self.offset == 0 else ""
        return "top_left"

    def dense(self, batch: int) -> torch.Tensor:
        """The same as a table, bool [batch, 1, q_len, kv_len]."""
        distance = torch.arange(self.kv_len) - torch.arange(self.offset, self.offset + self.q_len)[:, None]
        seen = torch.ones(self.q_len, self.kv_len, dtype=torch.bool)
        if self.causal:
            seen &= distance <= 0
        if self.left >= 0:
            seen &= distance >= -self.left
        if self.right >= 0:
            seen &= distance <= self.right
        table = seen[None, None].expand(batch, 1, self.q_len, self.kv_len)
        return table if self.padding is None else table & self.padding[:, None, None, :]


class RulesMask(torch.Tensor):  # type: ignore[misc, unused-ignore]  # without torch installed its classes are Any
    """A boolean mask [batch, 1, q_len, kv_len], True = may attend, that is no table but Rules. Whatever torch does with it (slices, sums,
    copies) is done with the table, which is made then: a model that reads its mask gets what it would get from "eager", as booleans."""

    rules: Rules
    _table: torch.Tensor | None

    @staticmethod
    def __new__(cls, rules: Rules, batch: int) -> RulesMask:
        mask: RulesMask = torch.Tensor._make_wrapper_subclass(cls, (batch, 1, rules.q_len, rules.kv_len), dtype=torch.bool)
        mask.rules = rules
        mask._table = None
        return mask

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment, unused-ignore]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override, unused-ignore]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map_only(cls, cls.dense, (args, kwargs or {}))
        return func(*args, **kwargs)

    def dense(self) -> torch.Tensor:
        """The table."""
        if self._table is None:
            self._table = self.rules.dense(self.shape[0])
        return self._table

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override, unused-ignore]
        return f"RulesMask({list(self.shape)}, {self.rules})"


def _inner_code(maker: Callable[..., MaskFunction], *arguments: Any) -> Any:
    return maker(*arguments).__code__


_AND = _inner_code(masking_utils.and_masks)
_WINDOW = _inner_code(masking_utils.sliding_window_overlay, 1)
_BOTH_WAYS = _inner_code(masking_utils.sliding_window_bidirectional_overlay, 1)


def _narrower(a: int, b: int) -> int:
    return max(a, b) if a < 0 or b < 0 else min(a, b)


def rules_of(mask_function: MaskFunction) -> Rules | None:
    """What a mask function of transformers.masking_utils says, or None where it is none of those made of positions alone."""
    if mask_function is masking_utils.causal_mask_function:
        return Rules(causal=True)
    if mask_function is masking_utils.bidirectional_mask_function:
        return Rules()
    code = getattr(mask_function, "__code__", None)
    if code is _WINDOW or code is _BOTH_WAYS:
        size = inspect.getclosurevars(mask_function).nonlocals["sliding_window"]
        if not isinstance(size, int) or size < 1:
            return None
        return Rules(left=size - 1) if code is _WINDOW else Rules(left=size, right=size)
    if code is not _AND:
        return None
    joined = Rules()
    for part in inspect.getclosurevars(mask_function).nonlocals["mask_functions"]:
        rules = rules_of(part)
        if rules is None:
            return None
        joined = Rules(joined.causal or rules.causal, _narrower(joined.left, rules.left), _narrower(joined.right, rules.right))
    return joined


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction = masking_utils.causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> torch.Tensor | None:
    """The mask of a forward pass, for transformers' AttentionMaskInterface (its arguments are sdpa_mask's): a RulesMask where rules and the
    padding of the batch say it, a boolean table [batch, 1, q_len, kv_len] (True = may attend) else, None where every key is seen."""
    rules = None if is_tracing(attention_mask) or torch.device(device).type != "cpu" else rules_of(mask_function)
    if rules is not None:
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is not None:
            padding = padding[:, kv_offset : kv_offset + kv_length].to(torch.bool)
        rules = replace(rules, q_len=q_length, kv_len=kv_length, offset=int(q_offset) - kv_offset, padding=padding)
        if padding is not None and padding[:, : rules.keys].all():
            rules = replace(rules, padding=None)
        if rules.align:
            everything = not rules.causal and rules.left < 0 and rules.right < 0 and rules.padding is None
            return None if everything and allow_is_bidirectional_skip else RulesMask(rules, batch_size)
    kwargs["allow_is_causal_skip"] = False
    return masking_utils.sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function,
        attention_mask=attention_mask, allow_is_bidirectional_skip=allow_is_bidirectional_skip, device=device, **kwargs)


@dataclass(frozen=True, slots=True)
class Observed:
    """One call of attention of a model: what went in and, beside the output, the lse that came out."""

    module: torch.nn.Module
    query: torch.Tensor  # [batch, heads, q_len, head_dim], as scored: after norms and rotary embedding
    key: torch.Tensor  # [batch, kv_heads, kv_len, head_dim]
    value: torch.Tensor  # [batch, kv_heads, kv_len, value_dim]
    lse: torch.Tensor  # [batch, heads, q_len]
    options: dict[str, Any]  # scaled_dot_product_attention's: is_causal, window, causal_align, scale, softcap, sinks, attn_mask


observer: ContextVar[Callable[[Observed], None] | None] = ContextVar("mha_observer", default=None)
"""Whoever is to be told of every call of attention in this context."""


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of a model, for transformers' AttentionInterface: (output [batch, q_len, heads, value_dim], weights or None).

    query: [batch, heads, q_len, head_dim]. key, value: [batch, kv_heads, kv_len, ...]; heads are grouped where kv_heads is smaller.
    attention_mask: None, a RulesMask, or a table broadcastable to [batch, heads, q_len, kv_len]: bool (True = may attend) or added floats.
        Without one, `is_causal` (the argument, else the module's) makes queries see keys up to their own index, as "sdpa" has it.
    kwargs: softcap, s_aux or sinks (a logit per head), position_bias (added), output_attentions; others change nothing ("eager" agrees).
    Weights [batch, heads, q_len, kv_len] come where they are asked for. Raises ValueError for dropout in training and for tensors that
    require grad under grad mode (there are no gradients), and as scaled_dot_product_attention does."""
    if dropout > 0 and module.training:
        raise ValueError(f'{type(module).__name__} is in training with dropout {dropout}, and attn_implementation="mha" computes no '
                         "gradients: use model.eval()")
    all_keys = key.shape[2]
    options = _options(module, query, attention_mask, is_causal, all_keys, kwargs)
    keys = options.pop("keys")
    if keys < all_keys:
        key, value = key[:, :, :keys], value[:, :, :keys]
    options.update(scale=scaling, softcap=kwargs.get("softcap"), sinks=_sinks(kwargs))
    wanted = _wants_weights(kwargs)
    observe = observer.get()
    result = scaled_dot_product_attention(
        query, key, value, enable_gqa=True, return_weights=wanted, return_lse=observe is not None,
        num_threads=min(torch.get_num_threads(), _core.max_threads()), **options)
    weights = None
    if isinstance(result, AttentionOutputs):
        result, lse, weights = result.out, result.lse, result.weights
        if observe is not None:
            observe(Observed(module, query, key, value, lse, options))
    if weights is not None:
        weights = torch.nn.functional.pad(weights.to(query.dtype), (0, all_keys - keys))
    return result.transpose(1, 2).contiguous(), weights


def _options(
    module: torch.nn.Module,
    query: torch.Tensor,
    attention_mask: torch.Tensor | None,
    is_causal: bool | None,
    keys: int,
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """The mask as options of scaled_dot_product_attention, and "keys": how many of the keys there are to hand on."""
    q_len = query.shape[2]
    if attention_mask is None:
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        rules = Rules(causal=bool(causal) and q_len > 1, q_len=q_len, kv_len=keys)
    elif isinstance(attention_mask, RulesMask) and attention_mask.rules.kv_len == keys and attention_mask.rules.q_len == q_len:
        rules = attention_mask.rules
    else:
        table = attention_mask.dense() if isinstance(attention_mask, RulesMask) else attention_mask
        return {"keys": keys, "attn_mask": _biased(_folded(table), kwargs.get("position_bias"))}
    padding = None if rules.padding is None else rules.padding[:, None, None, : rules.keys]
    bias = kwargs.get("position_bias")
    options: dict[str, Any] = {
        "keys": rules.keys,
        "is_causal": rules.causal,
        "causal_align": rules.align,
        "attn_mask": _biased(padding, None if bias is None else bias[..., : rules.keys]),
    }
    if rules.left >= 0 or rules.right >= 0:
        options["window"] = (rules.left, rules.right)
    return options


def _folded(table: torch.Tensor) -> torch.Tensor:
    """The same table with axes that only repeat (stride 0) kept once, as the library wants them."""
    for axis in range(1, table.ndim):
        if table.stride(axis) == 0 and table.shape[axis] > 1:
            table = table.narrow(axis, 0, 1)
    return table


def _biased(table: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor | None:
    """A learned bias of positions joined with what a mask says."""
    if bias is None or table is None:
        return table if bias is None else bias
    if table.dtype == torch.bool:
        return torch.where(table, bias, -torch.inf)
    return table + bias


def _sinks(kwargs: dict[str, Any]) -> torch.Tensor | None:
    sinks = kwargs.get("s_aux") if kwargs.get("s_aux") is not None else kwargs.get("sinks")
    if sinks is not None and sinks.ndim != 1:
        raise ValueError(f"sinks have shape {list(sinks.shape)}, must be one logit per head")
    return sinks


def _collected() -> Iterator[str]:
    collector = getattr(output_capturing, "_active_collector", None)
    return iter((collector.get() if collector is not None else None) or ())


def _wants_weights(kwargs: dict[str, Any]) -> bool:
    """Whether the caller of the model asked for attentions. Most models hand the wish on; the rest leave it with the collector."""
    if torch.compiler.is_compiling():
        return bool(kwargs.get("output_attentions"))
    return bool(kwargs.get("output_attentions")) or any(name.endswith("attentions") for name in _collected())


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)
