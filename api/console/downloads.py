"""Files that a page sends piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fastapi.responses import Response, StreamingResponse


def download(pieces: Iterator[str], media_type: str, name: str) -> Response:
    """A file of these pieces. Errors of the first piece are raised before the answer begins.

    An answer that has begun can only break off, which a browser shows as a short file.
    """
    first = next(pieces, "")
    return StreamingResponse(
        chain([first], pieces),
        media_type=f"{media_type}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
