#!/usr/bin/env python3
"""Compares the safetensors reader and writer with the Python package `safetensors`, live. Usage: safetensors_live.py SAFETENSORS_DUMP
(the helper built from safetensors_dump.cpp).

Files the package writes must be read bit by bit, files we write must be read by the package bit by bit, and a file the package refuses
must be refused here too (random damage; the seed is printed, MHA_TEST_SEED sets it). The other way round we may be stricter; those cases
are counted.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def dump(helper, lines):
    run = subprocess.run([helper], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.split("\n")[:-1]]


def package_reads(path):
    """name -> [dtype, shape, hex], or None where the package refuses the file."""
    try:
        entries = safetensors.deserialize(path.read_bytes())
    except Exception:  # the package raises its own error, UnicodeDecodeError and others
        return None
    return {name: [e["dtype"], list(e["shape"]), bytes(e["data"]).hex()] for name, e in entries}


def same(ours, theirs):
    """Our tensors equal the package's; data of dtypes that we only list is not compared."""
    if ours.keys() != theirs.keys():
        return False
    return all(ours[n][:2] == theirs[n][:2] and ours[n][2] in (None, theirs[n][2]) for n in ours)


def written_by_package(folder, choose):
    dtypes = ["float32", "float64", "float16", "bool", "int64", "int32", "uint8", "int16"]
    paths = []
    for case in range(40):
        tensors = {}
        for i in range(choose.randrange(0, 8)):
            shape = [choose.randrange(0, 4) for _ in range(choose.randrange(0, 6))]
            raw = numpy.frombuffer(choose.randbytes(8 * max(1, int(numpy.prod(shape)))), dtype=numpy.uint8)
            dtype = numpy.dtype(choose.choice(dtypes))
            flat = (raw & 1).astype(bool) if dtype == bool else raw.view(dtype)
            tensors[f"t{i} \u00e9"] = numpy.array(flat[: int(numpy.prod(shape))].reshape(shape))
        path = pathlib.Path(folder) / f"package{case}.safetensors"
        safetensors.numpy.save_file(tensors, path, metadata={"case": str(case)} if case % 2 else None)
        paths.append(path)
    return paths


def damaged(data, choose):
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = bytearray(data[8 : 8 + length]), data[8 + length :]
    for _ in range(choose.randrange(1, 4)):
        kind, at = choose.randrange(5), choose.randrange(len(header) or 1)
        if kind == 0 and header:
            header[at] = choose.choice(b'{}[]",:0123456789-. eFIBO_')
        elif kind == 1:
            header[at : at + choose.randrange(1, 4)] = b""
        elif kind == 2:
            header[at:at] = bytes([choose.choice(b'{}[]",:0123456789\0\t\n\\')])
        elif kind == 3:
            rest = rest[: choose.randrange(len(rest) + 1)] if choose.random() < 0.5 else rest + b"\1"
        else:
            length += choose.choice([0, 0, 1, -1, 8])
    return (
        struct.pack("<Q", max(0, length - len(data[8 : 8 + length]) + len(header)) if kind != 4 else max(0, length)) + bytes(header) + rest
    )


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: safetensors_live.py SAFETENSORS_DUMP")
    helper = sys.argv[1]
    seed = int(os.environ.get("MHA_TEST_SEED") or random.SystemRandom().randrange(2**32))
    choose = random.Random(seed)
    print(f"safetensors {safetensors.__version__}, seed {seed}")
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        paths = written_by_package(folder, choose)
        for path, ours in zip(paths, dump(helper, [f"{p}\t{p}.copy" for p in paths])):
            theirs = package_reads(path)
            if not same(ours.get("tensors", {}), theirs):
                failures.append(f"{path.name}: read {str(ours)[:200]}, the package reads {str(theirs)[:200]}")
                continue
            copy = package_reads(pathlib.Path(f"{path}.copy"))
            if copy != {n: t for n, t in theirs.items() if ours["tensors"][n][2] is not None}:
                failures.append(f"{path.name}: the package does not read our copy as it read the original")
        print(f"{len(paths)} files of the package read and written again")
        cases = []
        for i in range(3000):
            case = pathlib.Path(folder) / f"damaged{i}.safetensors"
            case.write_bytes(damaged(choose.choice(paths).read_bytes(), choose))
            cases.append(case)
        counts = {"both refuse": 0, "both read": 0, "only the package reads": 0}
        for case, ours in zip(cases, dump(helper, [str(c) for c in cases])):
            theirs = package_reads(case)
            if theirs is None:
                counts["both refuse"] += 1
                if "error" not in ours:
                    failures.append(f"the package refuses {case.read_bytes()[:300]}, we read {str(ours)[:200]}")
            elif "error" in ours:
                counts["only the package reads"] += 1
                if counts["only the package reads"] <= 3:
                    print(f"  stricter: {ours['error'].split(': ', 1)[1]}")
            else:
                counts["both read"] += 1
                if not same(ours["tensors"], theirs):
                    failures.append(f"{case.read_bytes()[:300]}: read differently")
        print(f"{len(cases)} damaged files: {counts}")
    for failure in failures[:8]:
        print(failure)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
