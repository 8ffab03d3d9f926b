"""OpenVINO's side of bench/rivals: opset 13 ScaledDotProductAttention through the CPU plugin, the layer around it, and the plain ONNX
encoder. One stream, the case's own precision; tensors in the order [batch, heads, length, dim] that the operator asks for, whatever the
case's memory order is. Without a cache the plugin takes the operator apart and joins the parts to a JIT-compiled Subgraph; its kernel for
decoding works only on a cache that is the model's own state, so there each request holds a copy of a buffer and grows by one key per call
(under 2 % in all)."""

from collections import Counter

import numpy as np
import openvino as ov
import torch
from openvino import opset6
from openvino import opset13 as ops
from openvino.op.util import Variable, VariableInfo

import onnx_models
from alternate import Side

TYPES = {"f32": ov.Type.f32, "bf16": ov.Type.bf16, "f16": ov.Type.f16, "bool": ov.Type.boolean, "i64": ov.Type.i64, "i32": ov.Type.i32}
UNSEEN = ("Input", "Output", "Const", "Reorder", "MemoryInput", "MemoryOutput")


class OpenVino:
    name = "openvino"

    def __init__(self, threads):
        self.core, self.threads = ov.Core(), threads
        self.version = f"OpenVINO {ov.__version__.split('-')[0]} (CPU plugin, 1 stream)"
        self.encoders = {}

    def compiled(self, model, dtype):
        return self.core.compile_model(model, "CPU", {
            "INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": dtype, "KV_CACHE_PRECISION": dtype,
            "ENABLE_CPU_PINNING": False, "PERFORMANCE_HINT": "LATENCY"})

    def side(self, name, model, dtype, buffers, shape=lambda out: out):
        """`buffers`: per buffer, the input tensors (torch, contiguous) in the model's order."""
        compiled, calls = self.compiled(model, dtype), []
        for tensors in buffers:
            request = compiled.create_infer_request()
            for index, tensor in enumerate(tensors):
                request.set_input_tensor(index, shared(tensor))
            calls.append(lambda request=request: request.infer(share_outputs=True))
        first = calls[0].__defaults__[0]
        # The requests do not own what they read: `buffers` lives as long as the side does.
        return Side(name, kernels_of(compiled), calls, lambda kept=buffers: shape(numbers(first.get_output_tensor(0))))

    def attention(self, case, data):
        if case.group == "decode":
            return [self.decode(case, data)]
        buffers = [[data.q.contiguous(), k.contiguous(), v.contiguous()] for k, v in data.kv]
        parameters = [ops.parameter(list(tensor.shape), TYPES[case.dtype]) for tensor in buffers[0]]
        if data.allowed is not None:
            parameters.append(ops.parameter([1, 1, *data.allowed.shape], ov.Type.boolean))
            buffers = [[*tensors, data.allowed[None, None]] for tensors in buffers]
        out = ops.scaled_dot_product_attention(*parameters, causal=case.mask == "causal")
        return [self.side("openvino", ov.Model([out.output(0)], parameters, "attention"), case.dtype, buffers)]

    def decode(self, case, data):
        compiled, q, calls = self.compiled(model_with_cache(case), case.dtype), data.q.contiguous(), []
        beam = torch.zeros(case.batch, dtype=torch.int32)
        for k, v in data.kv:
            request, last = compiled.create_infer_request(), [k[:, :, -1:].contiguous(), v[:, :, -1:].contiguous()]
            for index, tensor in enumerate((q, *last, beam)):
                request.set_input_tensor(index, shared(tensor))
            past = {"k": k[:, :, :-1].contiguous(), "v": v[:, :, :-1].contiguous()}
            for state in request.query_state():
                state.state = shared(past[state.name])
            calls.append(lambda request=request, kept=(last, past): request.infer(share_outputs=True))
        first = calls[0].__defaults__[0]
        return Side("openvino", kernels_of(compiled), calls, lambda kept=(q, beam): numbers(first.get_output_tensor(0)))

    def layer(self, case, data):
        x = ops.parameter(list(data.x.shape), ov.Type.f32)
        split, joined = ops.constant(np.array([0, 0, case.heads, -1])), ops.constant(np.array([0, 0, case.d_model]))
        swap = ops.constant(np.array([0, 2, 1, 3]))
        heads = [ops.transpose(ops.reshape(linear(x, w, b), split, True), swap)
                 for w, b in zip(data.w_in.chunk(3), data.b_in.chunk(3))]
        attended = ops.scaled_dot_product_attention(*heads, causal=case.causal)
        y = linear(ops.reshape(ops.transpose(attended, swap), joined, True), data.w_out, data.b_out)
        return [self.side("openvino", ov.Model([y.output(0)], [x], "layer"), "f32", [[data.x]])]

    def encoder(self, case, data):
        if case.folder not in self.encoders:
            self.encoders[case.folder] = onnx_models.Bert(case.folder, case.config)
        model = self.encoders[case.folder].model(case.batch, case.tokens, False)
        return [self.side("openvino", self.core.read_model(model.SerializeToString()), "f32", [[data.ids]])]


def model_with_cache(case):
    """One step of decoding: the new key and value are appended to the model's state, and the query attends to all of it."""
    dtype, group = TYPES[case.dtype], case.heads // case.kv_heads
    q, k, v = (ops.parameter([case.batch, heads, -1, case.head_dim], dtype) for heads in (case.heads, case.kv_heads, case.kv_heads))
    beam, assigned, cached = ops.parameter([-1], ov.Type.i32), [], []
    for name, new in (("k", k), ("v", v)):
        info = VariableInfo()
        info.variable_id, info.data_type, info.data_shape = name, dtype, ov.PartialShape([case.batch, case.kv_heads, -1, case.head_dim])
        variable = Variable(info)
        nothing = ops.convert(ops.constant(np.zeros((case.batch, case.kv_heads, 0, case.head_dim), np.float32)), case.dtype)
        past = ops.gather(opset6.read_value(nothing, variable), beam, ops.constant(np.int64(0)))
        joined = ops.concat([past, new], 2)
        assigned.append(opset6.assign(joined, variable))
        groups = ops.broadcast(ops.unsqueeze(joined, ops.constant(np.array([2]))), ops.constant(np.array([1, 1, group, 1, 1])),
                               broadcast_spec="BIDIRECTIONAL")
        cached.append(ops.reshape(groups, ops.constant(np.array([0, case.heads, -1, case.head_dim])), True))
    out = ops.scaled_dot_product_attention(q, *cached, causal=False)
    return ov.Model([out.output(0)], assigned, [q, k, v, beam], "decode")


def linear(x, weight, bias):
    return ops.add(ops.matmul(x, ops.constant(weight.numpy()), False, True), ops.constant(bias.numpy()))


def shared(tensor):
    """An OpenVINO tensor on the memory of a torch one; NumPy has no bf16, so the bytes go over."""
    name = str(tensor.dtype).removeprefix("torch.")
    kind = {"int32": "i32", "float32": "f32", "bfloat16": "bf16", "float16": "f16", "bool": "bool", "int64": "i64"}[name]
    array = tensor.view(torch.uint16).numpy() if kind == "bf16" else tensor.numpy()
    return ov.Tensor(array, ov.Shape(list(tensor.shape)), TYPES[kind])


def numbers(tensor):
    if tensor.element_type != ov.Type.bf16:
        return np.array(tensor.data, np.float32)
    return torch.from_numpy(np.array(tensor.data).view(np.uint16)).view(torch.bfloat16).float().numpy().reshape(list(tensor.shape))


def kernels_of(compiled):
    """What the plugin runs, after its own optimisation: layer types, and as what it runs the attention."""
    kinds, how = Counter(), set()
    for node in compiled.get_runtime_model().get_ops():
        info = {key: value.value if hasattr(value, "value") else value for key, value in node.get_rt_info().items()}
        kind = str(info.get("layerType"))
        if kind not in UNSEEN:
            kinds[kind] += 1
        if "ScaledDotProductAttention" in node.get_friendly_name() and kind not in UNSEEN:
            how.add(f"attention is a {kind}, {info.get('primitiveType')}")
    text = ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds.most_common())
    return text + (f" ({'; '.join(sorted(how))})" if how else "")
