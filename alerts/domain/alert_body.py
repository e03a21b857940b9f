"""The body of an alert's row as people read it, also where a disk or a hand has damaged it.

`gold.alert` has what is asked most as columns, and the whole alert as JSON in `body`. One damaged
body must not keep all others of an answer from who asks, nor hide what the columns still tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from infra.errors import Fatal

UNREADABLE = "unreadable"
"""What the text of a body stands under that is no JSON object."""

PUT_BACK = "headgate backup restore BACKUP --damaged --table gold.alert"
"""What puts a damaged file back as it was."""


class DamagedAlert(Fatal):
    """The body of an alert is damaged, and what was asked needs it whole."""


def readable_body(text: str | None) -> dict[str, Any]:
    """The body of a row of gold.alert; text that is no JSON object stands under `UNREADABLE`.

    None, as other hands may have written it, is such a text, of no characters.
    """
    try:
        body = msgspec.json.decode(text or "")
    except (msgspec.DecodeError, UnicodeError):
        body = None
    return body if isinstance(body, dict) else {UNREADABLE: text or ""}


def damage(body: Mapping[str, Any], alert_id: str, revision: int) -> str | None:
    """That a body is damaged, what is left, and where its text is; None: it is whole."""
    if UNREADABLE not in body:
        return None
    return (
        f"alert {alert_id}, revision {revision}: its body is damaged (it is no JSON object). "
        "Rule, entity, level, times and count are columns of their own and whole; evidence, "
        "attribution, assignee and verdict are lost with it unless a backup has its file: "
        f"{PUT_BACK}. Its text: SELECT body FROM gold.alert "
        f"WHERE alert_id = '{alert_id}' AND revision = {revision}"
    )


def require_whole(body: Mapping[str, Any], alert_id: str, revision: int) -> None:
    """Raises `DamagedAlert` for a body that is not."""
    if sentence := damage(body, alert_id, revision):
        raise DamagedAlert(sentence)


def in_body(path: str, body: str = "body") -> str:
    """SQL: the text at a path of the JSON in a column, or a list of texts where it has wildcards.

    Null where that is no JSON.
    """
    # Not `TRY`: beside GROUP BY, DuckDB 1.5 fails to plan it.
    return f"CASE WHEN json_valid({body}) THEN json_extract_string({body}, '$.{path}') END"
