"""What a finding is made of: its identity, its Arrow schema, its one readable line."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import pyarrow as pa

from alerts.tables import FINDING
from infra.parquet import arrow_schema
from ingest.tables import EVENT

SNIPPET_CHARS = 300
FIELD_CHARS = 256

RULE_FAILED = "headgate-rule-failed"
"""Rule id of the finding that says a rule threw; it is in no pack."""


def identity(*parts: str) -> str:
    """32 hex digits that say which parts these were: ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:32]


def one_line(text: str, limit: int = SNIPPET_CHARS) -> str:
    """`text` on one line of at most `limit` characters, control characters escaped."""
    clean = text
    if not text.isprintable():
        clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


@lru_cache(maxsize=1)
def finding_schema() -> pa.Schema:
    """Arrow schema of gold.finding, timestamps in UTC microseconds."""
    return arrow_schema(FINDING)


@lru_cache(maxsize=1)
def event_schema() -> pa.Schema:
    """Arrow schema of silver.event, timestamps in UTC microseconds."""
    return arrow_schema(EVENT)
