"""mha.view: a page that holds what the heads weigh, in a frame that keeps apart from the notebook, and as a file."""

import base64
import html
import json
import pathlib
import re
import stat
import subprocess
import sys

import goldens
import numpy as np
import pytest
from safetensors.numpy import save_file
from test_model import tokenizer  # noqa: F401

import mha

TEXT = "the man </script><b>saw</b> a man."


@pytest.fixture
def model():
    return mha.Transformer(goldens.DATA / "tiny_bert")


def snapshot_of(page):
    (found,) = re.findall(r'<script type="application/json" id="mha-snapshot">([^<]*)</script>', page)
    return json.loads(found)


def test_the_page_holds_the_weights(model, tokenizer):  # noqa: F811
    snapshot = snapshot_of(mha.view(TEXT, model=model, tokenizer=tokenizer, head=(1, 3), unit="piece").html)
    assert snapshot["state"] == "unit=piece&layer=1&head=3"
    ids = tokenizer.encode(TEXT).ids
    weights = {}
    model(np.array(ids), hook=lambda layer, trace: weights.update({layer: np.stack([trace.weights(head) for head in range(4)])}))
    for layer in range(model.config.layers):
        (name,) = [n for n in snapshot["responses"] if n.endswith(f"weights?layer={layer}&unit=piece&dtype=u8&kind=weight")]
        table = snapshot["responses"][name]
        shape = [int(size) for size in table["shape"].split(",")]
        assert shape == [model.config.heads, len(ids), len(ids)]
        found = np.frombuffer(base64.b64decode(table["body"]), np.uint8).reshape(shape)
        np.testing.assert_allclose(found / 255, weights[layer], atol=0.5 / 255 + 1e-6)


def test_the_frame_keeps_the_page_apart(model, tokenizer):  # noqa: F811
    view = mha.view(TEXT, model=model, tokenizer=tokenizer, height=400)
    frame = view._repr_html_()
    (source,) = re.findall(r'\A<iframe srcdoc="([^"]*)" ', frame)
    assert html.unescape(source) == view.html
    assert frame.count("<") == 2  # of the element itself
    assert "sandbox=" in frame and "allow-same-origin" not in frame and "height:400px" in frame
    assert TEXT in repr(view)


def test_save_writes_all_or_nothing(model, tokenizer, tmp_path):  # noqa: F811
    view = mha.view(TEXT, model=model, tokenizer=tokenizer)
    place = tmp_path / "page.html"
    view.save(place)
    assert place.read_text(encoding="utf-8") == view.html
    with pytest.raises(OSError, match="no"):
        view.save(tmp_path / "no" / "page.html")
    with pytest.raises(OSError, match=re.escape(tmp_path.name)):
        view.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".html"] == ["page.html"]


def test_saved_pages_have_the_mode_of_any_file(model, tokenizer, tmp_path):  # noqa: F811
    view = mha.view(TEXT, model=model, tokenizer=tokenizer)
    place, other = tmp_path / "page.html", tmp_path / "other"
    other.write_text("")
    view.save(place)
    assert place.stat().st_mode == other.stat().st_mode
    place.chmod(0o640)
    view.save(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o640


def test_taking_heads_away_changes_later_layers(model, tokenizer):  # noqa: F811
    def tables(**keywords):
        responses = snapshot_of(mha.view(TEXT, model=model, tokenizer=tokenizer, **keywords).html)["responses"]
        return [entry["body"] for name, entry in responses.items() if "unit=word&dtype=u8&kind=weight" in name]
    before, after = tables(), tables(zeroed=[(0, 1)])
    assert before[0] == after[0] and before[1:] != after[1:]


def test_bad_input(model, tokenizer):  # noqa: F811
    with pytest.raises(ValueError, match="tokenizer"):
        mha.view(TEXT, model=model)
    for head in ((2, 0), (0, 4), (-1, 0)):
        with pytest.raises(ValueError, match="2 layers of 4 heads"):
            mha.view(TEXT, model=model, tokenizer=tokenizer, head=head)
    with pytest.raises(ValueError, match="unit"):
        mha.view(TEXT, model=model, tokenizer=tokenizer, unit="letter")
    with pytest.raises(ValueError, match="word"):
        mha.view(" ", model=model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="7"):
        mha.view(TEXT, model=model, tokenizer=tokenizer, zeroed=[(7, 0)])
    with pytest.raises(OSError, match="nowhere"):
        mha.view(TEXT, model="/nowhere")


def test_nothing_else_is_imported():
    program = "import sys, mha; mha.view; assert not {'torch', 'transformers', 'IPython'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=pathlib.Path(__file__).parent)


def test_a_capture_of_any_model(random, tmp_path):
    path = tmp_path / "heads.safetensors"
    weights = random.random((2, 3, 4, 4), dtype=np.float32)
    weights /= weights.sum(-1, keepdims=True)
    layers = json.dumps([{"name": "only", "queries": "tokens", "keys": "tokens"}])
    save_file({"layers.0.weights": weights, "tokens": np.zeros((2, 4), np.int64)}, path,
              {"format": "mha.capture", "version": "1", "layers": layers, "texts": json.dumps(["a b", "<i>"])})
    for source, run in ((path, "t0"), (str(path), "t1")):
        view = mha.view(source, run=run, head=(0, 2))
        snapshot = snapshot_of(view.html)
        assert snapshot["state"] == f"unit=word&layer=0&head=2&tensors={run}"
        table = snapshot["responses"][f"GET /api/runs/{run}/weights?layer=0&unit=piece&dtype=u8&kind=weight"]
        found = np.frombuffer(base64.b64decode(table["body"]), np.uint8).reshape(3, 4, 4)
        np.testing.assert_allclose(found / 255, weights[int(run[1:])], atol=0.5 / 255 + 1e-6)
    assert "heads.safetensors" in repr(view)
    with pytest.raises(ValueError, match="t2"):
        mha.view(path, run="t2")
    for head, said in (((1, 0), "1 layers"), ((-1, 0), "1 layers"), ((0, 3), "3 heads"), ((0, -1), "3 heads")):
        with pytest.raises(ValueError, match=said):
            mha.view(path, head=head)
    with pytest.raises(ValueError, match="zeroed"):
        mha.view(path, zeroed=[(0, 0)])
    with pytest.raises(OSError, match="gone"):
        mha.view(tmp_path / "gone.safetensors")
