"""How long a caller waits before it is told to come again: `wait_seconds`, or `Prefer` (RFC 7240).

A preference is a wish: what is not known here is passed over, as the RFC wants it, and what is
followed is told back as `Preference-Applied`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from api.wire.jobs import UNDER_WAY, StoredJob
from infra.errors import Usage

LONGEST_WAIT = 20
"""Seconds; a proxy in between may give up after thirty."""
LOOK_AGAIN = 2
"""Seconds after which it is worth to look at what goes on."""

_MOST_CHARACTERS = 1_000
"""Of `Prefer`. A header may have 64 KiB, over whose commas the parts would be sought for seconds,
in which no other thread runs."""
_PREFERENCE = re.compile(r'\s*([^\s=;,"]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*))?')
"""A name and its value, before parameters, which none of ours has."""


@dataclass(frozen=True)
class Wait:
    """What a caller said of it. `seconds` None: nothing."""

    seconds: float | None
    preferred: int | None = None
    respond_async: bool = False

    def within(self, usual: float) -> float:
        """Seconds to wait, where `usual` is for who said nothing."""
        return usual if self.seconds is None else self.seconds

    def applied(self, status: int) -> dict[str, str]:
        """The header that tells which preferences an answer of that status follows."""
        followed = ["respond-async"] if self.respond_async and status == 202 else []
        followed += [f"wait={self.preferred}"] if self.preferred is not None else []
        return {"Preference-Applied": ", ".join(followed)} if followed else {}

    def tell(self, response: Response, path: str, state: str) -> None:
        """Status and headers of an answer that is the job at `path`."""
        if state in UNDER_WAY:
            response.status_code = 202
            response.headers["Retry-After"] = str(LOOK_AGAIN)
        response.headers["Location"] = path
        response.headers.update(self.applied(response.status_code or 200))

    def later(self, job: StoredJob, path: str) -> Response | None:
        """202 with the job at `path` where it goes on; None where it is over."""
        if not job.under_way:
            return None
        answer = JSONResponse(job.model_dump(mode="json"))
        self.tell(answer, path, job.state)
        return answer


def waits(usual: str) -> Any:
    """The dependency of a route that says `usual` of how long it waits where nobody says it."""

    # As defaults: an annotation is text here, and could not name `usual`.
    asked = Query(
        None,
        ge=0,
        le=LONGEST_WAIT,
        description=f"for so long it is waited for; not done by then: 202. Without it {usual}",
    )
    preferences = Header(
        None,
        description="`respond-async`: 202 at once; `wait=N`: after N s, at most "
        f"{LONGEST_WAIT}; both: the same (RFC 7240)",
    )

    # Described as one text, since generated clients know no header that is a list.
    def wait_of(
        request: Request,
        wait_seconds: float | None = asked,
        prefer: str | None = preferences,
    ) -> Wait:
        return preferred(wait_seconds, request.headers.getlist("prefer") if prefer else ())

    return Depends(wait_of)


def preferred(wait_seconds: float | None, headers: list[str] | tuple[str, ...]) -> Wait:
    """What was said; raises `Usage` where the two contradict each other, or N is no number."""
    known: dict[str, str] = {}
    for name, value in _preferences(headers):
        if name in ("respond-async", "wait"):
            # The first counts, as the RFC says.
            known.setdefault(name, value)
    if not known:
        return Wait(wait_seconds)
    if wait_seconds is not None:
        raise Usage("wait_seconds and Prefer both say how long to wait; send one of them")
    at_once = "respond-async" in known
    if at_once and known["respond-async"]:
        raise Usage(f"Prefer: respond-async has no value, and '{known['respond-async']}' was given")
    if "wait" not in known:
        return Wait(0.0, None, at_once)
    if not re.fullmatch(r"[0-9]{1,9}", known["wait"]):
        raise Usage(f"Prefer: wait={known['wait']} is no whole number of seconds; say wait=10")
    seconds = min(int(known["wait"]), LONGEST_WAIT)
    return Wait(float(seconds), seconds, at_once)


def _preferences(headers: list[str] | tuple[str, ...]) -> Iterator[tuple[str, str]]:
    text = ",".join(headers)
    if len(text) > _MOST_CHARACTERS:
        raise Usage(f"Prefer: {len(text)} characters; {_MOST_CHARACTERS} are the most")
    for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', text):
        if match := _PREFERENCE.match(part):
            yield match[1].lower(), (match[2] or "").strip('"')


_LATER_HEADERS: dict[str, Any] = {
    "Location": {"description": "where the job is", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "seconds after which it is worth to look",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Preference-Applied": {
        "description": "what was followed of Prefer",
        "schema": {"type": "string"},
    },
}
"""Of a 202, in the description."""


def later_answer(
    job: type[StoredJob], description: str = "not done yet; `Location` says where to look"
) -> dict[str, Any]:
    """What the description says of a 202 that is a job."""
    return {"model": job, "description": description, "headers": _LATER_HEADERS}
