"""The encoder and its tokenizer from Python: what transformers computes (goldens), hooks, and bad input."""

import json
import pathlib
import re

import goldens
import numpy as np
import oracle
import pytest

import mha

HIDDEN_LIMIT = 2e-5  # what the project promises against transformers, largest absolute difference (docs/numerics.md)
WEIGHTS_LIMIT = 1e-5
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "man", "saw", "astronom", "##er", "a", "."]


@pytest.fixture(scope="module")
def model():
    return mha.Transformer(goldens.DATA / "tiny_bert")


@pytest.fixture(scope="module")
def golden():
    return goldens.load("tiny_bert/golden")


@pytest.fixture
def tokenizer(tmp_path):
    special = {name: {"id": name, "ids": [TOKENS.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "special_tokens": special},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {token: number for number, token in enumerate(TOKENS)}},
    }))
    return mha.Tokenizer.load(str(path))


# ---- the encoder


@pytest.mark.parametrize("name", ["one", "seven", "full"])
def test_hidden_states_and_weights_are_those_of_transformers(model, golden, name):
    weights = []

    def hook(layer, trace):
        assert layer == len(weights)
        weights.append([trace.weights(head) for head in range(model.config.heads)])

    hidden = model(golden[f"{name}.ids"], token_types=golden[f"{name}.token_types"], hook=hook)
    assert hidden.dtype == np.float32
    assert np.abs(hidden[golden[f"{name}.rows"]] - golden[f"{name}.hidden"]).max() <= HIDDEN_LIMIT
    assert np.abs(np.array(weights)[:, :, golden[f"{name}.rows"]] - golden[f"{name}.weights"]).max() <= WEIGHTS_LIMIT


def test_a_batch_of_texts_of_different_lengths(model, golden):
    ids, lengths = golden["batch.ids"], golden["batch.lengths"]
    hidden = model(ids, lengths=lengths, token_types=golden["batch.token_types"])
    for row, length in enumerate(lengths):
        assert np.abs(hidden[row, :length] - golden["batch.hidden"][row, :length]).max() <= HIDDEN_LIMIT
        alone = model(ids[row, :length], token_types=golden["batch.token_types"][row, :length])
        np.testing.assert_array_equal(hidden[row, :length], alone)


def test_ids_may_be_lists_and_strided(model, golden):
    ids = golden["seven.ids"]
    wanted = model(ids)
    np.testing.assert_array_equal(model(ids.tolist()), wanted)
    np.testing.assert_array_equal(model(ids.astype(np.int32)), wanted)
    np.testing.assert_array_equal(model(np.repeat(ids, 2)[::2]), wanted)
    np.testing.assert_array_equal(model(ids[None]), wanted[None])


def test_the_hooks_arrays_outlive_the_model(golden):
    kept = []
    mha.Transformer(goldens.DATA / "tiny_bert")(golden["seven.ids"], hook=lambda layer, trace: kept.append((trace.q, trace.k, trace.lse, trace)))
    before = [[array.copy() for array in arrays[:3]] for arrays in kept]
    mha.Transformer(goldens.DATA / "tiny_bert")(golden["full.ids"])
    assert len(kept) == 2
    for arrays, copies in zip(kept, before):
        for array, copy in zip(arrays[:3], copies):
            np.testing.assert_array_equal(array, copy)
        with pytest.raises(RuntimeError, match="the hook has returned"):
            _ = arrays[3].v
    # They are enough for any weights.
    q, k, lse, _ = kept[0]
    weights = [mha.attention_weights(q, k, lse, head) for head in range(4)]
    exact = oracle.attend(*(np.swapaxes(array[0], 0, 1) for array in (q, k, k)))[2]
    np.testing.assert_allclose(weights, exact, rtol=2 * oracle.tolerance("float32", q.shape[3], 7))


def test_ablation_masks_and_temperature_reach_the_result(model, golden):
    ids = golden["seven.ids"]
    wanted = model(ids)

    def ablate(layer, trace):
        if layer == 1:
            trace.head_out[:, :, 2] = 0

    for changed in (model(ids, hook=ablate), model(ids, temperature=0.5), model(ids, allowed=oracle.causal(7, 7)[None, None])):
        assert np.abs(changed - wanted).max() > 1e-3
    np.testing.assert_array_equal(model(ids, hook=lambda layer, trace: trace.head_out), wanted)
    prefix = model(ids[:4], allowed=oracle.causal(4, 4)[None, None])
    np.testing.assert_allclose(model(ids, allowed=oracle.causal(7, 7)[None, None])[:4], prefix, atol=HIDDEN_LIMIT)


def test_a_hook_that_raises_ends_the_call(model, golden):
    seen = []

    def hook(layer, trace):
        seen.append(layer)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        model(golden["seven.ids"], hook=hook)
    assert seen == [0]


def test_config(model):
    config = model.config
    assert (config.family, config.layers, config.heads, config.d_model, config.head_dim) == ("bert", 2, 4, 32, 8)
    assert config.activation == "gelu"
    assert config.pruned_heads == {}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"ids": [10**6]}, ValueError, "1000000"),
        ({"ids": [-1]}, ValueError, "-1"),
        ({"ids": [1] * 41}, ValueError, "41"),
        ({"ids": [1.5]}, TypeError, "ids is float64, must be whole numbers"),
        ({"ids": [[[1]]]}, ValueError, "ids has shape [1, 1, 1], must be [batch, length] or [length]"),
        ({"ids": [[1, 2]], "lengths": [3]}, ValueError, "3"),
        ({"ids": [[1, 2]], "lengths": [1, 1]}, ValueError, "2"),
        ({"ids": [[1, 2]], "lengths": ["a"]}, TypeError, "lengths must hold one integer per batch entry"),
        ({"ids": [1, 2], "token_types": [0]}, ValueError, "token_types has shape [1, 1], ids has [1, 2]"),
        ({"ids": [1, 2], "token_types": [0, 9]}, ValueError, "9"),
        ({"ids": [1, 2], "allowed": np.ones((1, 1, 3, 2), bool)}, ValueError, "allowed has shape [1, 1, 3, 2]"),
        ({"ids": [1, 2], "temperature": -1}, ValueError, "temperature is -1"),
    ],
)
def test_calls_that_cannot_be(model, arguments, error, text):
    with pytest.raises(error, match=re.escape(text)):
        model(**arguments)


def test_folders_that_cannot_be(tmp_path):
    with pytest.raises(OSError, match="config.json"):
        mha.Transformer(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json"):
        mha.Transformer(str(tmp_path))


def test_the_default_model_reads_a_sentence():
    folder = pathlib.Path.home() / ".cache/mha/models/all-MiniLM-L6-v2"
    if not folder.exists():
        pytest.skip(f"the default model is not at {folder}")
    golden = goldens.load("encoder_minilm")
    text = mha.Tokenizer.load(str(folder / "tokenizer.json")).encode("The man saw the astronomer with a telescope.")
    assert text.ids == golden["telescope.ids"].tolist()
    hidden = mha.Transformer(folder)(text.ids)
    assert np.abs(hidden[golden["telescope.rows"]] - golden["telescope.hidden"]).max() <= HIDDEN_LIMIT


# ---- the tokenizer


def test_tokens_of_a_text(tokenizer):
    text = tokenizer.encode("The mán saw")
    assert text.tokens == ["[CLS]", "the", "man", "saw", "[SEP]"]
    assert text.ids == [2, 5, 6, 7, 3] and len(text) == 5
    assert text.chars == [(0, 0), (0, 3), (4, 7), (8, 11), (0, 0)]
    assert text.bytes == [(0, 0), (0, 3), (4, 8), (9, 12), (0, 0)]
    assert text.words == [-1, 0, 1, 2, -1]
    assert text.special == [True, False, False, False, True]
    assert text.token_types == [0] * 5
    assert tokenizer.encode("astronomer", add_special=False).tokens == ["astronom", "##er"]
    assert tokenizer.encode("").tokens == ["[CLS]", "[SEP]"]


def test_ids_and_tokens(tokenizer):
    assert len(tokenizer) == len(TOKENS)
    assert [tokenizer.token(number) for number in range(len(TOKENS))] == TOKENS
    assert tokenizer.token(len(TOKENS)) is None and tokenizer.token(-1) is None
    assert tokenizer.id("saw") == 7 and tokenizer.id("nowhere") is None


def test_files_and_texts_that_cannot_be(tmp_path, tokenizer):
    with pytest.raises(OSError, match="nowhere.json"):
        mha.Tokenizer.load(str(tmp_path / "nowhere.json"))
    (tmp_path / "bad.json").write_text("[")
    with pytest.raises(ValueError, match="bad.json"):
        mha.Tokenizer.load(str(tmp_path / "bad.json"))
    with pytest.raises(TypeError):
        tokenizer.encode(5)
    with pytest.raises((TypeError, ValueError)):
        tokenizer.encode("\ud800")


# ---- the health of heads


def test_a_watch_counts_what_the_weights_say(model, tokenizer):
    texts = ["the man saw a man.", "the astronomer saw the man", "man"]
    watch = mha.HealthWatch(model.config.layers, model.config.heads)
    rows = {(layer, head): [] for layer in range(model.config.layers) for head in range(model.config.heads)}

    def run(text):
        encoding = tokenizer.encode(text)

        def hook(layer, trace):
            for head in range(model.config.heads):
                rows[layer, head] += [(row, np.array(encoding.special)) for row in trace.weights(head).astype(np.float64)]

        model(encoding.ids, hook=hook)
        read = mha.watch_text(model, tokenizer, text, watch, num_threads=1)
        assert (read.tokens, read.cut) == (len(encoding), False)

    for text in texts:
        run(text)
    for (layer, head), seen in rows.items():
        health = watch.head(layer, head)
        entropy = np.array([-(w * np.log(np.where(w > 0, w, 1))).sum() for w, _ in seen])
        most = np.array([np.log(len(w)) for w, _ in seen])
        assert (health.rows, health.nonfinite_rows) == (len(seen), 0)
        np.testing.assert_allclose(health.entropy, entropy.mean(), rtol=1e-5)
        np.testing.assert_allclose(health.sink, np.mean([w[0] for w, _ in seen]), rtol=1e-5)
        np.testing.assert_allclose(health.special, np.mean([w[special].sum() for w, special in seen]), rtol=1e-5)
        assert health.collapsed == np.mean(entropy < 0.1 * most)
        assert health.one_key == np.mean([w.max() > 0.99 for w, _ in seen])


def test_a_watch_has_rules_and_refuses(model, tokenizer):
    loose = mha.HealthWatch(model.config.layers, model.config.heads, uniform=0.0)
    assert mha.watch_text(model, tokenizer, "", loose).tokens == 0
    assert np.isnan(loose.head(0, 0).entropy) and loose.head(0, 0).rows == 0
    mha.watch_text(model, tokenizer, "the man saw", loose)
    assert loose.head(0, 0).uniform == 1.0
    with pytest.raises(ValueError, match=r"rule is 1\.5"):
        mha.HealthWatch(1, 1, collapsed=1.5)
    with pytest.raises(ValueError, match="layer 0, head 99"):
        loose.head(0, 99)
    with pytest.raises(ValueError, match="1 x 1 heads are watched"):
        mha.watch_text(model, tokenizer, "man", mha.HealthWatch(1, 1))
