"""Goldens of ../../tests/data, which torch and transformers made (tools/make_layer_goldens.py, tools/make_goldens.py), and the bound of the
layer. Used by the tests of the layer and of the model."""

import pathlib

import numpy as np
import oracle
from safetensors.numpy import load_file

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
LAYERS = sorted(path.stem.removeprefix("layer_") for path in DATA.glob("layer_*.safetensors"))


def load(name):
    """The tensors of a golden by name."""
    return load_file(DATA / f"{name}.safetensors")


def layer(name, dtype=np.float64):
    """One layer's golden, with floats in `dtype`. Without "zero_key" and "heads", which become numbers."""
    tensors = {key: array if array.dtype.kind in "bi" else array.astype(dtype) for key, array in load(f"layer_{name}").items()}
    return tensors | {"heads": int(tensors["heads"][0]), "zero_key": "zero_key" in tensors}


def error(found, wanted):
    """Frobenius norm of the difference over that of `wanted`."""
    wanted = np.asarray(wanted, np.float64)
    return float(np.linalg.norm((np.asarray(found, np.float64) - wanted).ravel()) / max(np.linalg.norm(wanted.ravel()), 1e-300))


def bound(width, dtype):
    """What docs/numerics.md promises of the layer against torch's in f64, for sums of up to `width` terms."""
    return (48 + 8 * width) * oracle.ROUNDOFF[str(np.dtype(dtype))]
