#!/usr/bin/env python3
"""Compares Tokenizer with the Hugging Face package `tokenizers`, live: ids, tokens, offsets (code points and bytes), word numbers, special flags
and token types must be identical, text by text. Usage: tokenizer_live.py TOKENIZE_DUMP (the helper built from tokenize_dump.cpp).

Texts: the sentences of ../shared/data/ud_english_ewt where it is there, hostile strings, every Unicode code point, random mixtures (the seed is
printed; MHA_TEST_SEED sets it). Tokenizers: the default model's (MHA_TEST_MODEL, else the cache; without it that part is skipped) and
tokenizers made here, with every switch of the normalizer, added tokens of every kind, and a vocabulary in which every code point has a token, so
that a wrong lower case or decomposition cannot hide behind [UNK].

Where the Unicode versions of the package and of utf8proc disagree, the code points are listed below with the reason, and nothing else may differ.
"""

import glob
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import tokenizers
    from tokenizers import Tokenizer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIELDS = ("ids", "tokens", "chars", "bytes", "words", "special", "types")

# utf8proc 2.8 knows Unicode 15.0; the package's lower case (Rust's standard library) is newer: capitals of Unicode 16 and 17, which only get their
# small letters here with a newer utf8proc.
NEWER_CAPITALS = [(0x1C89, 0x1C89), (0xA7CB, 0xA7CC), (0xA7CE, 0xA7CE), (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7DA, 0xA7DA),
                  (0xA7DC, 0xA7DC), (0x10D50, 0x10D65), (0x16EA0, 0x16EB8)]
# The package's NFD (crate unicode-normalization-alignments) is of Unicode 9 to 12: this vowel sign of Unicode 13 stays whole there.
NEWER_DECOMPOSITIONS = [(0x11938, 0x11938)]
# A token with `single_word` asks what \w is; the package's regex crate knows letters, marks and digits of Unicode 16, utf8proc 2.8 those of 15.0.
NEWER_WORD_CHARACTERS = [
    (0x897, 0x897), (0x1C89, 0x1C8A), (0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC), (0x105C0, 0x105F3), (0x10D40, 0x10D65), (0x10D69, 0x10D6D),
    (0x10D6F, 0x10D85), (0x10EC2, 0x10EC4), (0x10EFC, 0x10EFC), (0x11380, 0x11389), (0x1138B, 0x1138B), (0x1138E, 0x1138E),
    (0x11390, 0x113B5), (0x113B7, 0x113C0), (0x113C2, 0x113C2), (0x113C5, 0x113C5), (0x113C7, 0x113CA), (0x113CC, 0x113D3),
    (0x113E1, 0x113E2), (0x116D0, 0x116E3), (0x11BC0, 0x11BE0), (0x11BF0, 0x11BF9), (0x11F5A, 0x11F5A), (0x13460, 0x143FA),
    (0x16100, 0x16139), (0x16D40, 0x16D6C), (0x16D70, 0x16D79), (0x18CFF, 0x18CFF), (0x1CCF0, 0x1CCF9), (0x1E5D0, 0x1E5FA),
    (0x2EBF0, 0x2EE5D)]
# Canonical order: marks of Unicode 9 to 15 have a combining class in utf8proc and none in the package's NFD, so two such marks in a row may stand
# in another order. It shows only where the vocabulary has such a mark; the random mixtures leave these out.
NEWER_MARKS = [
    (0x7FD, 0x7FD), (0x898, 0x89F), (0x8CA, 0x8D3), (0x9FE, 0x9FE), (0xC3C, 0xC3C), (0xD3B, 0xD3C), (0xEBA, 0xEBA), (0x1715, 0x1715), (0x1ABF, 0x1ACE),
    (0x1DF6, 0x1DFA), (0xA82C, 0xA82C), (0x10D24, 0x10D27), (0x10EAB, 0x10EAC), (0x10EFD, 0x10EFF), (0x10F46, 0x10F50), (0x10F82, 0x10F85),
    (0x11070, 0x11070), (0x1133B, 0x1133B), (0x1145E, 0x1145E), (0x11839, 0x1183A), (0x1193D, 0x1193E), (0x11943, 0x11943), (0x119E0, 0x119E0),
    (0x11A34, 0x11A34), (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D42), (0x11D44, 0x11D45), (0x11D97, 0x11D97), (0x11F41, 0x11F42),
    (0x16FF0, 0x16FF1), (0x1E08F, 0x1E08F), (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF)]
KNOWN = NEWER_CAPITALS + NEWER_DECOMPOSITIONS + NEWER_WORD_CHARACTERS + NEWER_MARKS


def in_ranges(point, ranges):
    return any(first <= point <= last for first, last in ranges)


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
        return {"ids": e.ids, "tokens": e.tokens, "chars": chars, "bytes": [[at[b], at[s]] for b, s in chars],
                "words": [-1 if w is None else w for w in e.word_ids], "special": [bool(s) for s in e.special_tokens_mask], "types": e.type_ids}

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
        texts = ["\n".join(frame.format(chr(p)) for p in points[i:i + size]) for i in range(0, len(points), size)]
        bad = {text for text, *_ in pair.differing(texts)}
        suspects = [p for i, text in enumerate(texts) if text in bad for p in points[i * size:(i + 1) * size]]
        found = [(ord(text[frame.index("{")]), *rest) for text, *rest in pair.differing([frame.format(chr(p)) for p in suspects])]
        if bad and not found:
            print(f"{name}: {len(bad)} texts differ, but none of their code points alone")
            self.failures += len(bad)
        new = [f for f in found if not in_ranges(f[0], known)]
        print(f"{name}: {len(points)} code points, {len(found)} differ, {len(new)} of them unexpectedly")
        for point, field, theirs, ours in new[:8]:
            print(f"  U+{point:04X}: {field}\n    package {theirs}\n    ours    {ours}")
        self.failures += len(new)


def hostile(longest=100000):
    texts = [
        "", " ", " \t\n\r  ", "\0", "a\0b", "a\u200db", "\ufffd", "\ufeffbom", "\U0001f468\u200d\U0001f469\u200d\U0001f467 family \U0001f1e9\U0001f1ea",
        "\U0001f600" * 50, "\u4e2d\u6587\u5b57\u7b26 mixed\u4e2dwords", "\u3053\u3093\u306b\u3061\u306f \u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
        "\U00020000\U0002a6d6\uf900\U0002f800", "e\u0301 \u00e9 e\u0301\u0323\u0302", "\u0301leading mark", "a" + "\u0301" * 300, "\u0344\u0323x",
        "\u1ea5\u0323 \u1ec7", "a\u302e\u0301b", "\U0001d157\U0001d165\U0001d16e\u0301", "\u0f73\u0f71", "\u0130stanbul \u0131\u0130I\u0307", "\u1e9e\u00df \ufb01 \ufb03", "\u039f\u0394\u039f\u03a3 \u03a3",
        "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u202eabc\u202c", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0928\u092e\u0938\u094d\u0924\u0947",
        "x" * 99, "x" * 100, "x" * 101, "x" * 600, "supercalifragilisticexpialidocious" * 20, "\u00e9" * 100, "\u0130" * 100, "\u0130" * 60,
        "the " * 25000, "a" * 100000, "[" * 100000, " " * 100000, "\u0301" * 100000, "\u4e2d" * 20000, "!?" * 50000, "[CLS]" * 5000,
        "[MASK]", "[SEP]x", "x[SEP]", "a [MASK] b", "a[MASK]b", "  [MASK]  ", "[mask]", "[MASK", "[[MASK]]", "[CLS][SEP][PAD][UNK]", "[MASK]\u0301", "[UNK]\u0301e", "[MA\0SK]",
        "[unused1]", "##ing", "a ##b", "don't can't it's", "1,000.50 $3 50% #1 @x", "^`~|<>+=", "\u2018q\u2019 \u201cq\u201d \u2014 \u2026", "a\u00a0b\u2003c\u3000d\u0085e\u2028f\u1680g",
        "\x01\x02\x7f\x80\x9f", "\ue000\U000f0000\U0010ffff", "\U000e0001\U000e0041", "\ud7ff\ue000", "caf\u00e9 na\u00efve \u00dcBER", "http://example.com/a?b=c&d=e", "C:\\x\\y", "tab\tseparated\r\nlines",
    ]
    return [text for text in texts if len(text) <= longest]


def mixtures(count, seed, extra=()):
    """Random strings of everything that has a rule of its own."""
    choose = random.Random(seed)
    words = ["the", "telescope", "Astronomer", "unaffable", "na\u00efve", "[MASK]", "[SEP]", "[CLS]", "##s", "x" * 101, *extra]
    ranges = [(0x20, 0x7E), (0, 0x20), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF), (0x1E00, 0x1FFF),
              (0x2000, 0x206F), (0x3000, 0x30FF), (0x4E00, 0x4E40), (0xAC00, 0xAC40), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0x1F300, 0x1F6FF),
              (0x1D15E, 0x1D1AD), (0x2F800, 0x2F820), (0, 0x10FFFF)]
    out = []
    for _ in range(count):
        parts = []
        for _ in range(choose.randrange(1, 40)):
            kind = choose.random()
            if kind < 0.3:
                parts.append(choose.choice(words))
            elif kind < 0.5:
                parts.append(" ")
            else:
                first, last = choose.choice(ranges)
                point = choose.randint(first, last)
                if not 0xD800 <= point < 0xE000 and not in_ranges(point, KNOWN):
                    parts.append(chr(point))
        out.append("".join(parts))
    return out


def corpus():
    files = sorted(glob.glob(str(ROOT.parent / "shared/data/ud_english_ewt/*.conllu")))
    if not files:
        print("skipped: ../shared/data/ud_english_ewt is not there")
    return [line[len("# text = "):].rstrip("\n") for f in files for line in open(f, encoding="utf-8") if line.startswith("# text = ")]


def model_file():
    folder = os.environ.get("MHA_TEST_MODEL") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mha/models/all-MiniLM-L6-v2")
    return pathlib.Path(folder) / "tokenizer.json"


def added(content, id, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


def made_file(folder, name, normalizer, vocabulary, tokens=(), **changes):
    """A tokenizer.json of our own; `tokens` are added tokens, which get the ids after the vocabulary's."""
    base = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(base + list(vocabulary)))}
    frame = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    file = {"version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}, "padding": None,
            "added_tokens": [added(t, vocab[t], special=True) for t in base] + [added(t, len(vocab) + i, **flags) for i, (t, flags) in enumerate(tokens)],
            "normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": frame, "decoder": None,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab},
            **changes}
    path = pathlib.Path(folder) / f"{name}.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    return path


def normalizer(**on):
    switches = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return {"type": "BertNormalizer", **switches, **on}


def all_letters():
    """Every code point as a token, at the start and inside of a word."""
    return [prefix + chr(p) for p in range(0x110000) if not 0xD800 <= p < 0xE000 and (p < 0x20000 or 0xF900 <= p < 0xFB00) for prefix in ("", "##")]


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
    report.points(pair, "model, inside a word", "a{}a")
    report.points(pair, "model, alone", "{}")


def check_switches(report, dump, folder, seed):
    letters = [c for c in "abcdefghijklmnopqrstuvwxyz\u00e9\u4e2d.!"] + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz\u00e9\u4e2d"]
    for bits in range(24):
        strip = (None, True, False)[bits // 8]
        switches = normalizer(clean_text=bool(bits & 1), handle_chinese_chars=bool(bits & 2), lowercase=bool(bits & 4), strip_accents=strip)
        pair = Pair(dump, made_file(folder, f"switches{bits}", switches, letters))
        report.same(pair, "switches" + "".join(f", {k} {v}" for k, v in switches.items() if k != "type"), hostile(1000) + mixtures(200, seed + bits))
    for name, change in {"no normalizer": {"normalizer": None}, "no pre-tokenizer": {"pre_tokenizer": None}, "no frame": {"post_processor": None}}.items():
        normal = normalizer(lowercase=True)
        pair = Pair(dump, made_file(folder, name.replace(" ", "_"), change.pop("normalizer", normal) if change else normal, letters, **change))
        report.same(pair, name, hostile() + mixtures(200, seed))


def check_added(report, dump, folder, seed):
    tokens = [("foo", {}), ("foobar", {}), ("Bar", {"normalized": True}), ("<w>", {"single_word": True}), ("word", {"single_word": True}),
              ("<l>", {"lstrip": True}), ("<r>", {"rstrip": True}), ("<b>", {"lstrip": True, "rstrip": True}),
              ("\u00c9T\u00c9", {"normalized": True, "special": True}), ("<N L>", {"normalized": True, "lstrip": True, "single_word": True}), ("\u4e2d", {"rstrip": True})]
    names = [t for t, _ in tokens]
    texts = hostile() + mixtures(3000, seed, names * 2) + ["<l> <r>", "a <b> <b> b", "  <l>  <r>  ", "words word word.", "foobarfoo", "BAR bar \u00e9t\u00e9 ete", "<r> \u00a0\u2003<l>",
                                                           "x <n l> y<N L>z <n l>", "_word- -word_ 1word word\u0301", "<w><w> <w>a"]
    for bits in range(4):
        switches = normalizer(clean_text=True, handle_chinese_chars=bool(bits & 1), lowercase=bool(bits & 2), strip_accents=None)
        pair = Pair(dump, made_file(folder, f"added{bits}", switches, list("abcdefghijklmnopqrstuvwxyz<>"), tokens))
        report.same(pair, f"added tokens {bits}", texts)
        report.same(pair, f"added tokens {bits}, no special tokens", texts, add_special=False)
    pair = Pair(dump, made_file(folder, "single_word", normalizer(), list("ab"), [("word", {"single_word": True})]))
    report.points(pair, "a single_word token before every code point", "word{}", NEWER_WORD_CHARACTERS)


def check_points(report, dump, folder):
    letters = all_letters()
    for name, switches, known in [("cleaned", normalizer(clean_text=True, handle_chinese_chars=True), ()),
                                  ("lower case", normalizer(lowercase=True), NEWER_CAPITALS),
                                  ("stripped", normalizer(strip_accents=True), NEWER_DECOMPOSITIONS)]:
        pair = Pair(dump, made_file(folder, "points_" + name.replace(" ", "_"), switches, letters))
        report.points(pair, f"every code point {name}", "a{}", known)
    # U+302E (class 224) is a mark that stays when accents go: it shows on which side of it a code point is sorted.
    for frame in ("a\u302e{}", "a{}\u302e"):
        report.points(pair, f"canonical order in {frame!a}", frame, NEWER_DECOMPOSITIONS + NEWER_MARKS)


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
