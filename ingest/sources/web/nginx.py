"""nginx's access log (https://nginx.org/en/docs/http/ngx_http_log_module.html).

The predefined format `combined` and what operators make of it: a virtual host in front,
times and upstream fields behind, named (`rt=0.005`) or not, ingress-nginx's format
(https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/log-format/),
and JSON.
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
from ingest.sources.shared.http_exchange import NONE, Exchange, milliseconds, whole
from ingest.sources.shared.http_fields import fill
from ingest.sources.shared.web_timestamps import first_of

if TYPE_CHECKING:
    import pyarrow as pa

_PRODUCT: Mapping[str, str] = {"name": "nginx", "vendor_name": "F5"}
_SECONDS = re.compile(r"\d{1,9}\.\d{3}", re.ASCII)
"""How nginx writes spans, unlike all its other numbers."""
INGRESS = (
    "request_length",
    "request_time",
    "proxy_upstream_name",
    "proxy_alternative_upstream_name",
    "upstream_addr",
    "upstream_response_length",
    "upstream_response_time",
    "upstream_status",
    "req_id",
)


def _extras(x: Exchange, tokens: list[Token]) -> None:
    """The fields behind the user agent."""
    # ingress-nginx: a length, a span, and the upstream's name in brackets.
    if len(tokens) > 6 and whole(tokens[0].text) is not None and tokens[2].bracket:
        _ingress(x, _joined(tokens))
        return
    for token in list(tokens):
        if x.duration is None and not token.bracket and _SECONDS.fullmatch(token.text):
            x.duration = milliseconds(token.text, 1000)
            tokens.remove(token)
    remaining(x, tokens)


def _joined(tokens: list[Token]) -> list[Token]:
    """The fields, those of several upstreams (`10.0.0.1:80, 10.0.0.2:80`) put together."""
    joined: list[Token] = []
    for token in tokens:
        # nginx parts upstreams with `, ` and, after an internal redirect, with ` : `.
        if joined and (joined[-1].text[-1:] in (",", ":") or token.text in (",", ":")):
            joined[-1] = joined[-1]._replace(text=f"{joined[-1].text} {token.text}")
        else:
            joined.append(token)
    return joined


def _ingress(x: Exchange, tokens: list[Token]) -> None:
    # Older releases write no alternative upstream, which stands in brackets too.
    names = [name for name in INGRESS if tokens[3].bracket or "alternative" not in name]
    for name, token in zip(names, tokens, strict=False):
        if token.text not in NONE and not fill(x, name, token.text):
            x.rest[name] = token.text
    remaining(x, tokens[len(names) :])


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

    return read_access("nginx", _PRODUCT, records, settings)


SOURCES = (
    FramedSource(
        name="nginx",
        programs=frozenset({"nginx", "nginx-access", "nginx_access", "ingress-nginx"}),
        product=_PRODUCT,
        reader=_read,
        restamper=first_of(restamp_web_json, restamp_clf),
        at_once=_at_once,
    ),
)
