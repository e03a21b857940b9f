"""Style sheets, scripts and fonts, read once, compressed once, named by their content."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_URL = re.compile(rb'url\("([^"]+)"\)')
_YEAR = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    media_type: str
    content: bytes
    compressed: bytes | None
    """None where compression gains nothing (a font)."""
    version: str


@cache
def assets() -> dict[str, Asset]:
    """Every file that may be asked for, by its path under `static`."""
    files = [file for file in sorted(STATIC.rglob("*")) if file.suffix in _TYPES]
    known: dict[str, Asset] = {}
    for file in sorted(files, key=lambda file: file.suffix == ".css"):
        content = file.read_bytes()
        if file.suffix == ".css":
            content = _URL.sub(lambda url: _versioned(url[1], known), content)
        known[file.relative_to(STATIC).as_posix()] = _asset(file.suffix, content)
    return known


def _versioned(name: bytes, known: dict[str, Asset]) -> bytes:
    """What a style sheet names, by its content as well: else a font would be asked for twice."""
    asset = known.get(name.decode())
    return b'url("/static/%s?v=%s")' % (name, asset.version.encode()) if asset else name


def asset_url(name: str) -> str:
    """Where a page finds a file; its content is in the address, so browsers may keep it."""
    return f"/static/{name}?v={assets()[name].version}"


@router.get("/static/{name:path}")
async def static(request: Request, name: str, v: str = "") -> Response:
    """A file of the console; no secret is in them, so nobody has to be signed in."""
    asset = assets().get(name)
    if asset is None:
        raise HTTPException(404, f"there is no /static/{name}")
    current = v == asset.version
    headers = {
        "Cache-Control": _YEAR if current else "no-cache",
        "ETag": f'"{asset.version}"',
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if asset.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.compressed, media_type=asset.media_type, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


def _asset(suffix: str, content: bytes) -> Asset:
    small = None if suffix == ".woff2" else gzip.compress(content, 9, mtime=0)
    return Asset(_TYPES[suffix], content, small, hashlib.sha256(content).hexdigest()[:12])
