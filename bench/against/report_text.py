"""docs/benchmarks.md from the figures of a run: all of its words and tables. Standard library only; report.py writes what text() says."""

from itertools import groupby

from report_data import LIBRARIES, beyond, fastest, growth_series, rivals

GROUPS = {"prefill": "Prefill", "decode": "Decoding: one query, keys and values out of memory", "small": "Small problems",
          "curve": "More sizes of the picture", "layer": "The whole layer", "encoder": "The encoder of the default model"}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" if i == 0 else "---:" for i in range(len(head))) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def size(count):
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= one:
            return f"{number(count / one)} {unit}"
    return f"{count} B"


def ratio(rival):
    low, middle, high = rival["ratio"]
    text = f"{middle:.2f} [{low:.2f} {high:.2f}]"
    if middle < 1:
        text = f"**{middle:.2f}** [{low:.2f} {high:.2f}] **lost**"
    way = " ".join(rival["name"].split()[1:])
    return text + (f" ({way})" if way else "") + ("" if rival["agrees"] else " *another result*")


def compared(data):
    """(threads, row, library, its fastest way) of every comparison."""
    return [(threads, row, library, rival) for threads, file in rivals(data) for row in file["rows"]
            for library, rival in fastest(row).items()]


def opening(data):
    all_of = compared(data)
    lost = [entry for entry in all_of if entry[3]["ratio"][1] < 1]
    wrong = [entry for entry in all_of if not entry[3]["agrees"]]
    text = [f"In {len(all_of)} comparisons with the fastest way through each library we are behind in {len(lost)}" +
            (":\n" if lost else ".\n")]
    text += [f"* {row['case']}, {count(threads)}: {library} {ratio(rival)}" for threads, row, library, rival in lost]
    if wrong:
        text += ["", f"In {len(wrong)} the results differ by more than 1e-5 relative in f32 or 1e-2 in 16 bits: their ratios are of "
                 "something else, and marked."]
    return "\n".join(text) + "\n"


def count(threads):
    return {1: "one thread", 2: "two threads"}.get(threads, f"{threads} threads")


def machine(data):
    file = rivals(data)[0][1]
    report = data["report"]
    lines = [f"* {file['cpu']}, {report['cores']} cores, load {report['load']:.2f} before the start",
             f"* mha at {report['revision']}, {file['versions'][0]}",
             *("* " + version for version in file["versions"][1:])]
    return "\n".join(lines) + "\n"


def limits(data):
    rows = []
    for limit in data["limits"]["limits"]:
        unit, spread = ("GB/s", limit["gbs"]) if "gbs" in limit else ("GFLOP/s", limit["gflops"])
        what = f"reading {limit['name']} ({size(limit['bytes'])})" if "gbs" in limit else f"f32 multiply-adds, {limit['name']}"
        rows.append([what, str(limit["threads"]), f"{number(spread['max'])} {unit}", number(spread["median"])])
    return table(["limit", "threads", "best", "median"], rows)


def share(row):
    return f"{row['percent_of_limit']:.0f} % ({row['percent_of_limit_best']:.0f})" if "limit" in row else ""


def row_cells(row):
    best = fastest(row)
    return [row["case"], f"{number(row['ms'][1])}", f"{number(row['rate'])} {row['unit']}", number(row["limit"]) if "limit" in row else "",
            share(row), *(ratio(best[library]) if library in best else "" for library in LIBRARIES.values())]


def unmasked(rows):
    """What the dense mask of half-empty blocks saves, from the side that computes the same shape without it."""
    lines = [f"* {row['case']}: without the mask our own time is {rival['ratio'][1]:.2f} [{rival['ratio'][0]:.2f} {rival['ratio'][2]:.2f}] "
             "times as long" for row in rows for rival in row["rivals"] if rival["name"] == "ours unmasked"]
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def rows_of(file):
    parts = []
    for group, rows in groupby(file["rows"], key=lambda row: row["problem"]["group"]):
        rows = list(rows)
        cells = [row_cells(row) for row in rows]
        parts.append(f"### {GROUPS[group]}, {count(file['threads'])}\n\n" +
                     table(["row", "ms", "ours", "limit", "% of it (best)", *LIBRARIES.values()], cells) + unmasked(rows))
    return "\n".join(parts)


def prefill_growth(data):
    lines = {mask: {row["problem"]["q_len"]: row for row in growth_series(data, "prefill", mask=mask)} for mask in ("full", "causal")}
    rows = []
    for tokens in sorted(set(lines["full"]) & set(lines["causal"])):
        full, causal = lines["full"][tokens], lines["causal"][tokens]
        rows.append([f"{tokens:,}"] +
                    [cell for row in (full, causal) for cell in (number(row["ms"][1]), f"{row['percent_of_limit']:.0f} %")] +
                    [size(max(full["scratch_bytes"], causal["scratch_bytes"])), size(max(beyond(full), beyond(causal))),
                     size(full["result_bytes"])])
    return table(["tokens", "full ms", "of FMA peak", "causal ms", "of FMA peak", "scratch", "process grew by", "and the result"], rows)


def decode_growth(data):
    lines = {dtype: {row["problem"]["kv_len"]: row for row in growth_series(data, "decode", dtype=dtype)} for dtype in ("f32", "bf16")}
    rows = []
    for keys in sorted(set(lines["f32"]) & set(lines["bf16"])):
        f32, bf16 = lines["f32"][keys], lines["bf16"][keys]
        rows.append([f"{keys:,}"] + [cell for row in (f32, bf16) for cell in (number(row["ms"][1]), number(row["rate"]),
                                                                              f"{row['percent_of_limit']:.0f} %")] +
                    [size(max(f32["scratch_bytes"], bf16["scratch_bytes"])), size(max(beyond(f32), beyond(bf16)))])
    return table(["keys", "f32 ms", "GB/s", "of reading", "bf16 ms", "GB/s", "of reading", "scratch", "process grew by"], rows)


def ways(data):
    named = sorted({way for _, file in rivals(data) for way in file["ways"] if not way.startswith("ours")})
    return "\n".join("* " + way for way in named) + "\n"


TEXT = """# Benchmarks

Made by `bench/report` ({minutes} minutes on {cores} cores{quick}); nothing here is written by hand. The figures lie beside this page in
[benchmarks/](benchmarks/), and `bench/report --from docs/benchmarks` makes page and pictures from them again. How each figure is taken:
`bench/rivals --help` and [HACKING.md](../HACKING.md).

{opening}
![% of FMA peak against tokens, ours and each rival](benchmarks/peak.svg)

f32, head_dim 64, batch 1; a rival's line is its fastest way at each size. 12 heads, but 4 at 1,024 and 4,096 tokens. 100 % is what these
cores do in multiply-adds from registers in the same moments.

## Machine and versions

{machine}
## Limits of this machine

Measured by `mha bench --only limits`. The limit in the tables below was measured again in the moments of each row.

{limits}
## Rows

Ours first, beside what this machine can do at most in the same moments: FMA peak, or for decoding the bandwidth of reading memory; GB/s is
of keys and values. *% of it* is the median, *(best)* best against best. Then time of the rival / ours from {rounds} rounds in turn in one
process, median [quartiles]: above 1 we are faster. Of several ways through a library the fastest counts, and is named. Shapes are [batch,
heads or heads/kv_heads, queries or queries x keys, head_dim]; `bhld` and `blhd` are the order in memory. Masked pairs are no work: a causal
row counts half. An empty cell: that library has no such operator, or was not there.

{rows}
## Growth

One thread. *Scratch* is what the workspace holds after the first call; *process grew by* is the largest growth of the resident set during
that call, with everything but the result.

### Tokens: one head, f32, head_dim 64

![Time and memory against tokens](benchmarks/prefill.svg)

{prefill}
### Keys: one query, 8 heads over 2, head_dim 128, out of memory

![Time and memory against keys](benchmarks/decode.svg)

{decode}
## Ways taken

What each library ran, as observed (`bench/rivals` says how).

{ways}"""


def text(data):
    report = data["report"]
    return TEXT.format(minutes=number(report["minutes"]), cores=report["cores"],
                       quick=", `--quick`: a short selection" if report["quick"] else "", opening=opening(data), machine=machine(data),
                       limits=limits(data), rounds=rivals(data)[0][1]["rounds"],
                       rows="\n".join(rows_of(file) for _, file in rivals(data)), prefill=prefill_growth(data), decode=decode_growth(data),
                       ways=ways(data))
