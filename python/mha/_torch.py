"""What only torch has: its generator, and torch.compile and torch.export by way of torch.library. Imported with the first torch tensor, or with
mha where torch was imported before.

`torch.ops.mha.scaled_dot_product_attention` is the registered operator: the same call with all results, absent ones of shape [0]."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch.nn.attention.bias import CausalBias, CausalVariant

from mha import _arrays, _core, attention
from mha.attention import AttentionOutputs, Call, RowStatistics

_SCHEMA = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, float? scale=None, "
    "bool enable_gqa=False, int[]? window=None, float? softcap=None, Tensor? sinks=None, Tensor? alibi_slopes=None, "
    'str causal_align="top_left", bool return_lse=False, bool return_weights=False, bool return_stats=False, Tensor? chosen_keys=None, int links=0, int? seed=None, int? num_threads=None) '
    "-> (Tensor out, Tensor lse, Tensor weights, Tensor[] stats)"
)
_Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]


def attend(call: Call) -> AttentionOutputs:
    """attention.attend for a torch query: at once, or as an operator of the graph where torch is tracing."""
    if isinstance(call.attn_mask, CausalBias):
        call = _causal(call, call.attn_mask)
    for name in ("query", "key", "value"):
        if getattr(getattr(call, name), "is_nested", False):
            raise TypeError(f"{name} is a nested tensor, must be a dense one (padded, with attn_mask)")
    if torch.compiler.is_compiling() or not _is_plain(call.query) or _is_recording():
        return _traced(call)
    return _computed(call)


def _is_recording() -> bool:
    """Whether someone notes torch's operators as they are called on plain tensors (make_fx, torch.jit.trace, any TorchDispatchMode): what is
    computed without one would be missing from the notes, and the result in them an empty tensor."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None


def _computed(call: Call) -> AttentionOutputs:
    if call.seed is None and call.dropout_p > 0:
        call = replace(call, seed=int(torch.randint(2**63 - 1, ())))
    return attention.attend(call)


def _causal(call: Call, bias: CausalBias) -> Call:
    """The call with a rule instead of torch's causal_upper_left and causal_lower_right, which have no values in their memory."""
    if call.is_causal:
        raise ValueError("attn_mask: CausalBias should not be used with causal=True")
    sizes, wanted = [bias.seq_len_q, bias.seq_len_kv], [call.query.shape[-2], call.key.shape[-2]]
    if sizes != wanted:
        raise ValueError(f"attn_mask is a CausalBias of {sizes}, must be of {wanted}")
    align = "top_left" if bias.variant == CausalVariant.UPPER_LEFT else "bottom_right"
    if align != call.causal_align and (call.window is not None or call.alibi_slopes is not None):
        raise ValueError(f"attn_mask is a CausalBias that is {align}, causal_align is {call.causal_align}")
    return replace(call, attn_mask=None, is_causal=True, causal_align=align)


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter


def _traced(call: Call) -> AttentionOutputs:
    for name in ("query", "key", "value", "attn_mask", "sinks", "alibi_slopes"):
        _arrays.refuse_grad(getattr(call, name), name)
    seed = call.seed if call.seed is None or call.seed < 2**63 else call.seed - 2**64  # the operator's integers have a sign
    out, lse, weights, stats = torch.ops.mha.scaled_dot_product_attention(
        call.query, call.key, call.value, call.attn_mask, call.dropout_p, call.is_causal, call.scale, call.enable_gqa,
        window=None if call.window is None else list(call.window), softcap=call.softcap, sinks=_per_head(call.sinks),
        alibi_slopes=_per_head(call.alibi_slopes), causal_align=call.causal_align, return_lse=call.return_lse,
        return_weights=call.return_weights, return_stats=call.return_stats, chosen_keys=call.chosen_keys, links=call.links, seed=seed, num_threads=call.num_threads)
    if call.out is not None:
        if call.out.shape != out.shape or call.out.dtype != out.dtype:
            raise ValueError(f"out is {call.out.dtype} {list(call.out.shape)}, must be {out.dtype} {list(out.shape)}")
        out = call.out.copy_(out)
    return AttentionOutputs(out, lse if call.return_lse else None, weights if call.return_weights else None,
                            RowStatistics(**dict(zip(_numbers(call), stats))) if stats else None)


def _numbers(call: Call) -> dict[str, tuple[bool, attention.Shape]]:
    return attention.numbers_of_rows(call.return_stats, call.chosen_keys is not None, call.links)


def _per_head(values: Any) -> torch.Tensor | None:
    return values if values is None or isinstance(values, torch.Tensor) else torch.tensor(values, dtype=torch.float64)


def _call(arguments: tuple[Any, ...], options: dict[str, Any]) -> Call:
    """The operator's arguments as a call: they have its names and its order."""
    names = [field.name for field in fields(Call)]
    call = Call(**dict(zip(names, arguments)), **options)
    return call if call.seed is None else replace(call, seed=call.seed % 2**64)


def _operator(*arguments: Any, **options: Any) -> _Results:
    call = _call(arguments, options)
    with _arrays.operator_of_torch():
        result = _computed(call)
    absent = [call.query.new_empty(0) for _ in range(2)]
    stats = [] if result.stats is None else [array for array in result.stats if array is not None]
    return (result.out, absent[0] if result.lse is None else result.lse, absent[1] if result.weights is None else result.weights, stats)


def _fake(*arguments: Any, **options: Any) -> _Results:
    """Shapes, dtypes and strides of the operator's results, from fake tensors."""
    call = _call(arguments, options)
    query = call.query
    shapes = attention.Shapes.of(call, query, call.key, call.value)
    shape = shapes.out
    if attention.length_first(query.shape, query.stride()):
        out = query.new_empty((*shape[:-3], shape[-2], shape[-3], shape[-1])).transpose(-2, -3)
    else:
        out = query.new_empty(shape)
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    absent = [query.new_empty(0) for _ in range(2)]
    return (
        out,
        query.new_empty(shapes.lse, dtype=wide) if call.return_lse else absent[0],
        query.new_empty(shapes.weights, dtype=wide) if call.return_weights else absent[1],
        [query.new_empty((*shapes.lse, *tail), dtype=torch.int64 if whole else wide) for whole, tail in _numbers(call).values()],
    )


_registered = torch.library.custom_op(
    "mha::scaled_dot_product_attention", _operator, mutates_args=(), device_types="cpu", schema=_SCHEMA,
    tags=(torch.Tag.nondeterministic_seeded,))
_registered.register_fake(_fake)

_core.share_openmp()  # torch's threads stay awake for a while after each of its operators: those of another pool would have to wait for them
