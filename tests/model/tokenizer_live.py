#!/usr/bin/env python3
"""Compares Tokenizer with the Hugging Face package `tokenizers`, live: ids, tokens, offsets (code points and bytes), word numbers,
special flags and token types must be identical, text by text. Usage: tokenizer_live.py TOKENIZE_DUMP (the helper built from
tokenize_dump.cpp).

Texts: the sentences of ../shared/data/ud_english_ewt where it is there, hostile strings, every Unicode code point, random mixtures (the
seed is printed; MHA_TEST_SEED sets it). Tokenizers: the default model's (MHA_TEST_MODEL, else the cache; without it that part is
skipped) and tokenizers made here, with every switch of the normalizer, added tokens of every kind, and a vocabulary in which every code
point has a token, so that a wrong lower case or decomposition cannot hide behind [UNK].

Where the Unicode versions of the package and of utf8proc disagree, the code points are listed in tokenizer_texts.py with the reason, and
nothing else may differ.
"""

import glob
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizer_texts import NEWER_CAPITALS, NEWER_DECOMPOSITIONS, NEWER_MARKS, NEWER_WORD_CHARACTERS, hostile, in_ranges, mixtures

try:
    import tokenizers
    from tokenizers import Tokenizer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIELDS = ("ids", "tokens", "chars", "bytes", "words", "special", "types")


class Pair:
    """The package's tokenizer and ours, from one file."""

    def __init__(self, dump, path):
        self.dump, self.path = dump, path
        self.package = Tokenizer.from_file(str(path))
        self.package.no_truncation()
        self.package.no_padding()

    def theirs(self, text, add_special):
        e = self.package.encode(text, add_special_tokens=add_special)
        at = [0]
        for letter in text:
            at.append(at[-1] + len(letter.encode()))
        chars = [list(o) for o in e.offsets]
        return {
            "ids": e.ids,
            "tokens": e.tokens,
            "chars": chars,
            "bytes": [[at[b], at[s]] for b, s in chars],
            "words": [-1 if w is None else w for w in e.word_ids],
            "special": [bool(s) for s in e.special_tokens_mask],
            "types": e.type_ids,
        }

    def ours(self, texts, add_special):
        data = b"".join(b"%d %d\n%s" % (add_special, len(t), t) for t in (text.encode() for text in texts))
        run = subprocess.run([self.dump, str(self.path)], input=data, capture_output=True)
        if run.returncode != 0:
            sys.exit(f"{self.dump} {self.path}: exit code {run.returncode}: {run.stderr.decode()}")
        lines = run.stdout.decode().split("\n")[:-1]  # not splitlines(): U+0085 or U+2028 in a token is no line end
        if len(lines) != len(texts):
            sys.exit(f"{self.dump}: {len(lines)} answers for {len(texts)} texts")
        return [json.loads(line) for line in lines]

    def differing(self, texts, add_special=True):
        """The texts that come out different, each with the first field that does."""
        out = []
        for text, ours in zip(texts, self.ours(texts, add_special)):
            theirs = self.theirs(text, add_special)
            for field in FIELDS:
                if ours.get(field) != theirs[field]:
                    out.append((text, field, theirs[field], ours.get(field, ours.get("error"))))
                    break
        return out


class Report:
    def __init__(self):
        self.failures = 0

    def same(self, pair, name, texts, add_special=True):
        found = pair.differing(texts, add_special)
        print(f"{name}: {len(texts)} texts, {len(found)} differ")
        for text, field, theirs, ours in found[:5]:
            print(f"  {text[:80]!a}: {field}\n    package {str(theirs)[:400]}\n    ours    {str(ours)[:400]}")
        self.failures += len(found)

    def points(self, pair, name, frame, known=()):
        """Every code point inside `frame`, many to a text; a text that differs is taken apart."""
        points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
        size = 2048
        texts = ["\n".join(frame.format(chr(p)) for p in points[i : i + size]) for i in range(0, len(points), size)]
        bad = {text for text, *_ in pair.differing(texts)}
        suspects = [p for i, text in enumerate(texts) if text in bad for p in points[i * size : (i + 1) * size]]
        found = [(ord(text[frame.index("{")]), *rest) for text, *rest in pair.differing([frame.format(chr(p)) for p in suspects])]
        if bad and not found:
            print(f"{name}: {len(bad)} texts differ, but none of their code points alone")
            self.failures += len(bad)
        new = [f for f in found if not in_ranges(f[0], known)]
        print(f"{name}: {len(points)} code points, {len(found)} differ, {len(new)} of them unexpectedly")
        for point, field, theirs, ours in new[:8]:
            print(f"  U+{point:04X}: {field}\n    package {theirs}\n    ours    {ours}")
        self.failures += len(new)


def corpus():
    files = sorted(glob.glob(str(ROOT.parent / "shared/data/ud_english_ewt/*.conllu")))
    if not files:
        print("skipped: ../shared/data/ud_english_ewt is not there")
    return [line[len("# text = ") :].rstrip("\n") for f in files for line in open(f, encoding="utf-8") if line.startswith("# text = ")]


def model_file():
    folder = os.environ.get("MHA_TEST_MODEL") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mha/models/all-MiniLM-L6-v2"
    )
    return pathlib.Path(folder) / "tokenizer.json"


def added(content, id, **flags):
    return {
        "id": id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
        **flags,
    }


def made_file(folder, name, normalizer, vocabulary, tokens=(), **changes):
    """A tokenizer.json of our own; `tokens` are added tokens, which get the ids after the vocabulary's."""
    base = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(base + list(vocabulary)))}
    frame = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    file = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [added(t, vocab[t], special=True) for t in base]
        + [added(t, len(vocab) + i, **flags) for i, (t, flags) in enumerate(tokens)],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": frame,
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
        **changes,
    }
    path = pathlib.Path(folder) / f"{name}.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    return path


def normalizer(**on):
    switches = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return {"type": "BertNormalizer", **switches, **on}


def all_letters():
    """Every code point as a token, at the start and inside of a word."""
    return [
        prefix + chr(p)
        for p in range(0x110000)
        if not 0xD800 <= p < 0xE000 and (p < 0x20000 or 0xF900 <= p < 0xFB00)
        for prefix in ("", "##")
    ]


def check_model(report, dump, seed):
    path = model_file()
    if not path.exists():
        print(f"skipped: no model at {path} (MHA_TEST_MODEL names its folder)")
        return
    pair = Pair(dump, path)
    report.same(pair, "model, corpus", corpus())
    report.same(pair, "model, hostile", hostile())
    report.same(pair, "model, hostile, no special tokens", hostile(), add_special=False)
    report.same(pair, "model, mixtures", mixtures(4000, seed))
    report.points(pair, "model, alone and inside a word", "{0} a{0}a")


def check_switches(report, dump, folder, seed):
    letters = [c for c in "abcdefghijklmnopqrstuvwxyz\u00e9\u4e2d.!"] + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz\u00e9\u4e2d"]
    for bits in range(24):
        strip = (None, True, False)[bits // 8]
        switches = normalizer(clean_text=bool(bits & 1), handle_chinese_chars=bool(bits & 2), lowercase=bool(bits & 4), strip_accents=strip)
        pair = Pair(dump, made_file(folder, f"switches{bits}", switches, letters))
        report.same(
            pair, "switches" + "".join(f", {k} {v}" for k, v in switches.items() if k != "type"), hostile(1000) + mixtures(200, seed + bits)
        )
    for name, change in {
        "no normalizer": {"normalizer": None},
        "no pre-tokenizer": {"pre_tokenizer": None},
        "no frame": {"post_processor": None},
    }.items():
        normal = normalizer(lowercase=True)
        pair = Pair(
            dump, made_file(folder, name.replace(" ", "_"), change.pop("normalizer", normal) if change else normal, letters, **change)
        )
        report.same(pair, name, hostile() + mixtures(200, seed))


def check_added(report, dump, folder, seed):
    tokens = [
        ("foo", {}),
        ("foobar", {}),
        ("Bar", {"normalized": True}),
        ("<w>", {"single_word": True}),
        ("word", {"single_word": True}),
        ("<l>", {"lstrip": True}),
        ("<r>", {"rstrip": True}),
        ("<b>", {"lstrip": True, "rstrip": True}),
        ("\u00c9T\u00c9", {"normalized": True, "special": True}),
        ("<N L>", {"normalized": True, "lstrip": True, "single_word": True}),
        ("\u4e2d", {"rstrip": True}),
    ]
    names = [t for t, _ in tokens]
    texts = (
        hostile()
        + mixtures(3000, seed, names * 2)
        + [
            "<l> <r>",
            "a <b> <b> b",
            "  <l>  <r>  ",
            "words word word.",
            "foobarfoo",
            "BAR bar \u00e9t\u00e9 ete",
            "<r> \u00a0\u2003<l>",
            "x <n l> y<N L>z <n l>",
            "_word- -word_ 1word word\u0301",
            "<w><w> <w>a",
        ]
    )
    for bits in range(4):
        switches = normalizer(clean_text=True, handle_chinese_chars=bool(bits & 1), lowercase=bool(bits & 2), strip_accents=None)
        pair = Pair(dump, made_file(folder, f"added{bits}", switches, list("abcdefghijklmnopqrstuvwxyz<>"), tokens))
        report.same(pair, f"added tokens {bits}", texts)
        report.same(pair, f"added tokens {bits}, no special tokens", texts, add_special=False)
    pair = Pair(dump, made_file(folder, "single_word", normalizer(), list("ab"), [("word", {"single_word": True})]))
    report.points(pair, "a single_word token before every code point", "word{}", NEWER_WORD_CHARACTERS)


def check_points(report, dump, folder):
    letters = all_letters()
    for name, switches, known in [
        ("cleaned", normalizer(clean_text=True, handle_chinese_chars=True), ()),
        ("lower case", normalizer(lowercase=True), NEWER_CAPITALS),
        ("stripped", normalizer(strip_accents=True), NEWER_DECOMPOSITIONS),
    ]:
        pair = Pair(dump, made_file(folder, "points_" + name.replace(" ", "_"), switches, letters))
        report.points(pair, f"every code point {name}", "a{}", known)
    # U+302E (class 224) is a mark that stays when accents go: it shows on which side of it a code point is sorted.
    report.points(pair, "canonical order around U+302E", "a\u302e{0} a{0}\u302e", NEWER_DECOMPOSITIONS + NEWER_MARKS)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tokenizer_live.py TOKENIZE_DUMP")
    seed = int(os.environ.get("MHA_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"tokenizers {tokenizers.__version__}, seed {seed}")
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        check_model(report, sys.argv[1], seed)
        check_switches(report, sys.argv[1], folder, seed)
        check_added(report, sys.argv[1], folder, seed)
        check_points(report, sys.argv[1], folder)
    print(f"{report.failures} failures")
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
