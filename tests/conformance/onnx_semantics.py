"""What the conformance scripts know of ONNX `Attention`: the Python package's own lowering (python/mha/_onnx_attention.py), loaded from its
file, since the package itself need not be built or installed for them."""

import importlib.util
import pathlib
import sys

_FILE = pathlib.Path(__file__).resolve().parents[2] / "python/mha/_onnx_attention.py"
_SPEC = importlib.util.spec_from_file_location("onnx_attention", _FILE)
_module = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _module  # its dataclasses look themselves up there
_SPEC.loader.exec_module(_module)

Call, RAW_SCORES, lower, place_rows = _module.Call, _module.RAW_SCORES, _module.lower, _module.place_rows
