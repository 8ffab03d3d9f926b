"""An ONNX backend (`onnx.backend.base.Backend`) for ai.onnx Attention, opsets 23 to 25, computed by `mha.scaled_dot_product_attention`.

    import mha.onnx
    outputs = mha.onnx.run_model(model, [Q, K, V])

The module itself is what `onnx.backend.test.BackendTest` takes. Models whose nodes are all Attention run; what the library has no feature
for (another operator, raw scores by qk_matmul_output_mode 0 to 2) is refused with onnx's own BackendIsNotSupposedToImplementIt. What a node
means is in mha._onnx_attention; nothing is approximated or left to another runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import onnx
import onnx.checker
from onnx import numpy_helper
from onnx.backend.base import Backend as _Base
from onnx.backend.base import BackendRep, Device, DeviceType, namedtupledict

from mha._onnx_attention import Array, Call, Lowered, lower
from mha.attention import scaled_dot_product_attention

__all__ = ["Backend", "PreparedModel", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

_INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
_OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
_SCHEMAS = (23, 24, 25)  # versions of the operator's definition whose text this follows


def _refuse(why: str) -> NoReturn:
    from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt  # imports onnx's whole test suite, so not before it is needed

    raise BackendIsNotSupposedToImplementIt(f"mha.onnx: {why}")


class _Node:
    """An Attention node, checked as far as it can be without its inputs."""

    def __init__(self, node: onnx.NodeProto, opset: int) -> None:
        if node.op_type != "Attention" or node.domain not in ("", "ai.onnx"):
            _refuse(f"operator {node.domain or 'ai.onnx'}.{node.op_type} is not Attention of ai.onnx")
        try:
            version = onnx.defs.get_schema("Attention", opset, "").since_version
        except onnx.defs.SchemaError:
            version = 0
        if version not in _SCHEMAS:
            _refuse(f"Attention of opset {opset} is not among the versions {', '.join(map(str, _SCHEMAS))} of the operator")
        self.attrs = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        self.inputs = dict(zip(_INPUTS, node.input))  # the operator's name -> the graph's, "" = absent
        self.outputs = dict(zip(_OUTPUTS, node.output))
        mode = self.attrs.get("qk_matmul_output_mode", 0)
        if self.outputs.get("qk_matmul_output") and mode != 3:
            _refuse(f"qk_matmul_output_mode {mode}: raw scores are not kept by the library, only weights (mode 3)")

    def run(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Outputs under the graph's names. ValueError, TypeError as mha.scaled_dot_product_attention has them."""
        given = {name: values[key] for name, key in self.inputs.items() if key}
        wanted = [name for name, key in self.outputs.items() if key]
        lowered = lower(self.attrs, given, wanted)
        results = lowered.outputs(_attend(lowered))
        return {self.outputs[name]: results[name] for name in wanted}


def _attend(lowered: Lowered) -> dict[str, Array]:
    """A call of [batch, length, heads, dim] through the package's function of [batch, heads, length, dim], without copies."""
    call = lowered.call
    q, k, v = (tensor.swapaxes(1, 2) for tensor in (call.q, call.k, call.v))
    mask = call.bias if call.allowed is None else call.allowed
    if call.bias is not None and call.allowed is not None:
        mask = np.where(call.allowed, call.bias, call.bias.dtype.type(-np.inf))
    if call.kv_lengths is None:
        out, weights = _one_call(call, q, k, v, mask)
        return {"out": out.swapaxes(1, 2)} | ({} if weights is None else {"weights": weights})
    lengths = _checked_lengths(call.kv_lengths, k.shape[0], k.shape[2])
    out = np.empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3]), q.dtype)
    results = {"out": out}
    if call.weights:
        results["weights"] = np.zeros((*q.shape[:3], k.shape[2]), np.float64 if q.dtype == np.float64 else np.float32)
    for b, length in enumerate(lengths):  # what lies beyond an entry's length is not part of its call
        one = slice(b, b + 1)
        own = mask if mask is None else mask[one if mask.shape[0] > 1 else slice(None), ..., :length]
        weights = _one_call(call, q[one], k[one, :, :length], v[one, :, :length], own, out[one].swapaxes(1, 2))[1]
        if weights is not None:
            results["weights"][one, ..., :length] = weights
    return results


def _checked_lengths(lengths: Array, batch: int, kv_len: int) -> list[int]:
    """What selects the keys by slices, which would take any number."""
    if lengths.shape != (batch,):
        raise ValueError(f"nonpad_kv_seqlen has shape {list(lengths.shape)}, must be [{batch}]")
    for b, length in enumerate(lengths):
        if not 0 <= length <= kv_len:
            raise ValueError(f"nonpad_kv_seqlen[{b}] is {length}, must be 0 to {kv_len}")
    return [int(length) for length in lengths]


def _one_call(call: Call, q: Array, k: Array, v: Array, mask: Array | None, out: Array | None = None) -> tuple[Array, Array | None]:
    window = next(((rule["left"], rule["right"]) for rule in call.mask if rule["rule"] == "window"), None)
    causal = any(rule["rule"] == "causal" for rule in call.mask)
    results = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=call.scale, enable_gqa=True, window=window,
                                           softcap=call.softcap, causal_align=call.align, return_weights=call.weights, out=out)
    return (results.out, results.weights) if call.weights else (results, None)


class PreparedModel(BackendRep):
    """A model ready to run, as often as wanted."""

    def __init__(self, model: onnx.ModelProto) -> None:
        opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
        graph = model.graph
        self._nodes = [_Node(node, opsets.get("ai.onnx", 0)) for node in graph.node]
        if graph.sparse_initializer:
            _refuse("sparse initializers")
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input if value.name not in self._constants]
        self._outputs = [value.name for value in graph.output]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's outputs, a named tuple of NumPy arrays in the graph's order. inputs: arrays in the order of the graph's inputs that
        have no initializer, or a mapping by name. ValueError and TypeError where they do not fit."""
        values: dict[str, Any] = dict(self._constants) | _named(inputs, self._inputs)
        for node in self._nodes:
            values.update(node.run(values))
        return _tuple_of(values, self._outputs)


def _named(inputs: Any, names: Sequence[str]) -> dict[str, Array]:
    if not isinstance(inputs, Mapping):
        arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(arrays) != len(names):
            raise ValueError(f"{len(arrays)} inputs are given, must be {len(names)}: {', '.join(names)}")
        inputs = dict(zip(names, arrays))
    if set(inputs) != set(names):
        raise ValueError(f"inputs are {', '.join(sorted(inputs))}, must be {', '.join(names)}")
    return {name: np.asarray(array) for name, array in inputs.items()}


def _tuple_of(values: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    results: tuple[Any, ...] = namedtupledict("Outputs", names)(*(values[name] for name in names))
    return results


class Backend(_Base):
    """ai.onnx Attention, computed exactly on the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU ("CPU", "CPU:0")."""
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):
            return False

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` takes the model."""
        from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

        try:
            cls.prepare(model, device)
        except BackendIsNotSupposedToImplementIt:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """The model, ready to run. Raises BackendIsNotSupposedToImplementIt where a node is no Attention or asks for raw scores, or the
        device is not the CPU; onnx.checker.ValidationError where the model is none."""
        if not cls.supports_device(device):
            _refuse(f"device {device}")
        onnx.checker.check_model(model)
        return PreparedModel(model)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        """One Attention node's outputs, a named tuple of NumPy arrays. inputs: the arrays of the node's inputs in order, absent ones left
        out or None, or a mapping by the node's own names. opset_version: the newest this follows unless given. Raises as prepare and
        PreparedModel.run do."""
        if not cls.supports_device(device):
            _refuse(f"device {device}")
        opset = int(kwargs.get("opset_version", _SCHEMAS[-1]))
        prepared = _Node(node, opset)
        super().run_node(node, inputs, device, opset_version=opset)  # type: ignore[arg-type]
        names = [name for name in node.input if name]
        if not isinstance(inputs, Mapping):
            inputs = [array for array in inputs if array is not None]
        return _tuple_of(prepared.run(_named(inputs, names)), [name for name in node.output if name])


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
