"""Query parameters: one that a route does not know is refused by its name, never ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, TypeVar, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant

from infra.errors import Usage

HINTS = {
    "format": "answers are JSON",
    "page": "pages have a 'cursor': take 'next' of the page before",
    "offset": "pages have a 'cursor': take 'next' of the page before",
    "from": "say since",
    "to": "say until",
    "state": "say status",
    "lifecycle": "say alert_status",
    "severity": "say level",
    "technique": "say tag",
    "search": "say q",
}
"""What to say of names that people bring from elsewhere."""


_OWN_QUERY: set[Callable[..., Any]] = set()

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def reads_own_query(endpoint: _Endpoint) -> _Endpoint:
    """For an endpoint that takes the query as a whole, and refuses itself what it does not know."""
    _OWN_QUERY.add(endpoint)
    return endpoint


def refuse_unknown(request: Request) -> None:
    """A dependency that raises `Usage` where the query names what the route does not know.

    A parameter given twice is refused too, unless it is a list: the first would be ignored.
    """
    route = request.scope.get("route")
    dependant = getattr(route, "dependant", None)
    if not isinstance(dependant, Dependant) or getattr(route, "endpoint", None) in _OWN_QUERY:
        return
    known = dict(_parameters(dependant))
    # `multi_items`, since the plain mapping shows only the last of a name.
    counted = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in counted.items():
        if name not in known:
            raise Usage(f"{name}: no such parameter here{_instead(name, list(known))}")
        if times > 1 and not known[name]:
            raise Usage(f"{name}: given {times} times, and it takes one value")


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Names of the parameters of a route and of all it depends on; whether each takes several."""
    for field in dependant.query_params:
        yield field.alias, _is_list(field.field_info.annotation)
    for dependency in dependant.dependencies:
        yield from _parameters(dependency)


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, tuple, set) or any(_is_list(part) for part in get_args(kind))


def _instead(name: str, known: list[str]) -> str:
    if not known:
        return "; it takes none"
    hint = HINTS.get(name.lower())
    if hint is not None and (not hint.startswith("say ") or hint[4:] in known):
        return f" ({hint}); it takes {', '.join(known)}"
    near = get_close_matches(name.lower(), known, 1)
    meant = f". Did you mean {near[0]}?" if near else ""
    return f"{meant} It takes {', '.join(known)}" if near else f"; it takes {', '.join(known)}"
