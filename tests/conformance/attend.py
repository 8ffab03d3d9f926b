"""Runs calls of attention_forward in the program built from attend.cpp, and says how far from exact its results may be. Used by the
conformance scripts; holds nothing of any other system's rules."""

import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

ROUNDOFF = {np.dtype(np.float16): 2.0**-11, np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}
SUBNORMAL = {np.dtype(np.float16): 2.0**-25, np.dtype(np.float32): 2.0**-126, np.dtype(np.float64): 2.0**-1022}
LEAST_WEIGHT = 2.0**-126  # FLT_MIN: weights below it are 0, of f64 too


class AttendError(Exception):
    """The program refused its input; the text is its own."""


def _store(call, number, tensors):
    """Adds a call's tensors to the file's; returns its JSON. What lies in memory as [batch, heads, length, dim] stays so: the library is
    to read it through its strides."""
    spec = {"mask": call.mask, "align": call.align, "lse": call.lse, "weights": call.weights, "heads_first": []}
    for name in ("scale", "softcap"):
        if getattr(call, name) is not None:
            spec[name] = float(getattr(call, name))
    for name in ("q", "k", "v", "allowed", "bias", "kv_lengths", "sinks"):
        array = getattr(call, name)
        if array is None:
            continue
        if name in "qkv" and not array.flags.c_contiguous and array.transpose(0, 2, 1, 3).flags.c_contiguous:
            array = array.transpose(0, 2, 1, 3)
            spec["heads_first"].append(name)
        tensors[f"{number}/{name}"] = np.ascontiguousarray(array)
    return spec


def run(helper, calls, isa=None):
    """isa -> one {"out": ..., "lse": ..., "weights": ...} per call, under every ISA this CPU has (or the one given). As for the C++ tests,
    MHA_REQUIRE_ISA names those that must be among them."""
    tensors = {}
    specs = [_store(call, number, tensors) for number, call in enumerate(calls)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / name for name in ("tensors.safetensors", "specs.json", "results.safetensors")]
        save_file(tensors, paths[0])
        paths[1].write_text(json.dumps({"problems": specs}))
        done = subprocess.run([helper, *paths, *([isa] if isa else [])], capture_output=True, text=True)
        if done.returncode != 0:
            raise AttendError(f"exit code {done.returncode}: {done.stderr.strip()}")
        loaded = load_file(paths[2])
    results = {}
    for key, array in loaded.items():
        name, number, what = key.split("/")
        results.setdefault(name, [{} for _ in calls])[int(number)][what] = array
    lacking = set(filter(None, os.environ.get("MHA_REQUIRE_ISA", "").split(","))) - results.keys()
    if lacking and isa is None:
        raise AttendError(f"MHA_REQUIRE_ISA names {', '.join(sorted(lacking))}, which this CPU does not support")
    return results


def excess(got, expected, bound):
    """The largest |got - expected| / bound; equal infinities and a NaN in both places count as equal, other special values as infinitely
    wrong, and so does another shape. Where the bound is infinite anything goes."""
    if got.shape != expected.shape:
        return np.inf
    if got.size == 0:
        return 0.0
    got, expected, bound = (np.broadcast_to(np.asarray(x, dtype=np.float64), expected.shape) for x in (got, expected, bound))
    same = (bound == np.inf) | (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(all="ignore"):
        ratio = np.where(same, 0.0, np.abs(got - expected) / bound)
    return float(np.max(np.where(np.isnan(ratio), np.inf, ratio)))
