"""The span of time a report is about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from infra.errors import Usage

FORMS = (
    "a day 2026-11-20, a week 2026-W47, a month 2026-11, a span 2026-11-20/2026-11-22, "
    "or yesterday, last-week, last-month"
)
"""What `parse_interval` takes, for descriptions and sentences that refuse."""


@dataclass(frozen=True)
class Interval:
    """[start, end), instants in UTC; days begin and are shown in `zone` (an IANA name)."""

    start: datetime
    end: datetime
    zone: str = "UTC"

    @property
    def days(self) -> float:
        """Length in days of 24 hours."""
        return (self.end - self.start) / timedelta(days=1)

    @property
    def slug(self) -> str:
        """The interval as part of a file name; another zone is another file."""
        span = f"{_brief(self.local(self.start))}_{_brief(self.local(self.end))}"
        return span if self.zone == "UTC" else f"{span}_{self.zone.replace('/', '-')}"

    def local(self, at: datetime) -> datetime:
        """An instant in the interval's zone."""
        return at.astimezone(ZoneInfo(self.zone))

    @property
    def before(self) -> Interval:
        """The period before: of whole months as many months, else as many days or hours."""
        start, end = self.local(self.start), self.local(self.end)
        months = (end.year - start.year) * 12 + end.month - start.month
        if months > 0 and _first(start) and _first(end):
            earlier = _months_back(start, months)
        else:
            # Wall-clock arithmetic: the week before a change of the clocks has seven days too.
            try:
                earlier = start - (end.replace(tzinfo=None) - start.replace(tzinfo=None))
            except OverflowError:  # there is nothing before the year 1
                earlier = datetime.min.replace(tzinfo=UTC)
        return Interval(earlier.astimezone(UTC), self.start, self.zone)

    @property
    def whole_month(self) -> bool:
        """Whether it is one month of the calendar."""
        start, last = self.local(self.start), self._last
        begins = start.day == self.local(self.end).day == 1
        return begins and (last.year, last.month) == (start.year, start.month)

    @property
    def phrase(self) -> str:
        """How a sentence about it begins: `In October 2026`."""
        start, last = self.local(self.start), self._last
        if self.whole_month:
            return f"In {start:%B %Y}"
        if start.date() == last.date():
            return f"On {start.day} {start:%B %Y}"
        return f"From {start.day} {start:%B} to {last.day} {last:%B %Y}"

    @property
    def _last(self) -> datetime:
        # It ends before its end: what ends on 1 March is February.
        return self.local(self.end) - timedelta(microseconds=1)

    def __str__(self) -> str:
        start, end = self.local(self.start), self.local(self.end)
        return f"{_brief(start, ' ')} to {_brief(end, ' ')} {self.zone}"


def parse_interval(text: str, zone: str = "UTC", now: datetime | None = None) -> Interval:
    """What a person wrote (see `FORMS`), in a zone; times may carry a zone of their own.

    Raises `Usage` for what is none, or ends before it begins, or an unknown zone.
    """
    where = zone_named(zone)
    try:
        named = _named(text, where, now or datetime.now(UTC))
        if named is None:
            first, slash, second = text.partition("/")
            start = _moment(first, text, where)
            named = start, _moment(second, text, where) if slash else _next_day(start)
        start, end = (moment.astimezone(UTC) for moment in named)
    except OverflowError:
        raise Usage(f"--interval {text}: lies beyond the years 1 to 9999") from None
    if end <= start:
        raise Usage(f"--interval {text}: ends before it begins")
    return Interval(start, end, zone)


def zone_named(name: str) -> ZoneInfo:
    """A zone by its IANA name; raises `Usage`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Usage(f"zone {name}: no such zone; write one such as Europe/Berlin") from None


def _named(text: str, zone: ZoneInfo, now: datetime) -> tuple[datetime, datetime] | None:
    today = now.astimezone(zone).date()
    if text == "yesterday":
        return _days(today - timedelta(days=1), 1, zone)
    if text == "last-week":
        return _days(today - timedelta(days=today.weekday() + 7), 7, zone)
    if text == "last-month":
        last = today.replace(day=1) - timedelta(days=1)
        return _days(last.replace(day=1), last.day, zone)
    if week := re.fullmatch(r"(\d{4})-W(\d{2})", text):
        try:
            return _days(date.fromisocalendar(int(week[1]), int(week[2]), 1), 7, zone)
        except ValueError:
            raise Usage(f"--interval {text}: there is no such week") from None
    if month := re.fullmatch(r"(\d{4})-(\d{2})", text):
        year, number = int(month[1]), int(month[2])
        if not 1 <= number <= 12 or not 1 <= year <= 9998:
            raise Usage(f"--interval {text}: there is no such month")
        first = date(year, number, 1)
        after = date(year + number // 12, number % 12 + 1, 1)
        return _days(first, (after - first).days, zone)
    return None


def _days(first: date, count: int, zone: ZoneInfo) -> tuple[datetime, datetime]:
    last = first + timedelta(days=count)
    return (
        datetime(first.year, first.month, first.day, tzinfo=zone),
        datetime(last.year, last.month, last.day, tzinfo=zone),
    )


def _next_day(start: datetime) -> datetime:
    # On the wall clock: a day on which the clocks change has 23 or 25 hours.
    return start + timedelta(days=1)


def _moment(part: str, whole: str, zone: ZoneInfo) -> datetime:
    try:
        day = date.fromisoformat(part)
        return datetime(day.year, day.month, day.day, tzinfo=zone)
    except ValueError:
        pass
    try:
        instant = datetime.fromisoformat(part)
    except ValueError:
        raise Usage(f"--interval {whole}: '{part}' is no day and no time; write {FORMS}") from None
    return instant.replace(tzinfo=zone) if instant.tzinfo is None else instant


def _first(at: datetime) -> bool:
    return at.day == 1 and at.hour == at.minute == at.second == 0


def _months_back(at: datetime, months: int) -> datetime:
    index = at.year * 12 + at.month - 1 - months
    return at.replace(year=index // 12, month=index % 12 + 1)


def _brief(at: datetime, between: str = "T") -> str:
    midnight = at.hour == at.minute == at.second == 0
    return at.strftime("%Y-%m-%d") if midnight else at.strftime(f"%Y-%m-%d{between}%H%M")
