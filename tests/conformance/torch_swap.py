"""This library in the place of torch.nn.functional.scaled_dot_product_attention and multi_head_attention_forward (which is what
torch.nn.MultiheadAttention computes by, but for its fast path), for torch_suite.py. Must be imported before PyTorch's test files, which
take the functions by name.

`swap.mode` says who answers: OURS_BESIDE_MATH: this library, except where a test has asked for SDPBackend.MATH and nothing else: torch's
own reference then, with which the tests compare; OURS: this library always; TORCH: torch always. Gradients, which this library has none
of, are torch's. `swap.adapt` names what of torch is imitated on top, so that a test that fails for one known difference shows that it
fails for no other."""

import dataclasses
import inspect
import types

import torch
import torch.nn.functional as functional
from torch.nn.attention.bias import CausalBias

import mha

OURS_BESIDE_MATH, OURS, TORCH = "ours beside math", "ours", "torch"
ERRORS = "what this library refuses is refused by torch itself, in its classes and words"
ONE_MASK = "attn_mask and is_causal together are refused"
TRUST = "where is_causal is given to the layer and no weights are wanted, attn_mask is not looked at"
NAN_ROWS = "a row of the layer that may see nothing is NaN where weights are wanted"
ORIGINAL = functional.scaled_dot_product_attention
ORIGINAL_LAYER = functional.multi_head_attention_forward
_LAYER_SIGNATURE = inspect.signature(ORIGINAL_LAYER)


@dataclasses.dataclass
class Swap:
    mode: str = TORCH
    ours: int = 0  # calls answered by this library
    theirs: int = 0  # calls answered by torch
    cut: bool = False  # whether a call got tensors whose gradients were wanted: those are torch's then
    adapt: tuple = ()  # of ERRORS, ONE_MASK, TRUST, NAN_ROWS

    def begin(self, mode, adapt=()):
        self.mode, self.ours, self.theirs, self.cut, self.adapt = mode, 0, 0, False, adapt
        # TorchScript keeps what it compiled, also from the functions of the run before.
        torch._C._jit_clear_class_registry()
        torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()
        torch.jit._state._clear_class_state()
        own = mode == TORCH
        functional.scaled_dot_product_attention = ORIGINAL if own else scaled_dot_product_attention
        functional.multi_head_attention_forward = ORIGINAL_LAYER if own else multi_head_attention_forward


swap = Swap()


def _only_math():
    others = torch._C._get_flash_sdp_enabled() or torch._C._get_mem_efficient_sdp_enabled() or torch._C._get_cudnn_sdp_enabled()
    return torch._C._get_math_sdp_enabled() and not others


class _WithTorchsGradient(torch.autograd.Function):
    """A result of this library, which has no gradients, with those torch finds for its own function at the same place: a test then goes on
    to where it compares results. Nothing is learned of gradients by that."""

    @staticmethod
    def forward(context, ours, theirs, *tensors):
        context.theirs = theirs
        context.save_for_backward(*tensors)
        return ours(*(None if tensor is None else tensor.detach() for tensor in tensors))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, *gradients):
        wanted = context.needs_input_grad[2:]
        with torch.enable_grad():
            tensors = [t if t is None else t.detach().requires_grad_(want) for t, want in zip(context.saved_tensors, wanted)]
            results = context.theirs(*tensors)
        results = results if isinstance(results, tuple) else (results,)
        pairs = [(result, gradient) for result, gradient in zip(results, gradients) if result is not None and gradient is not None]
        found = iter(torch.autograd.grad([r for r, _ in pairs], [t for t in tensors if t is not None and t.requires_grad],
                                         [g for _, g in pairs], allow_unused=True))
        return (None, None, *(next(found) if want else None for want in wanted))


def _forward(ours, theirs, tensors):
    """ours(*tensors); with torch's gradients where they are wanted."""
    if not torch.is_grad_enabled() or not any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors):
        return ours(*tensors)
    swap.cut = True
    if torch.compiler.is_compiling():
        return ours(*(tensor if tensor is None else tensor.detach() for tensor in tensors))
    return _WithTorchsGradient.apply(ours, theirs, *tensors)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    options = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if swap.mode == TORCH or (swap.mode == OURS_BESIDE_MATH and not torch.compiler.is_compiling() and _only_math()):
        swap.theirs += 1
        tensors = (query, key, value, attn_mask)
        # CausalBias and nested tensors know the function by its place.
        if swap.mode != TORCH and torch.overrides.has_torch_function(tensors):
            return torch.overrides.handle_torch_function(scaled_dot_product_attention, tensors, query, key, value, **options)
        return ORIGINAL(query, key, value, **options)
    swap.ours += 1
    if ONE_MASK in swap.adapt and is_causal and attn_mask is not None:
        return ORIGINAL(query, key, value, **options)
    rest = {name: option for name, option in options.items() if name != "attn_mask"}
    try:
        if isinstance(attn_mask, CausalBias):  # not a tensor of numbers
            return _forward(lambda *given: mha.scaled_dot_product_attention(*given, attn_mask, **rest),
                            lambda *given: ORIGINAL(*given, attn_mask._materialize(), **rest), (query, key, value))
        return _forward(lambda *given: mha.scaled_dot_product_attention(*given, **rest), lambda *given: ORIGINAL(*given, **rest),
                        (query, key, value, attn_mask))
    except (ValueError, TypeError):
        if ERRORS in swap.adapt:
            ORIGINAL(query, key, value, **options)
        raise


_TENSORS = (  # among the arguments of multi_head_attention_forward
    "query", "key", "value", "key_padding_mask", "attn_mask", "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight",
    "in_proj_bias", "bias_k", "bias_v", "out_proj_weight", "out_proj_bias")


def _layer_of(call):
    """mha.MultiheadAttention with the weights of a call of multi_head_attention_forward."""
    kdim, vdim = (call.k_proj_weight.shape[1], call.v_proj_weight.shape[1]) if call.use_separate_proj_weight else (None, None)
    layer = mha.MultiheadAttention(
        call.embed_dim_to_check, call.num_heads, dropout=call.dropout_p, bias=call.in_proj_bias is not None,
        add_bias_kv=call.bias_k is not None, add_zero_attn=call.add_zero_attn, kdim=kdim, vdim=vdim, dtype=call.query.dtype)
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight") if call.use_separate_proj_weight else ("in_proj_weight",)
    weights = {name: getattr(call, name) for name in (*names, "in_proj_bias", "bias_k", "bias_v")}
    weights |= {"out_proj.weight": call.out_proj_weight, "out_proj.bias": call.out_proj_bias}
    layer.load_state_dict({name: weight for name, weight in weights.items() if weight is not None})
    return layer.train(call.training)


def _computed_layer(call):
    query, key, value, mask = call.query, call.key, call.value, call.attn_mask
    layer = _layer_of(call)
    if TRUST in swap.adapt and call.is_causal and mask is not None and not call.need_weights:
        mask = torch.ones(len(query), len(key), dtype=torch.bool).triu(1)
    options = {"key_padding_mask": call.key_padding_mask, "attn_mask": mask, "is_causal": call.is_causal}
    result, weights = layer(query, key, value, need_weights=call.need_weights, average_attn_weights=call.average_attn_weights, **options)
    if NAN_ROWS in swap.adapt and call.need_weights:
        empty = layer(query, key, value, average_attn_weights=False, **options)[1].sum(-1) == 0  # [batch, heads, q_len]
        result = result.masked_fill(empty.any(1).transpose(0, 1).unsqueeze(-1), float("nan"))
        weights = weights.masked_fill((empty.any(1) if call.average_attn_weights else empty).unsqueeze(-1), float("nan"))
    return result, weights


def multi_head_attention_forward(*arguments, **options):
    if torch.compiler.is_compiling():  # torch's composition, with this library's function in it
        return ORIGINAL_LAYER(*arguments, **options)
    bound = _LAYER_SIGNATURE.bind(*arguments, **options)
    bound.apply_defaults()
    call = types.SimpleNamespace(**bound.arguments)
    tensors = [getattr(call, name) for name in _TENSORS]
    with_tensors = lambda given: bound.arguments | dict(zip(_TENSORS, given))  # noqa: E731
    static = call.static_k is not None or call.static_v is not None  # keys projected before: the layer has no such thing
    if swap.mode == TORCH or static or torch.overrides.has_torch_function(tensors):
        swap.theirs += 1
        return ORIGINAL_LAYER(*arguments, **options)
    swap.ours += 1
    try:
        return _forward(lambda *given: _computed_layer(types.SimpleNamespace(**with_tensors(given))),
                        lambda *given: ORIGINAL_LAYER(**with_tensors(given)), tensors)
    except (ValueError, TypeError):
        if ERRORS in swap.adapt:
            ORIGINAL_LAYER(*arguments, **options)
        raise


functional.scaled_dot_product_attention = scaled_dot_product_attention
functional.multi_head_attention_forward = multi_head_attention_forward
