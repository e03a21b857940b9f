"""The bearer token: from the settings, or made once and kept beside the lake."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from infra.errors import Fatal
from infra.settings import Settings


def token_of(settings: Settings) -> str:
    """The API's token; when none is set, that of `<home>/api.token`, made if missing.

    The file is its owner's alone (0600). Raises `Fatal` when it cannot be kept
    or others may read it.
    """
    if settings.api.token is not None:
        return settings.api.token.get_secret_value()
    file = token_file(settings)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _make(file)
        if file.stat().st_mode & 0o077:
            raise Fatal(f"{file}: others may read it; run chmod 600 {file}")
        token = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Fatal(f"{file}: the API token cannot be kept there ({error})") from error
    if not token:
        raise Fatal(f"{file}: empty; remove it and a new token is made")
    return token


def token_file(settings: Settings) -> Path:
    """Where a token that was made is kept."""
    return settings.home.absolute() / "api.token"


def same(given: str, wanted: str) -> bool:
    """Compare without telling by the time taken how much of it was right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8"))


def _make(file: Path) -> None:
    """Write a new token under another name and link it, so that two starters agree on one."""
    if file.exists():
        return
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as text:
        text.write(secrets.token_urlsafe(32) + "\n")
    try:
        os.link(temporary, file)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
