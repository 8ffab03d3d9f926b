#!/usr/bin/env python3
"""Random problems against ONNX Runtime's CPU kernels for Attention (ai.onnx), MultiHeadAttention and GroupQueryAttention (com.microsoft),
with umpire.py between the two. Usage: onnxruntime_live.py ATTEND [--seed S] [--count N] [--only N] (ATTEND is the program built from
attend.cpp; MHA_TEST_SEED sets the seed too).

This library must agree with the umpire always, under every ISA. Where ONNX Runtime does not, the difference must be one that
disagreements.py names, to the last element. At least 500 problems must have been answered by ONNX Runtime.
"""

import argparse
import collections
import itertools
import os
import sys
import time

try:
    import numpy as np
    import onnx.helper
    import onnxruntime

    import attend
    import contrib_semantics
    import onnx_semantics
    import random_problems
    import umpire
    from disagreements import DISAGREEMENTS, REFUSALS, VERSION, refusal
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LEAST = 500
LOWER = {
    "Attention": onnx_semantics.lower,
    "MultiHeadAttention": contrib_semantics.lower_mha,
    "GroupQueryAttention": contrib_semantics.lower_gqa,
}
IR_VERSION = 11  # old enough for any ONNX Runtime that knows opset 25


def options():
    one = onnxruntime.SessionOptions()
    one.intra_op_num_threads = one.inter_op_num_threads = 1
    one.log_severity_level = 4
    one.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return one


def theirs(case, session_options):
    """ONNX Runtime's outputs by name, or the text of its refusal."""
    given = {name: array for name, array in case.inputs.items() if array is not None}
    names = [name if name in given else "" for name in case.inputs]
    while not names[-1]:
        names.pop()
    kind = lambda array: onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    wanted = [name for name in case.outputs if name]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(case.op, names, case.outputs, domain=case.domain, **case.attrs)], "problem",
        [onnx.helper.make_tensor_value_info(name, kind(array), array.shape) for name, array in given.items()],
        [onnx.helper.make_tensor_value_info(name, kind(next(iter(given.values()))), None) for name in wanted])
    opsets = [onnx.helper.make_opsetid("", max(case.opset, 23)), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
    try:
        session = onnxruntime.InferenceSession(model, session_options, providers=["CPUExecutionProvider"])
        return dict(zip(wanted, session.run(None, given), strict=True)), None
    except Exception as error:  # its exception classes have no common base of their own
        return None, str(error)


def excess(got, verdict, allowed):
    """How many times what is allowed the worst of these outputs is off."""
    judged = [name for name in got if name in verdict.exact]
    return max((attend.excess(got[name], verdict.exact[name], allowed[name]) for name in judged), default=0)


def explanation(case, got):
    """The names of the disagreements that together are exactly what ONNX Runtime computed, as few as do; None where none are."""
    own = [d for d in DISAGREEMENTS if d.op == case.op]
    for count in range(1, len(own) + 1):
        for chosen in itertools.combinations(own, count):
            rows = umpire.ROWS[case.op](case)
            if not all(d.applies(case, rows) for d in chosen):
                continue
            for d in chosen:
                d.change(case, rows)
            verdict = umpire.judge(case, rows)
            if excess(got, verdict, verdict.theirs) <= 1:
                return [d.name for d in chosen]
    return None


def check_ours(helper, cases, verdicts, numbers):
    """Compares this library with the umpire; returns the number of failures."""
    lowered = [LOWER[case.op](case.attrs, case.inputs, case.outputs) for case in cases]
    for number, one in zip(numbers, lowered):
        one.call.lse = number % 2 == 0
    failures = 0
    for isa, results in attend.run(helper, [one.call for one in lowered]).items():
        worst = 0.0
        for number, case, verdict, one, result in zip(numbers, cases, verdicts, lowered, results, strict=True):
            got = one.outputs(result)
            if "lse" in result:
                got["lse"] = result["lse"]
            ratio = excess(got, verdict, verdict.ours)
            if case.inputs[next(iter(case.inputs))].dtype == np.float32:
                worst = max(worst, excess({n: x for n, x in got.items() if not n.startswith("present")}, verdict, verdict.ours))
            if not ratio <= 1:
                failures += 1
                print(f"FAILED problem {number} under {isa}: off by {ratio:.3g} times the tolerance: {case}")
        print(f"{isa}: {len(cases)} problems; the worst of f32 uses {worst:.2f} of its tolerance")
    return failures


def check_theirs(cases, verdicts, numbers):
    """Compares ONNX Runtime with the umpire; returns (failures, problems answered, name -> how many, agreed per operator)."""
    failures, answered, named, agreed = 0, 0, collections.Counter(), collections.Counter()
    session_options = options()
    for number, case, verdict in zip(numbers, cases, verdicts):
        got, message = theirs(case, session_options)
        if got is None:
            names = [refusal(case, message)] if refusal(case, message) else None
        else:
            answered += 1
            if excess(got, verdict, verdict.theirs) <= 1:
                agreed[case.op] += 1
                continue
            names = explanation(case, got)
        if names is None:
            failures += 1
            print(f"FAILED problem {number}: ONNX Runtime {'differs' if message is None else 'refuses: ' + message.strip()}: {case}")
            continue
        named.update((case.op, name) for name in names)
    return failures, answered, named, agreed


def report(named, agreed, answered):
    ours = sum(agreed.values())
    each = ", ".join(f"{op} {n}" for op, n in sorted(agreed.items()))
    print(f"counts: ONNX Runtime {onnxruntime.__version__} agrees on {ours} of {answered} it answered: {each}")
    if onnxruntime.__version__ != VERSION:
        print(f"(disagreements.py was written for ONNX Runtime {VERSION})")
    print("disagreements (theirs):")
    for d in DISAGREEMENTS:
        print(f"  {named[d.op, d.name]:4} {d.op}: {d.name}: {d.theirs}; right: {d.right}")
    print("refused by ONNX Runtime, checked against the umpire alone:")
    for r in REFUSALS:
        print(f"  {named[r.op, r.name]:4} {r.op}: {r.name}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("helper")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("MHA_TEST_SEED") or time.time_ns() % 2**32))
    parser.add_argument("--count", type=int, default=1200)
    parser.add_argument("--only", type=int, help="one problem of the seed")
    arguments = parser.parse_args()
    numbers = range(arguments.count) if arguments.only is None else [arguments.only]
    print(f"seed {arguments.seed}; again: MHA_TEST_SEED={arguments.seed}, one problem: --seed {arguments.seed} --only N", flush=True)
    np.seterr(all="raise", under="ignore")
    cases = [random_problems.problem(arguments.seed, number) for number in numbers]
    verdicts = [umpire.judge(case) for case in cases]
    failures = check_ours(arguments.helper, cases, verdicts, numbers)
    their_failures, answered, named, agreed = check_theirs(cases, verdicts, numbers)
    report(named, agreed, answered)
    if arguments.only is None and answered < LEAST:
        print(f"FAILED: ONNX Runtime answered {answered} problems only, {LEAST} are wanted")
        return 1
    return 1 if failures or their_failures else 0


if __name__ == "__main__":
    sys.exit(main())
