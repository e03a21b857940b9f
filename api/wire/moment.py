"""Times in requests, as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from infra.config.time_args import TIME_FORMS, time_of
from infra.errors import Usage


def _moment(value: Any) -> datetime:
    """The instant that a text names; within the years that tables and sums of times can hold."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError(f"write {TIME_FORMS}")
    try:
        return time_of("it", value, datetime.now(UTC))
    except Usage as error:
        # pydantic turns a `ValueError` into a problem of this field, with its name. Half a
        # surrogate, which JSON may name, would make it fail.
        raise ValueError(str(error).encode("utf-8", "backslashreplace").decode()) from None


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema(
        {"type": "string", "description": TIME_FORMS, "examples": ["2026-11-20T14:05:07Z", "-24h"]}
    ),
]
"""An instant in UTC, from a text that `infra.config.time_args.time_of` reads."""
