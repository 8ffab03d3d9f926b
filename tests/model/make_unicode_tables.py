#!/usr/bin/env python3
"""Prints src/model/tokenizer/unicode_tables.inl: the code points that Hugging Face `tokenizers` drops, strips and splits at.

The package carries general categories of Unicode 8 (its crate unicode_categories), utf8proc those of Unicode 15 or newer; the two
differ at some hundred code points, and a pretrained model means the package's answer. So the three sets are asked from the package
itself, code point by code point, and frozen. Run by hand: make_unicode_tables.py > src/model/tokenizer/unicode_tables.inl;
tokenizer_live.py checks the result.
"""

from tokenizers import __version__, normalizers, pre_tokenizers


def normalizer(**on):
    switches = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**switches, **on})


def ranges(points):
    out = []
    for point in points:
        if out and out[-1][1] == point - 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return out


def show(name, comment, points):
    found = ranges(points)
    print(f"\n// {comment}")
    print(f"inline constexpr std::array<CodeRange, {len(found)}> {name} = {{{{")
    line = "   "
    for first, last in found:
        item = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(item) > 138:
            print(line)
            line = "   "
        line += item
    print(line)
    print("}};")


def main():
    clean, strip = normalizer(clean_text=True), normalizer(strip_accents=True)
    pre, nfd = pre_tokenizers.BertPreTokenizer(), normalizers.NFD()
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    print("// Written by tests/model/make_unicode_tables.py, not by hand: the three classes of code points on which text processing as")
    print(
        f"// Hugging Face `tokenizers` {__version__} does it depends. Included by unicode.cpp alone. Unicode 8's, whatever utf8proc's."
    )
    show(
        "kDropped",
        "Taken out by clean_text: U+0000, U+FFFD and categories Cc, Cf, Co (tab, line feed and carriage return stay).",
        [p for p in points if clean.normalize_str("a" + chr(p) + "a") == "aa"],
    )
    show(
        "kNonspacingMarks",
        "Stripped as accents: category Mn.",
        [p for p in points if nfd.normalize_str(chr(p)) == chr(p) and strip.normalize_str("a" + chr(p)) == "a"],
    )
    show(
        "kPunctuation",
        "A word of its own: ASCII punctuation and categories Pc, Pd, Ps, Pe, Pi, Pf, Po.",
        [p for p in points if len(pre.pre_tokenize_str("a" + chr(p) + "a")) == 3],
    )


if __name__ == "__main__":
    main()
