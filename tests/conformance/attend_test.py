#!/usr/bin/env python3
"""The conformance scripts' helper program itself. Usage: attend_test.py ATTEND (built from attend.cpp).

What it can be asked and no other script asks (prefix, chunk, segments, ALiBi, sinks of a window) is compared with umpire.py; bad input of
every kind must end with exit code 2, a message that names what is wrong, and no results.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors.numpy import save_file

    import attend
    import umpire
    from onnx_semantics import Call
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

Q_LEN, KV_LEN, HEADS, DIM = 5, 9, 4, 6
SLOPES = [0.25, 0.5, 1.0, 2.0]


def rules_apart():
    """name -> (JSON of the problem, visible(i, j), bias(h, i, j)); BottomRight: row i stands at position i + 4."""
    at = lambda i: i + KV_LEN - Q_LEN
    segment = lambda p: 1 * (p >= 3) + 1 * (p >= 7)
    zero = lambda h, i, j: 0.0 * (h + i + j)
    return {
        "prefix": ({"mask": [{"rule": "prefix", "length": 7}]}, lambda i, j: (j < 7) | (j <= at(i)), zero),
        "chunk": ({"mask": [{"rule": "chunk", "size": 3}]}, lambda i, j: j // 3 == at(i) // 3, zero),
        "segments": ({"mask": [{"rule": "segments", "starts": [0, 3, 7]}]}, lambda i, j: segment(j) == segment(at(i)), zero),
        "window with sinks": ({"mask": [{"rule": "window", "left": 1, "right": 0, "sinks": 2}]},
                              lambda i, j: (j < 2) | ((j >= at(i) - 1) & (j <= at(i))), zero),
        "two rules": ({"mask": [{"rule": "causal"}, {"rule": "window", "left": 2, "right": 3}]},
                      lambda i, j: (j <= at(i)) & (j >= at(i) - 2), zero),
        "ALiBi": ({"alibi_slopes": SLOPES}, lambda i, j: i + j >= 0, lambda h, i, j: -np.array(SLOPES)[h] * np.abs(j - at(i))),
    }


def problem():
    rng = np.random.default_rng(7)
    draw = lambda length: rng.standard_normal((2, length, HEADS, DIM)).astype(np.float32)
    return draw(Q_LEN), draw(KV_LEN), draw(KV_LEN)


def check_rules(helper):
    q, k, v = problem()
    rules = rules_apart()
    failures = 0
    h, i, j = np.ogrid[:HEADS, :Q_LEN, :KV_LEN]
    specs = [spec | {"align": "bottom_right", "weights": True} for spec, _, _ in rules.values()]
    tensors = {f"{n}/{name}": t for n in range(len(specs)) for name, t in (("q", q), ("k", k), ("v", v))}
    code, message, results = ask(helper, tensors, json.dumps({"problems": specs}))
    if code != 0:
        print(f"FAILED: exit code {code}: {message}")
        return 1
    for n, (name, (_, visible, bias)) in enumerate(rules.items()):
        by_head = [t.transpose(0, 2, 1, 3).astype(np.float64) for t in (q, k, v)]
        shape = (2, HEADS, Q_LEN, KV_LEN)
        rows = umpire.Rows(*by_head, np.broadcast_to(visible(i, j), shape), np.broadcast_to(bias(h, i, j), shape), DIM**-0.5)
        done = umpire.attend_rows(rows, q.dtype)
        for key, array in results.items():
            isa, number, what = key.split("/")
            if int(number) != n:
                continue
            expected, allowed = (done.out.transpose(0, 1, 3, 2, 4) if what == "out" else done.weights)[:2]
            ratio = attend.excess(array, expected, allowed)
            if not ratio <= 1:
                print(f"FAILED {name} under {isa}: {what} is off by {ratio:.3g} times the tolerance")
                failures += 1
    return failures


def ask(helper, tensors, specs, isa=None):
    """(exit code, message, results) of one run of the program."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / name for name in ("tensors", "specs", "results")]
        save_file(tensors, paths[0])
        paths[1].write_text(specs)
        done = subprocess.run([helper, *paths, *([isa] if isa else [])], capture_output=True, text=True)
        return done.returncode, done.stderr, attend.load_file(paths[2]) if paths[2].exists() else None


def refused():
    """What must be refused: name -> (tensors, specs, isa, what the message must say)."""
    q, k, v = problem()
    good = {"0/q": q, "0/k": k, "0/v": v}
    specs = lambda **more: json.dumps({"problems": [{"align": "top_left"} | more]})
    rule = lambda **fields: specs(mask=[fields])
    return {
        "broken JSON": (good, "{", None, "parse error"),
        "no problems": (good, "{}", None, "problems"),
        "an unknown key beside the problems": (good, '{"problems": [], "more": 1}', None, "unknown key more"),
        "a problem that is no object": (good, '{"problems": [3]}', None, "not an object: 3"),
        "a misspelt key": (good, specs(soft_cap=1), None, "unknown key soft_cap"),
        "an unknown rule": (good, rule(rule="causality"), None, "unknown mask rule causality"),
        "a rule's misspelt key": (good, rule(rule="window", left=1, rigth=1), None, "unknown key rigth"),
        "a window without right": (good, rule(rule="window", left=1), None, "right"),
        "an impossible rule": (good, rule(rule="chunk", size=0), None, "chunk"),
        "an unknown align": (good, specs(align="left"), None, "unknown align left"),
        "a scale that is text": (good, specs(scale="1"), None, "type must be number"),
        "no q": ({"0/k": k, "0/v": v}, specs(), None, "0/q"),
        "q of three axes": (good | {"0/q": q[0]}, specs(), None, "q has shape [5, 4, 6]"),
        "lengths of the wrong kind": (good | {"0/kv_lengths": np.ones(2, np.float32)}, specs(), None, "f32"),
        "a length beyond the keys": (good | {"0/kv_lengths": np.array([3, KV_LEN + 1])}, specs(), None, "kv_lengths[1] is 10"),
        "two biases": (good | {"0/bias": np.zeros((1, 1, 1, 1), np.float32)}, specs(alibi_slopes=SLOPES), None, "alibi_slopes"),
        "sinks of too few heads": (good | {"0/sinks": np.zeros(3, np.float32)}, specs(), None, "sink_logits has 3"),
        "an unknown ISA": (good, specs(), "sse9", "sse9"),
    }


def check_refusals(helper):
    failures = 0
    for name, (tensors, specs, isa, wanted) in refused().items():
        code, message, results = ask(helper, tensors, specs, isa)
        if code != 2 or wanted not in message or results is not None:
            print(f"FAILED: {name}: exit code {code}, results {'written' if results is not None else 'none'}, message: {message}")
            failures += 1
    done = subprocess.run([helper], capture_output=True, text=True)
    if done.returncode != 2 or "usage" not in done.stderr:
        print(f"FAILED: no arguments: exit code {done.returncode}: {done.stderr}")
        failures += 1
    try:
        attend.run(helper, [Call(*(np.zeros((1, 1, 1, 1)),) * 3, align="nowhere")])
        print("FAILED: attend.run passed over a refusal")
        failures += 1
    except attend.AttendError:
        pass
    return failures


def main():
    failures = check_rules(sys.argv[1]) + check_refusals(sys.argv[1])
    print(f"{len(rules_apart())} rules computed, {len(refused())} bad inputs refused, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
