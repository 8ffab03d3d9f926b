"""What bench/report has measured, as files beside docs/benchmarks.md: written small, read back, and the choices that text and pictures
share. Standard library only; measures nothing."""

import json
from pathlib import Path

LIBRARIES = {"torch": "PyTorch", "ort": "ONNX Runtime", "openvino": "OpenVINO"}  # by the first word of a side's name
FILES = ("report", "limits", "rivals-1", "rivals-2", "growth")


def slim(value):
    """Figures to four digits: more is noise, in the measurement and in every later diff."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: slim(entry) for key, entry in value.items()}
    return [slim(entry) for entry in value] if isinstance(value, list) else value


def slim_rivals(data):
    """A file of bench/rivals with each way through a library named once."""
    ways = {}
    for row in data["rows"]:
        for rival in row["rivals"]:
            ways.setdefault(f"{rival['name']}: {rival.pop('path')}")
    return data | {"ways": sorted(ways)}


def save(folder, name, data):
    """One line per row, so that a later run changes only lines."""
    assert name in FILES, name
    lines = []
    for key, value in slim(data).items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inner = ",\n".join("  " + json.dumps(entry) for entry in value)
            lines.append(f" {json.dumps(key)}: [\n{inner}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    Path(folder, name + ".json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def load(folder):
    """All files of a run by name; rivals-2 is absent where there is one core."""
    return {name: json.loads(path.read_text(encoding="utf-8")) for name in FILES if (path := Path(folder, name + ".json")).exists()}


def rivals(data):
    """(threads, file of bench/rivals), as many as there are."""
    return [(data[name]["threads"], data[name]) for name in FILES if name.startswith("rivals") and name in data]


def library_of(rival):
    return LIBRARIES.get(rival["name"].split()[0])


def fastest(row):
    """{library: its fastest way}, of those that took part in a row on the same problem."""
    best = {}
    for rival in row["rivals"]:
        library = library_of(rival)
        if library and rival["error"] is not None and (library not in best or rival["ratio"][1] < best[library]["ratio"][1]):
            best[library] = rival
    return best


def peak_series(rows, mask):
    """{side: [(tokens, % of FMA peak)]} for f32, head_dim 64, one batch entry. A rival's share is ours divided by its ratio, since ratios
    are taken pair by pair and speeds at different moments are not."""
    series = {}
    for row in rows:
        p = row["problem"]
        if (p["kind"], p.get("dtype"), p.get("mask"), p.get("head_dim"), p.get("batch")) != ("attention", "f32", mask, 64, 1) or \
                p["layout"] != "bhld" or p["q_len"] != p["kv_len"] or "limit" not in row:
            continue
        series.setdefault("mha", []).append((p["q_len"], row["percent_of_limit"]))
        for library, rival in fastest(row).items():
            series.setdefault(library, []).append((p["q_len"], row["percent_of_limit"] / rival["ratio"][1]))
    return {side: sorted(points) for side, points in series.items()}


def growth_series(data, group, **fields):
    """The rows of one line of growth, by size."""
    rows = [row for row in data["growth"]["rows"] if row["problem"]["group"] == group and
            all(row["problem"][name] == value for name, value in fields.items())]
    return sorted(rows, key=lambda row: row["problem"]["kv_len"])


def beyond(row):
    """By how many bytes the process grew at most in the first call, beyond the result."""
    return max(row["grew_bytes"] - row["result_bytes"], 0)
