"""What only torch has: its generator, and torch.compile through torch.library. Imported with the first torch tensor, or with torch before mha."""

from __future__ import annotations

from dataclasses import replace

import torch

from mha import attention
from mha.attention import AttentionOutputs, Call


def attend(call: Call) -> AttentionOutputs:
    """attention.attend, with a seed of torch's generator."""
    if call.seed is None and call.dropout_p > 0:
        call = replace(call, seed=int(torch.randint(2**63 - 1, ())))
    return attention.attend(call)
