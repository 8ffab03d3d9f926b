"""Arrays of NumPy, torch, JAX and anything with DLPack: read as they are, results made in the framework of the query.

Used by every module of the package that takes arrays. torch and JAX are never imported here: whoever has an array of theirs has imported them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from mha import _core

if TYPE_CHECKING:
    import torch

_NUMPY_DTYPES: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16),
                                            "i64": np.dtype(np.int64)}


def is_torch(array: Any) -> TypeGuard[torch.Tensor]:
    """Whether `array` is a torch tensor."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(array, module.Tensor)


def _is_jax(array: Any) -> bool:
    module = sys.modules.get("jax")
    return module is not None and isinstance(array, module.Array)


def refuse_grad(array: Any, name: str) -> None:
    """ValueError for a torch tensor that requires grad, under grad mode, or has a tangent: its gradient would be lost without a word."""
    if not is_torch(array):
        return
    torch = sys.modules["torch"]
    if array.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires grad, and mha computes no gradients: use torch.no_grad(), or {name}.detach()")
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(array).tangent is not None:
        raise ValueError(f"{name} has a tangent of forward-mode AD, and mha computes no gradients: give its primal")


def _refuse_unreadable(tensor: torch.Tensor, name: str) -> None:
    """TypeError for a class of tensors with a __torch_function__ or __torch_dispatch__ of its own: such a class says itself what it means, and
    its memory need not hold that (torch's CausalBias has nothing in it, a fake tensor has none). ValueError where plain tensors are recorded
    and the caller is no operator of torch: the record would lack what is computed here, and hold the memory it was written to."""
    torch = sys.modules["torch"]
    own = type(tensor).__torch_function__
    plain = getattr(own, "__func__", own) in (torch.Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl)
    if not plain or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise TypeError(f"{name} is a {type(tensor).__name__}, must be a plain tensor")
    if getattr(_operator, "computes", False):
        return
    if torch._C._get_tracing_state() is not None or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
        raise ValueError(f"{name} is being recorded (make_fx, torch.jit.trace): only mha.scaled_dot_product_attention is an operator of torch")


_operator = threading.local()


@contextlib.contextmanager
def operator_of_torch() -> Iterator[None]:
    """While an operator that torch has recorded computes."""
    _operator.computes = True
    try:
        yield
    finally:
        _operator.computes = False


def read(array: Any, name: str, writable: bool = False) -> _core.Array:
    """`array` as the library sees it, strides and memory as they are; `name` is what errors call it.

    TypeError where it is no array or its dtype has no counterpart, ValueError where it is not in CPU memory, or read-only but `writable`."""
    if isinstance(array, np.ndarray):
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{name} is a masked array: give its data, and a boolean attn_mask")
        if array.dtype.kind == "V" and array.dtype.name == "bfloat16":
            return _core.Array(array.view(np.uint16), name, writable, "bf16")
        return _core.Array(array, name, writable)
    if is_torch(array):
        refuse_grad(array, name)
        _refuse_unreadable(array, name)
        if array.device.type != "cpu":
            raise ValueError(f"{name} is on device {array.device}, must be on cpu")
        if array.is_neg():  # a view that says "minus" without having computed it
            if writable:
                raise ValueError(f"{name} is a lazily negated view: its memory does not hold its numbers")
            array = array.resolve_neg()
        return _core.Array(array.detach() if array.requires_grad else array, name, writable)
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"{name} is a {type(array).__name__}, must be an array (NumPy, torch, JAX, or anything with DLPack)")
    if writable and _is_jax(array):  # its DLPack does not say that it must not be written
        raise ValueError(f"{name} is a JAX array: those are never written, leave {name} out")
    device = array.__dlpack_device__()[0] if hasattr(array, "__dlpack_device__") else 1
    if device != 1:
        raise ValueError(f"{name} is in the memory of DLPack device type {int(device)}, must be in CPU memory (type 1)")
    return _core.Array(array, name, writable)


def _numpy_dtype(dtype: str) -> np.dtype[Any]:
    if dtype != "bf16":
        return _NUMPY_DTYPES[dtype]
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise TypeError("NumPy knows bf16 by the package ml_dtypes, which is not installed") from error
    found: np.dtype[Any] = np.dtype(bfloat16)
    return found


def empty(like: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """A new, dense, uninitialised array: a torch tensor where `like` is one, else of NumPy (see `finish`)."""
    if is_torch(like):
        torch = sys.modules["torch"]
        kinds = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64}
        return torch.empty(shape, dtype=kinds[dtype], device="cpu")
    return np.empty(shape, _numpy_dtype(dtype))


def finish(like: Any, result: Any) -> Any:
    """A result of `empty`, written, as what the caller gets: a JAX array where `like` is one."""
    if result is not None and _is_jax(like):
        return sys.modules["jax"].numpy.asarray(result)
    return result
