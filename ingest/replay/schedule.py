"""What a replay sends when: files on a timeline.

A *plan* says which files lie where, in TOML or made from the files' own times; the
*schedule* is what it comes to: each line with the second at which it is sent.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isnan
from pathlib import Path
from statistics import median_low
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from infra.config.bounded_files import toml_file
from infra.errors import Usage
from ingest.parsing.record_reader import pieces
from ingest.parsing.source import Context, ParseSettings, Record, Unreadable, lookup

ReplayHeader = tuple[str, bytes]
SENDER, _HOST, ZONE, MODE, _HEADER = "sender", "host", "tz", "mode", "header"
"""Headers: which line of which file a message was; who wrote it; zone of its naive times; mode;
the lines that name its fields, in formats that have such."""

FAR = timedelta(days=366)
"""A line this far from the middle of its file carries a wrong time; it keeps its place instead."""


class ReplayInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file of a plan. Offsets are seconds on the demo's timeline at speed 1."""

    file: str
    source: str
    zone: str | None = None
    """Zone of its naive times; none: what the settings say of the source."""
    host: str | None = None
    """Who sent it, where the lines do not say; decides the site (scope) it belongs to."""
    start: float = 0.0
    """Where its earliest line lies."""
    zero: datetime | None = None
    """Instead of `start`: the instant of the file's own clock that is offset 0."""
    squeeze: float = 1.0
    """Its own gaps are divided by this."""
    gap: float | None = None
    """Instead of its own gaps: seconds between two lines (for lines without a time)."""
    lines: int | None = None
    """At most so many lines."""
    unpack: bool = False
    """A file `{"Records": [...]}`: each of its records is a message."""
    contains: str = ""
    """Only lines with this text in them."""
    until: float | None = None
    """Lines that would lie after this offset are left out."""
    held_until: float = 0.0
    """Late lines: what carries an earlier time is sent at this offset, all at once, as by a
    forwarder that stalled."""
    as_is: bool = False
    """Sent without rewriting their times."""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Files on a timeline."""

    input: tuple[ReplayInput, ...]
    title: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources it feeds, each once."""
        return tuple(dict.fromkeys(each.source for each in self.input))


@dataclass(frozen=True)
class Shot:
    """One message: sent `at` seconds after the start, its line's time being `event_at`."""

    at: float
    event_at: float
    source: str
    raw: bytes
    headers: tuple[ReplayHeader, ...] = ()
    zone: str | None = None
    origin: str = ""
    as_is: bool = False


# -- plans -------------------------------------------------------------------------------------


def load_plan(path: Path) -> Plan:
    """Read a plan from TOML; the files it names are taken from its own folder.

    Raises `Usage` naming the plan, the input and what is wrong with it.
    """
    try:
        plan = msgspec.convert(toml_file(path, "a replay plan"), Plan)
    except msgspec.ValidationError as error:
        raise Usage(f"{path}: not a replay plan: {error}") from error
    inputs = []
    for nth, each in enumerate(plan.input, 1):
        file = path.parent / each.file
        where = f"{path}: input {nth} ({each.file})"
        _check(each, file, where)
        inputs.append(msgspec.structs.replace(each, file=str(file)))
    return msgspec.structs.replace(plan, input=tuple(inputs))


def _check(each: ReplayInput, file: Path, where: str) -> None:
    if not file.is_file():
        raise Usage(f"{where}: no such file")
    if each.squeeze <= 0 or each.held_until < 0 or (each.gap is not None and each.gap < 0):
        raise Usage(f"{where}: squeeze must be above 0, held_until and gap not below 0")
    if each.zero is not None and each.zero.tzinfo is None:
        raise Usage(f"{where}: zero = {each.zero} names no offset; write {each.zero}Z")
    _require_zone(each.zone, where)
    lookup(each.source)


def _require_zone(zone: str | None, where: str) -> None:
    if zone is None:
        return
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise Usage(f"{where}: no time zone '{zone}'; use a name like Europe/Berlin") from None


def plan_of_files(
    files: Sequence[Path],
    source: str,
    tz: str | None = None,
    *,
    as_is: bool = False,
    settings: ParseSettings | None = None,
) -> Plan:
    """A plan that keeps the gaps which the lines' own times have, across all `files`.

    `tz` is the zone of naive times; without it that of the settings.
    """
    _require_zone(tz, "--tz")
    lookup(source)
    inputs = []
    for file in files:
        if not file.is_file():
            raise Usage(f"{file}: no such file")
        inputs.append(ReplayInput(file=str(file), source=source, zone=tz, as_is=as_is))
    firsts = [_first(_times(each, _lines(each), settings or ParseSettings())) for each in inputs]
    zero = _first(firsts)
    # A file without any readable time begins with the others.
    starts = [(first - zero).total_seconds() if first and zero else 0.0 for first in firsts]
    return Plan(
        input=tuple(
            msgspec.structs.replace(each, start=start)
            for each, start in zip(inputs, starts, strict=True)
        )
    )


# -- schedule ----------------------------------------------------------------------------------


def schedule(plan: Plan, speed: float = 1.0, settings: ParseSettings | None = None) -> list[Shot]:
    """Every line of the plan with the second at which it is sent, in that order.

    The same plan, files and speed give the same list. `speed` divides all gaps; infinity
    sends everything at once. All of it is held in memory.
    """
    if isnan(speed) or speed <= 0:
        raise Usage(f"--speed {speed}: must be above 0; 2 halves the gaps, inf leaves none")
    zones = settings or ParseSettings()
    shots = [shot for each in plan.input for shot in _shots(each, speed, zones)]
    # A stable sort: lines of the same second keep their order in the file.
    shots.sort(key=lambda shot: shot.at)
    return shots


def _shots(each: ReplayInput, speed: float, settings: ParseSettings) -> Iterator[Shot]:
    lines = _lines(each)
    headers = ((_HOST, each.host.encode()),) if each.host else ()
    for (number, raw, header), offset in zip(lines, _offsets(each, lines, settings), strict=True):
        if each.until is not None and offset > each.until:
            continue
        yield Shot(
            at=max(offset, each.held_until) / speed,
            event_at=offset / speed,
            source=each.source,
            raw=raw,
            headers=(
                (SENDER, f"replay {Path(each.file).name} line {number}".encode()),
                *headers,
                *(((_HEADER, header),) if header else ()),
            ),
            zone=each.zone,
            origin=f"{each.file} line {number}",
            as_is=each.as_is,
        )


class _File(msgspec.Struct):
    """A file of many records, as AWS writes it; the bytes of each as they are."""

    Records: list[msgspec.Raw]


_Lines = list[tuple[int, bytes, bytes]]
"""Line numbers from 1, the lines without their ends, and the header that holds for each."""


def _lines(each: ReplayInput) -> _Lines:
    """The lines an input takes of its file; a file that is one record counts as line 1."""
    content = _content(Path(each.file))
    if each.unpack:
        records = _unpacked(content, each.file)
        return [(number, record, b"") for number, record in enumerate(records, 1)][: each.lines]
    needle = each.contains.encode()
    lines = [
        (number, raw, header)
        for number, raw, header, _ in pieces(io.BytesIO(content), lookup(each.source))
        if raw.strip() and needle in raw
    ]
    return lines[: each.lines]


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        return gzip.decompress(content) if file.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise Usage(f"{file}: cannot be read ({error})") from error


def _unpacked(content: bytes, file: str) -> list[bytes]:
    try:
        return [bytes(Record) for Record in msgspec.json.decode(content, type=_File).Records]
    except msgspec.DecodeError as error:
        raise Usage(f"{file}: no file of records to unpack: {error}") from error


def _offsets(each: ReplayInput, lines: _Lines, settings: ParseSettings) -> list[float]:
    """Where each line lies, in seconds at speed 1; one without a time lies with the one before."""
    if each.gap is not None:
        return [each.start + nth * each.gap for nth in range(len(lines))]
    times = _times(each, lines, settings)
    zero = each.zero or _first(times)
    offsets, last = [], each.start
    for when in times:
        if when is not None and zero is not None:
            # What lies before the beginning is sent at it: there is no earlier.
            last = max(0.0, each.start + (when - zero).total_seconds() / each.squeeze)
        offsets.append(last)
    return offsets


def _first(times: Sequence[datetime | None]) -> datetime | None:
    return min((when for when in times if when is not None), default=None)


def _times(each: ReplayInput, lines: _Lines, settings: ParseSettings) -> list[datetime | None]:
    """When each line says it happened; None where it does not or cannot be believed."""
    # Years that a format leaves out are completed from here.
    reference = (
        each.zero + timedelta(days=180)
        if each.zero
        else datetime.fromtimestamp(Path(each.file).stat().st_mtime, UTC)
    )
    times = [_time(each, raw, header, reference, settings) for _, raw, header in lines]
    dated = [when for when in times if when is not None]
    # The median, as one wrong clock moves a mean; the low one, as two datetimes have no sum.
    middle = median_low(dated) if dated else reference
    return [when if when and abs(when - middle) <= FAR else None for when in times]


def _time(
    each: ReplayInput, raw: bytes, header: bytes, reference: datetime, settings: ParseSettings
) -> datetime | None:
    headers = {ZONE: each.zone.encode()} if each.zone else {}
    if header:
        headers[_HEADER] = header
    record = Record("replay", each.source, "live", reference, raw, headers)
    try:
        events = lookup(each.source).parse(record, Context(record, settings))
    except Unreadable:
        return None
    return _first(
        [
            # `received` is the reference that we gave, and no time of the line's.
            event["time"] if event.get("time_quality") != "received" else None
            for event in events
            if event.get("dead_letter_reason") is None and "time" in event
        ]
    )
