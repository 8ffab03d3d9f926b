#!/usr/bin/env python3
"""Writes goldens in tests/data: what Hugging Face transformers computes, for tests/model/transformer_test.cpp to compare with, and what
torch.nn.MultiheadAttention computes, for tests/model/layer_file_test.cpp.

  make_goldens.py --model DIR [--out tests/data]     DIR: the folder of all-MiniLM-L6-v2 (config.json, model.safetensors, tokenizer.json)

Needs torch==2.13.0 (the CPU build), transformers==5.24.*, safetensors; HF_HUB_OFFLINE=1 is set here. Everything is computed in float64 and
stored as float32, so that what is compared with carries no rounding of its own. Reproducible: same versions, same bytes.

Each file holds cases. A single text NAME has NAME.ids [n], NAME.token_types [n], NAME.rows [r], NAME.hidden [r, d_model] (last layer) and
NAME.weights [layers, heads, r, n]: rows r are all rows for short texts and a few for long ones. The padded batch has batch.ids [b, n],
batch.token_types [b, n], batch.lengths [b], batch.hidden [b, n, d_model] (rows beyond a text's length included). The tiny models also have seven.keys.
torch_layer.safetensors holds layers: NAME.<state_dict>, NAME.x, NAME.key, NAME.value (inputs) and NAME.y (output).
"""
import argparse
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, BertConfig, BertModel, DistilBertConfig, DistilBertModel

TEXTS = {
    "telescope": "The man saw the astronomer with a telescope.",
    "word": "Yes",
    "question": "Why didn't the trophy fit into the brown suitcase, although it was so small?",
    "accents": "Zoë's café near Kraków sells crème brûlée for 3.50 € (unbelievably cheap!).",
    "long": "When the lighthouse keeper climbed the narrow stairs that evening, carrying a lamp in one hand and a loaf of bread in the "
            "other, he could not have known that the ship which had left the harbour in the morning would come back before midnight, "
            "without its captain, without most of its sails, and with a passenger whom nobody on the island had ever seen before: a "
            "small girl of about nine years, who spoke no language that the fishermen understood, and who held, pressed against her "
            "coat, an unopened letter.",
}
BATCH = ["The bank raised its rates.", "She sat on the bank of the river and watched the boats go by.", "Banks!"]
LONG = 40  # texts of more tokens keep only some rows
TINY = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=40,
            type_vocab_size=2, hidden_act="gelu", layer_norm_eps=1e-12)
TINY_DISTIL = dict(vocab_size=50, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=40, activation="gelu",
                   sinusoidal_pos_embds=False)


def run(model, ids, token_types, lengths=None):
    """Hidden states [batch, length, d_model] and weights [layers, batch, heads, length, length], float64."""
    mask = torch.ones_like(ids)
    for b, length in enumerate(lengths or []):
        mask[b, length:] = 0
    types = {} if isinstance(model, DistilBertModel) else {"token_type_ids": token_types}
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask, output_attentions=True, **types)
    return out.last_hidden_state, torch.stack(out.attentions)


def add_single(golden, name, model, ids, token_types):
    n = len(ids)
    rows = torch.arange(n) if n <= LONG else torch.tensor([0, 1, n // 3, n // 2, n - 2, n - 1])
    hidden, weights = run(model, ids[None], token_types[None])
    golden[f"{name}.ids"] = ids
    golden[f"{name}.token_types"] = token_types
    golden[f"{name}.rows"] = rows
    golden[f"{name}.hidden"] = hidden[0, rows].float()
    golden[f"{name}.weights"] = weights[:, 0][:, :, rows].float()
    print(f"  {name}: {n} tokens, {len(rows)} rows kept")


def add_batch(golden, model, texts, token_types):
    lengths = [len(t) for t in texts]
    ids = torch.zeros(len(texts), max(lengths), dtype=torch.int64)
    types = torch.zeros_like(ids)
    for b, text in enumerate(texts):
        ids[b, :lengths[b]] = text
        types[b, :lengths[b]] = token_types[b]
    hidden, _ = run(model, ids, types, lengths)
    golden["batch.ids"] = ids
    golden["batch.token_types"] = types
    golden["batch.lengths"] = torch.tensor(lengths)
    golden["batch.hidden"] = hidden.float()
    print(f"  batch: lengths {lengths}")


def save(golden, path):
    save_file({name: tensor.contiguous() for name, tensor in golden.items()}, path)
    path.chmod(0o644)
    print(f"{path}: {path.stat().st_size} bytes")


def make_default_model(folder, out):
    model = BertModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(text):
        return torch.tensor(tokenizer(text)["input_ids"])

    golden = {}
    for name, text in TEXTS.items():
        ids = encode(text)
        add_single(golden, name, model, ids, torch.zeros_like(ids))
    texts = [encode(text) for text in BATCH]
    add_batch(golden, model, texts, [torch.zeros_like(t) for t in texts])
    save(golden, out / "encoder_minilm.safetensors")


def tiny_weights(model, seed):
    """Random weights large enough that heads, biases, norms and token types all matter. Float32 values: that is what the file holds."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator)
        if name.lower().endswith("layernorm.weight") or name.endswith("layer_norm.weight"):
            weights[name] = 1 + 0.3 * noise
        elif name.endswith("bias"):
            weights[name] = 0.3 * noise
        else:
            weights[name] = noise if "embeddings" in name else noise * 1.5 / tensor.shape[1] ** 0.5
    return weights


def tiny_model(make, config, weights):
    config._attn_implementation = "eager"
    model = make(config)
    model.load_state_dict(weights, strict=True)
    return model.double().eval()


def keys_of(model, ids, token_types):
    """Keys of every layer, [layers, length, d_model]: their bias shows nowhere else, softmax does not see it."""
    keys = []
    for name, module in model.named_modules():
        if name.endswith(("attention.self.key", "attention.k_lin")):
            module.register_forward_hook(lambda _module, _inputs, output: keys.append(output[0]))
    run(model, ids[None], token_types[None])
    return torch.stack(keys).float()


def bert(config):
    return BertModel(config, add_pooling_layer=False)


def make_tiny_model(out, make, config, seed, token_types):
    """The folder of a model; returns its weights and goldens."""
    out.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(out)
    weights = tiny_weights(make(config), seed)
    save(weights, out / "model.safetensors")

    generator = torch.Generator().manual_seed(seed + 1)

    def text(n):
        ids = torch.randint(0, TINY["vocab_size"], (n,), generator=generator)
        return ids, torch.randint(0, token_types, (n,), generator=generator)

    golden = {}
    model = tiny_model(make, config, weights)
    for name, n in {"one": 1, "seven": 7, "full": TINY["max_position_embeddings"]}.items():
        add_single(golden, name, model, *text(n))
    golden["seven.keys"] = keys_of(model, golden["seven.ids"], golden["seven.token_types"])
    pairs = [text(n) for n in (5, 19, 1)]
    add_batch(golden, model, [p[0] for p in pairs], [p[1] for p in pairs])
    return weights, golden


def make_tiny_bert(out):
    weights, golden = make_tiny_model(out, bert, BertConfig(architectures=["BertModel"], **TINY), seed=20, token_types=2)
    # The same weights under other configs: each must change the result, in the same way here and there.
    for key, value in [("hidden_act", "gelu_new"), ("hidden_act", "relu"), ("layer_norm_eps", 0.05), ("num_attention_heads", 2)]:
        changed = tiny_model(bert, BertConfig(**(TINY | {key: value})), weights)
        hidden, _ = run(changed, golden["seven.ids"][None], golden["seven.token_types"][None])
        golden[f"{key}={value}.hidden"] = hidden[0].float()
        print(f"  {key}={value}: changes hidden states by {(hidden[0] - golden['seven.hidden']).abs().max():.4f}")
    save(golden, out / "golden.safetensors")


def make_tiny_distilbert(out):
    config = DistilBertConfig(architectures=["DistilBertModel"], **TINY_DISTIL)
    _, golden = make_tiny_model(out, DistilBertModel, config, seed=30, token_types=1)
    save(golden, out / "golden.safetensors")


def make_torch_layers(out):
    """Layers of torch.nn.MultiheadAttention in each of its layouts, with one call of each."""
    torch.manual_seed(40)
    golden = {}
    for name, options in {"packed": {}, "no_bias": {"bias": False}, "cross": {"kdim": 20, "vdim": 12}}.items():
        layer = torch.nn.MultiheadAttention(24, 3, batch_first=True, **options)
        for tensor_name, tensor in layer.state_dict().items():
            tensor.copy_(torch.randn(tensor.shape) * (0.3 if tensor.dim() == 1 else tensor.shape[1] ** -0.5))
            golden[f"{name}.{tensor_name}"] = tensor
        x = torch.randn(2, 5, 24)
        key = torch.randn(2, 7, options["kdim"]) if "kdim" in options else x
        value = torch.randn(2, 7, options["vdim"]) if "vdim" in options else x
        with torch.no_grad():
            y, _ = layer.double()(x.double(), key.double(), value.double(), need_weights=False)
        golden |= {f"{name}.x": x, f"{name}.key": key.clone(), f"{name}.value": value.clone(), f"{name}.y": y.float()}
    save({name: tensor.float() for name, tensor in golden.items()}, out / "torch_layer.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of the default model; without it only the tiny model's goldens are written")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "tests" / "data")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    make_tiny_bert(arguments.out / "tiny_bert")
    make_tiny_distilbert(arguments.out / "tiny_distilbert")
    make_torch_layers(arguments.out)
    if arguments.model:
        make_default_model(arguments.model, arguments.out)


if __name__ == "__main__":
    main()
