"""Templates and what they are given: every text that is written goes through `safe_text`."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2.utils import missing
from markupsafe import Markup, escape

from alerts.domain.levels import severity_of_level
from api.console.assets import asset_url
from api.console.safe_text import plain_text, shown_lines, shown_text
from api.console.session import ConsoleSession

_TITLES = {
    403: "Not allowed", 404: "Not there", 405: "Not a page", 409: "Changed meanwhile",
    412: "Changed meanwhile", 422: "That does not fit", 500: "A fault", 503: "Not now",
}  # fmt: skip
"""What an error is called, for people."""
_OURS = ("api.", "alerts.", "infra.", "enrich.", "reporting.")
"""Modules whose classes have all their fields always."""
THEMES = ("auto", "dark", "light")
_ZONES = ("utc", "local")
_FOLDER = Path(__file__).parent
_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
"""An instant within a sentence, as programs write it."""
_SMALL = 1400
"""Bytes below which a page is not compressed: it fits one packet."""


def respond(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """A page, or a part of one, from its template."""
    session = getattr(request.state, "session", None)
    console = request.app.state.console
    body = (
        templates()
        .get_template(template)
        .render(
            context
            | {
                "session": session,
                "csrf": session.csrf if session else "",
                "theme": _choice(request, "headgate_theme", THEMES),
                "zone": _choice(request, "headgate_zone", _ZONES),
                "navigation": console.navigation(session.caller) if session else [],
                "sign_on": console.sign_on,
                "address": str(request.base_url).rstrip("/"),
                "here": request.url,
                "now": datetime.now(UTC),
                "limited": session is not None and session.caller.limits is not None,
                "several_tenants": _several_tenants(session),
                "can_act": session is not None and session.caller.may("analyst"),
                "part": bool(request.headers.get("HX-Request")),
            }
        )
        # What UTF-8 cannot write, a lone surrogate, must not fail the page.
        .encode("utf-8", "replace")
    )
    # One address answers a page, a part of it, or the login: no cache may mix them up.
    headers = {"Vary": "HX-Request, Accept-Encoding, Cookie"}
    if len(body) > _SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 5), "gzip"
    return HTMLResponse(body, status, headers=headers)


def _several_tenants(session: ConsoleSession | None) -> bool:
    """Whether what is shown may be of several tenants."""
    limits = session.caller.limits if session else None
    return limits is None or limits.tenants is None or len(limits.tenants) > 1


def error_page(request: Request, status: int, detail: str) -> Response:
    """An error as a page, or as a notice where a part of a page was asked for."""
    part = bool(request.headers.get("HX-Request"))
    response = respond(
        request,
        "notice.html" if part else "error.html",
        status,
        number=status,
        title=_TITLES.get(status, HTTPStatus(status).phrase),
        detail=detail,
        page=None,
        # A form goes back to its page with the sentence, where script runs; a link does not.
        before=page_before(request),
        again=_path_of(request) if request.method == "GET" and status == 503 else None,
        anew=request.url.path if request.method == "GET" and request.url.query else None,
        in_place=request.method != "GET" or status == HTTPStatus.UNPROCESSABLE_ENTITY,
    )
    if part:
        # The list or form that was asked about stays; the sentence goes where notices go.
        response.headers["HX-Retarget"] = "#notices"
        response.headers["HX-Reswap"] = "afterbegin"
    return response


def page_before(request: Request) -> str | None:
    """The page of this console that a request came from, as a path; None for elsewhere."""
    came_from = urlsplit(request.headers.get("referer", ""))
    if came_from.netloc != request.url.netloc or not came_from.path.startswith("/"):
        return None
    # Of the login nobody wants to be reminded, and `//host` would lead elsewhere.
    if came_from.path.startswith(("/login", "//")):
        return None
    path = came_from.path + (f"?{came_from.query}" if came_from.query else "")
    return None if request.method == "GET" and path == _path_of(request) else path


def _path_of(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


class _Absent(jinja2.ChainableUndefined):
    """A field that an alert's body does not have is empty; a name a template gets wrong fails."""

    def __new__(cls, hint: Any = None, obj: Any = missing, *given: Any, **named: Any) -> Any:
        # A bare name, or a field of a class of ours, is a mistake in the template; what a document
        # lacks, or null within it, is not.
        if obj is missing or type(obj).__module__.startswith(_OURS):
            return jinja2.StrictUndefined(hint, obj, *given, **named)
        return super().__new__(cls)


@cache
def templates() -> jinja2.Environment:
    """The templates: what lies beside a page, and what pages share."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_FOLDER / "pages", _FOLDER / "templates"]),
        autoescape=True,
        undefined=_Absent,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_written,
    )
    made.filters |= {
        "shown": shown_text,
        "lines": shown_lines,
        "plain": plain_text,
        "exact": _exact,
        "seg": _segment,
        "shell": lambda value: shlex.quote(str(value)),
        "when": _when,
        "iso_when": _iso_when,
        "instants": lambda text: _INSTANT.sub(r"\1 \2 UTC", str(text or "")),
        "clock": _clock,
        "iso": iso_time,
        "span": time_span,
        "number": _number,
        "compact": _compact,
        "data": _data,
        "query": _query,
        "level_number": severity_of_level,
        "plural": lambda n, word, many=None: f"{n:,} {word if n == 1 else many or word + 's'}",
    }
    made.globals |= {"asset": asset_url, "level_bars": level_bars}
    return made


def level_bars(level: str) -> Markup:
    """A level as five bars of which so many are full."""
    return _bars(severity_of_level(level))


@cache
def _bars(full: int) -> Markup:
    # Drawn once: each row of a list has them.
    bars = "".join(
        f'<rect x="{number * 4}" y="{9.8 - number * 2.2:.1f}" width="3"'
        f' height="{number * 2.2 + 3.7:.1f}" rx="0.8" class="{"on" if number < full else "off"}" />'
        for number in range(5)
    )
    return Markup(f'<svg class="bars" viewBox="0 0 20 14" aria-hidden="true">{bars}</svg>')


def _written(value: Any) -> Any:
    """What an expression of a template becomes: no text reaches a page past this."""
    if value is None:
        return ""
    # Markup was made by a filter of ours, which has cleaned it already.
    return plain_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _segment(value: Any) -> str:
    """A text as a part of an address."""
    text = str(value)
    # Nearly every id, and a list has hundreds of them.
    return text if text.isascii() and text.isalnum() else quote(text, safe="")


def _exact(value: Any) -> Markup:
    """A text unchanged but for HTML: for the value of a field that is sent back."""
    return escape("" if value is None else str(value))


def _when(value: datetime | None, relative: bool = True) -> Markup:
    """A time: exact in UTC as sent, then as the reader chose it (zone, relative) by script."""
    if not value:
        return Markup('<span class="none">-</span>')
    # Both are digits and signs of ours: nothing in them has to be escaped.
    return Markup(
        f'<time datetime="{iso_time(value)}"{" data-relative" if relative else ""}>'
        f"{_clock(value)}</time>"
    )


def _iso_when(value: str | datetime | None, relative: bool = True) -> Markup:
    """The same of a time that is still a text."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value) if value else None
        except ValueError:
            return shown_text(value)
    return _when(value, relative)


def _clock(value: datetime) -> str:
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"


def iso_time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_span(value: float | timedelta | None) -> str:
    """A length of time: 4 s, 3 min, 5 h 10 min, 2 d 4 h."""
    if value is None:
        return "-"
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 36:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def _number(value: float | None) -> Markup:
    """12 345: a thin space every three digits."""
    if value is None:
        return Markup("-")
    return Markup(f"{value:,.0f}".replace(",", "\u202f"))


def _compact(value: float) -> str:
    """A count in a tight place: 950, 1.2k, 34k, 5.1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            short = value / size
            return f"{short:.1f}{letter}" if short < 10 else f"{short:.0f}{letter}"
    return f"{value:.0f}"


def _data(value: Any) -> Markup:
    """JSON for an attribute that a script reads; ASCII only, so nothing in it is written out."""
    return escape(json.dumps(value, default=_plain_json, separators=(",", ":")))


def _plain_json(value: Any) -> Any:
    return iso_time(value) if isinstance(value, datetime) else str(value)


def _query(values: Mapping[str, Any]) -> Markup:
    """Values as the query of an address; empty ones are left out, lists are repeated.

    An empty text within a list is a choice: what nobody took, what nothing was said of.
    """
    pairs = []
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            pairs += [(name, given) for given in value if given is not None]
        elif value not in (None, "", False):
            pairs.append((name, value))
    return escape(urlencode(pairs))


def _choice(request: Request, cookie: str, choices: tuple[str, ...]) -> str:
    value = request.cookies.get(cookie, "")
    return value if value in choices else choices[0]
