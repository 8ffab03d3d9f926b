#!/usr/bin/env python3
"""What bench/report writes from the figures of a short run (tests/bench/figures): every row and comparison is on the page, lost ones as lost,
and the page in docs is the one its figures give. Nothing is measured here. Pictures only where matplotlib is at hand."""

import copy
import importlib.util
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES, DOCS = ROOT / "tests/bench/figures", ROOT / "docs"
sys.path.insert(0, str(ROOT / "bench" / "against"))
import report_data
import report_text


def figures_survive_a_round_trip():
    data = report_data.load(FIGURES)
    assert set(data) == set(report_data.FILES), set(data)
    with tempfile.TemporaryDirectory() as folder:
        for name, part in data.items():
            report_data.save(folder, name, part)
            assert Path(folder, name + ".json").read_bytes() == (FIGURES / (name + ".json")).read_bytes(), name


def every_row_is_on_the_page():
    data = report_data.load(FIGURES)
    lines = report_text.text(data).splitlines()
    for threads, file in report_data.rivals(data):
        start = next(i for i, line in enumerate(lines) if line.startswith("### ") and line.endswith(report_text.count(threads)))
        for row in file["rows"]:
            line = next(line for line in lines[start:] if line.startswith(f"| {row['case']} |"))
            for rival in report_data.fastest(row).values():
                low, middle, high = rival["ratio"]
                assert f"[{low:.2f} {high:.2f}]" in line and f"{middle:.2f}" in line, (line, rival)
    for row in data["growth"]["rows"]:
        sizes = [line for line in lines if line.startswith(f"| {row['problem']['kv_len']:,} |")]
        assert any(f"| {report_text.number(row['ms'][1])} |" in line for line in sizes), row


def lost_rows_are_shown_as_lost():
    data = report_data.load(FIGURES)
    before = report_text.text(data).count("**lost**")
    changed = copy.deepcopy(data)
    row = next(row for row in changed["rivals-1"]["rows"] if all(rival["ratio"][1] > 1 for rival in row["rivals"]))
    row["rivals"][0]["ratio"] = [0.4, 0.5, 0.6]
    text = report_text.text(changed)
    assert text.count("**lost**") == before + 2, "in the table and in the list above it"
    assert f"* {row['case']}, one thread: {report_data.library_of(row['rivals'][0])} **0.50** [0.40 0.60] **lost**" in text


def a_rivals_share_is_ours_by_its_ratio():
    rival = {"name": "torch", "ratio": [1.9, 2.0, 2.1], "error": 0.0, "agrees": True}
    slower = {"name": "torch gqa", "ratio": [3.9, 4.0, 4.1], "error": 0.0, "agrees": True}
    other = {"name": "ours unmasked", "ratio": [0.1, 0.1, 0.1], "error": None, "agrees": True}
    problem = {"kind": "attention", "dtype": "f32", "mask": "full", "head_dim": 64, "batch": 1, "layout": "bhld", "q_len": 64, "kv_len": 64}
    row = {"problem": problem, "limit": 100.0, "percent_of_limit": 80.0, "rivals": [slower, rival, other]}
    assert report_data.peak_series([row], "full") == {"mha": [(64, 80.0)], "PyTorch": [(64, 40.0)]}
    assert report_data.peak_series([row], "causal") == {}


def the_page_in_docs_is_what_its_figures_give():
    page = DOCS / "benchmarks.md"
    if not page.exists():
        print("   no docs/benchmarks.md yet: bench/report makes it")
        return
    assert page.read_text(encoding="utf-8") == report_text.text(report_data.load(DOCS / "benchmarks")), \
        "docs/benchmarks.md is not what its figures give: run bench/report --from docs/benchmarks"


def pictures_are_small_and_the_same_again():
    if importlib.util.find_spec("matplotlib") is None:
        print("   pictures are not drawn: matplotlib is not installed here")
        return
    import report_pictures
    drawn = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            report_pictures.draw(report_data.load(FIGURES), Path(folder))
            drawn.append({path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()})
    assert drawn[0] == drawn[1] and set(drawn[0]) == {"peak.svg", "prefill.svg", "decode.svg"}
    assert all(len(text) < 100_000 and "<text" in text for text in drawn[0].values())


for test in (figures_survive_a_round_trip, every_row_is_on_the_page, lost_rows_are_shown_as_lost, a_rivals_share_is_ours_by_its_ratio,
             the_page_in_docs_is_what_its_figures_give, pictures_are_small_and_the_same_again):
    test()
    print(f"ok {test.__name__}")
