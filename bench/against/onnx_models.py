"""The ONNX models that bench/rivals hands to ONNX Runtime (and, the plain encoder, to OpenVINO): one attention node, the layer, and the
encoder of a BERT folder. `fused` takes ONNX Runtime's own operator for attention, `plain` MatMul and Softmax as exporters write it."""

import math
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "i32": TensorProto.INT32, "i64": TensorProto.INT64}
MICROSOFT = "com.microsoft"


class Graph:
    def __init__(self):
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []

    def input(self, name, dtype, shape):
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def output(self, name, dtype, shape):
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind, *inputs, domain="", results=None, **attributes):
        """One node; the name of its first result."""
        results = results or [f"t{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, list(inputs), results, domain=domain, **attributes))
        return results[0]

    def model(self, opset=17):
        graph = helper.make_graph(self.nodes, "rivals", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def multi_head_attention(case, order):
    """com.microsoft.MultiHeadAttention: q [batch, length, heads * dim]; k and v likewise or, in the order bhld, [batch, heads, length,
    dim]. A mask that is a table comes as attention_bias."""
    graph, width = Graph(), case.heads * case.head_dim
    keys = [case.batch, case.heads, case.kv_len, case.head_dim] if order == "bhld" else [case.batch, case.kv_len, width]
    inputs = [graph.input("q", case.dtype, [case.batch, case.q_len, width]), graph.input("k", case.dtype, keys),
              graph.input("v", case.dtype, keys)]
    if case.mask in ("window", "dense"):
        inputs += ["", "", graph.input("attention_bias", case.dtype, [1, 1, case.q_len, case.kv_len])]
    graph.op("MultiHeadAttention", *inputs, domain=MICROSOFT, results=["out"], num_heads=case.heads,
             unidirectional=int(case.mask == "causal"))
    graph.output("out", case.dtype, [case.batch, case.q_len, width])
    return graph.model()


def attention(case):
    """Attention of opset 23: all [batch, heads, length, dim]. A mask that is a table comes as floats to add."""
    graph = Graph()
    shapes = [[case.batch, case.heads, length, case.head_dim] for length in (case.q_len, case.kv_len, case.kv_len)]
    inputs = [graph.input(name, case.dtype, shape) for name, shape in zip("qkv", shapes)]
    if case.mask in ("window", "dense"):
        inputs.append(graph.input("mask", case.dtype, [1, 1, case.q_len, case.kv_len]))
    graph.op("Attention", *inputs, results=["out"], is_causal=int(case.mask == "causal"))
    graph.output("out", case.dtype, shapes[0])
    return graph.model(opset=23)


def group_query_attention(case, window):
    """com.microsoft.GroupQueryAttention, always causal, with room for kv_len keys; the last q_len of them are given as k and v, the others
    are in the cache already."""
    graph = Graph()
    cache = [case.batch, case.kv_heads, case.kv_len, case.head_dim]
    inputs = [graph.input("q", case.dtype, [case.batch, case.q_len, case.heads * case.head_dim])]
    inputs += [graph.input(name, case.dtype, [case.batch, case.q_len, case.kv_heads * case.head_dim]) for name in "kv"]
    inputs += [graph.input(name, case.dtype, cache) for name in ("past_k", "past_v")]
    inputs += [graph.input("last_key", "i32", [case.batch]), graph.input("total", "i32", [1])]
    graph.op("GroupQueryAttention", *inputs, domain=MICROSOFT, results=["out", "present_k", "present_v"], num_heads=case.heads,
             kv_num_heads=case.kv_heads, local_window_size=window)
    graph.output("out", case.dtype, [case.batch, case.q_len, case.heads * case.head_dim])
    for name in ("present_k", "present_v"):
        graph.output(name, case.dtype, cache)
    return graph.model()


def attend(graph, x, weights, heads, fused, causal=False):
    """Projections, attention and output projection of one layer on x [batch, length, d_model]. `weights`: the eight arrays as torch keeps
    them."""
    wq, bq, wk, bk, wv, bv, wo, bo = weights
    q, k, v = (linear(graph, x, w, b) for w, b in ((wq, bq), (wk, bk), (wv, bv)))
    if fused:
        heads_out = graph.op("MultiHeadAttention", q, k, v, domain=MICROSOFT, num_heads=heads, unidirectional=int(causal))
    else:
        assert not causal
        split, joined = graph.constant(np.array([0, 0, heads, -1])), graph.constant(np.array([0, 0, len(wq)]))
        q, k, v = (graph.op("Transpose", graph.op("Reshape", part, split), perm=perm)
                   for part, perm in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])))
        scores = graph.op("Div", graph.op("MatMul", q, k), graph.constant(np.float32(math.sqrt(len(wq) // heads))))
        table = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), v)
        heads_out = graph.op("Reshape", graph.op("Transpose", table, perm=[0, 2, 1, 3]), joined)
    return linear(graph, heads_out, wo, bo)


def linear(graph, x, weight, bias):
    return graph.op("Add", graph.op("MatMul", x, graph.constant(weight.T)), graph.constant(bias))


def layer(case, data):
    graph = Graph()
    x = graph.input("x", "f32", list(data.x.shape))
    parts = [part.numpy() for pair in zip(data.w_in.chunk(3), data.b_in.chunk(3)) for part in pair]
    y = attend(graph, x, [*parts, data.w_out.numpy(), data.b_out.numpy()], case.heads, True, case.causal)
    graph.output(y, "f32", list(data.x.shape))
    return graph.model()


class Bert:
    """Builds the encoder of a BERT folder for ids [batch, length] without padding."""

    def __init__(self, folder, config):
        self.weights, self.config = load_file(Path(folder, "model.safetensors")), config

    def pair(self, name):
        return self.weights[name + ".weight"], self.weights[name + ".bias"]

    def norm(self, graph, x, name):
        weight, bias = map(graph.constant, self.pair(name))
        return graph.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=self.config["layer_norm_eps"])

    def embed(self, graph, ids, length):
        table = "embeddings.{}_embeddings.weight"
        words = graph.op("Gather", graph.constant(self.weights[table.format("word")]), ids)
        places = self.weights[table.format("position")][:length] + self.weights[table.format("token_type")][0]
        return self.norm(graph, graph.op("Add", words, graph.constant(places)), "embeddings.LayerNorm")

    def gelu(self, graph, x):
        erf = graph.op("Erf", graph.op("Div", x, graph.constant(np.float32(math.sqrt(2)))))
        doubled = graph.op("Mul", x, graph.op("Add", erf, graph.constant(np.float32(1))))
        return graph.op("Mul", doubled, graph.constant(np.float32(0.5)))

    def block(self, graph, x, prefix, fused):
        names = [f"attention.self.{role}" for role in ("query", "key", "value")] + ["attention.output.dense"]
        weights = [part for name in names for part in self.pair(prefix + name)]
        attended = attend(graph, x, weights, self.config["num_attention_heads"], fused)
        x = self.norm(graph, graph.op("Add", attended, x), prefix + "attention.output.LayerNorm")
        hidden = self.gelu(graph, linear(graph, x, *self.pair(prefix + "intermediate.dense")))
        out = linear(graph, hidden, *self.pair(prefix + "output.dense"))
        return self.norm(graph, graph.op("Add", out, x), prefix + "output.LayerNorm")

    def model(self, batch, length, fused):
        graph = Graph()
        x = self.embed(graph, graph.input("ids", "i64", [batch, length]), length)
        for i in range(self.config["num_hidden_layers"]):
            x = self.block(graph, x, f"encoder.layer.{i}.", fused)
        graph.output(x, "f32", [batch, length, self.config["hidden_size"]])
        return graph.model()
