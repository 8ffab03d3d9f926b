"""bench/report: measures everything that docs/benchmarks.md shows, keeps the figures, and writes the page with its pictures; with --from,
only the latter. Started by the script bench/report. The measuring is that of bench/rivals, growth.py and mha bench, each in a
process of its own."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report_data
import report_text

HERE = Path(__file__).parent


def arguments():
    parser = argparse.ArgumentParser(prog="bench/report", description="Measures, and writes docs/benchmarks.md, its pictures and figures.")
    parser.add_argument("--quick", action="store_true", help="a short selection of everything, in a few minutes, into build/report")
    parser.add_argument("--from", dest="source", metavar="DIR", help="measure nothing: take the figures kept in DIR")
    parser.add_argument("--out", metavar="DIR", help="where benchmarks.md and benchmarks/ go (docs)")
    for name in ("--library", "--model", "--mha", "--root", "--revision"):
        parser.add_argument(name, required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(what, began, command, **options):
    print(f"\n==== {what}, after {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    code = subprocess.run([str(part) for part in command], check=False, **options).returncode
    if code:
        print(f"report: {what} ended with {code}", file=sys.stderr)
    return code


def measure(chosen, folder):
    """Everything into `folder`. Stops where something cannot be measured; a rival's other result (exit code 1) is the page's to show."""
    began, load, quick = time.monotonic(), os.getloadavg()[0], ["--quick"] if chosen.quick else []
    with tempfile.TemporaryDirectory() as kept:
        limits = Path(kept, "limits.json")
        with open(limits, "w", encoding="utf-8") as file:
            if run("limits of this machine", began, [chosen.mha, "bench", "--only", "limits", "--json"], stdout=file):
                sys.exit(1)
        taken = {"limits": limits}
        for threads in range(1, min(2, len(os.sched_getaffinity(0))) + 1):
            taken[f"rivals-{threads}"] = file = Path(kept, f"rivals-{threads}.json")
            command = [sys.executable, HERE / "main.py", "--library", chosen.library, "--model", chosen.model, "--fastest"]
            run(f"rivals, {threads} of {os.cpu_count()} cores", began, [*command, "--threads", threads, "--json", file, *quick])
            if not file.exists():
                sys.exit(1)
        taken["growth"] = Path(kept, "growth.json")
        if run("growth", began, [sys.executable, HERE / "growth.py", "--library", chosen.library, "--json", taken["growth"], *quick]):
            sys.exit(1)
        data = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in taken.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name in report_data.FILES:
        Path(folder, name + ".json").unlink(missing_ok=True)
    for name, part in data.items():
        report_data.save(folder, name, report_data.slim_rivals(part) if name.startswith("rivals") else part)
    report_data.save(folder, "report", {"revision": chosen.revision, "cores": os.cpu_count(), "load": load, "quick": chosen.quick,
                                        "minutes": (time.monotonic() - began) / 60})


def main():
    chosen = arguments()
    out = Path(chosen.out or Path(chosen.root, "build/report" if chosen.quick else "docs"))
    folder = Path(chosen.source) if chosen.source else out / "benchmarks"
    if not chosen.source:
        measure(chosen, folder)
    data = report_data.load(folder)
    missing = [name for name in ("report", "limits", "rivals-1", "growth") if name not in data]
    if missing:
        sys.exit(f"report: {folder} has no {missing[0]}.json")
    (out / "benchmarks").mkdir(parents=True, exist_ok=True)
    (out / "benchmarks.md").write_text(report_text.text(data), encoding="utf-8")
    import report_pictures  # matplotlib: here alone
    report_pictures.draw(data, out / "benchmarks")
    print(f"\nwrote {out / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
