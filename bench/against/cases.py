"""The rows of bench/rivals and bench/compare: which problems are measured, and the memory they stand in. All sides read this same memory.
Shapes are those of the targets; what a side does with a case is its own file's business."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BLOCK = 64     # side of the square blocks of a dense mask, half of them empty
WINDOW = 256   # keys a row of a windowed case sees, its own included


@dataclass(frozen=True)
class Attention:
    group: str
    dtype: str
    mask: str  # full, causal (bottom-right), window, dense
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    layout: str = "bhld"  # memory order; every side gets views [batch, heads, length, dim]
    batch: int = 1
    kind = "attention"

    @property
    def unit(self):
        """Of its speed: that of the machine's limit which bounds it."""
        return "GB/s" if self.group == "decode" else "GFLOP/s"

    @property
    def label(self):
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        length = f"{self.q_len}" if self.q_len == self.kv_len else f"{self.q_len}x{self.kv_len}"
        return f"{self.group} {self.dtype} {self.mask} [{self.batch},{heads},{length},{self.head_dim}] {self.layout}"

    def pairs(self):
        """(query, key) pairs that must be computed per head; masked ones do not count."""
        rows = range(self.kv_len - self.q_len + 1, self.kv_len + 1)
        return {"full": self.q_len * self.kv_len, "causal": sum(rows), "window": sum(min(row, WINDOW) for row in rows),
                "dense": self.q_len * self.kv_len / 2}[self.mask]

    @property
    def flops(self):
        return 4.0 * self.batch * self.heads * self.head_dim * self.pairs()

    @property
    def kv_bytes(self):
        return 2 * self.batch * self.kv_heads * self.kv_len * self.head_dim * DTYPES[self.dtype].itemsize

    @property
    def tolerance(self):
        return 1e-5 if self.dtype == "f32" else 1e-2

    def data(self):
        return AttentionData(self)


class AttentionData:
    """q and, per buffer, k and v: views [batch, heads, length, dim]; `allowed` [q_len, kv_len] for masks that are tables, else None."""

    def __init__(self, case):
        torch.manual_seed(1)
        self.q = self.tensor(case, case.heads, case.q_len)
        buffers = 1 if case.group != "decode" else math.ceil(2 * last_level_cache() / case.kv_bytes)
        self.kv = [(self.tensor(case, case.kv_heads, case.kv_len), self.tensor(case, case.kv_heads, case.kv_len)) for _ in range(buffers)]
        self.allowed = {"window": self.window, "dense": self.dense}.get(case.mask, lambda case: None)(case)

    @staticmethod
    def tensor(case, heads, length):
        if case.layout == "bhld":
            return torch.randn(case.batch, heads, length, case.head_dim).to(DTYPES[case.dtype])
        return torch.randn(case.batch, length, heads, case.head_dim).to(DTYPES[case.dtype]).transpose(1, 2)

    @staticmethod
    def window(case):
        distance = torch.arange(case.q_len)[:, None] - torch.arange(case.kv_len)[None, :]
        return (distance >= 0) & (distance < WINDOW)

    @staticmethod
    def dense(case):
        rows, columns = case.q_len // BLOCK, case.kv_len // BLOCK
        blocks = torch.stack([torch.randperm(columns) < columns // 2 for _ in range(rows)])
        return blocks.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1).contiguous()


@dataclass(frozen=True)
class Layer:
    d_model: int
    tokens: int
    causal: bool = False
    group: str = "layer"
    head_dim: int = 64
    kind = "layer"
    unit = "GFLOP/s"
    tolerance = 1e-5

    @property
    def heads(self):
        return self.d_model // self.head_dim

    @property
    def label(self):
        return f"layer f32 {'causal' if self.causal else 'full'} d_model {self.d_model}, {self.tokens} tokens"

    @property
    def flops(self):
        pairs = self.tokens * (self.tokens + 1) / 2 if self.causal else self.tokens**2
        return 8.0 * self.tokens * self.d_model**2 + 4.0 * pairs * self.d_model

    def data(self):
        return LayerData(self)


class LayerData:
    """x [1, tokens, d_model]; the packed input projection and the output projection as torch keeps them, [outputs, inputs]."""

    def __init__(self, case):
        torch.manual_seed(1)
        d = case.d_model
        self.x = torch.randn(1, case.tokens, d)
        self.w_in, self.b_in = torch.randn(3 * d, d) * d**-0.5, torch.randn(3 * d) * 0.1
        self.w_out, self.b_out = torch.randn(d, d) * d**-0.5, torch.randn(d) * 0.1


@dataclass(frozen=True)
class Encoder:
    folder: str
    batch: int
    tokens: int
    group: str = "encoder"
    kind = "encoder"
    unit = "GFLOP/s"
    tolerance = 1e-5

    @property
    def config(self):
        return json.loads(Path(self.folder, "config.json").read_text(encoding="utf-8"))

    @property
    def label(self):
        return f"encoder {Path(self.folder).name} f32, batch {self.batch}, {self.tokens} tokens"

    @property
    def flops(self):
        config = self.config
        d, hidden = config["hidden_size"], config["intermediate_size"]
        per_token = 8.0 * d * d + 4.0 * d * hidden + 4.0 * d * self.tokens
        return config["num_hidden_layers"] * self.batch * self.tokens * per_token

    def data(self):
        return EncoderData(self)


class EncoderData:
    """Token ids [batch, tokens] i64, without padding; the folder's weights are each side's to read."""

    def __init__(self, case):
        torch.manual_seed(1)
        self.ids = torch.randint(1000, case.config["vocab_size"], (case.batch, case.tokens))


def last_level_cache():
    """Bytes of the largest cache that Linux reports for CPU 0; 64 MiB where it reports none."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    units = {"K": 2**10, "M": 2**20}
    return max([int(size[:-1]) * units[size[-1]] for size in sizes if size[-1] in units], default=2**26)


def prefill(quick):
    lengths, dims = ((512,), (64,)) if quick else ((512, 2048), (32, 64, 128))
    for head_dim in dims:
        heads = 8 if head_dim == 128 else 12
        for length in lengths:
            for mask in ("full", "causal"):
                for layout in ("bhld", "blhd"):
                    yield Attention("prefill", "f32", mask, heads, heads, length, length, head_dim, layout)
    for mask in ("window", "dense"):
        for length in (512,) if quick else (512, 2048):
            yield Attention("prefill", "f32", mask, 12, 12, length, length, 64)
    for dtype in ("bf16", "f16"):
        for head_dim in (64,) if quick else (64, 128):
            for mask in ("full", "causal"):
                for length in lengths:
                    yield Attention("prefill", dtype, mask, 8, 8, length, length, head_dim)


def decode(quick):
    for kv_len in (4096,) if quick else (4096, 32768):
        for dtype in ("f32", "bf16", "f16"):
            yield Attention("decode", dtype, "full", 32, 8, 1, kv_len, 128)


def small(quick):
    for batch in (1,) if quick else (1, 16):
        for length in (16, 64, 128):
            for mask in ("full", "causal"):
                yield Attention("small", "f32", mask, 12, 12, length, length, 64, batch=batch)


def curve(quick):
    """What the picture of speed against tokens needs beside the rows of prefill and small."""
    for length, heads in ((256, 4),) if quick else ((32, 12), (256, 12), (1024, 4), (4096, 4)):
        for mask in ("full", "causal"):
            yield Attention("curve", "f32", mask, heads, heads, length, length, 64)


def layer(quick):
    for d_model in (512,) if quick else (512, 768, 1024):
        for tokens in (16, 128, 512) if quick else (16, 128, 512, 2048):
            yield Layer(d_model, tokens)
            if tokens >= 512:
                yield Layer(d_model, tokens, causal=True)


def encoder(quick, folder):
    for batch in (1, 8):
        for tokens in (128,) if quick else (16, 128, 256):
            yield Encoder(folder, batch, tokens)


GROUPS = {"prefill": prefill, "decode": decode, "small": small, "curve": curve, "layer": layer, "encoder": encoder}


def headline(folder):
    """The rows by which bench/compare tells whether a revision is slower: one of each kind, none longer than some 0.1 s a call."""
    for head_dim, length, masks in ((32, 512, ("full", "causal")), (64, 128, ("full", "causal")), (64, 512, ("full", "causal")),
                                    (64, 2048, ("causal",)), (128, 512, ("causal",)), (128, 2048, ("full",))):
        heads = 4 if length == 2048 else 12
        for mask in masks:
            yield Attention("prefill", "f32", mask, heads, heads, length, length, head_dim)
    yield Attention("prefill", "f32", "dense", 4, 4, 2048, 2048, 64)
    yield Attention("prefill", "bf16", "full", 8, 8, 512, 512, 64)
    yield Attention("decode", "f32", "full", 32, 8, 1, 4096, 128)
    yield Attention("decode", "bf16", "full", 32, 8, 1, 4096, 128)
    yield Layer(768, 128)
    yield Encoder(folder, 1, 128)
