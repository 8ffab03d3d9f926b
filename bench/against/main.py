"""bench/rivals: our library and each rival on the same problems, in one process, in turn; prints theirs / ours. Started by the script
bench/rivals, which builds the library and sets up the Python environment. Shapes are in cases.py, the way of measuring in alternate.py,
each side in a file of its own (ours.py, torch_side.py, onnxruntime_side.py, openvino_side.py).

ggml is left out: llama-cpp-python has no wheel, only source that brings llama.cpp along to be compiled (looked up at version 0.3.36)."""

import argparse
import dataclasses
import gc
import importlib
import json
import math
import sys
from pathlib import Path

import numpy as np

from machine import cpu_model, show_machine, take_threads

GROUPS = ("prefill", "decode", "small", "curve", "layer", "encoder")
RIVALS = {"openvino": "OpenVino", "torch": "Torch", "onnxruntime": "OnnxRuntime"}


def arguments():
    parser = argparse.ArgumentParser(prog="bench/rivals", description="Ours and each rival on the same problems, in turn: theirs / ours.")
    parser.add_argument("groups", nargs="*", metavar="group", help=f"which rows: {' '.join(GROUPS)} (all)")
    parser.add_argument("--threads", type=int, default=1, help="of every side; with 1, thread CPU time is the clock where it can be (1)")
    parser.add_argument("--rounds", type=int, default=7, help="how often ours and each rival take turns (7)")
    parser.add_argument("--quick", action="store_true", help="a short selection of rows")
    parser.add_argument("--rival", action="append", choices=sorted(RIVALS), help="only this one; may be repeated")
    parser.add_argument("--fastest", action="store_true", help="of several ways through a library only the fastest: saves time")
    parser.add_argument("--json", metavar="FILE", help="write all figures there too")
    parser.add_argument("--library", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--model", required=True, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = [group for group in chosen.groups if group not in GROUPS]
    if unknown:
        parser.error(f"no group {unknown[0]}: there are {', '.join(GROUPS)}")
    if chosen.rounds < 1:
        parser.error("--rounds must be at least 1")
    take_threads(parser, chosen.threads)
    return chosen


def load(chosen):
    """Ours and the rivals. OpenVINO goes first: it and we need a libtbb.so.12, and the one first loaded serves both."""
    rivals = []
    for name in chosen.rival or RIVALS:
        try:
            rivals.append(getattr(importlib.import_module(f"{name}_side"), RIVALS[name])(chosen.threads))
        except (ImportError, OSError) as error:
            print(f"left out: {name}: {error}")
    ours = importlib.import_module("ours").Ours(chosen.library, chosen.threads)
    return ours, sorted(rivals, key=lambda rival: sorted(RIVALS, reverse=True).index(rival.name))


def header(chosen, ours, rivals):
    show_machine(chosen.threads, ours.fma_peak())
    print(f"ours     {ours.version}; " + "; ".join(rival.version for rival in rivals))
    print(f"threads  {chosen.threads} for every side, {chosen.rounds} rounds of ours, rival, ours, rival, ...; ratio theirs / ours: "
          "median [quartiles], above 1 we are faster")
    if chosen.threads == 1:
        print("clock    CPU time of the calling thread where both sides worked in no other (checked), else wall time, marked w")
    else:
        print("clock    wall time; each sample follows an uncounted call, so pools are hot, but where a call takes 0.1 s")
    print("pools    all as by default; before each sample every other thread must have gone to sleep, so nobody spins in another's time")
    print("calls    one Python call each (ctypes; torch op; ORT run_with_iobinding; OpenVINO infer): 1 to 30 us, which counts below 0.1 ms",
          flush=True)


def sides_of(case, data, ours, rivals, only_fastest):
    """Our side first. A rival that cannot do a case says why."""
    from alternate import fastest
    sides = getattr(ours, case.kind)(case, data)
    for rival in rivals:
        try:
            ways = getattr(rival, case.kind)(case, data)
            sides += [fastest(ways)] if only_fastest and len(ways) > 1 else ways
        except Exception as error:  # whatever a third party throws
            print(f"    {rival.name} cannot: {' '.join(str(error).split())[:160]}")
    return sides


def problem_of(case):
    """A case's fields, for programs; the folder of a model by its name alone."""
    return {name: Path(value).name if name == "folder" else value for name, value in dataclasses.asdict(case).items()} | {"kind": case.kind}


def row_of(case, outcome, threads):
    """A row's figures, as they go into the JSON file."""
    seconds = outcome.seconds()
    rate = (case.kv_bytes if case.unit == "GB/s" else case.flops) / seconds * 1e-9
    limit = np.array([sample.limit for sample in outcome.ours])
    row = {"case": case.label, "problem": problem_of(case), "threads": threads, "clock": outcome.clock,
           "ms": [float(x) * 1e3 for x in np.percentile(seconds, [25, 50, 75])], "rate": float(np.median(rate)), "unit": case.unit,
           "gflops": case.flops / float(np.median(seconds)) * 1e-9}
    if limit.min() > 0:
        row |= {"limit": float(np.median(limit)), "percent_of_limit": float(np.median(rate / limit)) * 100,
                "percent_of_limit_best": float(rate.max() / limit.max()) * 100}
    row["rivals"] = [{"name": c.rival.name, "path": c.rival.path, "ratio": [float(x) for x in c.quartiles()], "clock": c.clock,
                      "error": None if math.isnan(c.error) else c.error,
                      "agrees": bool(math.isnan(c.error) or c.error <= case.tolerance)} for c in outcome.comparisons]
    return row


def show(row):
    share = f"{row['percent_of_limit']:4.0f} % ({row['percent_of_limit_best']:.0f})" if "limit" in row else ""
    clock = "w" if row["clock"] == "wall" else " "
    print(f"{row['case']:<48} {row['ms'][1]:9.3f}{clock} {row['rate']:6.1f} {row['unit']:<7} {share}")
    for rival in row["rivals"]:
        low, median, high = rival["ratio"]
        error = "another problem" if rival["error"] is None else f"error {rival['error']:.0e}"
        print(f"    {rival['name']:<24} {median:6.2f}{'w' if rival['clock'] == 'wall' else ' '} [{low:.2f} {high:.2f}]  {error}"
              f"{'' if rival['agrees'] else '  DISAGREES'}{'  <' if median < 1 else ''}", flush=True)


def show_paths(rows):
    """Each way a side took in a group of rows, once."""
    seen = {}
    for row in rows:
        for rival in row["rivals"]:
            seen.setdefault(f"{rival['name']}: {rival['path']}")
    print("  paths taken\n    " + "\n    ".join(seen))


def run_group(group, chosen, ours, rivals):
    from alternate import compare
    from cases import GROUPS as cases_of
    print(f"\n{group:<48} {'ms':>9}  speed, % of FMA peak or read bandwidth (best)", flush=True)
    rows = []
    for case in cases_of[group](chosen.quick, *([chosen.model] if group == "encoder" else [])):
        data = case.data()  # ours knows its tensors by address alone: they must live as long as the sides
        sides = sides_of(case, data, ours, rivals, chosen.fastest)
        limit = ours.read_bandwidth if case.unit == "GB/s" else ours.fma_peaks
        outcome = compare(sides[0], sides[1:], chosen.rounds, chosen.threads, limit)
        rows.append(row_of(case, outcome, chosen.threads))
        show(rows[-1])
        for side in sides:
            side.release()
        del sides, outcome, data
        gc.collect()  # sessions and buffers of hundreds of MB
    show_paths(rows)
    return rows


def main():
    chosen = arguments()
    ours, rivals = load(chosen)
    header(chosen, ours, rivals)
    rows = [row for group in chosen.groups or GROUPS for row in run_group(group, chosen, ours, rivals)]
    against = [(row, rival) for row in rows for rival in row["rivals"] if rival["error"] is not None]
    lost = [f"{row['case']}: {rival['name']} {rival['ratio'][1]:.2f}" for row, rival in against if rival["ratio"][1] < 1]
    wrong = [f"{row['case']}: {rival['name']} error {rival['error']:.1e}" for row, rival in against if not rival["agrees"]]
    print(f"\n{len(against)} comparisons, {len(lost)} lost" + "".join(f"\n  {line}" for line in lost))
    if wrong:
        print(f"{len(wrong)} results do not agree" + "".join(f"\n  {line}" for line in wrong))
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump({"cpu": cpu_model(), "threads": chosen.threads, "rounds": chosen.rounds, "quick": chosen.quick,
                       "versions": [ours.version, *(rival.version for rival in rivals)], "rows": rows}, file, indent=1)
    sys.exit(1 if wrong else 0)


main()
