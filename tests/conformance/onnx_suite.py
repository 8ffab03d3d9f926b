#!/usr/bin/env python3
"""The 87 `Attention` cases of the ONNX project (../shared/conformance/onnx_attention) under every ISA. Usage: onnx_suite.py ATTEND (the
program built from attend.cpp).

Every case must pass. What the library has no feature for is listed by name below, with what of such a case is still checked; the listing
must say exactly what is so. Skipped where ../shared is not there.
"""

import collections
import json
import pathlib
import sys

try:
    import numpy as np

    import attend
    import onnx_semantics
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SUITE = pathlib.Path(__file__).resolve().parents[3] / "shared/conformance/onnx_attention"
F16_RTOL, F16_ATOL = 1e-3, 1e-7  # the suite's own rule

# Cases of which not every output is the library's: reason -> names (after "test_attention_").
PRESENT = "present_* is the adapter's concatenation, no cache of the library; Y (and weights, where asked) is checked, and present_* too"
SCORES = "raw scores (qk_matmul_output_mode 0, 1 or 2) are kept nowhere; Y (and present_*, the adapter's concatenation) is checked"
LISTED = {
    PRESENT: """3d_diff_heads_with_past_and_present 3d_gqa_with_past_and_present 3d_with_past_and_present
        3d_with_past_and_present_qk_matmul_softmax 4d_causal_with_past_and_present 4d_diff_heads_with_past_and_present
        4d_diff_heads_with_past_and_present_mask3d 4d_diff_heads_with_past_and_present_mask4d 4d_gqa_with_past_and_present
        4d_gqa_with_past_and_present_fp16 4d_with_past_and_present local_window_with_past""".split(),
    SCORES: """3d_with_past_and_present_qk_matmul 3d_with_past_and_present_qk_matmul_bias 3d_with_past_and_present_qk_matmul_softcap
        4d_with_past_and_present_qk_matmul 4d_with_past_and_present_qk_matmul_bias 4d_with_past_and_present_qk_matmul_bias_3d_mask
        4d_with_past_and_present_qk_matmul_bias_3d_mask_causal 4d_with_past_and_present_qk_matmul_bias_4d_mask
        4d_with_past_and_present_qk_matmul_bias_4d_mask_causal 4d_with_qk_matmul 4d_with_qk_matmul_bias
        4d_with_qk_matmul_softcap""".split(),
}


def bound(expected, name, inputs):
    """How far an output may be from the suite's, which f32 arithmetic made as well (f16: the suite's rule). Outputs are averages of values
    (weights: fractions of 1), so 16 roundings of the largest value, about 1e-6 here."""
    if expected.dtype == np.float16:
        return F16_ATOL + F16_RTOL * np.abs(expected.astype(np.float64))
    values = [np.ones(1)] if name == "qk_matmul_output" else [inputs[n] for n in ("V", "past_value") if n in inputs]
    finite = np.concatenate([np.abs(x[np.isfinite(x)]).ravel() for x in values])
    return 16 * attend.ROUNDOFF[expected.dtype] * float(finite.max())


def read(case):
    with np.load(SUITE / f"{case['name']}.npz") as data:
        inputs = {name: data[f"in_{name}"] for name in case["inputs"] if name}
        return inputs, {name: data[f"out_{name}"] for name in case["outputs"] if name}


def check(inputs, expected, lowered, results):
    """(problems found, largest fraction of the tolerance used) of one case under one ISA."""
    got, faults, worst = lowered.outputs(results), [], 0.0
    for name, array in expected.items():
        if name in lowered.missing:
            continue
        exact = name in lowered.adapted
        if got[name].dtype != array.dtype:
            faults.append(f"{name} is {got[name].dtype}, must be {array.dtype}")
        ratio = attend.excess(got[name], array, 0 if exact else bound(array, name, inputs))
        worst = max(worst, ratio)
        if not ratio <= 1:
            faults.append(f"{name} differs by {ratio:.3g} times the tolerance")
    return faults, worst


def refused():
    """How many nodes that contradict themselves are not refused."""
    q, passed = np.zeros((1, 2, 3, 4), np.float32), 0
    for what, attrs, more in (
        ("a mask longer than the keys", {}, {"attn_mask": np.zeros((3, 4), np.float32)}),
        ("a mask of five axes", {}, {"attn_mask": np.zeros((1, 1, 1, 3, 3), np.float32)}),
        ("a past of keys only", {}, {"past_key": q}),
        ("a past and nonpad_kv_seqlen", {}, {"past_key": q, "past_value": q, "nonpad_kv_seqlen": np.ones(1, np.int64)}),
        ("three axes without head counts", {}, {"Q": q[0], "K": q[0], "V": q[0]}),
        ("a width that heads do not divide", {"q_num_heads": 3, "kv_num_heads": 1}, {"Q": q[0], "K": q[0], "V": q[0]}),
    ):
        try:
            onnx_semantics.lower(attrs, {"Q": q, "K": q, "V": q} | more)
            print(f"FAILED: not refused: {what}")
            passed += 1
        except ValueError:
            pass
    return passed


def kind_of(lowered):
    """The listing's reason, or None where every output is the library's."""
    if lowered.missing:
        return SCORES
    return PRESENT if lowered.adapted else None


def main():
    if not SUITE.is_dir():
        print(f"skipped: {SUITE} is not there")
        return 77
    manifest = json.loads((SUITE / "manifest.json").read_text())
    names = [case["name"].removeprefix("test_attention_") for case in manifest]
    cases = [read(case) for case in manifest]
    lowered = [onnx_semantics.lower(case["attrs"], inputs, case["outputs"]) for case, (inputs, _) in zip(manifest, cases)]
    results = attend.run(sys.argv[1], [one.call for one in lowered])
    bad = set()
    for isa, per_case in results.items():
        worst = collections.Counter()
        for name, (inputs, expected), one, result in zip(names, cases, lowered, per_case, strict=True):
            faults, ratio = check(inputs, expected, one, result)
            worst[str(one.dtype)] = max(worst[str(one.dtype)], ratio)
            for fault in faults:
                print(f"FAILED {name} under {isa}: {fault}")
                bad.add(name)
        used = ", ".join(f"{ratio:.2f} ({dtype})" for dtype, ratio in sorted(worst.items()))
        print(f"{isa}: of their tolerance the worst cases use {used}")
    found = {reason: sorted(n for n, one in zip(names, lowered) if kind_of(one) == reason) for reason in LISTED}
    for reason, listed in LISTED.items():
        if found[reason] != sorted(listed):
            print(f"FAILED: the list says {sorted(listed)}, found {found[reason]}: {reason}")
            bad |= set(found[reason]) ^ set(listed)
    wholly = sum(kind_of(one) is None and name not in bad for name, one in zip(names, lowered))
    passed = sum(name not in bad for name in names)
    print(f"counts: ONNX Attention: {passed} of {len(names)} pass, {wholly} of them wholly; of {len(names) - wholly} one output is listed:")
    for reason, listed in found.items():
        print(f"  {len(listed)}: {reason}:\n    " + "\n    ".join(listed))
    files = len(list(SUITE.glob("*.npz")))
    if not len(names) == len(set(names)) == files == 87:
        print(f"FAILED: the manifest has {len(names)} cases, there are {files} files, known are 87")
        return 1
    return 1 if bad or refused() else 0


if __name__ == "__main__":
    sys.exit(main())
