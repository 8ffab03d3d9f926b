"""bench/compare: two revisions of our own library on the headline rows, in one process, in turn; prints A / B. Started by the script
bench/compare, which builds both. A row counts as slower only where the whole interval of its ratio says so, twice, each time in several
places in memory: where scratch and results happen to lie moves a row by a percent or two."""

import argparse
import gc
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from machine import show_machine, take_threads

LIBRARY, SHIM = "build/bench/bench/libmha_rivals.so", "bench/against/shim.cpp"
PLACES = 4             # how often a measurement of a row moves to other memory
ROUNDS = (7, 25)       # in each place: at least, at most
ROW_SECONDS = 6        # between these two, as many as fit
SAMPLE_SECONDS = 0.01  # short: what disturbs a machine lasts longer, and then meets both


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare", description="Two revisions of our own, in turn: A / B.")
    parser.add_argument("names", nargs=2, metavar="revision", help="A and B, as they are called")
    parser.add_argument("--tree", action="append", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--model", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help="of both (1)")
    parser.add_argument("--change", type=float, default=3, help="the change that must be seen, in percent (3)")
    parser.add_argument("--row", default="", help="only rows whose name has this in it")
    parser.add_argument("--json", metavar="FILE", help="write all figures there too")
    chosen = parser.parse_args()
    if not 0 < chosen.change < 100:
        parser.error("--change must be above 0 and below 100")
    take_threads(parser, chosen.threads)
    return chosen


def declarations(shim):
    """What a shim promises: its structs and functions by name, without comments and spacing."""
    text = re.sub(r"//[^\n]*", "", shim)
    found = re.findall(r"struct (Rivals\w+) (\{.*?\});", text, re.S) + [
        (name, result + arguments) for result, name, arguments in re.findall(r"^(\w[\w:*<> ]*?)\b(rivals_\w+)(\([^)]*\)) \{", text, re.M)]
    return {name: re.sub(r"\s+", " ", body) for name, body in found}


def refuse(reason):
    print(f"compare: {reason}", file=sys.stderr)
    sys.exit(2)


def opened(name, tree, threads, folder):
    """One revision's library under a name of its own in `folder`, so that even the same file is loaded twice."""
    from ours import Ours
    mirrored, promised = (declarations(Path(root, SHIM).read_text(encoding="utf-8")) for root in (Path(__file__).parents[2], tree))
    other = [key for key in promised if key in mirrored and promised[key] != mirrored[key]]
    if other:
        refuse(f"{other[0]} of revision {name} is another one than bench/against/ours.py calls, so it cannot be compared from here")
    path = Path(folder, f"{len(os.listdir(folder))}.so")
    shutil.copy(Path(tree, LIBRARY), path)
    try:
        return Ours(str(path), threads)
    except AttributeError as error:
        refuse(f"revision {name} lacks what is called: {str(error).rpartition(':')[2].strip()}")


def rounds_for(side):
    """How many rounds in one place; `side` has been called before."""
    start = time.perf_counter()
    side.calls[0]()
    one = time.perf_counter() - start
    pair = 2 * (one + max(one, SAMPLE_SECONDS) + 0.005)  # each sample follows an uncounted call and a moment of rest
    return int(min(max(ROW_SECONDS / PLACES / pair, ROUNDS[0]), ROUNDS[1]))


def measure(case, a, b, threads):
    """Ratios of time A / B, both medians in ms, and the distance of their results, from PLACES places in memory."""
    from alternate import compare
    data, ratios, ms, error, rounds = case.data(), [], [], 0.0, None
    for _ in range(PLACES):
        sides = []
        for name, ours in (("B", b), ("A", a)):
            ours.renew()
            side, *others = getattr(ours, case.kind)(case, data)
            for other in others:
                other.release()
            side.name = name
            sides.append(side)
        rounds = rounds or rounds_for(sides[0])
        outcome = compare(sides[0], sides[1:], rounds, threads, lambda: 0.0, SAMPLE_SECONDS)
        ratios += list(outcome.comparisons[0].ratios)
        ms += list(outcome.seconds() * 1e3)
        error = max(error, outcome.comparisons[0].error)
        for side in sides:
            side.release()
    return np.array(ratios), float(np.median(ms)), error


def verdict_of(ratios, change):
    """Of ratios A / B. A change of `change` percent must be seen and none must not, so the bar stands half-way between."""
    from alternate import median_interval
    low, high = median_interval(ratios)
    bar = 1 + change / 200
    return "slower" if high < 1 / bar else "faster" if low > bar else ""


def row_of(case, a, b, chosen):
    from alternate import median_interval
    ratios, ms, error = measure(case, a, b, chosen.threads)
    verdict = verdict_of(ratios, chosen.change)
    if verdict:  # again, in other moments and places: both must say so
        again, _, _ = measure(case, a, b, chosen.threads)
        verdict = verdict if verdict_of(again, chosen.change) == verdict else ""
        ratios = np.concatenate([ratios, again])
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return {"case": case.label, "threads": chosen.threads, "rounds": len(ratios), "ms": ms, "ratio": [low, middle, high],
            "interval": list(median_interval(ratios)), "verdict": verdict, "error": error, "agrees": bool(error <= case.tolerance)}


def show(row):
    low, middle, high = row["ratio"]
    print(f"{row['case']:<48} {row['ms'] * middle:8.3f} {row['ms']:8.3f}  {middle:6.3f} [{low:.3f} {high:.3f}]  "
          f"{row['interval'][0]:.3f} to {row['interval'][1]:.3f}  {row['verdict']}{'' if row['agrees'] else '  DISAGREES'}", flush=True)


def main():
    chosen = arguments()
    with tempfile.TemporaryDirectory() as folder:
        a, b = (opened(name, tree, chosen.threads, folder) for name, tree in zip(chosen.names, chosen.tree))
    from cases import headline
    show_machine(chosen.threads, b.fma_peak())
    print(f"A        {chosen.names[0]}, {a.version}\nB        {chosen.names[1]}, {b.version}")
    print(f"threads  {chosen.threads}; A and B in turn, {PLACES} times {ROUNDS[0]} to {ROUNDS[1]} rounds; ratio: time of A / time of B, "
          "above 1 B is faster")
    print(f"verdict  where all of the median's 95 % interval lies beyond {chosen.change / 2:g} %, twice: "
          f"so a change of {chosen.change:g} % is seen")
    print(f"\n{'':<48} {'A ms':>8} {'B ms':>8}  {'A / B':>6} {'[quartiles]':<13}  interval", flush=True)
    rows = []
    for case in headline(chosen.model):
        if chosen.row not in case.label:
            continue
        rows.append(row_of(case, a, b, chosen))
        show(rows[-1])
        gc.collect()
    finish(rows, chosen)


def finish(rows, chosen):
    if not rows:
        refuse(f"no row has '{chosen.row}' in its name")
    counts = [sum(row["verdict"] == verdict for row in rows) for verdict in ("slower", "faster", "")]
    wide = np.median([(row["interval"][1] - row["interval"][0]) / 2 for row in rows]) * 100
    print(f"\n{len(rows)} rows: {counts[0]} slower, {counts[1]} faster, {counts[2]} neither; noise: intervals of +-{wide:.1f} % (median)")
    if wide > chosen.change / 2:
        print(f"that is too wide to see {chosen.change:g} %: quieten the machine and run again")
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump({"a": chosen.names[0], "b": chosen.names[1], "rows": rows}, file, indent=1)
    sys.exit(1 if counts[0] or not all(row["agrees"] for row in rows) else 0)


if __name__ == "__main__":
    main()
