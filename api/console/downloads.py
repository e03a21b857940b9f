"""Files that a page sends piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fastapi.responses import Response, StreamingResponse


def download(pieces: Iterator[str] | Iterator[bytes], media_type: str, name: str) -> Response:
    """A file of these pieces, text or bytes. Errors of the first are raised before the answer.

    An answer that has begun can only break off, which a browser shows as a short file.
    """
    first = next(pieces, "")
    return StreamingResponse(
        chain([first], pieces),
        media_type=media_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
