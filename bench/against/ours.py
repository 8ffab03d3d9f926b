"""Our side of bench/rivals and both of bench/compare: the library through bench/against/shim.cpp by ctypes, on memory that torch tensors
own. The structs here mirror those of the shim; everything a call needs is prepared before, so that a measured call is one foreign call."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_void_p

import torch

from alternate import Side
from cases import WINDOW, last_level_cache

DTYPES = {torch.float32: 0, torch.bfloat16: 2, torch.float16: 3, torch.bool: 4, torch.int64: 5}  # mha::DType


class View(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int64), ("rank", c_int64), ("shape", c_int64 * 4), ("strides", c_int64 * 4)]


class AttentionCall(ctypes.Structure):
    _fields_ = [(name, View) for name in ("q", "k", "v", "out", "allowed")] + [("causal", c_int64), ("window", c_int64)]


class LayerWeights(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("d_model", "heads", "causal")] + [
        (name, View) for name in ("wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo")]


def view(tensor):
    if tensor is None:
        return View()
    rank = tensor.dim()
    return View(tensor.data_ptr(), DTYPES[tensor.dtype], rank, (c_int64 * 4)(*tensor.shape), (c_int64 * 4)(*tensor.stride()))


class Handle(c_void_p):
    """A pointer of the library's own; a subclass of c_void_p keeps ctypes from turning it into an int."""


class Ours:
    def __init__(self, library, threads):
        self.lib = ctypes.CDLL(library)
        for name, result, arguments in (
                ("rivals_error", c_char_p, []), ("rivals_isa", c_char_p, []), ("rivals_fma_peak", c_double, []),
                ("rivals_workspace", Handle, [c_int]),
                ("rivals_attention", c_int, [POINTER(AttentionCall), Handle]),
                ("rivals_layer", Handle, [POINTER(LayerWeights)]), ("rivals_free_layer", None, [Handle]),
                ("rivals_layer_forward", c_int, [Handle, POINTER(View), POINTER(View), Handle]),
                ("rivals_encoder", Handle, [c_char_p]),
                ("rivals_encoder_forward", c_int, [Handle, POINTER(View), POINTER(View), Handle])):
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.threads, self.workspace, self.encoders, self.memory = threads, None, {}, None
        self.renew()
        self.version = f"ISA {self.made(self.lib.rivals_isa()).decode()}"
        self.fma_peak = self.lib.rivals_fma_peak

    def fma_peaks(self):
        """GFLOP/s of all threads, as if each were as fast as the calling one now."""
        return self.fma_peak() * self.threads

    def read_bandwidth(self):
        """GB/s of all threads together, out of memory."""
        if self.memory is None:
            self.memory = torch.ones(min(max(4 * last_level_cache(), 2**27), 2**30) // 4)
            self.lib.rivals_read_bandwidth.restype, self.lib.rivals_read_bandwidth.argtypes = c_double, [c_void_p, c_int64, Handle]
        return self.lib.rivals_read_bandwidth(self.memory.data_ptr(), self.memory.nbytes, self.workspace)

    def scratch_bytes(self):
        self.lib.rivals_workspace_bytes.restype, self.lib.rivals_workspace_bytes.argtypes = c_int64, [Handle]
        return self.lib.rivals_workspace_bytes(self.workspace)

    def renew(self):
        """Another workspace, and encoders loaded anew when they are next asked for: other places in memory. Sides made before are dead."""
        for encoder in self.encoders.values():
            self.free("rivals_free_encoder", encoder)
        if self.workspace:
            self.free("rivals_free_workspace", self.workspace)
        self.encoders = {}
        self.workspace = self.made(self.lib.rivals_workspace(self.threads))

    def free(self, name, pointer):
        """Revisions before these functions came leave it to the end of the process."""
        if hasattr(self.lib, name):
            function = getattr(self.lib, name)
            function.restype, function.argtypes = None, [Handle]
            function(pointer)

    def made(self, result):
        if not result:
            raise RuntimeError(self.lib.rivals_error().decode())
        return result

    def prepared(self, function, *arguments):
        """A call without arguments, tried once; the library checks them anew in every call."""
        self.made(function(*arguments))
        return lambda: function(*arguments)

    def attention(self, case, data):
        sides = [self.attention_side("ours", case, data, data.allowed if case.mask == "dense" else None)]
        if case.mask == "dense":
            sides.append(self.attention_side("ours unmasked", case, data, None))
            sides[1].comparable = False
        return sides

    def attention_side(self, name, case, data, allowed):
        rows = [tensor.transpose(1, 2) for tensor in (data.q, *data.kv[0])]  # [batch, length, heads, dim]
        out = torch.zeros_like(rows[0])  # in q's memory order
        allowed = None if allowed is None else allowed[None, None]
        causal, window = case.mask in ("causal", "window"), WINDOW if case.mask == "window" else 0
        calls = []
        for k, v in data.kv:
            call = AttentionCall(view(rows[0]), view(k.transpose(1, 2)), view(v.transpose(1, 2)), view(out), view(allowed), causal, window)
            calls.append(self.prepared(self.lib.rivals_attention, byref(call), self.workspace))
        return Side(name, "attention_forward", calls, lambda: out.transpose(1, 2).float().numpy())

    def layer(self, case, data):
        wq, wk, wv = data.w_in.chunk(3)
        bq, bk, bv = data.b_in.chunk(3)
        weights = LayerWeights(case.d_model, case.heads, case.causal, *map(view, (wq, wk, wv, data.w_out, bq, bk, bv, data.b_out)))
        layer = self.made(self.lib.rivals_layer(byref(weights)))
        y = torch.zeros_like(data.x)
        call = self.prepared(self.lib.rivals_layer_forward, layer, byref(view(data.x)), byref(view(y)), self.workspace)
        return [Side("ours", "MultiHeadAttention", [call], y.numpy, release=lambda: self.lib.rivals_free_layer(layer))]

    def encoder(self, case, data):
        if case.folder not in self.encoders:
            self.encoders[case.folder] = self.made(self.lib.rivals_encoder(case.folder.encode()))
        hidden = torch.zeros(case.batch, case.tokens, case.config["hidden_size"])
        call = self.prepared(self.lib.rivals_encoder_forward, self.encoders[case.folder], byref(view(data.ids)), byref(view(hidden)),
                             self.workspace)
        return [Side("ours", "Transformer", [call], hidden.numpy)]
