"""Who is signed in: a cookie names a session that lives in this process, and a login link.

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
from pathlib import Path

from api.auth import Caller
from infra.config.settings import Settings

COOKIE = "headgate_session"
IDLE_SECONDS = 3600.0 * 8
SESSION_SECONDS = 3600.0 * 24
LINK_SECONDS = 3600.0
_MOST = 1000
"""Sessions at a time; the oldest makes room."""


@dataclass
class ConsoleSession:
    """One signed-in browser."""

    caller: Caller
    csrf: str
    began: float
    seen: float

    def over(self, now: float) -> bool:
        """Whether it was idle, or lasts, for too long."""
        return now - self.seen > IDLE_SECONDS or now - self.began > SESSION_SECONDS

    def sent_by_us(self, token: str) -> bool:
        """Whether a form's token is that of this session."""
        return hmac.compare_digest(token.encode(), self.csrf.encode())


class Sessions:
    """The sessions of this process, by the hash of their cookie."""

    def __init__(self) -> None:
        self._known: dict[str, ConsoleSession] = {}
        self._lock = threading.Lock()

    def begin(self, caller: Caller) -> str:
        """Begin a session; returns the cookie's value."""
        cookie, now = secrets.token_urlsafe(32), time.monotonic()
        with self._lock:
            for name in [name for name, session in self._known.items() if session.over(now)]:
                del self._known[name]
            while len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[_hash(cookie)] = ConsoleSession(caller, secrets.token_urlsafe(24), now, now)
        return cookie

    def of(self, cookie: str | None) -> ConsoleSession | None:
        """The session of a cookie; None when there is none or it is over."""
        if not cookie:
            return None
        now = time.monotonic()
        with self._lock:
            session = self._known.get(_hash(cookie))
            if session is None or session.over(now):
                return None
            session.seen = now
            return session

    def end(self, cookie: str | None) -> None:
        """End a session."""
        with self._lock:
            self._known.pop(_hash(cookie or ""), None)


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
        age = time.time() - file.stat().st_mtime
        file.unlink()
    except FileNotFoundError:
        return False
    return age <= LINK_SECONDS


def _links(settings: Settings) -> Path:
    return settings.home.absolute() / "console.links"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
