"""How our time and memory grow with the number of tokens and keys, for bench/report: one head from 512 to 32,768 tokens, and one query over
4,096 to 1,048,576 keys. One thread. Each size in a process of its own, so that memory another size left behind is not seen as free."""

import argparse
import ctypes
import gc
import json
import multiprocessing
import time
from pathlib import Path

ROUNDS = 5
PREFILL = [2**n for n in range(9, 16)]
DECODE = [2**n for n in range(12, 21)]


def status(name):
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


def first_call(ours, case, data):
    """Our side after its first call with a fresh workspace, and by how many bytes the process grew at most meanwhile, its result and all
    else included."""
    ours.renew()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system: taken again, it would not be seen as growth
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    before = status("VmRSS")
    side = ours.attention(case, data)[0]
    return side, max(status("VmHWM") - before, 0)


def measured(library, case):
    """One size. Runs in a process of its own."""
    import numpy as np
    import torch
    from alternate import calibrate, take
    from cases import Attention
    from ours import Ours
    torch.set_num_threads(1)
    case, ours = Attention(**case), Ours(library, 1)
    tiny = Attention("tiny", case.dtype, case.mask, case.heads, case.kv_heads, min(case.q_len, 16), 16, case.head_dim)
    ours.attention(tiny, tiny.data())  # code pages come into memory
    data = case.data()
    side, grew = first_call(ours, case, data)
    calibrate(side)
    limit, samples = ours.read_bandwidth if case.unit == "GB/s" else ours.fma_peaks, []
    for _ in range(ROUNDS):
        samples.append(take(side))
        samples[-1].limit = limit()
    seconds = np.array([sample.thread for sample in samples])
    rate = (case.kv_bytes if case.unit == "GB/s" else case.flops) * 1e-9 / seconds
    result = case.batch * case.q_len * case.heads * case.head_dim * data.q.element_size()
    return {"ms": [float(x) * 1e3 for x in np.percentile(seconds, [25, 50, 75])], "rate": float(np.median(rate)), "unit": case.unit,
            "percent_of_limit": float(np.median(rate / [sample.limit for sample in samples])) * 100,
            "scratch_bytes": ours.scratch_bytes(), "grew_bytes": grew, "result_bytes": result}


def problems(quick):
    """Fields of cases, without their length, and the lengths."""
    shape = {"group": "prefill", "dtype": "f32", "heads": 1, "kv_heads": 1, "head_dim": 64}
    for mask in ("full", "causal"):
        for length in PREFILL[:3] if quick else PREFILL:
            yield shape | {"mask": mask, "q_len": length, "kv_len": length}
    shape = {"group": "decode", "mask": "full", "heads": 8, "kv_heads": 2, "head_dim": 128, "q_len": 1}
    for dtype in ("f32", "bf16"):
        for length in DECODE[:4] if quick else DECODE:
            yield shape | {"dtype": dtype, "kv_len": length}


def enough_memory(problem):
    """For keys and values, and once more while they are made."""
    need = 2 * 2 * problem["kv_heads"] * problem["kv_len"] * problem["head_dim"] * 4
    free = next(int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
                if line.startswith("MemAvailable"))
    return free > need + 2**29


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--json", required=True, metavar="FILE")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    rows, start = [], time.monotonic()
    for problem in problems(chosen.quick):
        name = f"{problem['group']} {problem['dtype']} {problem['mask']} {problem['q_len']} x {problem['kv_len']}"
        if not enough_memory(problem):
            print(f"{name:<40} left out: not enough memory", flush=True)
            continue
        problem = problem | {"layout": "bhld", "batch": 1}
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = {"problem": problem} | pool.apply(measured, (chosen.library, problem))
        rows.append(row)
        print(f"{name:<40} {row['ms'][1]:10.3f} ms {row['rate']:7.1f} {row['unit']:<7} {row['percent_of_limit']:4.0f} %  "
              f"scratch {row['scratch_bytes']:>9}  grew {row['grew_bytes']:>9}  result {row['result_bytes']:>9}  "
              f"[{time.monotonic() - start:.0f} s]", flush=True)
    with open(chosen.json, "w", encoding="utf-8") as file:
        json.dump({"threads": 1, "rounds": ROUNDS, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
