"""Who is to be erased: the words that name them, and what a run that was cut off goes on with."""

from __future__ import annotations

import hashlib
import json
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from infra.config.settings import Settings
from infra.delta.duckdb_views import definitions, open_engine, refresh
from infra.errors import Usage
from infra.storage.state_file import StateFile
from reporting.erasure.rewrite import BLANK
from reporting.erasure.subject_match import SHORTEST, Word, device, person

_ACCOUNTS = """
SELECT DISTINCT name, full_name, mail, user_id, aliases FROM silver.user_version
WHERE lower(name) = lower($name) OR lower(mail) = lower($name) OR lower(user_id) = lower($name)
   OR list_contains(list_transform(aliases, x -> lower(x)), lower($name))
"""
_HOSTS = """
SELECT DISTINCT unnest([hostname]) FROM silver.dhcp_segment WHERE lower(mac) = lower($mac)
UNION SELECT DISTINCT unnest(hostnames) FROM silver.asset_version WHERE list_contains(macs, $mac)
"""


@dataclass(frozen=True)
class ErasureRequest:
    """Who is to be erased, and how."""

    kind: Literal["user", "device"]
    name: str
    pseudonymise: bool = False
    hostnames: bool = False
    but: tuple[str, ...] = ()
    """Names that others have as well, and that therefore stay."""
    also: tuple[str, ...] = ()
    """Further names, which no inventory knows."""
    reason: str | None = None


@dataclass
class ErasureProgress:
    """What a run that was cut off goes on with."""

    id: str
    salt: str
    pseudonym: str
    began_at: str
    names: list[str]
    """As the inventories had them, before these were erased as well."""
    since: dict[str, int] = field(default_factory=dict)
    """The version that each table had then: what it did lies behind it."""
    linked: dict[str, list[str]] = field(default_factory=dict)
    """Ids of rows that are gone, for those that may come yet and belong to them."""


def subject_names(settings: Settings, request: ErasureRequest) -> list[str]:
    """The names that the subject has by itself, by the wish, and by the inventories."""
    words = set(request.also)
    if request.kind == "user":
        # Inventories may hold a bare number or one letter as an alias; it would match everywhere.
        words |= {request.name} | {
            account for account in _accounts(settings, request.name) if _tells(account)
        }
    elif request.hostnames:
        hosts = _query_names(settings, _HOSTS, {"mac": device(request.name, BLANK)[0].text})
        words |= {account for account in hosts if _tells(account)}
    return sorted(words - set(request.but))


def subject_words(request: ErasureRequest, names: Sequence[str], instead: str) -> tuple[Word, ...]:
    """The words for these names. Raises `Usage` where they cannot be told from other text."""
    if request.kind == "user":
        if not names:
            raise Usage(f"no name of '{request.name}' is left to look for; leave out an --except")
        return person(names, instead)
    text = f"device-{instead}" if request.pseudonymise else instead
    return (*device(request.name, instead), *person(names, text))


def _tells(name: str) -> bool:
    """Whether a name from an inventory can be looked for: no number, and not too short."""
    return len(name) >= SHORTEST and not name.isdigit()


def _accounts(settings: Settings, name: str) -> Iterator[str]:
    yield from _query_names(settings, _ACCOUNTS, {"name": name})


def _query_names(settings: Settings, sql: str, values: Mapping[str, str]) -> Iterator[str]:
    """All texts in the answer of the inventories; nothing where there are none."""
    engine = open_engine(memory="500MB", threads=1)
    try:
        wanted = ("silver.user_version", "silver.asset_version", "silver.dhcp_segment")
        left_out = refresh(
            engine,
            [
                definition
                for definition in definitions(settings.lake_root)
                if definition.name in wanted
            ],
        )
        # A lake without inventories knows no other names, which is no error.
        if any(name in sql for name in left_out):
            return
        for row in engine.execute(sql, dict(values)).fetchall():
            for value in row:
                yield from value if isinstance(value, list) else [value] if value else []
    finally:
        engine.close()


def digest(salt: str, request: ErasureRequest) -> str:
    """SHA-256 of salt, kind, name in small letters and manner, as a JSON list."""
    # JSON and not joined text, so that no two wishes have the same bytes.
    dumps = json.dumps([salt, request.kind, request.name.lower(), request.pseudonymise])
    return hashlib.sha256(dumps.encode()).hexdigest()


def progress_of(
    settings: Settings, file: Path, request: ErasureRequest, newest: Mapping[str, int]
) -> ErasureProgress:
    """What an earlier run left in `file`, or a new beginning; written there.

    `newest`: the version that each table has now.
    """
    if (before := progress_file(file).read()) is not None:
        progress = _continued(settings, before, request)
        # A table that was restored meanwhile counts from its older version on.
        since = {
            name: min(instant, newest.get(name, instant))
            for name, instant in progress.since.items()
        }
        progress = replace(progress, since=since)
    else:
        # An address of its own kind: locally administered, so no maker's (IEEE 802).
        pseudonym = "02" + secrets.token_hex(5)
        if request.kind == "user":
            # Random and not derived from the name: a digest of it could be guessed from a list of
            # names.
            pseudonym = f"person-{secrets.token_hex(4)}"
        progress = ErasureProgress(
            uuid.uuid4().hex[:12],
            secrets.token_hex(8),
            pseudonym,
            datetime.now(UTC).isoformat(),
            subject_names(settings, request),
            dict(newest),
        )
    save(file, progress)
    return progress


def save(file: Path, progress: ErasureProgress) -> None:
    """Keep what a later run goes on with."""
    progress_file(file).write(progress)


def progress_file(file: Path) -> StateFile[ErasureProgress]:
    """A file as what a later run goes on with."""
    remedy = (
        "put it back from a backup, or remove it: the erasure then begins anew, under another "
        "pseudonym"
    )
    return StateFile(file, ErasureProgress, remedy)


def _continued(
    settings: Settings, before: ErasureProgress, request: ErasureRequest
) -> ErasureProgress:
    """An earlier run's, with the names that this command adds or leaves out."""
    names = sorted((set(before.names) | set(subject_names(settings, request))) - set(request.but))
    # Of an id nobody knows by which name it was learnt; those of rows that are there are learnt
    # again.
    linked = before.linked if set(before.names) <= set(names) else {}
    return replace(before, names=names, linked=linked)


def require_request(request: ErasureRequest, *, yes: bool, dry: bool) -> None:
    """Raises `Usage` unless a person has said that it is to be done."""
    if not yes and not dry:
        raise Usage(
            "what is erased cannot be brought back: look with --dry-run first, then add --yes"
        )
    if request.kind == "device" and request.but and not request.hostnames:
        raise Usage("--except is about names; a device has them only with --hostnames")
