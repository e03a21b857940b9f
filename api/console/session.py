"""Who is signed in: a cookie names a session that is kept in a file, and a login link.

A link is a file that only its owner can write, named by the hash of its code: who takes the file
away may sign in, so it serves once, also between processes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from api.auth import Access, Caller
from api.services.act_store import StateFolder
from infra.config.settings import Settings

COOKIE = "headgate_session"
IDLE_SECONDS = 3600.0 * 8
SESSION_SECONDS = 3600.0 * 24
LINK_SECONDS = 3600.0
_MOST = 1000
"""Sessions at a time; the one that was idle longest makes room."""


@dataclass(frozen=True)
class ConsoleSession:
    """One signed-in browser."""

    caller: Caller
    csrf: str

    def sent_by_us(self, token: str) -> bool:
        """Whether a form's token is that of this session."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.csrf.encode())


class Sessions:
    """The sessions of a home, by the hash of their cookie: they outlive the process."""

    def __init__(self, settings: Settings, access: Access) -> None:
        # A file's age is the time since its session was used last.
        self._files = StateFolder(settings, "sessions", timedelta(seconds=IDLE_SECONDS))
        self._access = access
        self._lock = threading.Lock()

    def begin(self, caller: Caller) -> str:
        """Begin a session; returns the cookie's value."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._make_room()
            self._files.put(
                _hash(cookie),
                {
                    "name": caller.name,
                    "credential": caller.credential,
                    "csrf": secrets.token_urlsafe(24),
                    "began": time.time(),
                },
            )
        return cookie

    def of(self, cookie: str | None) -> ConsoleSession | None:
        """The session of a cookie; None when there is none, it is over, or its key was ended."""
        kept = self._files.get(_hash(cookie)) if cookie else None
        if cookie is None or kept is None:
            return None
        # Asked at each request: a key that was ended takes its sessions along at once.
        caller = self._access.still(str(kept["name"]), str(kept["credential"]))
        if caller is None or time.time() - float(kept["began"]) > SESSION_SECONDS:
            self.end(cookie)
            return None
        self._files.touch(_hash(cookie))
        return ConsoleSession(caller, str(kept["csrf"]))

    def end(self, cookie: str | None) -> None:
        """End a session."""
        self._files.take(_hash(cookie or ""))

    def _make_room(self) -> None:
        known = sorted(self._files.ids(), key=self._files.age)
        # One less than the most: the new one is about to come.
        for name in known[_MOST - 1 :]:
            self._files.take(name)


def new_link(settings: Settings) -> str:
    """Make a login link for one use; returns its path on the console."""
    code = secrets.token_urlsafe(24)
    folder = _links(settings)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(folder / _hash(code), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(handle)
    return f"/login/{code}"


def use_link(settings: Settings, code: str) -> bool:
    """Whether the code is that of a link which nobody used yet; from now on it is used."""
    file = _links(settings) / _hash(code)
    try:
        # Who takes the file away may sign in: of two at once `unlink` succeeds for one alone.
        age = time.time() - file.stat().st_mtime
        file.unlink()
    except FileNotFoundError:
        return False
    return age <= LINK_SECONDS


def _links(settings: Settings) -> Path:
    return settings.home.absolute() / "console.links"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
