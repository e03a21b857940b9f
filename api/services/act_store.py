"""What people asked for lately, so that it can be undone; and what was counted and not yet done.

Small files under `<home>/api`: any process of the API on this machine reads them.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from alerts.domain.short_ids import SHORTEST_ID
from infra.config.settings import Settings
from infra.errors import Retryable
from infra.storage.atomic_files import write_private

UNDO_FOR = timedelta(days=7)
PLAN_FOR = timedelta(minutes=15)
_NAME = re.compile(r"[A-Za-z0-9_-]{8,64}")
_BEGIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class StateFolder:
    """JSON documents by id in a folder of `<home>/api`, each for a time; its owner's alone."""

    def __init__(self, settings: Settings, name: str, lasts: timedelta) -> None:
        self.folder = settings.home.absolute() / "api" / name
        self.lasts = lasts

    def put(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep a document; raises `Retryable` when it cannot be written."""
        try:
            write_private(self._file(name), json.dumps(content, ensure_ascii=True))
        except OSError as error:
            raise Retryable(f"{self.folder}: cannot be written ({error.strerror})") from error

    def get(self, name: str) -> dict[str, Any] | None:
        """A document that is there and not too old; None for any other name."""
        # The name comes from a URL and becomes a file name: nothing in it may lead out of the
        # folder.
        if not _NAME.fullmatch(name):
            return None
        file = self._file(name)
        try:
            if time.time() - file.stat().st_mtime > self.lasts.total_seconds():
                return None
            content = json.loads(file.read_bytes())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def beginning(self, begin: str) -> list[str]:
        """Names of documents that are not too old and begin so, sorted; none for a short text."""
        # What is no name has no pattern in it either.
        if len(begin) < SHORTEST_ID or not _BEGIN.fullmatch(begin):
            return []
        names = sorted(file.stem for file in self.folder.glob(f"{begin}*.json"))
        return [name for name in names if self.get(name) is not None]

    def take(self, name: str) -> dict[str, Any] | None:
        """The document, which is gone then: of several takers one gets it. Raises `Retryable` when
        it cannot be removed."""
        content = self.get(name)
        if content is None:
            return None
        try:
            # Removing a file succeeds for one process only, which is what makes this exclusive.
            self._file(name).unlink()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Retryable(f"{self.folder}: cannot be written ({error.strerror})") from error
        return content

    def ids(self) -> list[str]:
        """Every document that is not too old; the others are removed."""
        for name in (known := [file.stem for file in self.folder.glob("*.json")]):
            if self.age(name) > self.lasts.total_seconds():
                self._file(name).unlink(missing_ok=True)
        return [name for name in known if self._file(name).exists()]

    def age(self, name: str) -> float:
        """Seconds since a document was written or touched; infinite for none."""
        try:
            return time.time() - self._file(name).stat().st_mtime
        except OSError:
            return math.inf

    def touch(self, name: str) -> None:
        """Let a document live on from now; at most once a minute, as pages ask often."""
        if self.age(name) > 60:
            with suppress(OSError):
                os.utime(self._file(name))

    def all(self) -> Iterator[dict[str, Any]]:
        """Every document that is not too old; the others are removed."""
        oldest = time.time() - self.lasts.total_seconds()
        # A list, since files are removed while it is gone through.
        for file in list(self.folder.glob("*.json")) if self.folder.is_dir() else []:
            with suppress(OSError, ValueError):
                if file.stat().st_mtime < oldest:
                    file.unlink()
                    continue
                content = json.loads(file.read_bytes())
                if isinstance(content, dict):
                    yield content

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else, in whatever process, is in here at the same time."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / "lock").open("w") as lock:
                # A lock of the kernel's: it goes with the process, so a crash leaves none behind.
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise Retryable(f"{self.folder}: cannot be written ({error.strerror})") from error

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def new_id() -> str:
    """An id that nobody guesses."""
    return secrets.token_urlsafe(16)


def expiry(lasts: timedelta) -> datetime:
    """The end of something that begins now."""
    return datetime.now(UTC) + lasts
