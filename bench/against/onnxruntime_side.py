"""ONNX Runtime's side of bench/rivals: com.microsoft's MultiHeadAttention and GroupQueryAttention, opset 23's Attention, the layer, and the
encoder in three variants. Inputs are bound once (no copies, no dictionaries in the measured call), all graph optimisations are on, and
tensors stand in the order the operators like, whatever the case's memory order is.

The operators' names do not tell that MultiHeadAttention has a flash kernel for attention without any mask: with
ORT_DISABLE_FLASH_ATTENTION=1 those rows become slower and the causal ones do not."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

import onnx_models
from alternate import Side, fastest
from cases import WINDOW

DTYPES = {"f32": np.float32, "f16": np.float16}
HIDDEN = -1e30  # what a float mask says of a key that may not be seen; f16 has no such number


class OnnxRuntime:
    name = "onnxruntime"

    def __init__(self, threads):
        self.threads = threads
        self.version = f"ONNX Runtime {onnxruntime.__version__} (CPU provider, all graph optimisations, spinning as by default)"
        self.encoders = {}

    def session(self, model):
        """A session, and the operators it runs after its own optimisation."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        with tempfile.TemporaryDirectory() as folder:
            options.optimized_model_filepath = str(Path(folder, "optimized.onnx"))
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            kinds = Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)
        return session, ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds.most_common())

    def side(self, name, model, bindings, shape=lambda out: out):
        """`bindings`: per buffer, (inputs, outputs) by name as OrtValues; the first output is the result."""
        session, path = self.session(model)
        calls = []
        for inputs, outputs in bindings:
            binding = session.io_binding()
            for value_name, value in inputs.items():
                binding.bind_ortvalue_input(value_name, value)
            for value_name, value in outputs.items():
                binding.bind_ortvalue_output(value_name, value)
            calls.append(lambda binding=binding: session.run_with_iobinding(binding))
        out = next(iter(bindings[0][1].values()))
        # A binding does not own what it binds: `bindings` lives as long as the side does.
        return Side(name, path, calls, lambda kept=bindings: shape(out.numpy()).astype(np.float32))

    def attention(self, case, data):
        if case.dtype not in DTYPES:
            return []
        sides = []
        if case.heads == case.kv_heads:
            sides += [self.multi_head(case, data), self.standard(case, data)]
        if case.mask in ("causal", "window") or case.q_len == 1:
            sides.append(self.group_query(case, data))
        return sides

    def multi_head(self, case, data):
        """The faster of the two orders that the operator takes keys and values in."""
        def side(keys, order):
            inputs = {"q": flat(data.q)} | {name: keys(tensor) for name, tensor in zip("kv", data.kv[0])}
            inputs |= {"attention_bias": bias(case, data)} if data.allowed is not None else {}
            made = self.side("ort MHA", onnx_models.multi_head_attention(case, order), [(inputs, {"out": zeros(case, flat=True)})],
                             lambda out: unflat(case, out))
            made.path += f" ({order})"
            return made

        return fastest([side(flat, "blhd"), side(value, "bhld")])

    def standard(self, case, data):
        inputs = {name: value(tensor) for name, tensor in zip("qkv", (data.q, *data.kv[0]))}
        inputs |= {"mask": bias(case, data)} if data.allowed is not None else {}
        return self.side("ort Attention-23", onnx_models.attention(case), [(inputs, {"out": zeros(case, flat=False)})])

    def group_query(self, case, data):
        bindings = []
        for k, v in data.kv:
            fresh = case.q_len == case.kv_len  # prefill fills a cache of its own; a step reads the case's buffers in place
            cache = [value(torch.zeros(case.batch, case.kv_heads, case.kv_len, case.head_dim, dtype=k.dtype) if fresh else kv)
                     for kv in (k, v)]
            inputs = {"q": flat(data.q), "k": flat(k[:, :, -case.q_len:]), "v": flat(v[:, :, -case.q_len:]), "past_k": cache[0],
                      "past_v": cache[1], "last_key": scalar([case.kv_len - 1] * case.batch), "total": scalar([case.kv_len])}
            bindings.append((inputs, {"out": zeros(case, flat=True), "present_k": cache[0], "present_v": cache[1]}))
        window = WINDOW if case.mask == "window" else -1
        return self.side("ort GQA", onnx_models.group_query_attention(case, window), bindings,
                         lambda out: unflat(case, out))

    def layer(self, case, data):
        model = onnx_models.layer(case, data)
        return [self.side("ort", model, [bound(model, "x", data.x, data.x.shape)])]

    def encoder(self, case, data):
        if case.folder not in self.encoders:
            self.encoders[case.folder] = onnx_models.Bert(case.folder, case.config)
        bert, config = self.encoders[case.folder], case.config
        plain = bert.model(case.batch, case.tokens, False)
        shape = (case.batch, case.tokens, config["hidden_size"])
        models = {"ort plain": plain, "ort MHA": bert.model(case.batch, case.tokens, True), "ort optimizer": optimized(plain, config)}
        return [self.side(name, model, [bound(model, "ids", data.ids, shape)]) for name, model in models.items()]


def optimized(model, config):
    """The model after onnxruntime's own offline optimizer for transformers."""
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions
    return optimizer.optimize_model(onnx.ModelProto.FromString(model.SerializeToString()), "bert", num_heads=config["num_attention_heads"],
                                    hidden_size=config["hidden_size"], optimization_options=FusionOptions("bert"), opt_level=0).model


def value(tensor):
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.contiguous().numpy())


def scalar(numbers):
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.array(numbers, np.int32))


def flat(tensor):
    """[batch, heads, length, dim] as [batch, length, heads * dim]; no copy where the memory is so ordered."""
    return value(tensor.transpose(1, 2).flatten(2))


def bias(case, data):
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.where(data.allowed.numpy(), 0, HIDDEN).astype(DTYPES[case.dtype])[None, None])


def zeros(case, flat):
    shape = (case.batch, case.q_len, case.heads * case.head_dim) if flat else (case.batch, case.heads, case.q_len, case.head_dim)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, DTYPES[case.dtype]))


def unflat(case, out):
    return out.reshape(case.batch, case.q_len, case.heads, case.head_dim).transpose(0, 2, 1, 3)


def bound(model, name, tensor, shape):
    return {name: value(tensor)}, {model.graph.output[0].name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))}
