#!/usr/bin/env python3
"""Writes tests/data/layer_*.safetensors: what torch.nn.MultiheadAttention computes, for tests/nn/golden_test.cpp to compare with.

  make_layer_goldens.py [--out tests/data]

Needs torch==2.13.0 (the CPU build) and safetensors. Computed in float64 from weights and inputs that are exact in float32, stored as
float32, so that what is compared with carries one rounding only. Reproducible: same versions, same bytes.

Each file: x [batch, q_len, d_model]; key, value where the attention is across; in_proj_weight [3 * d_model, d_model] or q_proj_weight,
k_proj_weight, v_proj_weight; in_proj_bias, out_proj.bias where there are biases; out_proj.weight; allowed [1 or batch, 1 or heads, q_len,
kv_len] (True = may attend, the opposite of torch's masks) and kv_lengths [batch] where there are any; y and weights. heads is metadata.
"""
import argparse
import pathlib

import torch
from safetensors.torch import save_file


def exact(tensor):
    return tensor.float().double()


def make(name, out, *, d_model, heads, batch=2, q_len=5, kv_len=None, kdim=None, vdim=None, bias=True, mask=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: exact(torch.randn(*shape, generator=generator, dtype=torch.float64))
    layer = torch.nn.MultiheadAttention(d_model, heads, bias=bias, kdim=kdim, vdim=vdim, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        for p_name, p in layer.named_parameters():
            p.copy_(exact(draw(*p.shape) * (0.5 if "bias" in p_name else 2.0 / p.shape[-1] ** 0.5)))
    x = draw(batch, q_len, d_model)
    cross = kv_len is not None
    kv_len = kv_len or q_len
    key = draw(batch, kv_len, kdim or d_model) if cross else x
    value = draw(batch, kv_len, vdim or d_model) if cross else x
    arguments = {}
    tensors = {"x": x}
    if cross:
        tensors |= {"key": key, "value": value}
    if mask == "causal":
        allowed = torch.ones(q_len, kv_len, dtype=torch.bool).tril()
        arguments["attn_mask"] = ~allowed
        tensors["allowed"] = allowed[None, None]
    if mask == "per_head":
        allowed = torch.rand(batch, heads, q_len, kv_len, generator=generator) < 0.6
        allowed[..., 0] = True  # torch gives NaN for a row that sees nothing
        arguments["attn_mask"] = ~allowed.reshape(batch * heads, q_len, kv_len)
        tensors["allowed"] = allowed
    if mask == "lengths":
        lengths = torch.tensor([kv_len - 2 * b for b in range(batch)])
        arguments["key_padding_mask"] = torch.arange(kv_len)[None] >= lengths[:, None]
        tensors["kv_lengths"] = lengths
    with torch.no_grad():
        y, weights = layer(x, key, value, need_weights=True, average_attn_weights=False, **arguments)
    tensors |= {n: p.detach() for n, p in layer.named_parameters()} | {"y": y, "weights": weights}
    stored = {n: (t.float() if t.is_floating_point() else t).contiguous() for n, t in tensors.items()}
    path = out / f"layer_{name}.safetensors"
    save_file(stored, path, metadata={"heads": str(heads), "torch": torch.__version__})
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "tests/data")
    out = parser.parse_args().out
    make("self", out, d_model=32, heads=4, q_len=9, seed=1)
    make("self_no_bias", out, d_model=30, heads=5, bias=False, seed=2)
    make("causal", out, d_model=24, heads=3, q_len=11, mask="causal", seed=3)
    make("per_head_mask", out, d_model=24, heads=2, q_len=6, mask="per_head", seed=4)
    make("lengths", out, d_model=16, heads=2, batch=3, q_len=7, mask="lengths", seed=5)
    make("cross", out, d_model=32, heads=4, kv_len=8, seed=6)
    make("cross_widths", out, d_model=24, heads=4, kv_len=7, kdim=20, vdim=15, mask="lengths", seed=7)


if __name__ == "__main__":
    main()
