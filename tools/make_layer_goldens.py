#!/usr/bin/env python3
"""Writes tests/data/layer_*.safetensors: what torch.nn.MultiheadAttention computes, for tests/nn/golden_test.cpp to compare with.

  make_layer_goldens.py [--out tests/data]

Needs torch==2.13.0 (the CPU build) and safetensors. Float64 throughout: weights, inputs, masks and results. Reproducible: same versions,
same bytes.

Each file: x [batch, q_len, d_model]; key, value where the attention is across; in_proj_weight [3 * d_model, d_model] or q_proj_weight,
k_proj_weight, v_proj_weight; in_proj_bias, out_proj.bias where there are biases; out_proj.weight; bias_k, bias_v of add_bias_kv; y and
weights (per head, with a column for each appended key). Masks stand in this library's terms, not torch's: allowed [1 or batch, 1 or heads,
1 or q_len, keys] (True = may attend, where torch's True means ignore), bias (float masks, added) of the same shape, kv_lengths [batch];
keys: kv_len and the appended ones, which torch lets every row see. heads [1], zero_key [1] (whether add_zero_attn). Metadata, one entry for the order of several is not
reproducible: torch's version and the masks it was given.
"""
import argparse
import pathlib

import torch
from safetensors.torch import save_file


class Sizes:
    def __init__(self, batch, heads, q_len, kv_len):
        self.batch, self.heads, self.q_len, self.kv_len = batch, heads, q_len, kv_len


def seen(generator, *shape):
    """Random, with key 0 visible: torch gives NaN for a row that sees nothing."""
    allowed = torch.rand(*shape, generator=generator) < 0.6
    allowed[..., 0] = True
    return allowed


def floats(generator, *shape):
    """A float mask with -inf where a key is hidden."""
    mask = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return mask.masked_fill(~seen(generator, *shape), float("-inf"))


# Each mask: (generator, sizes) -> (torch's arguments, this library's tensors).
def causal(_, s):
    allowed = torch.ones(s.q_len, s.kv_len, dtype=torch.bool).tril()
    return {"attn_mask": ~allowed}, {"allowed": allowed[None, None]}


def bool_per_head(generator, s):
    allowed = seen(generator, s.batch, s.heads, s.q_len, s.kv_len)
    return {"attn_mask": ~allowed.reshape(s.batch * s.heads, s.q_len, s.kv_len)}, {"allowed": allowed}


def lengths(_, s):
    counts = torch.tensor([s.kv_len - 2 * b for b in range(s.batch)])
    return {"key_padding_mask": torch.arange(s.kv_len)[None] >= counts[:, None]}, {"kv_lengths": counts}


def float_table(generator, s):
    mask = floats(generator, s.q_len, s.kv_len)
    return {"attn_mask": mask}, {"bias": mask[None, None]}


def float_per_head(generator, s):
    mask = floats(generator, s.batch, s.heads, s.q_len, s.kv_len)
    return {"attn_mask": mask.reshape(s.batch * s.heads, s.q_len, s.kv_len)}, {"bias": mask}


def bool_table_and_padding(generator, s):
    table, padding = seen(generator, s.q_len, s.kv_len), seen(generator, s.batch, s.kv_len)
    return {"attn_mask": ~table, "key_padding_mask": ~padding}, {"allowed": table[None, None] & padding[:, None, None]}


def float_table_and_padding(generator, s):
    table, padding = floats(generator, s.q_len, s.kv_len), floats(generator, s.batch, s.kv_len)
    return {"attn_mask": table, "key_padding_mask": padding}, {"bias": table[None, None] + padding[:, None, None]}


def make(name, out, *, d_model, heads, batch=2, q_len=5, kv_len=None, kdim=None, vdim=None, bias=True, mask=None, seed=0,
         learned_key=False, zero_key=False):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    layer = torch.nn.MultiheadAttention(d_model, heads, bias=bias, kdim=kdim, vdim=vdim, add_bias_kv=learned_key,
                                        add_zero_attn=zero_key, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        for p_name, p in layer.named_parameters():
            p.copy_(draw(*p.shape) * (0.5 if "bias" in p_name else 2.0 / p.shape[-1] ** 0.5))
    x = draw(batch, q_len, d_model)
    cross = kv_len is not None
    kv_len = kv_len or q_len
    key = draw(batch, kv_len, kdim or d_model) if cross else x
    value = draw(batch, kv_len, vdim or d_model) if cross else x
    arguments, tensors = mask(generator, Sizes(batch, heads, q_len, kv_len)) if mask else ({}, {})
    for name_of_mask, seen_by_all in (("allowed", True), ("bias", 0.0)):
        if name_of_mask in tensors:
            tensors[name_of_mask] = torch.nn.functional.pad(tensors[name_of_mask], (0, learned_key + zero_key), value=seen_by_all)
    if zero_key:
        tensors["zero_key"] = torch.tensor([1])
    tensors |= {"x": x, "heads": torch.tensor([heads])} | ({"key": key, "value": value} if cross else {})
    with torch.no_grad():
        y, weights = layer(x, key, value, need_weights=True, average_attn_weights=False, **arguments)
    assert bool(torch.isfinite(y).all()), f"{name}: torch's result is not finite"
    tensors |= {n: p.detach() for n, p in layer.named_parameters()} | {"y": y, "weights": weights}
    used = ", ".join(f"{n} {str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for n, t in arguments.items()) or "none"
    path = out / f"layer_{name}.safetensors"
    save_file({n: t.contiguous() for n, t in tensors.items()}, path,
              metadata={"torch": f"{torch.__version__}, masks: {used}"})
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "tests/data")
    out = parser.parse_args().out
    make("self", out, d_model=32, heads=4, q_len=9, seed=1)
    make("self_no_bias", out, d_model=30, heads=5, bias=False, seed=2)
    make("causal", out, d_model=24, heads=3, q_len=11, mask=causal, seed=3)
    make("per_head_mask", out, d_model=24, heads=2, q_len=6, mask=bool_per_head, seed=4)
    make("lengths", out, d_model=16, heads=2, batch=3, q_len=7, mask=lengths, seed=5)
    make("cross", out, d_model=32, heads=4, kv_len=8, seed=6)
    make("cross_widths", out, d_model=24, heads=4, kv_len=7, kdim=20, vdim=15, mask=lengths, seed=7)
    make("float_mask", out, d_model=16, heads=4, q_len=8, mask=float_table, seed=8)
    make("float_per_head", out, d_model=18, heads=3, kv_len=9, mask=float_per_head, seed=9)
    make("table_and_padding", out, d_model=16, heads=2, batch=3, q_len=6, mask=bool_table_and_padding, seed=10)
    make("float_padding", out, d_model=12, heads=3, batch=3, q_len=4, kv_len=6, mask=float_table_and_padding, seed=11)
    make("cross_widths_no_bias", out, d_model=20, heads=5, kv_len=6, kdim=13, vdim=17, bias=False, mask=bool_per_head, seed=12)
    make("learned_key", out, d_model=16, heads=2, q_len=6, learned_key=True, mask=bool_per_head, seed=13)
    make("zero_key", out, d_model=16, heads=4, q_len=5, zero_key=True, mask=float_table, seed=14)
    make("appended_keys", out, d_model=18, heads=3, q_len=4, kv_len=7, kdim=11, vdim=13, learned_key=True, zero_key=True,
         mask=float_table_and_padding, seed=15)
    make("appended_keys_no_bias", out, d_model=20, heads=5, kv_len=6, bias=False, learned_key=True, zero_key=True,
         mask=bool_table_and_padding, seed=16)


if __name__ == "__main__":
    main()
