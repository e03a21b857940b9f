"""Keys and local users that are made while the API runs: hashes only, read anew when they change.

Two files under `<home>/api`, their owner's alone. A key's token is 32 random bytes, so SHA-256
is enough; a password is a person's choice, so scrypt makes each guess dear (RFC 7914).
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from api.auth_roles import Role, role_of
from infra.config.settings import Settings
from infra.errors import Fatal, NoSuch, Usage
from infra.storage.atomic_files import write_private

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_RESERVED = ("api", "cli", "console")
SHORTEST_PASSWORD = 12
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 << 20}

TRIES = 5
LOCKED_SECONDS = 300.0
"""After so many wrong passwords a user is locked for so long, whoever asks."""


@dataclass(frozen=True)
class StoredKey:
    """A key: who has it, what it may, and the hash of its token."""

    name: str
    role: Role
    digest: str
    made_at: str
    expires_at: str | None = None
    requests_per_minute: int | None = None
    tables: tuple[str, ...] | None = None
    """Tables that its statements may read; None: all."""
    sources: tuple[str, ...] | None = None
    """Sources whose rows its statements see; None: all."""
    former_digest: str = ""
    """The token before, while a rotation lets it live on."""
    former_until: str | None = None
    tenants: tuple[str, ...] | None = None
    """Tenants whose rows its statements see; None: all."""

    @property
    def limits(self) -> dict[str, tuple[str, ...]]:
        """What it is limited to, as ops.audit keeps it."""
        given = {"tables": self.tables, "sources": self.sources, "tenants": self.tenants}
        return {name: value for name, value in given.items() if value is not None}

    def has(self, digest: str, now: datetime) -> bool:
        """Whether this is its token's hash, or that of the one before in its last hours."""
        if hmac.compare_digest(self.digest, digest):
            return True
        is_former = hmac.compare_digest(self.former_digest, digest)
        until = self.former_until
        return is_former and until is not None and now < datetime.fromisoformat(until)

    def is_over(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and datetime.fromisoformat(self.expires_at) <= now


@dataclass(frozen=True)
class StoredUser:
    """A person who signs in with a password."""

    name: str
    role: Role
    salt: str
    digest: str
    made_at: str
    tenants: tuple[str, ...] | None = None
    """Tenants whose rows their statements see; None: all."""

    @property
    def limits(self) -> dict[str, tuple[str, ...]]:
        """What they are limited to, as ops.audit keeps it."""
        return {} if self.tenants is None else {"tenants": self.tenants}


@dataclass(frozen=True)
class _Content:
    keys: tuple[StoredKey, ...] = ()
    users: tuple[StoredUser, ...] = ()


@dataclass(frozen=True)
class _File(_Content):
    """As it is written: who is limited to a tenant stands apart. A release that knows no tenants
    then does not know them, where it would take them for somebody without a limit."""

    tenant_keys: tuple[StoredKey, ...] = ()
    tenant_users: tuple[StoredUser, ...] = ()

    @classmethod
    def of(cls, content: _Content) -> _File:
        """What is to be written."""
        keys, users = content.keys, content.users
        return cls(
            tuple(key for key in keys if key.tenants is None),
            tuple(user for user in users if user.tenants is None),
            tuple(key for key in keys if key.tenants is not None),
            tuple(user for user in users if user.tenants is not None),
        )

    def content(self) -> _Content:
        """What was written. Raises `ValueError` for who stands apart without a tenant."""
        apart = [each.tenants for each in self.tenant_keys]
        apart += [each.tenants for each in self.tenant_users]
        if not all(apart):
            raise ValueError("one of tenant_keys or tenant_users names no tenant")
        return _Content((*self.keys, *self.tenant_keys), (*self.users, *self.tenant_users))


@dataclass
class _Failures:
    count: int = 0
    until: float = 0.0


@dataclass
class Credentials:
    """The keys and users of a home. Every question sees what was written last."""

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    _kept: tuple[tuple[int, int], _Content] | None = None
    """What was read last, by the file that it stood in; both at once, for threads share it."""
    _failures: dict[str, _Failures] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def file(self) -> Path:
        """Where they are kept."""
        return self.settings.home.absolute() / "api" / "credentials.json"

    def key_of(self, token: str) -> StoredKey | None:
        """The key that has this token and has not expired."""
        digest, now = _token_digest(token), datetime.now(UTC)
        # All are compared, so that the time taken does not tell which key came near.
        keys = [known_key for known_key in self.read().keys if known_key.has(digest, now)]
        return keys[0] if keys and not keys[0].is_over(now) else None

    def user_of(self, name: str, password: str) -> StoredUser | None:
        """The user who has this password; None for a wrong one, and while the name is locked."""
        with self._lock:
            failures = self._failures.setdefault(name, _Failures())
            # Bounded, or a flood of made-up names would fill the memory.
            if len(self._failures) > 10_000:  # names that somebody makes up
                self._failures = {name: failures}
            if self.clock() < failures.until:
                return None
        users = [user for user in self.read().users if user.name == name]
        # One who does not exist costs as much as one who does, so that time tells nobody.
        user = users[0] if users else StoredUser(name, "read", "00" * 16, "", "")
        is_right = hmac.compare_digest(_password_digest(password, user.salt), user.digest)
        with self._lock:
            if is_right and users:
                self._failures.pop(name, None)
                return user
            failures.count += 1
            if failures.count >= TRIES:
                failures.count, failures.until = 0, self.clock() + LOCKED_SECONDS
        return None

    def locked_seconds(self, name: str) -> float:
        """For how long a user is still locked; 0 for one who is not."""
        with self._lock:
            failures = self._failures.get(name)
        return max(0.0, failures.until - self.clock()) if failures else 0.0

    def add_key(
        self,
        name: str,
        role: str,
        expires_at: datetime | None = None,
        requests_per_minute: int | None = None,
        tables: tuple[str, ...] | None = None,
        sources: tuple[str, ...] | None = None,
        tenants: tuple[str, ...] | None = None,
    ) -> tuple[StoredKey, str]:
        """Make a key; returns it and its token, which is shown only once.

        `tables`, `sources`, `tenants`: all that its statements may read; with one of these it may
        do nothing else.
        """
        token = f"hg_{secrets.token_urlsafe(32)}"
        key = StoredKey(
            name,
            role_of(role),
            _token_digest(token),
            _now(),
            expires_at.isoformat() if expires_at else None,
            requests_per_minute,
            tables,
            sources,
            tenants=tenants,
        )
        with self._changing() as content:
            self._require_free(name, content)
            self._write(replace(content, keys=(*content.keys, key)))
        return key, token

    def rotate_key(self, name: str, overlap: timedelta = timedelta(0)) -> tuple[StoredKey, str]:
        """Give a key another token; the one before ends at once, or after `overlap`."""
        token = f"hg_{secrets.token_urlsafe(32)}"
        self._key(name, self.read())  # where there is none, no lock is to be made for it
        with self._changing() as content:
            old = self._key(name, content)
            key = replace(
                old,
                digest=_token_digest(token),
                made_at=_now(),
                former_digest=old.digest if overlap else "",
                former_until=(datetime.now(UTC) + overlap).isoformat() if overlap else None,
            )
            self._write(replace(content, keys=tuple(key if k is old else k for k in content.keys)))
        return key, token

    def remove_key(self, name: str) -> StoredKey:
        """End a key."""
        self._key(name, self.read())
        with self._changing() as content:
            old = self._key(name, content)
            self._write(replace(content, keys=tuple(k for k in content.keys if k is not old)))
        return old

    def put_user(
        self, name: str, role: str, password: str, tenants: tuple[str, ...] | None = None
    ) -> StoredUser:
        """Make a user, or give one another role, password and tenants.

        `tenants`: all whose rows and alerts they see; all else is closed then. None: as it
        was, or all.
        """
        if len(password) < SHORTEST_PASSWORD:
            raise Usage(f"a password has at least {SHORTEST_PASSWORD} characters")
        # A salt for each user: equal passwords have different hashes.
        salt = secrets.token_hex(16)
        digest = _password_digest(password, salt)
        with self._changing() as content:
            if tenants is None:
                # A new password must not lift a limit: for that a user is ended and made anew.
                tenants = next((u.tenants for u in content.users if u.name == name), None)
            user = StoredUser(name, role_of(role), salt, digest, _now(), tenants)
            others = tuple(user for user in content.users if user.name != name)
            self._require_free(name, replace(content, users=others))
            self._write(replace(content, users=(*others, user)))
        return user

    def change_role(self, name: str, role: str) -> StoredUser:
        """Give a user another role and leave the password; who is signed in has it at once."""
        with self._changing() as content:
            old = next((user for user in content.users if user.name == name), None)
            if old is None:
                raise Usage(f"no user '{name}'; 'headgate accounts list' shows them")
            user = replace(old, role=role_of(role))
            self._write(
                replace(content, users=tuple(user if u is old else u for u in content.users))
            )
        return user

    def remove_user(self, name: str) -> None:
        """End a user."""
        with self._changing() as content:
            others = tuple(user for user in content.users if user.name != name)
            if len(others) == len(content.users):
                raise Usage(f"no user '{name}'; 'headgate accounts list' shows them")
            self._write(replace(content, users=others))

    def read(self) -> _Content:
        """What is written there now."""
        try:
            stat = self.file.stat()
        except FileNotFoundError:
            return _Content()
        # The inode as well: two writes may share a time stamp, and each write is a new file.
        seen = (stat.st_mtime_ns, stat.st_ino)
        kept = self._kept
        if kept is not None and kept[0] == seen:
            return kept[1]
        if stat.st_mode & 0o077:
            raise Fatal(f"{self.file}: others may read it; run chmod 600 {self.file}")
        try:
            content = msgspec.json.decode(self.file.read_bytes(), type=_File).content()
        except (OSError, ValueError) as error:
            remedy = "put it back from a backup, or remove it and make keys and users anew"
            raise Fatal(f"{self.file}: damaged ({error}); {remedy}") from None
        self._kept = seen, content
        return content

    @contextmanager
    def _changing(self) -> Iterator[_Content]:
        """What is written there, while nobody else changes it: of two at once none is lost."""
        lock = self.file.with_suffix(".lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        # Opened each time, so that threads of one process exclude each other as well.
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield self.read()

    def _write(self, content: _Content) -> None:
        write_private(self.file, msgspec.json.encode(_File.of(content)).decode())

    def _key(self, name: str, content: _Content) -> StoredKey:
        for key in content.keys:
            if key.name == name:
                return key
        raise NoSuch(f"no key '{name}'; 'headgate keys list' shows them")

    def _require_free(self, name: str, content: _Content) -> None:
        if not _NAME.fullmatch(name):
            raise Usage(f"name '{name}': letters, digits and . _ @ - , at most 64")
        # One name for one caller, wherever it is kept: the audit knows callers by name alone.
        configured = {key.name for key in self.settings.api.keys}
        known = {key.name for key in content.keys} | {user.name for user in content.users}
        if name in known | configured | set(_RESERVED):
            raise Usage(f"name '{name}' is taken; rotate it, or take another")


def _token_digest(token: str) -> str:
    # No salt: a token is random, so nobody can have reckoned its hash before.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _password_digest(password: str, salt: str) -> str:
    raw = password.encode("utf-8", "replace")
    return hashlib.scrypt(raw, salt=bytes.fromhex(salt), dklen=32, **_SCRYPT).hex()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
