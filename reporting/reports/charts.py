"""Charts as inline SVG: no script, no file beside the page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

LEVEL_COLOURS = {
    "critical": "#7f1d1d",
    "high": "#dc2626",
    "medium": "#f59e0b",
    "low": "#3b82f6",
    "informational": "#94a3b8",
}
STATUS_COLOURS = {
    "leased": "#15803d",
    "none": "#f59e0b",
    "outside": "#3b82f6",
    "unknown": "#94a3b8",
    "pending": "#dc2626",
}
_INK = "#334155"
_GRID = "#e2e8f0"
_DAY = timedelta(days=1)


def alerts_over_time(
    buckets: Sequence[tuple[datetime, Mapping[str, int]]], step: timedelta
) -> Markup:
    """Stacked bars: alerts a day or hour, by level."""
    figure, axes = _axes(8.8, 2.7)
    places = list(range(len(buckets)))
    bottom = [0] * len(buckets)
    for level, colour in reversed(LEVEL_COLOURS.items()):
        heights = [counts.get(level, 0) for _, counts in buckets]
        if any(heights):
            axes.bar(places, heights, bottom=bottom, color=colour, label=level, width=0.82)
            bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
    every = max(1, len(buckets) // 12)
    shown = places[::every]
    form = "%d %b" if step >= _DAY else "%H:%M"
    axes.set_xticks(shown, [buckets[place][0].strftime(form) for place in shown])
    axes.set_xlim(-0.6, len(buckets) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_ylim(0, max([*bottom, 1]) * 1.12)
    if any(bottom):
        axes.legend(
            frameon=False, ncols=5, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8,
            handlelength=1, labelcolor=_INK, borderaxespad=0.2,
        )  # fmt: skip
    return _svg(figure, "Alerts over time, by level")


def shares(counts: Mapping[str, int]) -> Markup:
    """One bar of 100 %: how findings were attributed."""
    figure, axes = _axes(8.8, 0.9)
    whole = sum(counts.values())
    left = 0.0
    for status, colour in STATUS_COLOURS.items():
        share = 100 * counts.get(status, 0) / whole if whole else 0.0
        if share:
            axes.barh([0], [share], left=left, color=colour, height=0.7)
        if share >= 6:
            label = f"{status} {share:.0f} %"
            axes.text(
                left + share / 2, 0, label, ha="center", va="center", color="white", fontsize=9,
                fontweight="bold",
            )  # fmt: skip
        left += share
    axes.set_xlim(0, 100)
    axes.set_axis_off()
    return _svg(figure, "Attribution of findings")


def ranges(spans: Sequence[tuple[str, float, float]]) -> Markup:
    """Half and 95 % of the alerts were this quick: one bar pair a span, seconds."""
    figure, axes = _axes(8.8, 0.7 + 0.5 * len(spans))
    for place, (_, p50, p95) in enumerate(reversed(spans)):
        axes.barh([place], [max(p95, 0)], color="#bfdbfe", height=0.55)
        axes.barh([place], [max(p50, 0)], color="#1d4ed8", height=0.55)
        axes.annotate(
            f"p50 {p50:.1f} s, p95 {p95:.1f} s", (max(p95, 0), place), xytext=(6, 0),
            textcoords="offset points", va="center", fontsize=8.5, color=_INK,
        )  # fmt: skip
    axes.set_yticks(range(len(spans)), [name for name, _, _ in reversed(spans)])
    axes.set_xlim(0, max([p95 for _, _, p95 in spans] + [1.0]) * 1.35)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_xlabel("seconds", color=_INK, fontsize=8.5)
    return _svg(figure, "Delay from event to alert")


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure without pyplot: reports are made in threads and servers too."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.tick_params(colors=_INK, labelsize=8.5, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    return figure, axes


def _svg(figure: Figure, label: str) -> Markup:
    """The figure as an SVG element that scales with the page. All text in it is our own."""
    from matplotlib import rc_context

    text = io.StringIO()
    # A fixed salt and no date: the same numbers give the same bytes. Text stays text.
    fonts = ["Helvetica", "Arial", "DejaVu Sans", "sans-serif"]
    with rc_context({"svg.hashsalt": "headgate", "svg.fonttype": "none", "font.family": fonts}):
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1, flags=re.S)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))
