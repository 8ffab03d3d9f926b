"""The rule of docs/design.md on what may include what, checked by reading every #include. Called by ./test; exit code 1 and one line per
breach. Adding a room or a third party means changing the tables below, and nothing else."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Room -> rooms whose headers it may include besides its own. `kernels` is open to others through table.h and its public headers only.
ROOMS = {
    "core": set(),
    "kernels": {"core"},
    "attention": {"core", "kernels"},
    "nn": {"core", "kernels", "attention"},
    "model": {"core", "attention", "nn"},
    "analysis": {"core", "attention", "nn", "model"},
    "view": {"core", "attention", "nn", "model", "analysis"},
    "serve": {"core", "view"},
}
PUBLIC = {  # public header -> room that implements it; mha/model/* and mha/analysis/* belong to theirs
    "error.h": "core", "dtype.h": "core", "tensor.h": "core", "workspace.h": "core", "version.h": "core",
    "cpu.h": "kernels", "limits.h": "kernels",
    "mask.h": "attention", "bias.h": "attention", "attention.h": "attention", "statistics.h": "attention",
    "layer.h": "nn",
}
OUTSIDE = {"apps", "bench", "examples", "python"}  # public headers and their own only
THIRD = {  # prefix of a third party's header -> where it may be included
    "tbb/": {"core/executor.cpp"}, "oneapi/": {"core/executor.cpp"},
    "nlohmann/": {"model", "view", "apps", "tests"}, "utf8proc.h": {"model", "view"}, "png.h": {"view"}, "CLI/": {"apps"}, "fmt/": {"apps"},
    "boost/": {"serve/server.cpp"},
    "gtest/": {"tests"}, "rapidcheck": {"tests"}, "benchmark/": {"bench"}, "nanobind/": {"python"},
}
ISA_FILES = re.compile(r"kernels/(isa_\w+\.cpp|\w*leaves\.inl|\w+_ops\.inl)$")
ISA_MAY = re.compile(r"kernels/\w+\.(h|inl)$|(immintrin\.h|cstddef|cstdint|cmath|limits|cstring)$")


def room_of_header(name):
    """Room of an included header of ours, or None where it is not ours."""
    if name == "mha/mha.h":
        return "nn"  # the umbrella: everything up to the layer
    if name.startswith("mha/"):
        parts = name.split("/")
        return parts[1] if len(parts) > 2 else PUBLIC.get(parts[1], "an unknown room: add it to tools/check_rooms.py")
    return name.split("/")[0] if name.split("/")[0] in ROOMS else None


def place_of(path):
    """(room or outer folder, path within src or from the root) of a file."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "include":
        return room_of_header("/".join(parts[1:])), "/".join(parts)
    return (parts[1], "/".join(parts[1:])) if parts[0] == "src" else (parts[0], "/".join(parts))


def breach(place, where, name, quoted):
    """Why the file `where` of `place` may not include `name`, or None."""
    if ISA_FILES.search(where):
        return None if ISA_MAY.match(name) else "an ISA file may include its own room's headers and <cmath>-like ones only"
    for prefix, allowed in THIRD.items():
        if name.startswith(prefix):
            if where.startswith("include/"):
                return "a public header names a third party"
            return None if place in allowed or where in allowed else f"{prefix} belongs to {', '.join(sorted(allowed))}"
    room = room_of_header(name)
    if place == "tests":
        return None
    if room is None:  # the standard library, the system, or a file of an outer folder beside this one
        known = not quoted or (ROOT / where).parent.joinpath(name).exists() or name.endswith(".inc")
        return None if known else "not a header of this project"
    if place in OUTSIDE or where.startswith("include/"):
        if not name.startswith("mha/"):
            return "only public headers here"
    if place in OUTSIDE or room == place:
        return None
    if room not in ROOMS.get(place, set()):
        return f"{place} may not include {room}"
    if room == "kernels" and name not in ("kernels/table.h", "mha/cpu.h", "mha/limits.h"):
        return "of kernels, others may include table.h only"
    return None


def main():
    breaches = 0
    files = [f for top in ("include", "src", "apps", "bench", "examples", "python", "tests") for f in sorted((ROOT / top).rglob("*"))]
    for path in (f for f in files if f.suffix in (".h", ".cpp", ".inl")):
        place, where = place_of(path)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            why = breach(place, where, found[2], found[1] == '"') if found else None
            if why:
                breaches += 1
                print(f"{path.relative_to(ROOT)}:{number}: includes {found[2]}: {why}")
    sys.exit(1 if breaches else 0)


main()
