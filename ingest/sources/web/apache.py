"""Apache httpd's access log (https://httpd.apache.org/docs/2.4/mod/mod_log_config.html).

common, combined, vhost_combined, combinedio, `%D` and `%T` behind them, the SSL module's
ssl_request_log, and formats written as JSON. A user name or a path may hold quotes, which
Apache escapes as `\\"`, and other bytes as `\\xhh`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.source import Context, Event, ParseSettings, Read
from ingest.parsing.syslog import Line
from ingest.sources.shared.access_json import read_json, restamp_web_json
from ingest.sources.shared.clf import Token, access_event, read_clf, remaining, restamp_clf
from ingest.sources.shared.http_exchange import Exchange, milliseconds, whole
from ingest.sources.shared.web_timestamps import first_of

if TYPE_CHECKING:
    import pyarrow as pa

_PRODUCT: Mapping[str, str] = {"name": "HTTP Server", "vendor_name": "Apache"}
MILLION = 1_000_000
LEAST_MICROSECONDS = 50
"""No request is served faster; a smaller number alone behind the usual fields is seconds."""
LEAST_REQUEST = 14
"""Bytes of the shortest request, `GET / HTTP/1.0`."""
BOTH = re.compile(r"\**(\d{1,9})/(\d{1,15})\**", re.ASCII)


def _extras(x: Exchange, tokens: list[Token]) -> None:
    """The fields behind the user agent: spans (`%D`, `%T`, `%T/%D`) and octets (`%I %O`)."""
    # Apache quotes what comes from a header; a span or a count never stands in quotes.
    numbers = [None if token.quoted else whole(token.text) for token in tokens]
    both = BOTH.fullmatch(tokens[0].text) if tokens else None
    if both:
        x.duration = int(both[2]) // 1000
        del tokens[0]
    # `%T` or `%D` alone: nothing but its size tells seconds from microseconds.
    elif len(tokens) == 1 and numbers and numbers[0] is not None:
        seconds = numbers[0] < LEAST_MICROSECONDS
        x.duration = numbers[0] * 1000 if seconds else numbers[0] // 1000
    elif len(numbers) >= 2 and numbers[0] is not None and numbers[1] is not None:
        _two(x, tokens, numbers[0], numbers[1])
    elif tokens and (numbers[:1] == [None]) and "." in tokens[0].text:
        span = milliseconds(tokens[0].text, 1000)
        if span is not None:
            x.duration = span
            del tokens[0]
    remaining(x, tokens)


def _two(x: Exchange, tokens: list[Token], one: int, other: int) -> None:
    """Two numbers: seconds and microseconds of the same span, or octets in and out."""
    for seconds, micros in ((one, other), (other, one)):
        # Both say the same span, so the pair proves itself.
        if micros // MILLION == seconds and micros >= LEAST_MICROSECONDS:
            x.duration = micros // 1000
            del tokens[:2]
            return
    # `%O` counts headers too, so it is never below the body's length.
    if one >= LEAST_REQUEST and other >= (x.length or 0):
        x.sent, x.received = one, other
        del tokens[:2]
        if len(tokens) == 1 and (micros_left := whole(tokens[0].text)) is not None:
            x.duration = micros_left // 1000


def _read(line: Line, context: Context) -> Event | None:
    """A request; None for what is no line of an access log."""
    if line.text[:1] == "{":
        x, stamp = read_json(line, context, _extras)
        return access_event(x, stamp, _PRODUCT, line)
    received_at = context.record.received_at
    access_line = read_clf(line.text, context.zone(line.host), received_at, _extras)
    return access_event(*access_line, _PRODUCT, line) if access_line else None


def _at_once(records: pa.RecordBatch, settings: ParseSettings) -> Read:
    # Imported where Arrow is at hand anyway: the command line starts without it.
    from ingest.sources.web.access_columns import read_access

    return read_access("apache", _PRODUCT, records, settings)


SOURCES = (
    FramedSource(
        name="apache",
        programs=frozenset({"httpd", "apache", "apache2", "apache-access", "apache_access"}),
        product=_PRODUCT,
        reader=_read,
        restamper=first_of(restamp_web_json, restamp_clf),
        at_once=_at_once,
    ),
)
