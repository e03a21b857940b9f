"""Access lines of nginx and Apache in their usual formats, many at once.

`common`, `combined` and nginx's `main` with no X-Forwarded-For, of a client with an address and a
request for a path. One expression tells which lines are so plain that quotes and spaces alone part
them; all others are left to the row reader (`ingest.sources.shared.clf`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.ocsf import (
    A_URL,
    A_USER,
    AN_AGENT,
    AN_IP,
    FAILURE,
    HTTP,
    HTTP_METHODS,
    OTHER,
    SEVERITY,
    SUCCESS,
    VERSION,
)
from ingest.parsing.source import ParseSettings, Read
from ingest.parsing.timestamps import month_number
from ingest.parsing.vectorized import (
    addresses,
    batch_of,
    classified,
    constant,
    exact_times,
    looked_up,
    null_where,
    observables,
    only_where,
    plain_texts,
    read_of,
    record_columns,
    struct,
)
from ingest.sources.shared.alike_lines import FEWEST_LINES
from ingest.sources.shared.http_exchange import NONE, severity_of_answer, unescape

_LONGEST = 8_000
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ !#-~])*"'
"""What holds no quote, not even an escaped one, so that quotes part the line."""
# Bounds on repetitions would make RE2 three times as slow; they are looked at afterwards.
_LINE = (
    r"^[0-9A-Fa-f:.]+ - [A-Za-z0-9_.@-]+ "
    r"\[\d\d/[A-Z][a-z][a-z]/\d\d\d\d:\d\d:\d\d:\d\d [+-]\d\d\d\d\] "
    r'"[A-Z]+ /[!#-\[\]-~]* HTTP/\d(?:\.\d)?" [1-5]\d\d (?:-|\d+)'
    rf'(?: {_QUOTED} {_QUOTED}(?: "-")?)?$'
)
_NOTHING = pa.array(sorted(NONE))
_LONGEST_METHOD, _LONGEST_SIZE = 32, 18


class _Lines(NamedTuple):
    """Requests, a column for each part of them."""

    client: pa.Array
    user: pa.Array
    time: pa.Array
    method: pa.Array
    target: pa.Array
    version: pa.Array
    code: pa.Array
    size: pa.Array
    referrer: pa.Array
    agent: pa.Array


def read_access(
    source: str, product: Mapping[str, str], records: pa.RecordBatch, settings: ParseSettings
) -> Read:
    """The events of the plain ones of `records`, all of `source`, as in `Source.columns`."""
    rows = records.num_rows
    if rows < FEWEST_LINES:
        return Read(None, list(range(rows)))
    whole = plain_texts(records, _LONGEST)
    plain = pc.fill_null(pc.match_substring_regex(whole, _LINE), False)
    places = np.flatnonzero(np.asarray(plain))
    lines = _parted(whole.take(pa.array(places)))
    sound = np.asarray(_sound(lines))
    if not sound.all():
        kept = pa.array(np.flatnonzero(sound))
        places = places[sound]
        lines = _Lines(*(column.take(kept) for column in lines))
    if not len(places):
        return Read(None, list(range(rows)))
    columns = record_columns(records, source, places)
    columns |= _columns(len(places), product, lines)
    columns["scope"] = constant(settings.scope(None, source), len(places))
    return read_of(batch_of(len(places), columns), rows, places)


# -- the parts of a line ---------------------------------------------------------------------------


def _parted(whole: pa.Array) -> _Lines:
    part = _pieces(whole, '"')
    head, request, answer = (_pieces(part(place), " ") for place in range(3))
    # Behind the answer nothing need stand.
    referrer, agent = part(3), part(5)
    version = request(2)
    return _Lines(
        client=addresses(head(0)),
        user=_none_if(head(2), "-"),
        time=_times(head(3), head(4)),
        method=request(0),
        target=request(1),
        version=pc.utf8_slice_codeunits(version, len("HTTP/")),
        code=answer(1),
        size=_none_if(answer(2), "-"),
        referrer=_shown(referrer),
        agent=_shown(agent),
    )


def _pieces(texts: pa.Array, by: str, times: int | None = None) -> Callable[[int], pa.Array]:
    """The pieces of texts, split so often, by their place; null where a text has too few."""
    split = pc.split_pattern(texts, by, max_splits=times)
    ends, pieces = np.asarray(split.offsets), split.values

    def piece(place: int) -> pa.Array:
        places = ends[:-1] + place
        return pieces.take(pa.array(places, mask=places >= ends[1:]))

    return piece


def _none_if(texts: pa.Array, nothing: str) -> pa.Array:
    return null_where(pc.equal(texts, nothing), texts)


def _times(days: pa.Array, offsets: pa.Array) -> pa.Array:
    """Times of `[20/Nov/2026:21:50:34` and `-0500]`; null for what is none."""
    dates = looked_up(pc.utf8_slice_codeunits(days, 1, 12), _iso_date, pa.string())
    clocks = pc.utf8_slice_codeunits(days, 13, 21)
    return exact_times(
        pc.binary_join_element_wise(dates, "T", clocks, pc.utf8_slice_codeunits(offsets, 0, 5), "")
    )


def _iso_date(text: str) -> str | None:
    day, month, year = text.split("/")
    number = month_number(month)
    return f"{year}-{number:02d}-{day}" if number else None


def _shown(texts: pa.Array) -> pa.Array:
    """Quoted fields without their escapes; null for those that say nothing."""
    escaped = pc.match_substring(texts, "\\")
    if pc.any(escaped).as_py():
        plain = looked_up(only_where(escaped, texts), unescape, pa.string())
        texts = pc.if_else(escaped, plain, texts)
    return null_where(pc.is_in(texts, _NOTHING), texts)


def _sound(lines: _Lines) -> pa.Array:
    """Which lines are as narrow as the expression could not ask."""
    sound = pc.and_(lines.client.is_valid(), lines.time.is_valid())
    # What is asked with CONNECT is a host and no path.
    sound = pc.and_(sound, pc.not_equal(lines.method, "CONNECT"))
    sound = pc.and_(sound, pc.less_equal(pc.binary_length(lines.method), _LONGEST_METHOD))
    size = pc.fill_null(pc.binary_length(lines.size), 0)
    return pc.and_(sound, pc.less_equal(size, _LONGEST_SIZE))


# -- their events ----------------------------------------------------------------------------------


def _columns(rows: int, product: Mapping[str, str], lines: _Lines) -> dict[str, pa.Array]:
    number = pa.int32()
    code, size = lines.code.cast(number), lines.size.cast(pa.int64())
    failed = pc.greater_equal(code, 400)
    activity = looked_up(lines.method, lambda method: HTTP_METHODS.get(method, OTHER), number)
    severity = looked_up(code, severity_of_answer, number)
    no_user, no_size = pc.is_null(lines.user), pc.is_null(size)
    named = struct("actor.user", rows, no_user, name=lines.user)
    status = pc.if_else(failed, pa.scalar(FAILURE, number), pa.scalar(SUCCESS, number))
    return classified(HTTP, activity, status, rows) | {
        "severity_id": severity,
        "severity": looked_up(severity, SEVERITY.__getitem__, pa.string()),
        "status_code": lines.code,
        "message": pc.binary_join_element_wise(
            pc.binary_join_element_wise(lines.method, lines.target, " "), lines.code, ": "
        ),
        "metadata": struct(
            "metadata",
            rows,
            version=constant(VERSION, rows),
            product=struct(
                "metadata.product",
                rows,
                **{name: constant(value, rows) for name, value in product.items()},
            ),
            log_name=constant("access", rows),
        ),
        "time": lines.time,
        "time_quality": constant("exact", rows),
        "src_ip": lines.client,
        "src_endpoint": struct("src_endpoint", rows, ip=lines.client),
        "user_name": lines.user,
        "actor": struct("actor", rows, no_user, user=named),
        "http_request": _request(lines, rows),
        "http_response": struct("http_response", rows, code=code, length=size),
        "traffic": struct("traffic", rows, no_size, bytes=size, bytes_in=size),
        "observables": observables(
            rows,
            ("src_endpoint.ip", AN_IP, lines.client),
            ("http_request.url.url_string", A_URL, lines.target),
            ("http_request.user_agent", AN_AGENT, lines.agent),
            ("actor.user.name", A_USER, lines.user),
        ),
    }


def _request(lines: _Lines, rows: int) -> pa.Array:
    path, query = _path_and_query(lines.target)
    url = struct("http_request.url", rows, url_string=lines.target, path=path, query_string=query)
    return struct(
        "http_request",
        rows,
        http_method=lines.method,
        version=lines.version,
        user_agent=lines.agent,
        referrer=lines.referrer,
        url=url,
    )


def _path_and_query(targets: pa.Array) -> tuple[pa.Array, pa.Array]:
    """What stands before and behind the first question mark, of the former no fragment."""
    # Split once, because a query may hold more of them.
    split = _pieces(targets, "?", 1)
    path, query = split(0), _none_if(split(1), "")
    if pc.any(pc.match_substring(path, "#")).as_py():
        path = _pieces(path, "#", 1)(0)
    return path, query
