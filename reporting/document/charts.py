"""Charts as inline SVG: no script, no file beside the page, readable without colour.

Series differ by hatching and by how dark they are; figures stand in the picture. Names may come
from logs: they are cut, and a dollar sign in them is no formula.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reporting.document.text import harmless_text, number


class SeriesStyle(NamedTuple):
    """How a series is drawn; its parts differ in print as well."""

    fill: str
    hatch: str = ""


LEVEL_LOOKS = {
    "critical": SeriesStyle("#450a0a"),
    "high": SeriesStyle("#dc2626"),
    "medium": SeriesStyle("#fbbf24", "////"),
    "low": SeriesStyle("#bfdbfe", "...."),
    "informational": SeriesStyle("#f1f5f9"),
}
STATUS_LOOKS = {
    "leased": SeriesStyle("#166534"),
    "static": SeriesStyle("#4d7c0f", "xxxx"),
    "none": SeriesStyle("#fbbf24", "////"),
    "outside": SeriesStyle("#bfdbfe", "...."),
    "unknown": SeriesStyle("#f1f5f9"),
    "pending": SeriesStyle("#fecaca", "\\\\\\\\"),
}
VERDICT_LOOKS = {
    "true": SeriesStyle("#166534"),
    "false": SeriesStyle("#fbbf24", "////"),
    "not judged": SeriesStyle("#f1f5f9"),
}
PLAIN = SeriesStyle("#1d4ed8")
_PALE = SeriesStyle("#bfdbfe", "////")
_INK = "#334155"
_GRID = "#e2e8f0"
_WIDTH = 8.8
_HALF = 4.6


def stacked_bars(
    title: str,
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    looks: Mapping[str, SeriesStyle],
    *,
    half: bool = False,
) -> Markup:
    """Bars side by side, each in parts; `labels`: below them, as many as there is room for."""
    figure, axes = _axes(_HALF if half else _WIDTH, 2.9 if half else 2.7)
    places = list(range(len(labels)))
    bottom = [0.0] * len(labels)
    for name, heights in series.items():
        if any(heights):
            look = looks.get(name, PLAIN)
            # An edge around nothing would look like a little.
            axes.bar(
                [place for place in places if heights[place]],
                [height for height in heights if height],
                bottom=[bottom[place] for place in places if heights[place]],
                label=_label(name), width=0.82, color=look.fill,
                hatch=look.hatch, edgecolor=_INK, linewidth=0.5,
            )  # fmt: skip
            bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
    every = max(1, -(-len(labels) // (8 if half else 12)))
    axes.set_xticks(places[::every], [_label(label) for label in labels[::every]])
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    # Else millions are told by a lone "1e6" above the axis.
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set_ylim(0, max([*bottom, 1]) * 1.2)
    # Figures over more bars than these would run into each other.
    if len(labels) <= 13:
        for place, height in zip(places, bottom, strict=True):
            if height:
                axes.annotate(
                    number(height), (place, height), xytext=(0, 2), textcoords="offset points",
                    ha="center", fontsize=8, color=_INK,
                )  # fmt: skip
    if any(bottom) and len(series) > 1:
        axes.legend(
            frameon=False, ncols=6, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8,
            handlelength=1.4, labelcolor=_INK, borderaxespad=0.2,
        )  # fmt: skip
    return _svg(figure, title)


def shares(
    title: str, counts: Mapping[str, float], looks: Mapping[str, SeriesStyle], *, half: bool = False
) -> Markup:
    """One bar of 100 %, its parts named above it."""
    figure, axes = _axes(_HALF if half else _WIDTH, 0.9)
    whole = sum(counts.values())
    left = 0.0
    for name, look in looks.items():
        share = 100 * counts.get(name, 0) / whole if whole else 0.0
        if share:
            axes.barh(
                [0], [share], left=left, color=look.fill, hatch=look.hatch, edgecolor=_INK,
                linewidth=0.5, height=0.55,
            )  # fmt: skip
        # A narrower part has no room for its words.
        if share >= 4:
            axes.text(
                left + share / 2, 0.34, f"{_label(name)} {share:.0f} %", ha="center", va="bottom",
                color=_INK, fontsize=8.5,
            )  # fmt: skip
        left += share
    axes.set_xlim(0, 100)
    axes.set_ylim(-0.3, 0.75)
    axes.set_axis_off()
    return _svg(figure, title)


def ranges(title: str, spans: Sequence[tuple[str, float, float]]) -> Markup:
    """Half and 95 % were this quick: one bar pair a span, seconds."""
    figure, axes = _axes(_WIDTH, 0.7 + 0.5 * len(spans))
    for place, (_, p50, p95) in enumerate(reversed(spans)):
        axes.barh(
            [place], [max(p95, 0)], color=_PALE.fill, hatch=_PALE.hatch, edgecolor="#64748b",
            linewidth=0.4, height=0.55,
        )  # fmt: skip
        axes.barh([place], [max(p50, 0)], color=PLAIN.fill, height=0.55)
        axes.annotate(
            f"p50 {p50:.1f} s, p95 {p95:.1f} s", (max(p95, 0), place), xytext=(6, 0),
            textcoords="offset points", va="center", fontsize=8.5, color=_INK,
        )  # fmt: skip
    axes.set_yticks(range(len(spans)), [_label(name) for name, _, _ in reversed(spans)])
    axes.set_xlim(0, max([p95 for _, _, p95 in spans] + [1.0]) * 1.35)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_xlabel("seconds", color=_INK, fontsize=8.5)
    return _svg(figure, title)


def rows_of_bars(
    title: str,
    rows: Sequence[tuple[str, Mapping[str, float]]],
    looks: Mapping[str, SeriesStyle],
    *,
    half: bool = False,
    ends: Sequence[str] = (),
) -> Markup:
    """A bar a row, the first on top, each in parts, behind it its sum or its words of `ends`."""
    figure, axes = _axes(_HALF if half else _WIDTH, max(1.3, 0.55 + 0.33 * len(rows)))
    used: set[str] = set()
    most = max([sum(parts.values()) for _, parts in rows] + [1])
    words = list(reversed(ends)) or [number(sum(parts.values())) for _, parts in reversed(rows)]
    for place, (_, parts) in enumerate(reversed(rows)):
        left = 0.0
        for name, look in looks.items():
            if length := parts.get(name, 0):
                axes.barh(
                    [place], [length], left=left, color=look.fill, hatch=look.hatch,
                    edgecolor=_INK, linewidth=0.5, height=0.62,
                    label=None if name in used else _label(name),
                )  # fmt: skip
                used.add(name)
                left += length
        axes.annotate(
            words[place], (left, place), xytext=(5, 0), textcoords="offset points",
            va="center", fontsize=8.5, color=_INK,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [_label(name) for name, _ in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(0, most * (1.3 if half else 1.18))
    axes.set_xticks([])
    axes.grid(visible=False)
    if len(used) > 1:
        axes.legend(
            frameon=False, ncols=6, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8,
            handlelength=1.4, labelcolor=_INK, borderaxespad=0.2,
        )  # fmt: skip
    return _svg(figure, title)


def lanes(
    title: str, spans: Sequence[tuple[str, datetime, datetime, str]], start: datetime, end: datetime
) -> Markup:
    """Who held what when: (lane, from, to, words in the bar), lanes in the order they come."""
    names = list(dict.fromkeys(name for name, _, _, _ in spans))
    figure, axes = _axes(_WIDTH, 0.8 + 0.42 * len(names))
    whole = (end - start).total_seconds() or 1.0
    for lane, since, until, words in spans:
        left = max(0.0, (since - start).total_seconds())
        right = min(whole, (until - start).total_seconds())
        place = len(names) - 1 - names.index(lane)
        axes.barh(
            # A short lease is drawn all the same: a four-hundredth of the span is just seen.
            [place], [max(right - left, whole / 400)], left=left, height=0.6, color=_PALE.fill,
            edgecolor=_INK, linewidth=0.8,
        )  # fmt: skip
        if right - left > whole / 8:
            axes.text(left + whole / 200, place, _label(words), va="center", fontsize=8, color=_INK)
    ticks = [whole * part / 6 for part in range(7)]
    step = (end - start) / 6
    form = "%H:%M" if whole <= 2 * 86_400 else "%d %b"
    axes.set_xticks(ticks, [(start + step * part).strftime(form) for part in range(7)])
    axes.set_yticks(range(len(names)), [_label(name) for name in reversed(names)])
    axes.set_xlim(0, whole)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    return _svg(figure, title)


def _label(text: str) -> str:
    """A name that may come from a log: short, printable, and no formula of matplotlib's."""
    return harmless_text(text, 48).replace("$", r"\$")


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
    """The figure as an SVG element that scales with the page."""
    from matplotlib import rc_context

    text = io.StringIO()
    # A salt of the chart's name and no date: the same numbers give the same bytes, and the
    # patterns of two charts on one page have different ids. Text stays text.
    fonts = ["Helvetica", "Arial", "DejaVu Sans", "sans-serif"]
    settings: dict[Any, Any] = {
        "svg.hashsalt": label,
        "svg.fonttype": "none",
        "font.family": fonts,
        "hatch.linewidth": 0.6,
    }
    with rc_context(settings):
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1, flags=re.S)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))
