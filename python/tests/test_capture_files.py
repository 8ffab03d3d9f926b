"""Captures and safetensors files without torch: those of others, wrong ones, and arrays that outlive what they came from."""

import gc
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mha
from mha import _core

LIMIT = 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "head.safetensors"


def test_files_of_others(random, path):
    """A file written by hand, from NumPy: one layer of q, k and lse, one of ready weights."""
    q, k, v = (random.standard_normal((2, heads, length, 8), dtype=np.float32) for heads, length in ((4, 5), (2, 9), (2, 9)))
    out = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, window=(3, 1), causal_align="bottom_right", softcap=2.0,
                                           return_lse=True, return_weights=True)
    shared = {"queries": "tokens", "keys": None}
    layers = [
        {"name": "first", "scale": 8**-0.5, "softcap": 2.0, "causal": False, "window": [3, 1], "align": "bottom_right", "sinks": None,
         "allowed": None, "bias": None, **shared},
        {"name": "second", **shared},
    ]
    arrays = {"layers.0.q": q, "layers.0.k": k, "layers.0.lse": out.lse, "layers.1.weights": out.weights.astype(np.float16)}
    metadata = {"format": "mha.capture", "version": "1", "layers": json.dumps(layers)}
    save_file(arrays, path, metadata)
    first, second = mha.load_capture(path).layers
    assert np.abs(first.weights(3, 1) - out.weights[1, 3]).max() <= LIMIT
    assert np.array_equal(second.weights(3, 1, (1, 4), (2, 9)), out.weights[1, 3, 1:4, 2:9].astype(np.float16).astype(np.float32))
    for head, batch, queries in ((4, 0, None), (0, 2, None), (-1, 0, None), (0, 0, (0, 6)), (0, 0, (3, 2))):
        for layer in (first, second):
            with pytest.raises(ValueError):
                layer.weights(head, batch, queries)
    save_file({**arrays, "layers.0.lse": out.lse[0], "layers.0.q": q}, path, metadata)
    with pytest.raises(ValueError, match="first: an array has shape .4, 5."):
        mha.load_capture(path)


def test_arrays_of_a_file_outlive_it_and_are_read_only(path, random):
    arrays = {name: random.standard_normal((2, 3)).astype(name) for name in ("float32", "float64", "float16")}
    arrays |= {"int64": np.arange(5), "bool": np.array([[True, False]]), "empty": np.empty((0, 4), np.float32)}
    save_file(arrays, path, {"said": "so"})
    file = _core.SafetensorsFile(str(path))
    assert file.names() == sorted(arrays) and file.metadata() == {"said": "so"} and file.dtype("float16") == "F16"
    read = {name: file.tensor(name) for name in arrays}
    del file
    gc.collect()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and np.array_equal(read[name], array) and not read[name].flags.writeable


def test_saved_arrays_are_those_of_the_package_safetensors(path, random):
    whole = random.standard_normal((4, 6, 5)).astype(np.float32)
    arrays = {"strided": whole[::2, ::-1].swapaxes(0, 2), "words": np.arange(3), "allowed": whole > 0}
    _core.save_safetensors(str(path), {name: _core.Array(array, name) for name, array in arrays.items()}, {"a": "\u00e9"})
    read = load_file(path)
    assert set(read) == set(arrays) and all(np.array_equal(read[name], array) for name, array in arrays.items())
    assert _core.SafetensorsFile(str(path)).metadata() == {"a": "\u00e9"}


def test_wrong_files_and_arrays(path, tmp_path):
    with pytest.raises(OSError, match="head.safetensors"):
        mha.load_capture(path)
    with pytest.raises(OSError):
        mha.load_capture(tmp_path)
    save_file({"deep": np.zeros((1,) * 5, np.float32), "bytes": np.zeros(3, np.int8)}, path, {"format": "mha.capture", "version": "1"})
    with pytest.raises(ValueError, match="layers"):
        mha.load_capture(path)
    file = _core.SafetensorsFile(str(path))
    with pytest.raises(ValueError, match="none"):
        file.tensor("none")
    with pytest.raises(ValueError, match="deep"):
        file.tensor("deep")
    with pytest.raises(TypeError, match="bytes"):
        file.tensor("bytes")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="head.safetensors"):
        mha.load_capture(path)
    with pytest.raises(ValueError, match="axes"):
        _core.save_safetensors(str(path), {"deep": _core.Array(np.zeros((1,) * 5, np.float32), "deep")}, {})
    with pytest.raises(OSError):
        _core.save_safetensors(str(tmp_path / "none" / "x"), {"x": _core.Array(np.zeros(3, np.float32), "x")}, {})
