#!/usr/bin/env python3
"""What bench/compare concludes: where a median lies, when a row is slower, and which revisions cannot be called. On made-up figures;
nothing is measured. Needs numpy."""

import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "against"))
from alternate import median_interval
from revisions import SHIM, declarations, verdict_of


def median_interval_holds_the_median():
    """The ranks of the textbook tables for 95 %, and as many hits as promised."""
    for count, ranks in ((1, (1, 1)), (5, (1, 5)), (6, (1, 6)), (10, (2, 9)), (15, (4, 12)), (25, (8, 18)), (100, (40, 61))):
        assert median_interval(range(1, count + 1)) == ranks, count
    rng = np.random.default_rng(1)
    hits = sum(low <= 0 <= high for low, high in (median_interval(rng.standard_cauchy(28)) for _ in range(2000)))
    assert 0.93 < hits / 2000, hits


def a_change_is_seen_and_none_is_not():
    noise = np.exp(np.random.default_rng(2).normal(0, 0.025, 100))
    noise /= np.median(noise)
    for slower, verdict in ((1, ""), (1.008, ""), (0.992, ""), (1.03, "slower"), (1.2, "slower"), (1 / 1.03, "faster")):
        assert verdict_of(noise / slower, 3) == verdict, (slower, verdict)
    assert verdict_of(noise / 1.03, 10) == ""
    assert verdict_of(np.array([0.8, 0.9, 1.1]), 3) == "", "three figures that do not agree say nothing"


def another_interface_is_found():
    shim = (ROOT / SHIM).read_text(encoding="utf-8")
    promised = declarations(shim)
    called = set(re.findall(r'"(rivals_\w+)"', (ROOT / "bench/against/ours.py").read_text(encoding="utf-8")))
    assert called and called <= promised.keys(), called - promised.keys()
    assert {"RivalsView", "RivalsAttention", "RivalsLayer"} <= promised.keys()
    assert declarations(shim.replace("  // bottom-right", "  // something else")) == promised, "a comment is not the interface"
    for old, new, name in (("std::int64_t strides[4];", "std::int64_t strides[5];", "RivalsView"),
                           ("rivals_workspace(int threads)", "rivals_workspace(int threads, int node)", "rivals_workspace"),
                           ("double rivals_fma_peak", "float rivals_fma_peak", "rivals_fma_peak")):
        assert old in shim
        changed = declarations(shim.replace(old, new))
        assert [key for key in promised if promised[key] != changed[key]] == [name], name


for test in (median_interval_holds_the_median, a_change_is_seen_and_none_is_not, another_interface_is_found):
    test()
    print(f"ok {test.__name__}")
