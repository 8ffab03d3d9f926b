"""This library in the place of torch.nn.functional.scaled_dot_product_attention, for torch_suite.py. Must be imported before PyTorch's test
files, which take the function by name.

`swap.mode` says who answers: OURS_BESIDE_MATH: this library, except where a test has asked for SDPBackend.MATH and nothing else: torch's own
reference then, with which the tests compare; OURS: this library always; TORCH: torch always."""

import dataclasses

import torch
import torch.nn.functional as functional

import mha

OURS_BESIDE_MATH, OURS, TORCH = "ours beside math", "ours", "torch"
ORIGINAL = functional.scaled_dot_product_attention


@dataclasses.dataclass
class Swap:
    mode: str = TORCH
    ours: int = 0  # calls answered by this library
    theirs: int = 0  # calls answered by torch
    cut: bool = False  # whether a call got tensors whose gradients were wanted

    def begin(self, mode):
        self.mode, self.ours, self.theirs, self.cut = mode, 0, 0, False


swap = Swap()


def _only_math():
    others = torch._C._get_flash_sdp_enabled() or torch._C._get_mem_efficient_sdp_enabled() or torch._C._get_cudnn_sdp_enabled()
    return torch._C._get_math_sdp_enabled() and not others


def _forward_only(tensor):
    """The library has no gradients and refuses tensors that want them; a forward test is run without."""
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        swap.cut = True
        return tensor.detach()
    return tensor


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    options = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if swap.mode == TORCH or (swap.mode == OURS_BESIDE_MATH and not torch.compiler.is_compiling() and _only_math()):
        swap.theirs += 1
        tensors = (query, key, value, attn_mask)
        if torch.overrides.has_torch_function(tensors):  # of CausalBias and nested tensors, which know the function by its place
            return torch.overrides.handle_torch_function(scaled_dot_product_attention, tensors, query, key, value, **options)
        return ORIGINAL(query, key, value, **options)
    swap.ours += 1
    options["attn_mask"] = _forward_only(attn_mask)
    return mha.scaled_dot_product_attention(*(_forward_only(tensor) for tensor in (query, key, value)), **options)


functional.scaled_dot_product_attention = scaled_dot_product_attention
