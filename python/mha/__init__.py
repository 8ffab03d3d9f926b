"""Exact multi-head attention on the CPU, for NumPy, PyTorch, JAX and anything with DLPack.

    import mha
    out = mha.scaled_dot_product_attention(query, key, value, is_causal=True)

Errors are ValueError (sizes, options), TypeError (dtypes, kinds of argument) and OSError (files), with the library's text."""

import sys

from mha._core import Mask, alibi_slopes, causal, chunk, current_isa, max_threads, prefix, segments, window
from mha.attention import AttentionOutputs, attention_forward, scaled_dot_product_attention

__all__ = [
    "AttentionOutputs",
    "Mask",
    "alibi_slopes",
    "attention_forward",
    "causal",
    "chunk",
    "current_isa",
    "max_threads",
    "prefix",
    "scaled_dot_product_attention",
    "segments",
    "window",
]

if "torch" in sys.modules:
    from mha import _torch as _torch  # registers torch.ops.mha.scaled_dot_product_attention
