"""docs/from-torch.md says the truth: its code is run, block by block, in one namespace.

Wants torch and transformers (./test --full)."""

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("torch")
pytest.importorskip("transformers")

PAGE = Path(__file__).resolve().parents[2] / "docs/from-torch.md"


def test_every_line():
    text = PAGE.read_text(encoding="utf-8")
    names = {}
    blocks = text.split("```python\n")
    assert len(blocks) > 10
    for block in blocks[1:]:
        first_line = text[: text.index(block)].count("\n")
        code = "\n" * first_line + block.split("```")[0]  # so that a traceback names the page's line
        exec(compile(code, str(PAGE), "exec"), names)
    with pytest.raises(AssertionError):
        names["same"](names["q"], names["q"] + 1e-3)
