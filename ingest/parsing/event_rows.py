"""From records to rows of silver.event, whatever the records hold.

Needs neither Spark nor Arrow, so that the command line starts at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from infra.errors import Fatal, Retryable, Usage
from infra.process.gc_pause import no_collection
from ingest.decoding.decoding import decoded_record
from ingest.parsing.json_source import GZIP, PART_BYTES, JsonSource, parts
from ingest.parsing.message_bounds import (
    MAX_UNREADABLE,
    bounded_time,
    few_dead_letters,
    left_out,
    require_few,
    require_few_lines,
)
from ingest.parsing.ocsf import A_HOST, A_USER
from ingest.parsing.source import (
    Context,
    Event,
    JoiningSource,
    ParseSettings,
    Record,
    Unreadable,
    lookup,
    sources,
)

# An error's text may quote the record, and that is the sender's own.
NO_LONGER = 300
"""Characters kept of an unexpected error's text."""


def event_rows(records: Iterable[Record], settings: ParseSettings) -> list[dict[str, Any]]:
    """The rows of all records: one or more for each, none of them lost.

    Rows stand in the order of records; those of an event that has several records,
    where the first of them stood. Never raises for what a record holds. What cannot
    be read becomes a row with `dead_letter_reason`; a parser that fails costs only
    the record it failed on.
    """
    with no_collection():
        return [
            row
            for piece in joined_records(records, settings)
            for row in rows_of_all(piece, settings)
        ]


@cache
def _joining_sources() -> dict[str, JoiningSource]:
    return {name: source for name, source in sources().items() if isinstance(source, JoiningSource)}


def joins_by(record: Record, settings: ParseSettings) -> str | None:
    """What a record shares with the others of its event; None where it is an event of its own."""
    source = _joining_sources().get(record.source)
    if source is None:
        return None
    # Whoever cannot be asked is a piece of its own, where parsing says why.
    with suppress(Exception):
        decoded = decoded_record(record, settings)
        return source.part_of(decoded, Context(decoded, settings))
    return None


def joined_records(records: Iterable[Record], settings: ParseSettings) -> list[list[Record]]:
    """The records, those together that are parts of one event."""
    pieces: list[list[Record]] = []
    parts: dict[tuple[str, str, bytes, str | None], list[Record]] = {}
    for record in records:
        part = joins_by(record, settings)
        if part is None:
            pieces.append([record])
            continue
        # Two machines may give the same serial number at the same time, hence the sender; and one
        # tenant's line must never become a part of another's event.
        key = (record.source, part, record.headers.get("host", b""), record.tenant_uid)
        if key in parts:
            parts[key].append(record)
        else:
            parts[key] = [record]
            pieces.append(parts[key])
    return pieces


def _rows_of(record: Record, settings: ParseSettings) -> list[dict[str, Any]]:
    """The rows of one record: its events, or one dead letter."""
    return rows_of_all([record], settings)


def is_large(record: Record) -> bool:
    """Whether a record may hold so many events that they are better made some at a time."""
    return len(record.raw) > PART_BYTES or (
        # Logs may grow fiftyfold once unpacked.
        record.raw[:2] == GZIP and len(record.raw) > PART_BYTES // 50
    )


def rows_in_parts(record: Record, settings: ParseSettings) -> Iterator[list[dict[str, Any]]]:
    """The rows of a large record, some at a time where it is a file of many events.

    All of them together are those of `rows_of`, with the same ids, but for what is in neither.
    """
    result = None
    try:
        source = lookup(record.source)
        if isinstance(source, JsonSource):
            result = parts(decoded_record(record, settings).raw, source.large)
            # A generator raises at its first step, and only here is the error caught.
            first = next(result, None)
    except Usage:
        result = None
    except Unreadable as why:
        # Of gzip that is padded, or broken, the source itself says more.
        if record.raw[:2] != GZIP or "bronze.record" in str(why):
            yield [dead_letter(record, str(why))]
            return
        result = None
    if result is None or first is None:
        yield _rows_of(record, settings)
        return
    # Counted over all parts, or each of them could bring the most dead letters once more.
    position, dead, omitted = 0, 0, 0
    for held in chain([first], result):
        rows = _part(record, held, position, settings)
        made = len(rows)
        rows, more = few_dead_letters(rows, dead)
        position, omitted = position + made, omitted + more
        dead += sum(1 for row in rows if row.get("dead_letter_reason"))
        yield rows
    if omitted:
        yield [dead_letter(record, left_out(omitted), position)]


def _part(
    record: Record, held: Sequence[bytes], at: int, settings: ParseSettings
) -> list[dict[str, Any]]:
    """The rows of some objects of a large file; one bad object takes no neighbour along."""
    # As one array, so that a part passes through the same strict reading as a whole file.
    whole = replace(record, raw=b"[" + b",".join(held) + b"]")
    rows = _events_of([whole], settings, at)
    if len(rows) != 1 or not rows[0].get("dead_letter_reason") or len(held) == 1:
        return rows
    rows = []
    # One of them made the whole array unreadable; each by itself shows which.
    for element in held:
        rows += _events_of([replace(record, raw=bytes(element))], settings, at + len(rows))
        if len(rows) == MAX_UNREADABLE and all(row.get("dead_letter_reason") for row in rows):
            reason = (
                f"none of {MAX_UNREADABLE} objects can be read: {rows[0]['dead_letter_reason']}"
            )
            return [dead_letter(record, f"{reason}; {len(held)} of them are passed over", at)]
    return rows


def rows_of_all(
    records: Sequence[Record], settings: ParseSettings, first: int = 0
) -> list[dict[str, Any]]:
    """The rows of the records of one event: its events, or a dead letter for each record.

    The rows are numbered from `first`. Of very many dead letters one stands for most.
    """
    rows = _events_of(records, settings, first)
    if len(rows) <= MAX_UNREADABLE:
        return rows
    few, omitted = few_dead_letters(rows)
    if omitted:
        few.append(dead_letter(records[0], left_out(omitted), first + len(rows)))
    return few


def _events_of(
    records: Sequence[Record], settings: ParseSettings, first: int = 0
) -> list[dict[str, Any]]:
    record = records[0]
    try:
        source = lookup(record.source)
        decoded = [decoded_record(record, settings) for record in records]
        context = Context(decoded[0], settings)
        if len(decoded) > 1 and isinstance(source, JoiningSource):
            events = source.join(decoded, context)
        else:
            require_few_lines(decoded[0].raw, whole_file=source.whole_file)
            # A bound on size alone does not stop an input made to be slow to read.
            with bounded_time(decoded[0].raw):
                events = source.parse(decoded[0], context)
        if not events:
            raise Unreadable("the parser found no event in it")
        # What the parser made counts too: not every format shows its number of events in its bytes.
        require_few(len(events))
        return [
            _row(event, records, position, settings) for position, event in enumerate(events, first)
        ]
    # `Usage`: a topic whose source nobody knows; its records must still be named in silver.
    except (Unreadable, Usage) as why:
        return [dead_letter(record, str(why), first) for record in records]
    except (Retryable, Fatal):
        raise  # a registry that is away, a schema that is none: no fault of the record
    except Exception as error:
        # Whatever a record makes a parser do must not take its whole batch along.
        what = f"{type(error).__name__}: {error}"[:NO_LONGER]
        return [
            dead_letter(record, f"parser {record.source} failed: {what}", first)
            for record in records
        ]


def dead_letter(record: Record, reason: str, at: int = 0) -> dict[str, Any]:
    """The row of a record that cannot be read."""
    return {
        "event_uid": f"{record.record_id}#{at}",
        "record_ids": [record.record_id],
        "dead_letter_reason": reason,
        "source": record.source,
        "mode": record.mode,
        # Never a time from the bytes: what could not be read must not move a watermark.
        "time": record.received_at,
        "received_at": record.received_at,
        "time_quality": "received",
        "activity_id": 0,
        "category_uid": 0,
        "class_uid": 0,
        "class_name": "Base Event",
        "type_uid": 0,
        "severity_id": 0,
    }


def _row(
    event: Event, records: Sequence[Record], at: int, settings: ParseSettings
) -> dict[str, Any]:
    record = records[0]
    reason = event.get("dead_letter_reason")
    if reason is not None:
        return dead_letter(record, reason, at)
    # Same input, same id: a batch that is run again, or a reparse, gives the rows the same names.
    event["event_uid"] = f"{record.record_id}#{at}"
    event["record_ids"] = [record_row.record_id for record_row in records]
    event["source"] = record.source
    event["mode"] = record.mode
    event["received_at"] = record.received_at
    add_copies(event)
    # The same private address may be in use at two sites; the scope tells them apart.
    event["scope"] = settings.scope(
        event["host_name"] or _sender(record), record.source, event.get("relay_ip")
    )
    return event


def add_copies(event: Event) -> None:
    """Adds what the columns at the top level copy out of structs, and parts what is in one text."""
    get = event.get
    source, target, device = get("src_endpoint"), get("dst_endpoint"), get("device")
    event["host_name"] = device.get("hostname") if device else None
    # Copied to the top level: Delta's statistics, which skip files in a search, are kept for these.
    if source:
        event["src_ip"] = source.get("ip")
        event["mac"] = source.get("mac")
    if target:
        event["dst_ip"] = target.get("ip")
    split_url(event)
    split = split_accounts(event)
    if split or get("user_name") is None:
        event["user_name"] = _user_name(event)


def _sender(record: Record) -> str | None:
    sender = record.headers.get("host")
    return sender.decode("utf-8", "replace") if sender else None


def _user_name(event: Event) -> str | None:
    user = event.get("user") or (event.get("actor") or {}).get("user")
    return user.get("name") if user else None


# -- what products write in one text or in several fields ------------------------------------------

_ACCOUNT = re.compile(r"(?P<domain>[^\\/@\x00-\x1f]{1,255})\\{1,2}(?P<name>[^\\/]{1,255})")
"""`DOMAIN\\user`, as Windows and all that ask it write an account; its domain has no slash."""
_URL = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,15})://)?(?:[^/?#@\s]{0,255}@)?"
    r"(?P<hostname>\[[0-9A-Fa-f:.]{2,45}\]|[^/?#:@\[\]\s]{1,253})(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[^?#]*)?(?:\?(?P<query_string>[^#]*))?(?:#.*)?",
    re.DOTALL,
)


def split_accounts(event: Event) -> bool:
    """Splits `DOMAIN\\user` into its domain and its name, in all users of an event.

    Whether there was one. So a person is one user to rules, whichever product wrote the line.
    """
    actor = event.get("actor") or {}
    process = event.get("process") or {}
    changed = False
    for owner in (event, actor, process):
        user: dict[str, Any] = owner.get("user") or {}
        name = user.get("name")
        if not name or "\\" not in name or user.get("domain"):
            continue
        match = _ACCOUNT.fullmatch(name)
        if match:
            owner["user"] = user | match.groupdict()
            changed = True
            # What is searched for is the account alone; the domain stands beside it.
            event["observables"] = [
                seen | {"value": match["name"]}
                if seen["type_id"] == A_USER and seen["value"] == name
                else seen
                for seen in event.get("observables") or ()
            ] or None
    return changed


def split_url(event: Event) -> None:
    """Takes the URL of a request apart where its reader left it whole; what is there stays."""
    request = event.get("http_request")
    if not request:
        return
    url: dict[str, Any] = request.get("url") or {}
    parts = url_parts(url)
    if parts is url:
        return
    event["http_request"] = request | {"url": parts}
    name = "http_request.url.hostname"
    seen = event.get("observables") or []
    if not url.get("hostname") and all(value["name"] != name for value in seen):
        about = {"name": name, "type": "Hostname", "type_id": A_HOST, "value": parts["hostname"]}
        event["observables"] = [*seen, about]


def url_parts(url: dict[str, Any]) -> dict[str, Any]:
    """An OCSF URL with the parts that its text has and its fields lack; itself where none."""
    text = url.get("url_string")
    if not text or url.get("path") or len(text) > 65536:
        return url
    # Without a scheme only what begins with the host that the log names is a URL of it.
    host = url.get("hostname")
    if "://" not in text[:20] and not (host and text.startswith(host)):
        return url
    match = _URL.fullmatch(text)
    if match is None:
        return url
    parts: dict[str, Any] = {name: part for name, part in match.groupdict().items() if part}
    # A host that the log names elsewhere is surer than one in the text of a request.
    spelled = parts.get("scheme") or url.get("scheme")
    parts |= {name: part for name, part in url.items() if part is not None}
    if spelled:
        parts["scheme"] = spelled
    parts["hostname"] = parts["hostname"].strip("[]")
    if type(parts.get("port")) is str:
        parts["port"] = int(parts["port"])
        if parts["port"] > 65535:
            del parts["port"]
    return parts
