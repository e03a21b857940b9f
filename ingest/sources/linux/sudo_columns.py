"""How sudo's lines are worded, for reading those alike at once."""

from __future__ import annotations

import pyarrow as pa

from ingest.parsing.source import ParseSettings, Read
from ingest.sources.shared.alike_lines import USER, read_alike, text

_USER = rf"(?P<user>{USER})"

_TEXTS = tuple(
    map(
        text,
        (
            # A command may hold anything, so all that follows the name is compared.
            rf"(){_USER}( : .*)",
            rf"(pam_unix\(sudo(?:-i)?:session\): session (?:opened|closed) for user ){_USER}"
            r"((?:\(.*| .*)?)",
            r"(.{1,400})",
        ),
    )
)


def read_sudo(records: pa.RecordBatch, settings: ParseSettings) -> Read:
    """The events of those of `records` that are worded as others, as in `Source.columns`."""
    return read_alike("sudo", records, settings, _TEXTS)
