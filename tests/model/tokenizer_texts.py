"""Texts on which tokenizers are compared (tokenizer_live.py), and the code points on which the Unicode versions of the package
`tokenizers` and of utf8proc are known to disagree, each list with the reason.
"""

import random

# utf8proc 2.8 knows Unicode 15.0; the package's lower case (Rust's standard library) is newer: capitals of Unicode 16 and 17, which
# only get their small letters here with a newer utf8proc.
NEWER_CAPITALS = [
    (0x1C89, 0x1C89), (0xA7CB, 0xA7CC), (0xA7CE, 0xA7CE), (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7DA, 0xA7DA), (0xA7DC, 0xA7DC),
    (0x10D50, 0x10D65), (0x16EA0, 0x16EB8),
]
# The package's NFD (crate unicode-normalization-alignments) is of Unicode 9 to 12: this vowel sign of Unicode 13 stays whole there.
NEWER_DECOMPOSITIONS = [
    (0x11938, 0x11938),
]
# A token with `single_word` asks what \w is; the package's regex crate knows letters, marks and digits of Unicode 16, utf8proc 2.8
# those of 15.0.
NEWER_WORD_CHARACTERS = [
    (0x897, 0x897), (0x1C89, 0x1C8A), (0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC), (0x105C0, 0x105F3), (0x10D40, 0x10D65), (0x10D69, 0x10D6D),
    (0x10D6F, 0x10D85), (0x10EC2, 0x10EC4), (0x10EFC, 0x10EFC), (0x11380, 0x11389), (0x1138B, 0x1138B), (0x1138E, 0x1138E),
    (0x11390, 0x113B5), (0x113B7, 0x113C0), (0x113C2, 0x113C2), (0x113C5, 0x113C5), (0x113C7, 0x113CA), (0x113CC, 0x113D3),
    (0x113E1, 0x113E2), (0x116D0, 0x116E3), (0x11BC0, 0x11BE0), (0x11BF0, 0x11BF9), (0x11F5A, 0x11F5A), (0x13460, 0x143FA),
    (0x16100, 0x16139), (0x16D40, 0x16D6C), (0x16D70, 0x16D79), (0x18CFF, 0x18CFF), (0x1CCF0, 0x1CCF9), (0x1E5D0, 0x1E5FA),
    (0x2EBF0, 0x2EE5D),
]
# Canonical order: marks of Unicode 9 to 15 have a combining class in utf8proc and none in the package's NFD, so two such marks in a row
# may stand in another order. It shows only where the vocabulary has such a mark; the random mixtures leave these out.
NEWER_MARKS = [
    (0x7FD, 0x7FD), (0x898, 0x89F), (0x8CA, 0x8D3), (0x9FE, 0x9FE), (0xC3C, 0xC3C), (0xD3B, 0xD3C), (0xEBA, 0xEBA), (0x1715, 0x1715),
    (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA), (0xA82C, 0xA82C), (0x10D24, 0x10D27), (0x10EAB, 0x10EAC), (0x10EFD, 0x10EFF), (0x10F46, 0x10F50),
    (0x10F82, 0x10F85), (0x11070, 0x11070), (0x1133B, 0x1133B), (0x1145E, 0x1145E), (0x11839, 0x1183A), (0x1193D, 0x1193E),
    (0x11943, 0x11943), (0x119E0, 0x119E0), (0x11A34, 0x11A34), (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D42),
    (0x11D44, 0x11D45), (0x11D97, 0x11D97), (0x11F41, 0x11F42), (0x16FF0, 0x16FF1), (0x1E08F, 0x1E08F), (0x1E130, 0x1E136),
    (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF),
]
KNOWN = NEWER_CAPITALS + NEWER_DECOMPOSITIONS + NEWER_WORD_CHARACTERS + NEWER_MARKS


def in_ranges(point, ranges):
    return any(first <= point <= last for first, last in ranges)


def hostile(longest=100000):
    texts = [
        "",
        " ",
        " \t\n\r  ",
        "\0",
        "a\0b",
        "a\u200db",
        "\ufffd",
        "\ufeffbom",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 family \U0001f1e9\U0001f1ea",
        "\U0001f600" * 50,
        "\u4e2d\u6587\u5b57\u7b26 mixed\u4e2dwords",
        "\u3053\u3093\u306b\u3061\u306f \u30ab\u30bf\u30ab\u30ca",
        "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
        "\U00020000\U0002a6d6\uf900\U0002f800",
        "e\u0301 \u00e9 e\u0301\u0323\u0302",
        "\u0301leading mark",
        "a" + "\u0301" * 300,
        "\u0344\u0323x",
        "\u1ea5\u0323 \u1ec7",
        "a\u302e\u0301b",
        "\U0001d157\U0001d165\U0001d16e\u0301",
        "\u0f73\u0f71",
        "\u0130stanbul \u0131\u0130I\u0307",
        "\u1e9e\u00df \ufb01 \ufb03",
        "\u039f\u0394\u039f\u03a3 \u03a3",
        "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u202eabc\u202c",
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
        "\u0928\u092e\u0938\u094d\u0924\u0947",
        "x" * 99,
        "x" * 100,
        "x" * 101,
        "x" * 600,
        "supercalifragilisticexpialidocious" * 20,
        "\u00e9" * 100,
        "\u0130" * 100,
        "\u0130" * 60,
        "the " * 25000,
        "a" * 100000,
        "[" * 100000,
        " " * 100000,
        "\u0301" * 100000,
        "\u4e2d" * 20000,
        "!?" * 50000,
        "[CLS]" * 5000,
        "[MASK]",
        "[SEP]x",
        "x[SEP]",
        "a [MASK] b",
        "a[MASK]b",
        "  [MASK]  ",
        "[mask]",
        "[MASK",
        "[[MASK]]",
        "[CLS][SEP][PAD][UNK]",
        "[MASK]\u0301",
        "[UNK]\u0301e",
        "[MA\0SK]",
        "[unused1]",
        "##ing",
        "a ##b",
        "don't can't it's",
        "1,000.50 $3 50% #1 @x",
        "^`~|<>+=",
        "\u2018q\u2019 \u201cq\u201d \u2014 \u2026",
        "a\u00a0b\u2003c\u3000d\u0085e\u2028f\u1680g",
        "\x01\x02\x7f\x80\x9f",
        "\ue000\U000f0000\U0010ffff",
        "\U000e0001\U000e0041",
        "\ud7ff\ue000",
        "caf\u00e9 na\u00efve \u00dcBER",
        "http://example.com/a?b=c&d=e",
        "C:\\x\\y",
        "tab\tseparated\r\nlines",
    ]
    return [text for text in texts if len(text) <= longest]


def mixtures(count, seed, extra=()):
    """Random strings of everything that has a rule of its own."""
    choose = random.Random(seed)
    words = ["the", "telescope", "Astronomer", "unaffable", "na\u00efve", "[MASK]", "[SEP]", "[CLS]", "##s", "x" * 101, *extra]
    ranges = [
        (0x20, 0x7E),
        (0, 0x20),
        (0x80, 0x24F),
        (0x300, 0x36F),
        (0x370, 0x5FF),
        (0x600, 0x6FF),
        (0x900, 0xDFF),
        (0x1E00, 0x1FFF),
        (0x2000, 0x206F),
        (0x3000, 0x30FF),
        (0x4E00, 0x4E40),
        (0xAC00, 0xAC40),
        (0xF900, 0xFAFF),
        (0xFB00, 0xFB4F),
        (0x1F300, 0x1F6FF),
        (0x1D15E, 0x1D1AD),
        (0x2F800, 0x2F820),
        (0, 0x10FFFF),
    ]
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
