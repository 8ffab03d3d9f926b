"""PyTorch's side of bench/rivals: scaled_dot_product_attention on CPU, nn.MultiheadAttention and nn.TransformerEncoderLayer in inference
mode, and the same layer and encoder written with F.linear and SDPA, since either may be the faster one. torch.compile is left out: it is
another product, with a C++ compiler at run time."""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from alternate import Side

KERNELS = ("aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_attention_math",
           "aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention")


class Seen(TorchDispatchMode):
    """The names of all operators called under it. (torch.profiler would tell too, but leaves a thread at work.)"""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function._schema.name)
        if function._schema.name == "aten::scaled_dot_product_attention":  # chooses among kernels
            with self:
                return function.decompose(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def kernels_of(call):
    """Which of the kernels that matter one call reaches."""
    with Seen() as seen:
        call()
    return ", ".join(kernel.removeprefix("aten::") for kernel in KERNELS if kernel in seen.names) or "no fused kernel"


class Torch:
    name = "torch"

    def __init__(self, threads):
        torch.set_num_threads(threads)
        self.version = f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}, MKL {torch.backends.mkl.is_available()}, " \
                       f"oneDNN {torch.backends.mkldnn.is_available()})"
        self.models = {}

    @staticmethod
    def side(name, functions, shape=lambda y: y):
        """`functions` return the output of one call each."""
        last = [None]

        def inference(function):
            def call():
                with torch.inference_mode():
                    last[0] = function()
            return call

        calls = [inference(function) for function in functions]
        return Side(name, kernels_of(calls[0]), calls, lambda: shape(last[0]).float().numpy())

    def attention(self, case, data):
        options = {"is_causal": case.mask == "causal", "attn_mask": data.allowed}
        if case.heads == case.kv_heads:
            return [self.side("torch", [lambda k=k, v=v: F.scaled_dot_product_attention(data.q, k, v, **options) for k, v in data.kv])]
        gqa = [lambda k=k, v=v: F.scaled_dot_product_attention(data.q, k, v, enable_gqa=True, **options) for k, v in data.kv]
        sides = [self.side("torch gqa", gqa)]
        if case.q_len == 1:  # one query: a group's heads may stand as queries of their kv head, which reads each key once
            q = data.q.view(case.batch, case.kv_heads, -1, case.head_dim)
            sides.append(self.side("torch heads-as-queries", [lambda k=k, v=v: F.scaled_dot_product_attention(q, k, v) for k, v in data.kv],
                                   lambda y: y.reshape(case.batch, case.heads, 1, case.head_dim)))
        return sides

    def layer(self, case, data):
        module = nn.MultiheadAttention(case.d_model, case.heads, batch_first=True).eval()
        module.load_state_dict({"in_proj_weight": data.w_in, "in_proj_bias": data.b_in, "out_proj.weight": data.w_out,
                                "out_proj.bias": data.b_out})
        x, mask = data.x, nn.Transformer.generate_square_subsequent_mask(case.tokens) if case.causal else None
        weights = (data.w_in, data.b_in, data.w_out, data.b_out)
        return [self.side("torch nn.MHA", [lambda: module(x, x, x, need_weights=False, attn_mask=mask, is_causal=case.causal)[0]]),
                self.side("torch linear+SDPA", [lambda: attend(x, case.heads, weights, case.causal)])]

    def encoder(self, case, data):
        if case.folder not in self.models:
            self.models[case.folder] = Bert(case.folder, case.config)
        bert = self.models[case.folder]
        return [self.side("torch nn.Encoder", [lambda: bert.with_modules(data.ids)]),
                self.side("torch linear+SDPA", [lambda: bert.with_functions(data.ids)])]


def attend(x, heads, weights, causal=False):
    w_in, b_in, w_out, b_out = weights
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in F.linear(x, w_in, b_in).chunk(3, -1))
    return F.linear(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2), w_out, b_out)


class Bert:
    """The encoder of a BERT folder, without padding, twice: as nn.TransformerEncoderLayer with its fast path, and as functions."""

    def __init__(self, folder, config):
        self.weights = load_file(Path(folder, "model.safetensors"))
        self.eps, self.heads, d = config["layer_norm_eps"], config["num_attention_heads"], config["hidden_size"]
        self.layers = [self.layer(f"encoder.layer.{i}.") for i in range(config["num_hidden_layers"])]
        self.modules = [nn.TransformerEncoderLayer(d, self.heads, config["intermediate_size"], activation="gelu", batch_first=True,
                                                   layer_norm_eps=self.eps).eval() for _ in self.layers]
        for module, layer in zip(self.modules, self.layers):
            module.load_state_dict(dict(zip(("self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
                                             "self_attn.out_proj.bias"), layer["attention"])) |
                                   dict(zip(("norm1.weight", "norm1.bias"), layer["norm1"])) |
                                   dict(zip(("linear1.weight", "linear1.bias"), layer["up"])) |
                                   dict(zip(("linear2.weight", "linear2.bias"), layer["down"])) |
                                   dict(zip(("norm2.weight", "norm2.bias"), layer["norm2"])))

    def pair(self, name):
        return self.weights[name + ".weight"], self.weights[name + ".bias"]

    def layer(self, prefix):
        query, key, value = (self.pair(f"{prefix}attention.self.{role}") for role in ("query", "key", "value"))
        w_in, b_in = (torch.cat(parts) for parts in zip(query, key, value))
        return {"attention": (w_in, b_in, *self.pair(prefix + "attention.output.dense")),
                "norm1": self.pair(prefix + "attention.output.LayerNorm"), "up": self.pair(prefix + "intermediate.dense"),
                "down": self.pair(prefix + "output.dense"), "norm2": self.pair(prefix + "output.LayerNorm")}

    def norm(self, x, weights):
        return F.layer_norm(x, x.shape[-1:], *weights, self.eps)

    def embed(self, ids):
        table = "embeddings.{}_embeddings.weight"
        places = self.weights[table.format("position")][:ids.shape[1]] + self.weights[table.format("token_type")][0]
        return self.norm(F.embedding(ids, self.weights[table.format("word")]) + places, self.pair("embeddings.LayerNorm"))

    def with_modules(self, ids):
        x = self.embed(ids)
        for module in self.modules:
            x = module(x)
        return x

    def with_functions(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = self.norm(x + attend(x, self.heads, layer["attention"]), layer["norm1"])
            x = self.norm(x + F.linear(F.gelu(F.linear(x, *layer["up"])), *layer["down"]), layer["norm2"])
        return x
