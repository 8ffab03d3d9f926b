"""Writes the seeds of the fuzz targets, seed-* in tests/fuzz/corpus: small files that are valid, in every way the readers distinguish, and
a few that are not. The other files there are what libFuzzer found (tools/fuzz.sh)."""

import json
import math
import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
SIZES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "BOOL": 1, "I64": 8, "U8": 1}


def safetensors(tensors, metadata=None):
    """A file of {name: (dtype, shape)}, zeros and ones for data; a third entry gives the number of bytes, or the number all elements are."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, *size) in tensors.items():
        same = struct.pack("<f", size.pop()) if size and isinstance(size[0], float) else None
        count = size[0] if size else SIZES[dtype]
        for n in [] if size else shape:
            count *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + count]}
        data += same * (count // 4) if same else bytes(i % 2 for i in range(count))
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def layer(dtype, d_model, heads, kv_heads, head_dim, bias, learned_key=False):
    q, kv = heads * head_dim, kv_heads * head_dim
    sizes = {"wq": [q, d_model], "wk": [kv, d_model], "wv": [kv, d_model + 1], "wo": [d_model, q]}
    if bias:
        sizes |= {"bq": [q], "bk": [kv], "bv": [kv], "bo": [d_model]}
    if learned_key:
        sizes |= {"learned_k": [kv], "learned_v": [kv]}
    return safetensors({name: (dtype, shape) for name, shape in sizes.items()})


def torch_layer(dtype, width, kdim=None, learned_key=False):
    sizes = {"in_proj_weight": [3 * width, width]}
    if kdim:
        sizes = {"q_proj_weight": [width, width], "k_proj_weight": [width, kdim], "v_proj_weight": [width, kdim]}
    if learned_key:
        sizes |= {"bias_k": [1, 1, width], "bias_v": [1, 1, width]}
    sizes |= {"in_proj_bias": [3 * width], "out_proj.weight": [width, width], "out_proj.bias": [width]}
    return safetensors({name: (dtype, shape) for name, shape in sizes.items()})


def safetensors_seeds():
    return {
        "empty": safetensors({}),
        "metadata": safetensors({"x": ("F32", [2])}, {"format": "pt", "\u00e9": "\n"}),
        "dtypes": safetensors({d: (d, [1, 2]) for d in SIZES}),
        "unaligned": safetensors({"b": ("BOOL", [3]), "w": ("F64", [1]), "h": ("F16", [1, 1, 1, 1])}),
        "shapes": safetensors({"s": ("BF16", []), "e": ("F64", [3, 0, 1 << 60]), "r": ("F32", [1, 1, 1, 1, 1]), "f": ("F4", [2], 1)}),
        "ours": layer("F32", 2, 2, 1, 1, True),
        "ours-f64": layer("F64", 1, 1, 1, 1, False),
        "ours-learned-key": layer("F16", 2, 2, 1, 2, False, learned_key=True),
        "torch": torch_layer("F32", 2),
        "torch-learned-key": torch_layer("F32", 2, learned_key=True),
        "torch-widths": torch_layer("BF16", 2, 3),
        "header-too-long": struct.pack("<Q", 1 << 62) + b"{}",
        "header-one-byte-more": struct.pack("<Q", 3) + b"{}",
        "data-one-byte-less": safetensors({"b": ("BOOL", [3])})[:-1],
        "no-header": b"\x02",
    }


def added(content, number, **flags):
    entry = {"id": number, "content": content, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return entry | flags


def tokenizer(text=None, vocabulary=("[UNK]", "[CLS]", "[SEP]", "a", "##a", "b", "##ab", "\u00e9", "\u4e2d"), **fields):
    """A tokenizer.json with some fields replaced (None: left out), and a text behind it."""
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "C", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 1}}],
        "special_tokens": {"C": {"id": "C", "ids": [1], "tokens": ["[CLS]"]}},
    }
    file = {
        "version": "1.0",
        "added_tokens": [added("[CLS]", 1)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(vocabulary)},
        },
    }
    file |= fields
    out = json.dumps({k: v for k, v in file.items() if v is not None}, separators=(",", ":"), ensure_ascii=False).encode()
    return out if text is None else out + b"\0" + text.encode("utf-8", "surrogatepass")


def tokenizer_seeds():
    plain = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "added_tokens": None}
    tokens = [
        added("[CLS]", 1),
        added(" ", 9, rstrip=True),
        added("ab", 10, single_word=True, lstrip=True),
        added("A\u0301B", 11, normalized=True, rstrip=True),
        added("  b", 12, lstrip=True),
    ]
    return {
        "sentence": tokenizer(),
        "words": tokenizer("Aab, b\u00c9 \u4e2d\u0130\t[CLS] \u0301."),
        "marks": tokenizer("a\u0323\u0301\u1ea5\u0345 \u200d\U0001f469\u0085\ufffd\u0000"),
        "one-word": tokenizer("aababaaab c", **plain),
        "added": tokenizer("b  ab   a\u0301b ab\u00e1b [CLS]   b", added_tokens=tokens),
        "bert-frame": tokenizer("a", post_processor={"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]}),
        "keeps-accents": tokenizer(
            "\u00c9\u0130",
            normalizer={"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": True},
        ),
        "surrogate": tokenizer("a\ud800"),
        "no-json": b"{",
    }


def capture(tensors, *layers, **metadata):
    """A capture file; layers are their metadata."""
    said = {"format": "mha.capture", "version": "1", "layers": json.dumps(layers, separators=(",", ":"))}
    return safetensors(tensors, said | {key: json.dumps(value) for key, value in metadata.items()})


def capture_seeds():
    layer = {"name": "a", "scale": 0.5, "queries": "tokens", "keys": "tokens"}
    parts = {"layers.0.q": ("F32", [2, 2, 3, 1]), "layers.0.k": ("F32", [2, 1, 3, 1]), "layers.0.lse": ("F32", [2, 2, 3], math.log(3))}  # of scores of 0
    tokens = {"tokens": ("I64", [2, 3])}
    told = tokens | {"tokens.mask": ("BOOL", [2, 3]), "tokens.words": ("I64", [2, 3])}
    tables = {"tables.0": ("BOOL", [2, 1, 1, 3]), "tables.1": ("F32", [2]), "tables.2": ("F32", [1, 2, 1, 3])}
    rules = {"causal": True, "window": [1, -1], "align": "bottom_right", "softcap": 2, "allowed": "tables.0", "sinks": "tables.1", "bias": "tables.2"}
    return {
        "plain": capture(parts | tokens, layer),
        "rules": capture(parts | told | tables, layer | rules, texts=["a\u00e9", "b"], pieces={"tokens": [["a", "b", "c"], ["d", "e", "f"]]}),
        "offsets": capture(parts | tokens | {"tokens.offsets": ("I64", [2, 3, 2])}, layer),
        "ready": capture({"layers.0.weights": ("F16", [1, 2, 3, 4])}, {"name": "r", "queries": None, "keys": None}),
        "no-layer": capture({}),
        "no-tensor": capture({}, layer),
    }


def conllu(*lines, comments=""):
    """A sentence of words "ID form UPOS head relation misc"."""
    rows = [line.split(" ") for line in lines]
    return (comments + "".join(f"{r[0]}\t{r[1]}\t_\t{r[2]}\t_\t_\t{r[3]}\t{r[4]}\t_\t{r[5]}\n" for r in rows) + "\n").encode()


def conllu_seeds():
    plain = conllu("1 men NOUN 2 nsubj _", "2 sing VERB 0 root SpaceAfter=No", "3 . PUNCT 2 punct _", comments="# text = men sing.\n")
    fused = conllu("1-2 du _ _ _ _", "1 de ADP 3 case _", "2 le DET 3 det _", "3 pain NOUN 0 root _", "3.1 est VERB _ _ _")
    return {
        "plain": plain,
        "multiword": conllu("1-2 don't _ _ _ SpaceAfter=No", "1 do AUX 3 aux _", "2 n't PART 3 advmod _", "3 \u4e2d VERB 0 root A=b|SpaceAfter=No"),
        "several": plain + fused,
        "cycles": conllu("1 a X 2 dep _", "2 b X 1 dep _", "3 c X 3 dep _", "4 d X 0 root _") + plain,
        "roots": conllu("1 a X 0 root _", "2 b X 0 root _") + plain,
        "no-heads": conllu("1 a X _ dep _", "2 b X 99 dep _", "3 c X 1 _ _"),
        "windows": plain.replace(b"\n", b"\r\n"),
        "no-end": plain.rstrip(b"\n"),
        "nine-columns": plain.replace(b"\tpunct\t_", b"\tpunct"),
        "not-utf8": plain.replace(b"men", b"m\xff"),
    }


def main():
    for folder, seeds in (("capture", capture_seeds()), ("conllu", conllu_seeds()), ("safetensors", safetensors_seeds()), ("tokenizer", tokenizer_seeds())):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (CORPUS / folder / f"seed-{name}").write_bytes(content)


main()
