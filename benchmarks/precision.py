#!/usr/bin/env python3
"""Draws what strict and invariant precision cost, from the table of docs/same-bits.md; needs `matplotlib`.

    python benchmarks/precision.py
"""

import pathlib

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLOURS = {"strict": "#2a7f62", "invariant": "#c0653a"}


def rows(text):
    """Device, work, and the speed of each precision relative to fast; what a cell leaves out is as above."""
    _, table = text.split("| device | what | strict | invariant |", 1)
    device = what = ""
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        device, what = cells[0] or device, cells[1]
        yield device, what, float(cells[2]), float(cells[3])


def main():
    found = list(rows((ROOT / "docs/same-bits.md").read_text()))
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(found) + 1.2))
    for column, (name, colour) in enumerate(COLOURS.items()):
        places = [place + 0.38 * column - 0.19 for place in range(len(found))]
        speeds = [row[2 + column] for row in found]
        axes.barh(places, speeds, height=0.36, color=colour, label=name)
        for place, speed in zip(places, speeds):
            axes.text(speed + 0.01, place, f"{speed:.2f}", va="center", fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(found)), [f"{device}: {what}" for device, what, _, _ in found], fontsize=8)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xlabel("speed relative to fast precision")
    axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(ROOT / "docs/images/precision.png", dpi=110)


if __name__ == "__main__":
    main()
