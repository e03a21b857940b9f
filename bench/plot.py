"""A benchmark's figures as a picture under docs/, with the machine and the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.measure import Measure, Report, machine
from infra.spark.session import project_root

Panels = Mapping[str, Mapping[str, Measure]]


def caption(report: Report) -> str:
    """Where the figures are from, as a line below a picture."""
    on = machine()
    return f"{report.command}: {on['cores']} cores, {on['memory_gb']} GB, {on['system']}"


def save(figure: Any, report: Report) -> None:
    """Write `docs/images/<name>.png` with its caption."""
    figure.supxlabel(caption(report), fontsize=7)
    figure.savefig(project_root() / "docs/images" / f"{report.name}.png", dpi=110)


def bars(report: Report, panels: Panels) -> None:
    """A panel for each title, in it a bar for each label: the median, with its repetitions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    high = max(len(measures) for measures in panels.values())
    figure, rows = pyplot.subplots(
        1, len(panels), figsize=(5.5 * len(panels), 0.45 * high + 1.3), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axes, (title, measures) in zip(rows[0], panels.items(), strict=True):
        shown = list(measures.values())
        axes.barh(list(measures), [m.value or 0.0 for m in shown], height=0.6)
        for place, measure in enumerate(shown):
            axes.plot(measure.repetitions, [place] * len(measure.repetitions), "k.", markersize=3)
            value = measure.value or 0.0
            axes.annotate(
                f"{value:,.3g}" if value < 100 else f"{value:,.0f}",
                (max([value, *measure.repetitions]), place),
                xytext=(5, 0), textcoords="offset points", va="center", fontsize=8,
            )  # fmt: skip
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.set_title(title, fontsize=10)
        axes.tick_params(labelsize=8)
    save(figure, report)
    pyplot.close(figure)


def panel(report: Report, unit: str, ending: str = "") -> dict[str, Measure]:
    """The measures of a unit whose name ends so, each under what stands before that."""
    found = [m for m in report.measures if m.unit == unit and m.name.endswith(ending)]
    return {m.name.removesuffix(ending): m for m in found if m.value is not None}
