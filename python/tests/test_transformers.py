"""attn_implementation="mha" against "eager": small random models of each kind, masks, caches and generation, and the default model.

Wants torch and transformers (./test --full); the default model's test also wants the model that ./run downloads."""

import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import mha.transformers  # noqa: E402
from models import DECODERS, ENCODERS, PAIRS, batch, build  # noqa: E402
from transformers import masking_utils  # noqa: E402

LIMIT = 1e-5  # the promise: the same as "eager" within it


@pytest.fixture(autouse=True)
def no_grad():
    torch.manual_seed(20261130)
    with torch.no_grad():
        yield


def compare(model, mask=None, limit=LIMIT, **inputs):
    """Runs the model on "eager" and on "mha"; where `mask` [batch, length] is 1, output and weights are the same. (eager's, ours)."""
    results = []
    for name in ("eager", "mha"):
        model.set_attn_implementation(name)
        assert model.config._attn_implementation == name
        results.append(model(output_attentions=True, **inputs))
    theirs, ours = results
    tokens = torch.ones(theirs[0].shape[:2], dtype=torch.bool) if mask is None else mask.bool()
    assert (theirs[0] - ours[0]).abs()[tokens].max() <= limit * max(1, theirs[0].abs().max())
    for kind in ("attentions", "decoder_attentions", "encoder_attentions", "cross_attentions"):
        same_weights(theirs.get(kind) or (), ours.get(kind) or (), tokens, limit)
    return theirs, ours


def same_weights(theirs, ours, tokens, limit):
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours):
        assert a.shape == b.shape and a.dtype == b.dtype
        rows = tokens if a.shape[2] == tokens.shape[1] else torch.ones(a.shape[0], a.shape[2], dtype=torch.bool)
        assert (a - b).abs().amax((1, 3))[rows].max() <= limit


def refuse_tables(monkeypatch):
    """No dense mask may be made: rules and padding say it all."""

    def table(*_, **__):
        raise AssertionError("a dense mask was made")

    monkeypatch.setattr(masking_utils, "sdpa_mask", table)
    monkeypatch.setattr(mha.transformers.RulesMask, "dense", table)


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
def test_the_same_as_eager(name):
    model = build({**DECODERS, **ENCODERS}[name])
    ids, mask = batch()
    theirs, _ = compare(model, mask, input_ids=ids, attention_mask=mask)
    assert len(theirs.attentions) == 2
    assert max(float(layer[2].max()) for layer in theirs.attentions) > 0.4  # heads that decide, so that a wrong mask would show
    compare(model, input_ids=ids)


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
def test_no_table_is_made(name, monkeypatch):
    model = build({**DECODERS, **ENCODERS}[name])
    ids, mask = batch()
    expected = model(input_ids=ids, attention_mask=mask)[0]
    model.set_attn_implementation("mha")
    refuse_tables(monkeypatch)
    ours = model(input_ids=ids, attention_mask=mask)[0]
    assert (expected - ours).abs()[mask.bool()].max() <= LIMIT * max(1, expected.abs().max())


@pytest.mark.parametrize("name", PAIRS)
def test_encoder_and_decoder(name):
    model = build(PAIRS[name])
    ids, mask = batch()
    theirs, _ = compare(model, input_ids=ids, attention_mask=mask, decoder_input_ids=ids[:, 5:12])
    assert len(theirs.cross_attentions) == len(theirs.encoder_attentions) == len(theirs.decoder_attentions) == 2


def test_gpt2_cross_attention():
    model = build(DECODERS["gpt2"], add_cross_attention=True)
    ids, mask = batch()
    states = torch.randn(3, 11, 32)
    theirs, _ = compare(model, mask, input_ids=ids, attention_mask=mask, encoder_hidden_states=states)
    assert len(theirs.cross_attentions) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_a_mask_of_ones_own(dtype):
    model = build(DECODERS["llama"])
    ids, _ = batch()
    allowed = torch.rand(3, 1, 19, 19) < 0.5
    allowed |= torch.eye(19, dtype=torch.bool)
    table = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)
    expected = model(input_ids=ids, attention_mask=table)[0]
    model.set_attn_implementation("mha")
    ours = model(input_ids=ids, attention_mask=table if dtype == torch.float32 else allowed)[0]
    assert (expected - ours).abs().max() <= LIMIT * max(1, expected.abs().max())


def test_packed_texts():
    model = build(DECODERS["qwen3"])
    ids, _ = batch()
    positions = torch.cat([torch.arange(7), torch.arange(12)])[None]
    compare(model, input_ids=ids[:1], position_ids=positions, use_cache=False)


def test_bf16():
    """A model of bf16 is as near to the same model computed in f32 as "eager" is."""
    model = build(DECODERS["llama"]).to(torch.bfloat16)
    ids, mask = batch()
    theirs, ours = (found(model, name, ids, mask) for name in ("eager", "mha"))
    exact = found(model.float(), "eager", ids, mask)
    assert (ours - exact).norm() <= 1.1 * (theirs - exact).norm()


def found(model, name, ids, mask):
    model.set_attn_implementation(name)
    return model(input_ids=ids, attention_mask=mask)[0].float()[mask.bool()]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", DECODERS)
def test_generation(name, cache):
    model = build(DECODERS[name])
    ids, mask = batch(length=9)
    ids, mask = ids[[0, 2]], mask[[0, 2]]
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": cache, "return_dict_in_generate": True,
               "output_logits": True}
    expected = model.generate(input_ids=ids, attention_mask=mask, **options)
    model.set_attn_implementation("mha")
    ours = model.generate(input_ids=ids, attention_mask=mask, **options)
    assert torch.equal(expected.sequences, ours.sequences)
    assert len(expected.logits) > 1
    for a, b in zip(expected.logits, ours.logits):
        assert (a - b).abs().max() <= LIMIT * max(1, a.abs().max())


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt_oss", "gemma2"])
def test_static_caches_need_no_table(name, monkeypatch):
    model = build(DECODERS[name])
    ids, mask = batch(length=9)
    options = {"attention_mask": mask[[0, 2]], "max_new_tokens": 9, "do_sample": False, "cache_implementation": "static"}
    expected = model.generate(input_ids=ids[[0, 2]], **options)
    model.set_attn_implementation("mha")
    refuse_tables(monkeypatch)
    assert torch.equal(expected, model.generate(input_ids=ids[[0, 2]], **options))


@pytest.mark.parametrize("cache", [transformers.DynamicCache, lambda config: transformers.StaticCache(config=config, max_cache_len=32)])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_prefill_in_chunks(name, cache):
    model = build(DECODERS[name])
    ids, _ = batch()
    whole = model(input_ids=ids)[0]
    model.set_attn_implementation("mha")
    kept = cache(config=model.config)
    parts = []
    for begin, end in ((0, 7), (7, 8), (8, 16), (16, 19)):
        positions = torch.arange(begin, end)[None]
        result = model(input_ids=ids[:, begin:end], position_ids=positions, cache=kept, output_attentions=True)
        parts.append(result.logits)
    assert (torch.cat(parts, 1) - whole).abs().max() <= LIMIT * max(1, whole.abs().max())


def test_rules_are_their_tables(random):
    """A RulesMask and the table transformers makes of the same arguments, for random sizes, offsets, windows and paddings."""
    kinds = [
        lambda _: masking_utils.causal_mask_function,
        lambda _: masking_utils.bidirectional_mask_function,
        masking_utils.sliding_window_causal_mask_function,
        masking_utils.sliding_window_bidirectional_mask_function,
    ]
    seen = 0
    for _ in range(300):
        q_length, past, free = (int(random.integers(low, high)) for low, high in ((1, 9), (0, 7), (0, 5)))
        kv_offset = int(random.integers(0, past + 1))
        kv_length = past - kv_offset + q_length + free
        padding = None
        if random.random() < 0.6:
            padding = torch.ones(2, int(random.integers(past + q_length, kv_offset + kv_length + 1)), dtype=torch.bool)
            padding[0, : int(random.integers(0, 4))] = False
        arguments = {
            "batch_size": 2, "q_length": q_length, "kv_length": kv_length, "q_offset": past, "kv_offset": kv_offset,
            "mask_function": kinds[int(random.integers(len(kinds)))](int(random.integers(1, 8))), "attention_mask": padding,
        }
        table = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False)
        ours = mha.transformers.mask(**arguments)
        seen += isinstance(ours, mha.transformers.RulesMask)
        assert torch.equal(ours + 0 > 0, table), arguments
    assert seen > 150


def test_a_rules_mask_is_a_tensor_for_who_reads_it():
    ours = mha.transformers.mask(batch_size=2, q_length=4, kv_length=6, q_offset=2)
    assert isinstance(ours, mha.transformers.RulesMask) and "causal=True" in repr(ours)
    table = masking_utils.sdpa_mask(batch_size=2, q_length=4, kv_length=6, q_offset=2, allow_is_causal_skip=False)
    assert ours.shape == table.shape and ours.dtype == torch.bool
    assert torch.equal(ours[:, :, 1:3, ::2], table[:, :, 1:3, ::2])
    assert torch.equal(torch.where(ours, 1.0, 2.0), torch.where(table, 1.0, 2.0))
    assert torch.equal(~ours, ~table)
    assert np.array_equal((ours & table).numpy(), table.numpy())


def test_a_model_that_cuts_its_mask():
    """The attention function gets the table's part, not the rules, where a model has cut it."""
    query, key, value = (torch.randn(2, 3, length, 8) for length in (4, 5, 5))
    mask = mha.transformers.mask(batch_size=2, q_length=4, kv_length=6, q_offset=2)
    module = torch.nn.Identity().eval()
    ours, _ = mha.transformers.attention(module, query, key, value, mask[..., :5])
    table = masking_utils.sdpa_mask(batch_size=2, q_length=4, kv_length=6, q_offset=2, allow_is_causal_skip=False)[..., :5]
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=table).transpose(1, 2)
    assert (ours - expected).abs().max() < LIMIT
    ours, _ = mha.transformers.attention(module, query, key, value, mask[..., :5], position_bias=torch.randn(1, 3, 4, 5))
    assert (ours - expected).abs().max() > 0.01


def test_gradients_and_training_are_refused():
    model = build(DECODERS["llama"], attention_dropout=0.1)
    model.set_attn_implementation("mha")
    ids, _ = batch()
    with torch.enable_grad(), pytest.raises(ValueError, match="query requires grad, and mha computes no gradients: use torch.no_grad"):
        model(input_ids=ids)
    with pytest.raises(ValueError, match=r"LlamaAttention is in training with dropout 0\.1.*use model\.eval\(\)"):
        model.train()(input_ids=ids)
    with pytest.raises(ValueError, match="sinks have shape"):
        mha.transformers.attention(model, *torch.randn(3, 1, 2, 4, 8), None, s_aux=torch.zeros(1, 2))


def test_torch_compile():
    model = build(DECODERS["qwen3"])
    ids, mask = batch()
    expected = model(input_ids=ids, attention_mask=mask)[0]
    model.set_attn_implementation("mha")
    compiled = torch.compile(model, backend="eager")
    ours = compiled(input_ids=ids, attention_mask=mask)[0]
    assert (expected - ours).abs()[mask.bool()].max() <= LIMIT * max(1, expected.abs().max())


def test_the_default_model():
    folder = Path(os.environ.get("MHA_MODEL_DIR", Path.home() / ".cache/mha/models/all-MiniLM-L6-v2"))
    if not folder.is_dir():
        pytest.skip(f"the default model is not at {folder}: ./run downloads it")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["The man saw the astronomer with a telescope.", "Money in the bank. " * 60, "a"]
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=200, return_tensors="pt")
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    compare(model, inputs["attention_mask"], **inputs)
