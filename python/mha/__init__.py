"""Exact multi-head attention on the CPU, for NumPy, PyTorch, JAX and anything with DLPack.

    import mha
    out = mha.scaled_dot_product_attention(query, key, value, is_causal=True)

Errors are ValueError (sizes, options), TypeError (dtypes, kinds of argument) and OSError (files), with the library's text."""

import contextlib
import importlib.metadata
import sys

from mha._core import (Encoding, HeadHealth, HealthWatch, Mask, Tokenizer, Trace, TransformerConfig, WatchedText, alibi_slopes, causal, chunk,
                       current_isa, max_threads, prefix, segments, window)
from mha.attention import AttentionOutputs, RowStatistics, attention_forward, scaled_dot_product_attention
from mha.captures import Capture, CapturedLayer, capture, load_capture
from mha.heads import (PlaneMap, RepeatedScores, RepeatedText, capture_heads, head_distances, head_similarities, plane_map, repeated_scores,
                       repeated_text, rollout, value_norms)
from mha.layer import LayerOutputs, MultiHeadAttention
from mha.microscope import View, view
from mha.model import Transformer
from mha.multihead_attention import MultiheadAttention
from mha.tables import WeightsMap, attention_map, attention_received, attention_weights
from mha.watch import watch_text

__all__ = [
    "AttentionOutputs",
    "Capture",
    "CapturedLayer",
    "Encoding",
    "HeadHealth",
    "HealthWatch",
    "LayerOutputs",
    "Mask",
    "MultiHeadAttention",
    "MultiheadAttention",
    "PlaneMap",
    "RepeatedScores",
    "RepeatedText",
    "RowStatistics",
    "Tokenizer",
    "Trace",
    "Transformer",
    "TransformerConfig",
    "View",
    "WatchedText",
    "WeightsMap",
    "alibi_slopes",
    "attention_forward",
    "attention_map",
    "attention_received",
    "attention_weights",
    "capture",
    "capture_heads",
    "causal",
    "chunk",
    "current_isa",
    "head_distances",
    "head_similarities",
    "load_capture",
    "max_threads",
    "plane_map",
    "prefix",
    "repeated_scores",
    "repeated_text",
    "rollout",
    "scaled_dot_product_attention",
    "segments",
    "value_norms",
    "view",
    "watch_text",
    "window",
]

__version__ = importlib.metadata.version("mha")

if "torch" in sys.modules:
    # Registers torch.ops.mha.scaled_dot_product_attention. An older torch lacks what that takes, which must not keep NumPy's users from mha.
    with contextlib.suppress(ImportError, AttributeError):
        from mha import _torch as _torch
