#!/usr/bin/env python3
"""Writes tests/data/analysis_minilm.safetensors: every measure of heads (mha/analysis) of the default model, for
tests/analysis/goldens_test.cpp to compare with.

  make_analysis_goldens.py --model DIR [--out tests/data]     DIR: the folder of all-MiniLM-L6-v2

NumPy, safetensors and tokenizers alone (build/venv has them). The model's forward pass is written out below, from the checkpoint, in
float64; it shares nothing with this library, and is held against the weights and hidden states of Hugging Face transformers in
encoder_minilm.safetensors before anything is written. Every measure is written as its paper has it, on whole tables. Stored as float32.
Reproducible: same versions, same bytes.
"""
import argparse
import json
import math
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = "The stargazers saw Zoë's telescope."
OTHER_TEXT = "The man saw the astronomer with a telescope."
RELATION = 2, 3, 7  # of TEXT's words: stargazers -> saw, rather than stargazers -> telescope
PERIOD = 10
REACH = 3
erf = np.vectorize(math.erf)


class Model:
    """BERT as Devlin et al. 2019 describe it (arXiv 1810.04805), inference only, one text."""

    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text())
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.eps = config["layer_norm_eps"]
        self.vocabulary = config["vocab_size"]
        self.tensors = {name: tensor.astype(np.float64) for name, tensor in load_file(folder / "model.safetensors").items()
                        if tensor.dtype.kind == "f"}

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + self.eps)
        return scaled * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def output_projection(self, layer, head):
        """W_O^h, [head_dim, d_model]: a row vector times it."""
        w = self.tensors[f"encoder.layer.{layer}.attention.output.dense.weight"].T
        dim = w.shape[0] // self.heads
        return w[head * dim:(head + 1) * dim]

    def run(self, ids, change=None):
        """Hidden states [n, d_model]; of each layer scores and weights [heads, n, n], values and outputs [heads, n, head_dim].
        `change(layer, outputs)` may alter the outputs before W_O."""
        t = self.tensors
        x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][:len(ids)]
        x = self.norm("embeddings.LayerNorm", x + t["embeddings.token_type_embeddings.weight"][0])
        trace = []
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}."

            def by_head(role):
                y = self.linear(name + "attention.self." + role, x)
                return y.reshape(len(ids), self.heads, -1).transpose(1, 0, 2)

            q, k, v = by_head("query"), by_head("key"), by_head("value")
            scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            outputs = weights @ v
            if change:
                change(layer, outputs)
            trace.append((scores, weights, v, outputs.copy()))
            joined = outputs.transpose(1, 0, 2).reshape(len(ids), -1)
            x = self.norm(name + "attention.output.LayerNorm", x + self.linear(name + "attention.output.dense", joined))
            inner = self.linear(name + "intermediate.dense", x)
            inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
            x = self.norm(name + "output.LayerNorm", x + self.linear(name + "output.dense", inner))
        scores, weights, values, outputs = (np.stack(part) for part in zip(*trace))
        return x, scores, weights, values, outputs


def check_against_transformers(model):
    golden = load_file(ROOT / "tests" / "data" / "encoder_minilm.safetensors")
    hidden, _, weights, _, _ = model.run(golden["telescope.ids"])
    worst = max(np.abs(hidden - golden["telescope.hidden"]).max(), np.abs(weights - golden["telescope.weights"]).max())
    assert worst < 1e-6, f"the forward pass differs from that of transformers by {worst}"
    print(f"forward pass: {worst:.1e} from transformers")


class Words:
    """A text's ids and the pieces of its words."""

    def __init__(self, tokenizer, text):
        encoding = tokenizer.encode(text)
        self.ids = np.array(encoding.ids)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        self.pieces = []  # of each word
        self.special = []
        for i, word in enumerate(encoding.word_ids):
            if word is not None and i > 0 and encoding.word_ids[i - 1] == word:
                self.pieces[-1].append(i)
            else:
                self.pieces.append([i])
                self.special.append(special[i])
        self.special = np.array(self.special)
        self.special_pieces = special
        self.plain = np.flatnonzero(~self.special)

    def fold(self, tables):
        """Clark et al. 2019, 4.1: sum over the pieces attended to, mean over those attending."""
        columns = np.stack([tables[..., pieces].sum(-1) for pieces in self.pieces], -1)
        return np.stack([columns[..., pieces, :].mean(-2) for pieces in self.pieces], -2)


def entropies(alpha):
    return -(alpha * np.log(np.where(alpha > 0, alpha, 1))).sum(-1)


def measures(words, table):
    """The measures of mha/analysis/measures.h, means over the plain rows, [measures, layers, heads]; `table` is by words."""
    at = np.arange(table.shape[-1])
    offset = at[None, :] - at[:, None]  # of the word attended to
    rows = {
        "special": table[..., words.special].sum(-1),
        "entropy": entropies(table),
        "confidence": table[..., :-1].max(-1),
        "previous": (table * (offset == -1)).sum(-1),
        "next": (table * (offset == 1)).sum(-1),
        "self": (table * (offset == 0)).sum(-1),
        "distance": (table * np.abs(offset)).sum(-1),
    }
    return {name: values[..., words.plain].mean(-1) for name, values in rows.items()}


def norms(model, values):
    """| f(x_j) |, [layers, heads, n], from the vectors themselves."""
    carried = [[values[l, h] @ model.output_projection(l, h) for h in range(model.heads)] for l in range(model.layers)]
    return np.linalg.norm(np.array(carried), axis=-1)


def rollout(weights):
    """All rows of A_L ... A_1."""
    product = np.eye(weights.shape[-1])
    for layer in weights:
        product = (layer.mean(0) + np.eye(len(product))) / 2 @ product
    return product


def js_distances(weights):
    n = weights.shape[-1]
    smooth = (0.999 * weights + 0.001 / n).reshape(-1, n, n)
    distances = np.zeros((len(smooth), len(smooth)))
    for a, p in enumerate(smooth):
        for b, q in enumerate(smooth):
            m = (p + q) / 2
            distances[a, b] = ((p * np.log(p / m)).sum() + (q * np.log(q / m)).sum()) / 2
    return distances


def plane(distances):
    n = len(distances)
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-centring @ distances ** 2 @ centring / 2)
    points = vectors[:, [-1, -2]] * np.sqrt(values[[-1, -2]])
    for axis in points.T:
        outermost = np.flatnonzero(np.abs(axis) >= 0.999 * np.abs(axis).max())[0]
        axis *= np.sign(axis[outermost])
    return points, values[-2:].sum() / values[values > 0].sum(), values[:-4:-1]


def cka(outputs):
    heads = outputs.reshape(-1, *outputs.shape[2:])
    heads = heads - heads.mean(1, keepdims=True)
    products = [[np.linalg.norm(y.T @ x) ** 2 for x in heads] for y in heads]
    own = np.array([np.linalg.norm(x.T @ x) for x in heads])
    return np.array(products) / np.outer(own, own)


def repeated(model, tokenizer):
    """Previous, duplicate and induction scores of one drawing of tokens, and the drawing."""
    plain = [i for i in range(model.vocabulary) if (tokenizer.id_to_token(i) or "").isalpha() and len(tokenizer.id_to_token(i)) > 3]
    drawn = np.random.RandomState(5).choice(plain, PERIOD, replace=False)
    frame = tokenizer.encode("").ids
    ids = np.array([frame[0], *drawn, *drawn, frame[1]])
    weights = model.run(ids)[2]

    def diagonal(back, rows):
        return np.mean([weights[..., row, row - back] for row in rows], axis=0)

    second = range(1 + PERIOD, 1 + 2 * PERIOD)
    return ids, {"repeated.previous": diagonal(1, range(2, 1 + 2 * PERIOD)), "repeated.duplicate": diagonal(PERIOD, second),
                 "repeated.induction": diagonal(PERIOD - 1, second)}


def usual(folded):
    """Mean weight of each head at distances -REACH to REACH between plain words; `folded`: (words, table) of each text."""
    means = []
    for distance in range(-REACH, REACH + 1):
        pairs = [table[..., words.plain[i], words.plain[i + distance]] for words, table in folded for i in range(len(words.plain))
                 if 0 <= i + distance < len(words.plain)]
        means.append(np.mean(pairs, axis=0))
    return np.stack(means, -1)


def relation(table, means, a, b, c):
    """Contrast of A -> B with A -> C, and A -> B and B -> A above the head's usual weight at their distance, [3, layers, heads]."""
    def usual_at(distance):
        return means[..., distance + REACH]

    return np.stack([table[..., a, b] - table[..., a, c], table[..., a, b] - usual_at(b - a), table[..., b, a] - usual_at(a - b)])


def sentence_vector(hidden):
    mean = hidden.mean(0)
    return mean / np.linalg.norm(mean)


def leave_one_out(model, ids, mean):
    """1 - cosine of sentence vectors, and the relative change of hidden states, without each head: 0, or its mean over the text."""
    plain, outputs = (model.run(ids)[i] for i in (0, 4))
    effects = np.zeros((2, model.layers, model.heads))
    for layer in range(model.layers):
        for head in range(model.heads):
            def change(at, outs):
                if at == layer:
                    outs[head] = outputs[layer, head].mean(0) if mean else 0

            hidden = model.run(ids, change)[0]
            effects[0, layer, head] = 1 - sentence_vector(hidden) @ sentence_vector(plain)
            effects[1, layer, head] = np.linalg.norm(hidden - plain) / np.linalg.norm(plain)
    return effects


def strongest(words, table):
    """Of each plain word, the other plain word that each head attends to most."""
    among = table[..., words.plain, :][..., words.plain].copy()
    among[..., np.arange(len(words.plain)), np.arange(len(words.plain))] = -1
    return words.plain[among.argmax(-1)]


def make(model, tokenizer):
    words, other = Words(tokenizer, TEXT), Words(tokenizer, OTHER_TEXT)
    _, scores, weights, values, outputs = model.run(words.ids)
    table = words.fold(weights)
    lengths = norms(model, values)
    carried = words.fold(weights * lengths[..., None, :])
    means = usual([(words, table), (other, other.fold(model.run(other.ids)[2]))])
    golden = {f"measure.{name}": value for name, value in measures(words, table).items()}
    golden |= {"weights": table, "norms": lengths, "norm.special": measures(words, carried)["special"],
               "norm_share.special": measures(words, carried / carried.sum(-1, keepdims=True))["special"],
               "rollout": rollout(weights), "js": js_distances(weights), "cka": cka(outputs),
               "usual": means, "relation": relation(table, means, *RELATION),
               "health.entropy": entropies(weights).mean(-1), "health.sink": weights[..., 0].mean(-1),
               "health.special": weights[..., words.special_pieces].sum(-1).mean(-1), "health.max_logit": scores.max((-2, -1)),
               "leave_one_out.zero": leave_one_out(model, words.ids, False), "leave_one_out.mean": leave_one_out(model, words.ids, True)}
    golden["plane"], golden["plane.shown"], golden["plane.eigenvalues"] = plane(golden["js"])
    repeated_ids, scores_of_repeated = repeated(model, tokenizer)
    golden |= scores_of_repeated
    whole = {"ids": words.ids, "strongest": strongest(words, table), "repeated.ids": repeated_ids,
             "word.first": [pieces[0] for pieces in words.pieces], "word.count": [len(pieces) for pieces in words.pieces]}
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in golden.items()} | {
        name: np.ascontiguousarray(value, dtype=np.int64) for name, value in whole.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="folder of the default model")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "data")
    arguments = parser.parse_args()
    model = Model(arguments.model)
    check_against_transformers(model)
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    golden = make(model, tokenizer)
    path = arguments.out / "analysis_minilm.safetensors"
    save_file(golden, path)
    path.chmod(0o644)
    words = len(golden["word.first"])
    print(f"{path.name}: {len(golden['ids'])} pieces, {words} words, {len(golden)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
