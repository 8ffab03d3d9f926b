"""How bench/rivals and bench/compare measure: sides in turn within one process, by the clock of the calling thread where both run wholly in
it, else by wall time. Knows nothing of attention and of no library; main.py and revisions.py call compare()."""

import itertools
import math
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np

LONG_CALL = 0.1        # seconds from which a call warms itself: waking threads and filling caches are under a hundredth of it
SAMPLE_SECONDS = 0.03  # one sample repeats its call at least this long, where nothing else is asked for
OTHER_THREADS = 0.02   # work outside the calling thread that still counts as none


@dataclass
class Side:
    name: str
    path: str  # the way through its library, as observed where it can be
    calls: list[Callable[[], object]]  # one per buffer: the side walks over them in turn, so that each finds its buffer cold
    result: Callable[[], np.ndarray]   # what calls[0] has computed, f32
    release: Callable[[], None] = lambda: None
    comparable: bool = True            # False: another problem on purpose, measured beside ours
    turn: object = None
    repeats: int = 1                   # calls per sample
    warm_up: bool = True               # whether an uncounted call goes before a sample

    def __post_init__(self):
        self.turn = itertools.cycle(self.calls)


@dataclass
class Sample:
    """Seconds per call by three clocks, and the machine's limit just after, in the unit the caller chose."""
    thread: float
    process: float
    wall: float
    limit: float = 0.0


@dataclass
class Comparison:
    rival: Side
    ratios: np.ndarray  # theirs / ours, one per round
    clock: str
    error: float        # relative Frobenius distance of their result from ours; nan where they are not comparable

    def quartiles(self):
        return np.percentile(self.ratios, [25, 50, 75])


def median_interval(values, doubt=0.05):
    """Where the median of what `values` are drawn from lies, but for a chance of `doubt`: two of the values, by their rank alone, so that
    nothing is assumed of how they are spread. The whole range where they are too few to tell."""
    ordered, count = np.sort(values), len(values)
    outside = 2 * np.cumsum([math.comb(count, k) / 2**count for k in range(count // 2 + 1)])  # with k values cut off at either end
    cut = max(int(np.sum(outside <= doubt)) - 1, 0)
    return float(ordered[cut]), float(ordered[count - 1 - cut])


@dataclass
class Outcome:
    ours: list[Sample] = field(default_factory=list)
    clock: str = "wall"
    comparisons: list[Comparison] = field(default_factory=list)

    def seconds(self):
        return np.array([getattr(sample, self.clock) for sample in self.ours])


def runnable():
    """How many threads of this process, but for the calling one, run or wait for a core."""
    count, own = 0, threading.get_native_id()
    for stat in Path("/proc/self/task").glob("*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended since
            continue
        count += int(text.split()[0]) != own and text.rpartition(")")[2].split()[0] == "R"
    return count


def settle():
    """Waits until no other thread of this process wants a core: OpenMP, TBB and ONNX Runtime keep their workers awake for a while after a
    call, which is their right, but not in another side's time. Asking the system needs no knowledge of anybody's settings."""
    quiet = 0
    for _ in range(500):
        time.sleep(0.002)
        quiet = 0 if runnable() else quiet + 1
        if quiet == 2:
            return
    raise RuntimeError("a thread of this process still works 1 s after the last call: no fair comparison is possible")


def take(side):
    settle()
    if side.warm_up:
        next(side.turn)()  # warms caches, pools and frequency; not counted
    thread, process, wall = time.thread_time(), time.process_time(), time.perf_counter()
    for _ in range(side.repeats):
        next(side.turn)()
    wall, thread, process = time.perf_counter() - wall, time.thread_time() - thread, time.process_time() - process
    return Sample(thread / side.repeats, process / side.repeats, wall / side.repeats)


def calibrate(side, seconds=SAMPLE_SECONDS):
    """Sets how a sample of `side` is taken; it takes about `seconds`, or one call."""
    next(side.turn)()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds / 3:
        next(side.turn)()
        count += 1
    calls_per_second = count / (time.perf_counter() - start)
    side.repeats = max(1, round(seconds * calls_per_second + 0.5))
    side.warm_up = calls_per_second * LONG_CALL > 1


def fastest(sides):
    """Of several ways through one library, the one with the shortest call out of five (fewer where they are long), each after a first
    one."""
    def shortest(side):
        next(side.turn)()
        times = []
        while len(times) < 5 and sum(times) < 2 * LONG_CALL:
            start = time.perf_counter()
            next(side.turn)()
            times.append(time.perf_counter() - start)
        return min(times)

    return min(sides, key=shortest)


def in_calling_thread(samples):
    """Whether no other thread of the process had a share in the work; by the median, since a thread may wake once for its own affairs."""
    return np.median([sample.process / sample.thread for sample in samples]) <= 1 + OTHER_THREADS


def relative_error(ours, theirs):
    if ours.shape != theirs.shape:
        raise RuntimeError(f"ours has shape {ours.shape}, theirs {theirs.shape}")
    return float(np.linalg.norm((ours - theirs).astype(np.float64)) / np.linalg.norm(ours.astype(np.float64)))


def compare(ours, rivals, rounds, threads, limit, seconds=SAMPLE_SECONDS):
    """Ours and each rival in turn, `rounds` times: o A o B o A o B ... `limit` measures what the machine can do at most; a sample takes
    about `seconds`."""
    for side in [ours, *rivals]:
        side.calls[0]()
    result = ours.result()
    errors = [relative_error(result, rival.result()) if rival.comparable else float("nan") for rival in rivals]
    for side in [ours, *rivals]:
        calibrate(side, seconds)
    pairs = [[] for _ in rivals]
    outcome = Outcome()
    for _ in range(rounds):
        for index, rival in enumerate(rivals):
            sample = take(ours)
            sample.limit = limit()
            pairs[index].append((sample, take(rival)))
            outcome.ours.append(sample)
    outcome.clock = "thread" if threads == 1 and in_calling_thread(outcome.ours) else "wall"
    for rival, taken, error in zip(rivals, pairs, errors):
        mine, theirs = zip(*taken)
        clock = "thread" if threads == 1 and in_calling_thread(mine) and in_calling_thread(theirs) else "wall"
        ratios = np.array([getattr(t, clock) / getattr(m, clock) for m, t in taken])
        outcome.comparisons.append(Comparison(rival, ratios, clock, error))
    return outcome
