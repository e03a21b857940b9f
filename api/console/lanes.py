"""Lanes of time as a picture: where each bar, mark and tick stands. The template draws it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_LEFT = 172
_RIGHT = 14
_TOP = 26
_LANE = 30
_MOST_TICKS = 8

_STEPS = tuple(
    timedelta(minutes=m)
    for m in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200, 14400, 43200)
)


@dataclass(frozen=True)
class Bar:
    """A span of time on a lane."""

    x: float
    width: float
    label: str
    title: str
    colour: int
    href: str | None = None


@dataclass(frozen=True)
class TimeMark:
    """An instant on a lane; `size` grows with how many things it stands for."""

    x: float
    size: float
    title: str
    kind: str
    href: str | None = None


@dataclass(frozen=True)
class Lane:
    """One row of the picture."""

    name: str
    note: str
    bars: list[Bar] = field(default_factory=list)
    marks: list[TimeMark] = field(default_factory=list)
    strong: bool = False
    colour: int = 5


@dataclass(frozen=True)
class Picture:
    """Lanes over one axis of time."""

    width: int
    height: int
    lanes: list[Lane]
    ticks: list[tuple[float, str]]
    lines: list[tuple[float, str]]
    """Instants that all lanes share, with what to say of them."""


@dataclass(frozen=True)
class Scale:
    """From times to places on the axis."""

    since: datetime
    until: datetime
    width: int

    def x(self, instant: datetime) -> float:
        """Where an instant stands; what lies outside is moved to the edge."""
        # At least a second, so that a span without length divides by nothing that is zero.
        share = (instant - self.since) / max(self.until - self.since, timedelta(seconds=1))
        return round(_LEFT + min(1.0, max(0.0, share)) * (self.width - _LEFT - _RIGHT), 1)

    def bar(
        self, start: datetime, end: datetime, label: str, title: str, colour: int,
        href: str | None = None,
    ) -> Bar:  # fmt: skip
        """A span; a short one is still seen, and a label that has no room is left out."""
        left, right = self.x(start), self.x(end)
        width = max(3.0, right - left)
        return Bar(left, width, label if width > 7 * len(label) + 8 else "", title, colour, href)

    def ticks(self) -> list[tuple[float, str]]:
        """Round instants along the axis."""
        whole = self.until - self.since
        step = next((s for s in _STEPS if whole / s <= _MOST_TICKS), whole / _MOST_TICKS)
        # From midnight on, so that ticks stand at round hours whatever the span begins with.
        midnight = self.since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        number = -((midnight - self.since) // step)
        instant, ticks = midnight + number * step, []
        while instant <= self.until:
            day = step >= timedelta(days=1) or (instant.hour, instant.minute) == (0, 0)
            ticks.append((self.x(instant), f"{instant:%d %b}" if day else f"{instant:%H:%M}"))
            instant += step
        return [tick for tick in ticks if tick[0] >= _LEFT]


def picture(
    scale: Scale, lanes: Sequence[Lane], lines: Iterable[tuple[datetime, str]] = ()
) -> Picture:
    """The whole picture, as high as its lanes need."""
    return Picture(
        width=scale.width,
        height=_TOP + _LANE * len(lanes) + 6,
        lanes=list(lanes),
        ticks=scale.ticks(),
        lines=[(scale.x(instant), title) for instant, title in lines],
    )
