"""What a finding is made of: its identity, its Arrow schema, its one readable line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

SNIPPET_CHARS = 300
FIELD_CHARS = 256
NAME_CHARS = 256
"""Of a host or user as a finding names it. No real one is longer; what is stands in the event."""
DIGEST_CHARS = 16

SUBJECTS = ("process.cmd_line", "http_request.url.url_string", "query.hostname")
"""Columns with what an event is about, which the line of its finding always shows."""

RULE_FAILED = "headgate-rule-failed"
"""Rule id of the finding that says a rule threw; it is in no pack."""

DISPROVED = "disproved"
"""`via` of a correlation's finding whose window turned out not to be there."""

CONFIRMED = "confirmed"
"""Key of a finding in job `alert`: whether its rule holds for whom it is about."""


def identity(*parts: str) -> str:
    """32 hex digits that say which parts these were: ("ab", "c") and ("a", "bc") differ."""
    return hashlib.sha256(b"".join(map(framed, parts))).hexdigest()[:32]


def identities(first: str) -> Callable[[bytes], str]:
    """`identity(first, other)` as a function of `framed(other)`: the first part is digested once,
    and the other is framed once for all the firsts it stands beside."""
    begun = hashlib.sha256(framed(first)).copy

    def with_other(other: bytes) -> str:
        digest = begun()
        digest.update(other)
        return digest.hexdigest()[:32]

    return with_other


def framed(part: str) -> bytes:
    """A part as `identity` digests it."""
    # JSON may escape half a surrogate pair, which a strict encoding refuses.
    data = part.encode("utf-8", "surrogatepass")
    # Length before content: no two lists of parts give the same bytes.
    return len(data).to_bytes(8, "big") + data


def single_line(text: str, limit: int = SNIPPET_CHARS) -> str:
    """`text` on one line of at most `limit` characters, control characters escaped."""
    clean = text
    if not text.isprintable():
        clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def named(text: str | None, limit: int = NAME_CHARS) -> str | None:
    """`text`, or its beginning and a digest where it is longer: two long names stay two.

    Whoever can log a name can log one of megabytes, which would go into every alert about it.
    """
    if text is None or len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:DIGEST_CHARS]
    return f"{text[: limit - DIGEST_CHARS - 1]}…{digest}"


def counts(row: Mapping[str, Any]) -> bool:
    """Whether a finding, as it is attributed now, counts; one that did may do so no more."""
    return row.get("via") != DISPROVED and row.get(CONFIRMED) is not False


@lru_cache(maxsize=1)
def finding_schema() -> pa.Schema:
    """Arrow schema of gold.finding, timestamps in UTC microseconds."""
    # Late, also below: commands that only name or show a finding need neither Arrow nor Spark.
    from alerts.tables import FINDING
    from infra.delta.parquet_writer import arrow_schema

    return arrow_schema(FINDING)


@lru_cache(maxsize=1)
def event_schema() -> pa.Schema:
    """Arrow schema of silver.event, timestamps in UTC microseconds."""
    from infra.delta.parquet_writer import arrow_schema
    from ingest.tables import EVENT

    return arrow_schema(EVENT)
