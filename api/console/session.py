"""Who is signed in: a cookie names a session that is kept in a file, and a login link.

A link is a file that only its owner can write, named by the hash of its code: who takes the file
away may sign in, so it serves once, also between processes.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from api.auth import Access, Caller
from api.services.act_store import StateFolder
from infra.config.settings import Settings
from infra.errors import NoSuch

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


@dataclass(frozen=True)
class OpenSession:
    """A session as an administrator sees it. `session_id`: the hash of its cookie, with which
    nobody comes in; `address`: where it was begun from, as far as that is known; `seen_at`: when it
    asked last, to a minute."""

    session_id: str
    caller: Caller
    address: str
    began_at: datetime
    seen_at: datetime


class Sessions:
    """The sessions of a home, by the hash of their cookie: they outlive the process."""

    def __init__(self, settings: Settings, access: Access) -> None:
        # A file's age is the time since its session was used last.
        self._files = StateFolder(settings, "sessions", timedelta(seconds=IDLE_SECONDS))
        self._access = access
        self._lock = threading.Lock()

    def begin(self, caller: Caller, address: str = "") -> str:
        """Begin a session; returns the cookie's value. `address`: where it is begun from."""
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
                    "address": address,
                },
            )
        return cookie

    def of(self, cookie: str | None) -> ConsoleSession | None:
        """The session of a cookie; None when there is none, it is over, or its key was ended."""
        kept = self._files.get(_hash(cookie)) if cookie else None
        if cookie is None or kept is None:
            return None
        caller = self._caller(kept)
        if caller is None:
            self.end(cookie)
            return None
        self._files.touch(_hash(cookie))
        return ConsoleSession(caller, str(kept["csrf"]))

    def end(self, cookie: str | None) -> None:
        """End a session."""
        self._files.take(_hash(cookie or ""))

    def listed(self) -> list[OpenSession]:
        """The open ones, that asked last first."""
        sessions = []
        for name in self._files.ids():
            kept, idle = self._files.get(name), self._files.age(name)
            # One may end while the others are read.
            if kept is None or (caller := self._caller(kept)) is None or math.isinf(idle):
                continue
            sessions.append(
                OpenSession(
                    session_id=name,
                    caller=caller,
                    # One of an earlier release did not keep it.
                    address=str(kept.get("address", "")),
                    began_at=datetime.fromtimestamp(float(kept["began"]), UTC),
                    seen_at=datetime.now(UTC) - timedelta(seconds=idle),
                )
            )
        return sorted(sessions, key=lambda session: session.seen_at, reverse=True)

    def end_listed(self, session_id: str) -> str:
        """End one of those listed, and tell whose it was; raises `NoSuch`."""
        kept = self._files.take(session_id)
        if kept is None:
            raise NoSuch("that session is over already")
        return str(kept["name"])

    def _caller(self, kept: Mapping[str, Any]) -> Caller | None:
        """Whose a session is; None: it is over, or its key was ended."""
        if time.time() - float(kept["began"]) > SESSION_SECONDS:
            return None
        # Asked at each request: a key that was ended takes its sessions along at once.
        return self._access.still(str(kept["name"]), str(kept["credential"]))

    def _make_room(self) -> None:
        known = sorted(self._files.ids(), key=self._files.age)
        # One less than the most: the new one is about to come.
        for name in known[_MOST - 1 :]:
            self._files.take(name)


def session_id_of(cookie: str | None) -> str:
    """What a session is called where sessions are listed."""
    return _hash(cookie or "")


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
