#!/usr/bin/env python3
"""PyTorch's own tests of scaled_dot_product_attention and MultiheadAttention on the CPU, unmodified, with this library's function in the
place of torch's (torch_swap.py). Usage: torch_suite.py [--torch-tests DIR] [--every N] [--only TEXT] [--verbose]

DIR is the folder test/ of a checkout of pytorch/pytorch, at the tag of the installed torch; MHA_TORCH_TESTS names it too. Without one the
program says so and skips. Every failure must be one that torch_differences.py explains, and what is explained there must fail.
"""

import argparse
import collections
import importlib
import os
import pathlib
import sys
import time
import unittest
import warnings

try:
    import expecttest  # noqa: F401 - torch.testing._internal wants it
    import torch

    from torch_differences import DIFFERENCES, VERSION
    from torch_swap import OURS, OURS_BESIDE_MATH, TORCH, swap
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FILES = ("test_transformers.py", "nn/test_multihead_attention.py", "test_native_mha.py")
MANY = 200  # a class with more tests than that is thinned by --every
NO_GRADIENT = "does not require grad and does not have a grad_fn"  # what autograd says where a test under torch.compile wants gradients

KINDS = PASSED, CUT, GRADIENTS, DIFFERS, NOT_CALLED, TORCHS_OWN, SKIPPED = (
    "passed", "passed with torch's gradients", "stopped at gradients under torch.compile", "differs", "calls no attention function",
    "fails with torch's own too", "skipped by the test itself")


def run_once(test_class, name, mode, adapt=()):
    """(the result of one test, its first error)."""
    result = unittest.TestResult()
    swap.begin(mode, adapt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test_class(name).run(result)
    errors = result.errors + result.failures
    return result, errors[0][1] if errors else None


def last_line(error):
    """What a traceback ends with, without torch's advice on how to repeat the test."""
    lines = [line for line in error.split("To execute this test")[0].splitlines() if line.strip()]
    return " / ".join(line.strip() for line in lines if not line.startswith("  "))[-300:]


def run_ours(test_class, name, adapt=()):
    """The same, with this library swapped in."""
    result, error = run_once(test_class, name, OURS_BESIDE_MATH, adapt)
    if swap.ours == 0 and swap.theirs > 0:  # nothing but the reference was asked for: then that is what is tested
        result, error = run_once(test_class, name, OURS, adapt)
    return result, error


def outcome_of(test_class, name):
    """(outcome, error) of one test with this library swapped in."""
    result, error = run_ours(test_class, name)
    called, cut = swap.ours > 0, swap.cut
    if result.skipped:
        return SKIPPED, result.skipped[0][1]
    if error is None:
        return (NOT_CALLED if not called else CUT if cut else PASSED), None
    if cut and NO_GRADIENT in error:
        return GRADIENTS, error
    if run_once(test_class, name, TORCH)[1] is not None:
        return TORCHS_OWN, error
    return DIFFERS, error


def unexplained(test_class, name, error):
    """Why a difference is not what torch_differences.py says of it; None where it is. With what is said there imitated, a test passes."""
    entries = explanation(f"{test_class.__name__}.{name}")
    if len(entries) != 1:
        return f"is explained {len(entries)} times"
    if entries[0].message not in error:
        return f"does not say {entries[0].message!r}"
    if entries[0].adapt:
        left = run_ours(test_class, name, entries[0].adapt)[1]
        if left is not None:
            return f"fails though {' and '.join(entries[0].adapt)}: {last_line(left)}"
    return None


def explanation(test):
    """The entries of DIFFERENCES that name a test."""
    return [entry for entry in DIFFERENCES if any(test.startswith(prefix) for prefix in entry.tests)]


def tests_of(module, every):
    """(class, name) of each test of a module; every Nth of a class of many."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, unittest.TestCase)]
    for test_class in classes:
        names = unittest.defaultTestLoader.getTestCaseNames(test_class)
        yield from ((test_class, name) for name in (names[::every] if len(names) > MANY else names))


def find_tests(argument):
    folder = argument or os.environ.get("MHA_TORCH_TESTS")
    if not folder:
        print("skipped: PyTorch's test files are not in its wheel: give the folder test/ of a checkout of pytorch/pytorch, "
              f"tag v{VERSION}, as --torch-tests DIR or MHA_TORCH_TESTS")
        sys.exit(77)
    path = pathlib.Path(folder).resolve()
    lacking = [name for name in FILES if not (path / name).is_file()]
    if lacking:
        sys.exit(f"{folder} has no {', '.join(lacking)}: it must be the folder test/ of a checkout of pytorch/pytorch")
    return path


def report_of(file, counts, seconds):
    total = sum(counts.values())
    each = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
    return f"counts: PyTorch's {file}: {total} tests: {each} ({seconds:.0f} s)"


def run_file(file, options, failed):
    """Runs one file's tests and prints what came of them; adds to `failed` the tests that differ, with what is wrong with that."""
    counts, began = collections.Counter(), time.monotonic()
    module = importlib.import_module(pathlib.Path(file).stem)
    for test_class, name in tests_of(module, options.every):
        test = f"{test_class.__name__}.{name}"
        if options.only not in test:
            continue
        start = time.monotonic()
        outcome, error = outcome_of(test_class, name)
        counts[outcome] += 1
        if outcome == DIFFERS:
            failed[test] = unexplained(test_class, name, error)
            if failed[test] is not None:
                print(f"FAILED {test} {failed[test]}:\n{error}", flush=True)
        if options.verbose or outcome == TORCHS_OWN:
            print(f"{outcome}: {test} ({time.monotonic() - start:.1f} s)" + (f": {last_line(error)}" if error else ""), flush=True)
    print(report_of(file, counts, time.monotonic() - began), flush=True)
    return counts


def check_list(failed):
    """How many entries of the list nothing fails for."""
    listed = [(prefix, entry.reason) for entry in DIFFERENCES for prefix in entry.tests]
    stale = [one for one in listed if not any(test.startswith(one[0]) for test in failed)]
    for prefix, reason in stale:
        print(f"FAILED: {prefix} is listed as different ({reason}), and is not")
    return len(stale)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-tests", metavar="DIR")
    parser.add_argument("--every", type=int, default=1, help=f"only every Nth test of a class of more than {MANY}")
    parser.add_argument("--only", default="", help="only tests whose class.name contains this")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    folder = find_tests(options.torch_tests)
    sys.path[:0] = [str(folder), str(folder / "nn")]
    sys.argv = sys.argv[:1]  # torch.testing reads it
    failed, total, began = {}, collections.Counter(), time.monotonic()
    for file in FILES:
        total += run_file(file, options, failed)
    wrong = sum(why is not None for why in failed.values())
    if not options.only:  # what is listed is in small classes, of which every test runs
        wrong += check_list(failed)
    for entry in DIFFERENCES:
        count = sum(entry in explanation(test) for test in failed)
        print(f"  {count:4} {entry.reason}")
    thinned = f", every {options.every}th test of large classes" if options.every > 1 else ""
    print(report_of(f"test files, torch {torch.__version__}{thinned}", total, time.monotonic() - began))
    if torch.__version__.split("+")[0] != VERSION:
        print(f"(torch_differences.py was written for torch {VERSION})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
