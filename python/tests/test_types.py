"""The package is typed: mypy --strict has nothing to say of it, nor of a program that uses it, and finds that program's mistake."""

import pathlib
import subprocess
import sys

import pytest

import mha

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"
PROGRAM = """
import numpy as np

import mha

q = np.zeros((1, 2, 3, 4), np.float32)
outputs: mha.AttentionOutputs = mha.scaled_dot_product_attention(q, q, q, is_causal=True, return_lse=True)
slope: float = mha.alibi_slopes(4)[0]
print(outputs.lse.shape, slope, mha.current_isa().upper(), mha.max_threads() + 1)
"""


def mypy(folder, *arguments):
    command = [sys.executable, "-m", "mypy", "--config-file", str(CONFIG), "--cache-dir", str(folder / "cache"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("onnx")  # whose types mha.onnx is made of
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(PROGRAM + "mha.alibi_slopes('four')\n")
    (tmp_path / "mha").symlink_to(pathlib.Path(mha.__file__).parent)  # checked as a program's own package is
    found = mypy(tmp_path, "-p", "mha", "-m", "program")
    assert found.returncode == 0, found.stdout + found.stderr
    wrong = mypy(tmp_path, "wrong.py")
    assert wrong.returncode == 1 and 'Argument 1 to "alibi_slopes" has incompatible type "str"' in wrong.stdout
