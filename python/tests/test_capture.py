"""Captures: what a file holds is what "eager" saw, any rectangle of any head comes back from it, and nothing is half written.

Wants torch and transformers (./test --full)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest

import mha

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mha import _core  # noqa: E402
from models import DECODERS, ENCODERS, PAIRS, batch, build  # noqa: E402
from safetensors import safe_open  # noqa: E402

LIMIT = 1e-5
TEXT = "The man saw the astronomer with a telescope."


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261130)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "head.safetensors"


def eager(model, **inputs):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(output_attentions=True, **inputs)


def same_weights(random, layers, expected, rows):
    """Whole tables and random rectangles of every head of every layer, against eager's, in `rows` [batch, q_len]."""
    assert len(layers) == len(expected) > 0
    for layer, table in zip(layers, expected):
        table = table.float().numpy()
        assert layer.lse.shape == table.shape[:3]
        for entry, head in np.ndindex(*table.shape[:2]):
            kept = np.ones(table.shape[2], bool) if rows is None else rows[entry].numpy().astype(bool)
            keys = layer.k.shape[2]
            assert np.abs(table[entry, head, kept, keys:]).max(initial=0) == 0
            whole = layer.weights(head, entry)
            assert whole.shape == (table.shape[2], keys) and np.abs(whole - table[entry, head, :, :keys])[kept].max() <= LIMIT
            q, k = (sorted(int(x) for x in random.integers(0, size + 1, 2)) for size in whole.shape)
            part = layer.weights(head, entry, queries=q, keys=k)
            assert np.array_equal(part, whole[q[0] : q[1], k[0] : k[1]])


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
def test_every_rectangle_of_every_head(random, path, name):
    model = build({**DECODERS, **ENCODERS}[name])
    ids, mask = batch()
    expected = eager(model, input_ids=ids, attention_mask=mask).attentions
    capture = mha.capture(model, {"input_ids": ids, "attention_mask": mask}, path)
    same_weights(random, capture.layers, expected, mask)
    assert capture.architecture == type(model).__name__ and capture.texts is None and capture.pieces == {}
    assert np.array_equal(capture.tokens["tokens"], ids.numpy())
    assert np.array_equal(capture.tokens["tokens.mask"], mask.numpy().astype(bool))
    assert all(layer.queries == layer.keys == "tokens" and layer.v is None for layer in capture.layers)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_step_with_a_cache(random, path, name):
    """Queries that sit at the end of more keys, those of a sliding layer fewer than those of a full one."""
    model = build(DECODERS[name])
    ids, _ = batch()
    table = eager(model, input_ids=ids).attentions
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=ids[:, :12], cache=cache)
    inputs = {"input_ids": ids[:, 12:], "position_ids": torch.arange(12, 19)[None], "cache": cache}
    layers = mha.capture(model, inputs, path).layers
    assert {(layer.align, layer.queries, layer.keys) for layer in layers} == {("bottom_right", "tokens", None)}
    expected = [whole[:, :, 12:, whole.shape[3] - layer.k.shape[2]:] for whole, layer in zip(table, layers)]
    same_weights(random, layers, expected, None)


def test_what_layers_differ_in(path):
    model = build(DECODERS["gpt_oss"])
    ids, mask = batch()
    first, second = mha.capture(model, {"input_ids": ids, "attention_mask": mask}, path).layers
    assert first.window == (4, -1) and second.window is None and first.causal and second.causal
    for index, layer in enumerate((first, second)):
        sinks = model.model.layers[index].self_attn.sinks
        assert np.array_equal(layer.sinks, sinks.detach().numpy())
        assert layer.name == f"model.layers.{index}.self_attn" and layer.scale == 16**-0.5
        assert layer.q.shape[1] == 4 and layer.k.shape[1] == 2
    assert mha.capture(build(DECODERS["gemma2"]), ids, path).layers[0].softcap == 3.0
    assert mha.capture(build(DECODERS["gemma2"]), ids, path).layers[0].allowed is None


def test_tables_that_layers_share_are_there_once(path):
    ids, mask = batch()
    mha.capture(build(DECODERS["llama"]), {"input_ids": ids, "attention_mask": mask}, path)
    names = _core.SafetensorsFile(str(path)).names()
    assert [name for name in names if name.startswith("tables.")] == ["tables.0"]
    assert _core.SafetensorsFile(str(path)).tensor("tables.0").shape == (3, 1, 1, 19)  # padding alone: no dense table


def test_encoder_and_decoder(random, path):
    model = build(PAIRS["bart"])
    ids, mask = batch()
    inputs = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, 5:12]}
    expected = eager(model, **inputs)
    layers = mha.capture(model, inputs, path).layers
    sides = [(layer.queries, layer.keys) for layer in layers]
    assert sides == [("tokens", "tokens")] * 2 + [("decoder_tokens", "decoder_tokens"), ("decoder_tokens", "tokens")] * 2
    same_weights(random, layers[:2], expected.encoder_attentions, None)
    same_weights(random, layers[2::2], expected.decoder_attentions, None)
    same_weights(random, layers[3::2], expected.cross_attentions, None)


def test_learned_position_bias(random, path):
    model = build(PAIRS["t5"])
    ids, mask = batch()
    inputs = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, 5:12]}
    expected = eager(model, **inputs)
    layers = mha.capture(model, inputs, path).layers
    assert layers[0].bias is not None and layers[0].scale == 1.0
    same_weights(random, layers[:2], expected.encoder_attentions, None)


def test_bf16_is_kept_as_it_is(random, path):
    pytest.importorskip("ml_dtypes")
    model = build(DECODERS["llama"]).to(torch.bfloat16)
    ids, _ = batch()
    layers = mha.capture(model, ids, path, values=True).layers
    for layer in layers:
        assert layer.q.dtype.name == layer.k.dtype.name == layer.v.dtype.name == "bfloat16" and layer.lse.dtype == np.float32
        q, k, v = (array.astype(np.float32) for array in (layer.q, layer.k, layer.v))
        exact = oracle.attend(q, oracle.repeat_heads(k, 4), oracle.repeat_heads(v, 4), oracle.causal(19, 19))[2]
        assert np.abs(layer.weights(3, 1) - exact[1, 3]).max() <= LIMIT


def test_the_documented_lines(path):
    """docs/formats.md's way to the weights without this package's reader."""
    page = (Path(__file__).resolve().parents[2] / "docs/formats.md").read_text(encoding="utf-8")
    (lines,) = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    ids, _ = batch()
    model = build(DECODERS["qwen3"])
    layer = mha.capture(model, ids, path).layers[1]
    names = {"path": str(path), "layer": 1, "head": 2, "entry": 1}
    exec(lines, names)
    assert np.abs(names["weights"] - layer.weights(2, 1)).max() <= LIMIT


def test_text_and_tokens(path):
    folder = Path(os.environ.get("MHA_MODEL_DIR", Path.home() / ".cache/mha/models/all-MiniLM-L6-v2"))
    if not folder.is_dir():
        pytest.skip(f"the default model is not at {folder}: ./run downloads it")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder)
    texts = [TEXT, "Unbelievable 😀."]
    capture = mha.capture(model, texts, path, tokenizer=tokenizer)
    assert capture.texts == texts and capture.model == str(folder)
    assert capture.pieces["tokens"][0][:4] == ["[CLS]", "the", "man", "saw"]
    offsets, words = capture.tokens["tokens.offsets"], capture.tokens["tokens.words"]
    assert TEXT[slice(*offsets[0, 8])] == "telescope" and words[0, 0] == -1 and words[0, 8] == 7
    assert capture.tokens["tokens.mask"][1].sum() < capture.tokens["tokens.mask"].shape[1]
    theirs = eager(model, **tokenizer(texts, padding=True, return_tensors="pt")).attentions[5]
    ours = capture.layers[5].weights(11)
    assert np.abs(ours - theirs[0, 11].numpy()).max() <= LIMIT
    one = mha.capture(model, TEXT, path)  # with the tokenizer beside the model
    assert one.tokens["tokens"].shape == (1, 11) and one.layers[0].allowed is None


def test_the_file_needs_neither_torch_nor_this_process(path):
    ids, mask = batch()
    expected = mha.capture(build(DECODERS["mistral"]), {"input_ids": ids, "attention_mask": mask}, path).layers[1].weights(3, 2)
    code = f"import sys, mha; w = mha.load_capture({str(path)!r}).layers[1].weights(3, 2); print(w.tobytes().hex(), 'torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert told == [expected.tobytes().hex(), "False"]


def test_the_model_is_left_as_it_was(path):
    model = build(DECODERS["llama"])
    ids, _ = batch()
    before = model(input_ids=ids).logits
    mha.capture(model, ids, path)
    assert model.config._attn_implementation == "eager" and torch.equal(model(input_ids=ids).logits, before)
    with pytest.raises(IndexError):
        mha.capture(model, torch.full((1, 3), 1000), path)
    assert model.config._attn_implementation == "eager"


class Foreign(transformers.PreTrainedModel):
    """A model whose attention is its own."""

    config_class = transformers.BertConfig

    def forward(self, input_ids):
        return input_ids


def test_bad_input_leaves_no_file(tmp_path, path):
    model = build(DECODERS["llama"])
    ids, _ = batch()
    cases = [
        (model, TEXT, path, ValueError, "text, which wants a tokenizer"),
        (model, [TEXT, TEXT], path, ValueError, "text, which wants a tokenizer"),
        (model, 5, path, TypeError, "inputs are a int"),
        (model, ids, tmp_path / "none" / "x", OSError, "none"),
        (model, ids, tmp_path, OSError, "is a directory"),
        (torch.nn.Linear(2, 2), ids, path, TypeError, "model is a Linear"),
        (Foreign(transformers.BertConfig()).eval(), ids, path, ValueError, "Foreign does not go through the attention interface"),
        (build(DECODERS["llama"]).train(), ids, path, ValueError, "model is in training"),
        (build(DECODERS["llama"]).double(), ids, path, ValueError, "f64"),
    ]
    for given, inputs, where, kind, text in cases:
        with pytest.raises(kind, match=text):
            mha.capture(given, inputs, where)
        assert list(tmp_path.iterdir()) == []


def test_a_failed_capture_keeps_the_old_file(path):
    ids, _ = batch()
    mha.capture(build(DECODERS["llama"]), ids, path)
    kept = path.read_bytes()
    with pytest.raises(ValueError):
        mha.capture(build(DECODERS["llama"]).double(), ids, path)
    assert path.read_bytes() == kept and len(list(path.parent.iterdir())) == 1


def test_files_that_are_no_captures(path):
    with pytest.raises(OSError):
        mha.load_capture(path)
    path.write_bytes(b"\0" * 20)
    with pytest.raises(ValueError, match="head.safetensors"):
        mha.load_capture(path)
    ids, _ = batch()
    mha.capture(build(DECODERS["llama"]), ids, path)
    file = _core.SafetensorsFile(str(path))
    arrays = {name: _core.Array(file.tensor(name), name) for name in file.names()}
    layers = json.loads(file.metadata()["layers"])
    good = file.metadata()
    bad = [
        ({**good, "format": "other"}, "no capture"),
        ({**good, "version": "2"}, "version '2'"),
        ({**good, "layers": "[}"}, "no capture's"),
        ({**good, "layers": "7"}, "no capture's"),
        ({**good, "layers": "[" * 100000}, "no capture's"),
        ({**good, "layers": json.dumps([{**layers[0], "window": [1, 2, 3]}])}, "too many values"),
        ({**good, "layers": json.dumps([*layers, layers[0]])}, "layers.2.q"),
        ({**good, "layers": json.dumps([{**layers[0], "scale": "much"}])}, "much"),
        ({**good, "layers": json.dumps([{**layers[0], "sinks": "nowhere"}])}, "nowhere"),
        ({**good, "layers": json.dumps([{"name": "x"}])}, "no capture's"),
    ]
    other = path.with_name("other.safetensors")
    for metadata, text in bad:
        _core.save_safetensors(str(other), arrays, metadata)
        with pytest.raises(ValueError, match=text):
            mha.load_capture(other)
    with safe_open(path, "np") as theirs:  # the package safetensors reads it
        assert set(theirs.keys()) == set(file.names()) and theirs.metadata() == good
