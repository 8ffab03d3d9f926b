"""Exact multi-head attention on the CPU, for NumPy, PyTorch, JAX and anything with DLPack.

    import mha
    out = mha.scaled_dot_product_attention(query, key, value, is_causal=True)

Errors are ValueError (sizes, options), TypeError (dtypes, kinds of argument) and OSError (files), with the library's text."""

import sys

from mha._core import (Encoding, Mask, Tokenizer, Trace, TransformerConfig, alibi_slopes, causal, chunk, current_isa, max_threads, prefix,
                       segments, window)
from mha.attention import AttentionOutputs, attention_forward, scaled_dot_product_attention
from mha.layer import LayerOutputs, MultiHeadAttention, attention_weights
from mha.model import Transformer
from mha.multihead_attention import MultiheadAttention

__all__ = [
    "AttentionOutputs",
    "Encoding",
    "LayerOutputs",
    "Mask",
    "MultiHeadAttention",
    "MultiheadAttention",
    "Tokenizer",
    "Trace",
    "Transformer",
    "TransformerConfig",
    "alibi_slopes",
    "attention_forward",
    "attention_weights",
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
