"""The pictures of docs/benchmarks.md, drawn with matplotlib as SVG: readable on a light and on a dark page (nothing behind them, middle
tones), text as text, and the same bytes for the same figures (no date, fixed ids)."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from report_data import beyond, growth_series, peak_series, rivals

INK = "#808a96"  # text and axes: about as far from white as from black
COLOURS = {"mha": "#2f81f7", "PyTorch": "#e0652f", "ONNX Runtime": "#2da44e", "OpenVINO": "#a371f7"}
MARKERS = {"mha": "o", "PyTorch": "s", "ONNX Runtime": "^", "OpenVINO": "D"}
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "mha", "font.family": "sans-serif", "font.size": 10, "text.color": INK,
         "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "xtick.color": INK, "ytick.color": INK,
         "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": INK, "grid.alpha": 0.25,
         "grid.linewidth": 0.6, "axes.titlesize": 11, "legend.frameon": False, "lines.linewidth": 1.6, "lines.markersize": 4}


def short(count, _=None):
    for unit, one in (("M", 2**20), ("k", 2**10)):
        if count >= one:
            return f"{count / one:g}{unit}"
    return f"{count:g}"


def short_bytes(count, _=None):
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= one:
            return f"{count / one:g} {unit}"
    return f"{count:g} B"


def short_time(ms, _=None):
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms" if ms >= 1 else f"{ms * 1000:g} µs"


def size_axis(axes, label, sizes):
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(short))
    axes.set_xlabel(label)


def save(figure, folder, name):
    figure.savefig(Path(folder, name), format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def peak(data, folder):
    files = rivals(data)
    figure, grid = plt.subplots(len(files), 2, figsize=(9, 3.1 * len(files) + 0.5), sharey=True, squeeze=False, layout="constrained")
    for line, (threads, file) in zip(grid, files):
        for axes, mask in zip(line, ("full", "causal")):
            series = peak_series(file["rows"], mask)
            for side in COLOURS:
                if side in series:
                    axes.plot(*zip(*series[side]), color=COLOURS[side], marker=MARKERS[side], label=side,
                              linewidth=2.4 if side == "mha" else 1.6)
            size_axis(axes, "tokens", [tokens for tokens, _ in series.get("mha", [])])
            axes.set_ylim(0, 100)
            axes.set_title(f"{mask}, {threads} thread{'s' if threads > 1 else ''}")
        line[0].set_ylabel("% of FMA peak")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    save(figure, folder, "peak.svg")


def growth_picture(data, folder, name, lines, axis):
    """`lines`: (label, colour, rows); `axis`: its label and the power of time it is held against."""
    label, power = axis
    figure, (time, memory) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for index, (title, colour, rows) in enumerate(lines):
        width = 2.8 - 1.4 * index  # the first shows where the second lies on it
        sizes = [row["problem"]["kv_len"] for row in rows]
        time.plot(sizes, [row["ms"][1] for row in rows], color=colour, marker="o", label=title)
        memory.plot(sizes, [row["scratch_bytes"] for row in rows], color=colour, marker="o", linewidth=width, label=f"scratch, {title}")
        memory.plot(sizes, [beyond(row) for row in rows], color=colour, marker="x", linestyle="--", linewidth=width,
                    label=f"process grew by, {title}")
    first = lines[0][2]
    sizes = [row["problem"]["kv_len"] for row in first]
    time.plot(sizes, [first[-1]["ms"][1] * (size / sizes[-1])**power for size in sizes], color=INK, linestyle=":",
              label=f"{label} squared" if power == 2 else f"proportional to {label}")
    for axes, title, formatter in ((time, "time of a call, one thread", short_time),
                                   (memory, "memory beyond inputs and result", short_bytes)):
        size_axis(axes, label, sizes)
        axes.set_yscale("log", base=2 if axes is memory else 10)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(formatter))
        axes.set_title(title)
        axes.legend(fontsize=9)
    bytes_of = [value for _, _, rows in lines for row in rows for value in (row["scratch_bytes"], beyond(row)) if value > 0]
    memory.set_ylim(min(bytes_of) / 4, max(bytes_of) * 16)  # room for the legend
    save(figure, folder, name)


def draw(data, folder):
    with plt.rc_context(STYLE):
        peak(data, folder)
        growth_picture(data, folder, "prefill.svg", [(mask, colour, growth_series(data, "prefill", mask=mask)) for mask, colour in
                                                     (("full", COLOURS["mha"]), ("causal", COLOURS["PyTorch"]))], ("tokens", 2))
        growth_picture(data, folder, "decode.svg", [(dtype, colour, growth_series(data, "decode", dtype=dtype)) for dtype, colour in
                                                    (("f32", COLOURS["mha"]), ("bf16", COLOURS["PyTorch"]))], ("keys", 1))
