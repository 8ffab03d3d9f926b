#!/usr/bin/env python3
"""Runs every command of a documentation page and looks for the lines that the page shows of its output.
Usage: learn_test.py MHA PAGE.md

A ```console block holds commands ("$ mha ...") and, after each, lines of its output: in their order, next to each other unless a line
"..." stands between them. A command may fail only where the page shows its one line of error. Exit code 77 without the default model.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys


def blocks(page):
    """(command, lines) of all console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        command, lines = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, lines
                command, lines = line[2:], []
            else:
                lines.append(line)
        if not command:
            raise ValueError(f"a block without a command: {block}")
        yield command, lines


def missing(lines, output):
    """The first run of shown lines that the output does not have after the runs before it; None where it has all."""
    runs, gap = [[]], [False]  # gap: whether "..." stands before
    for line in lines:
        if line == "...":
            runs.append([])
            gap.append(True)
        else:
            runs[-1].append(line)
    at = 0
    for run, free in zip(runs, gap):
        if not run:
            continue
        starts = range(at, len(output) - len(run) + 1) if free else [at]
        found = next((start for start in starts if output[start:start + len(run)] == run), None)
        if found is None:
            return run
        at = found + len(run)
    return None if at == len(output) or (lines and lines[-1] == "...") else output[at:]


def default_model():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("MHA_TEST_MODEL") or os.path.join(cache, "mha/models/all-MiniLM-L6-v2")


def main():
    program, page = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    model = default_model()
    if not os.path.exists(os.path.join(model, "config.json")):
        print("skipped: the default model is not there (MHA_TEST_MODEL names its folder)")
        return 77
    outputs, failures, shown = {}, 0, 0
    for command, lines in blocks(page):
        words = shlex.split(command)
        if words[0] != "mha":
            raise ValueError(f"not a command of ours: {command}")
        if command not in outputs:
            arguments = words[1:] + (["--model", model] if words[1] in ("view", "find", "claims") else [])
            outputs[command] = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300, check=False)
        done = outputs[command]
        refused = len(lines) == 1 and lines[0].startswith("mha: ")
        shown += sum(line != "..." for line in lines)
        lost = missing(lines, (done.stderr if refused else done.stdout).splitlines())
        if lost is not None or (done.returncode != 0) != refused or (done.stderr != "" and not refused):
            failures += 1
            print(f"$ {command}\nexit code {done.returncode} {done.stderr}\nnot found in its output, or left over:", *(lost or []), sep="\n  ")
    mentioned = set(re.findall(r"`(mha [a-z]+[^`]*)`", page))
    for command in sorted(mentioned):  # commands in running text: they must at least work
        done = subprocess.run([program, *shlex.split(command)[1:]], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            failures += 1
            print(f"`{command}` fails: {done.stderr}")
    print(f"counts: docs/learn.md: {len(outputs)} commands, {shown} lines shown, {len(mentioned)} commands in running text, {failures} failures")
    if not outputs or not shown:
        print("the page shows nothing to run")
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
