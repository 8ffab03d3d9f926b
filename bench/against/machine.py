"""The machine as bench/rivals, bench/compare and bench/report see it: its name, how busy it is, and how many of its cores a run may use.
Measures nothing. take_threads() must come before any library counts the cores."""

import os


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown CPU")


def take_threads(parser, threads):
    """Checks a number of threads as typed, and keeps this process on so many cores."""
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(cores):
        parser.error(f"--threads must be 1 to {len(cores)}")
    if threads > 1:
        os.sched_setaffinity(0, cores[:threads])


def show_machine(threads, peak):
    load = os.getloadavg()[0]
    print(f"CPU      {cpu_model()}, {os.cpu_count()} cores, load {load:.1f} at the start; FMA peak of a core {peak:.0f} GFLOP/s")
    if load > 0.5:
        print("         other work runs here: " + ("wall times, and with them OpenMP's, mean little" if threads > 1 else
                                                   "caches and memory are shared with it, so compare ratios only"))
