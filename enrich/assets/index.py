"""Which asset, which user was that then: an index over all versions of the inventories.

Plain Python. A SQLite file made once for each version of the tables: a worker opens it at once,
whatever its size, and holds only what it asked for lately. Alerts, history and the tests ask the
same functions.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from enrich.assets.registers import Values
from enrich.tables_assets import ASSET, PERSON

if TYPE_CHECKING:
    import pyarrow as pa

_REMEMBERED = 65_536
"""Keys whose versions a worker keeps in memory, some 200 bytes each."""

FOREVER = 2**63 - 1

_SCHEMA = """
CREATE TABLE said (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE entry (
  kind TEXT NOT NULL, key TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL,
  id TEXT NOT NULL, scope TEXT, said INTEGER NOT NULL
);
"""

_Key = tuple[str, str]
"""What kind of key, and its value: ("mac", "02:00:00:00:00:0a")."""


class _Span(NamedTuple):
    since: int
    until: int
    id: str
    scope: str | None
    number: int


def build(file: Path, assets: pa.Table, users: pa.Table) -> None:
    """Make the index of all rows of silver.asset_version and silver.user_version.

    The file is there whole or not at all; raises `OSError` where it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    temporary.touch(exist_ok=False)
    # None: Python's own transactions would begin and end elsewhere than ours.
    made = sqlite3.connect(temporary, isolation_level=None)
    try:
        # A crash leaves a temporary file that nobody opens, so nothing must be recoverable.
        made.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
        made.execute("BEGIN")
        number = _fill(made, _spans(assets, "asset_id"), asset_keys, ASSET.names, 0)
        _fill(made, _spans(users, "user_id"), user_keys, PERSON.names, number)
        # After the rows: one sort costs less than an index kept in order row by row.
        made.execute("CREATE INDEX by_key ON entry (kind, key)")
        made.execute("COMMIT")
        made.close()
        temporary.replace(file)
    finally:
        made.close()
        temporary.unlink(missing_ok=True)


def _fill(
    made: sqlite3.Connection,
    spans: Iterable[tuple[int, int, Values]],
    keys: Callable[[Values], Iterable[_Key]],
    columns: Sequence[str],
    number: int,
) -> int:
    for since, until, row in spans:
        number += 1
        # `matched_by` is said by the question, not by the inventory.
        body = {name: row.get(name) for name in columns if name != "matched_by"}
        made.execute("INSERT INTO said VALUES (?, ?)", (number, msgspec.json.encode(body).decode()))
        # Two inventories may give one id to two things.
        owner = f"{row['inventory']}\0{body[columns[0]]}"
        made.executemany(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (*key, since, until, owner, row.get("scope"), number)
                for key in dict.fromkeys(keys(row))
            ],
        )
    return number


def _spans(table: pa.Table, identity: str) -> Iterator[tuple[int, int, Values]]:
    """Rows with the microseconds between which they are true; of one instant the last loaded."""
    # Late: an index is asked far more often than it is made.
    import pyarrow as pa
    import pyarrow.compute as pc

    order = [(name, "ascending") for name in ("inventory", identity, "valid_from", "loaded_at")]
    ordered = table.sort_by([*order, ("line", "ascending")])
    since = pc.cast(pc.cast(ordered["valid_from"], pa.timestamp("us", "UTC")), pa.int64())
    drop_columns = ordered.drop_columns(["valid_from", "loaded_at", "file", "line", "more"])
    rows = zip(
        since.to_pylist(),
        (row for batch in drop_columns.to_batches(max_chunksize=1000) for row in batch.to_pylist()),
        strict=True,
    )
    for _, versions in groupby(rows, lambda one: (one[1]["inventory"], one[1][identity])):
        # Of rows with one instant the last one stays; they are in the order of loading.
        last = list({position: (position, row) for position, row in versions}.values())
        ends = [position for position, _ in last[1:]]
        for (position, row), until in zip(last, [*ends, FOREVER], strict=True):
            if not row["gone"]:
                yield position, until, row


def asset_keys(row: Values) -> Iterator[_Key]:
    """What an asset can be known by. Of a host name also its first part, as `short`."""
    yield from (("mac", mac) for mac in row["macs"] or ())
    if row["serial"]:
        yield "serial", row["serial"].lower()
    for name in row["hostnames"] or ():
        yield "host", name
        yield "short", name.partition(".")[0]
    for address in row["ips"] or ():
        yield ("net" if "/" in address else "ip"), address


def user_keys(row: Values) -> Iterator[_Key]:
    """What a user can be known by: each account whole, and as `bare` without its domain."""
    given = [row["name"], row["mail"], *(row["aliases"] or ())]
    for account in {name.lower() for name in given if name}:
        yield "account", account
        yield "bare", bare(account)


def bare(account: str) -> str:
    """An account's name without its domain: of `CORP\\ann` and `ann@corp.example` it is `ann`."""
    return account.rpartition("\\")[2].partition("@")[0]


class AssetIndex:
    """Answers from one index file; instants are microseconds since 1970, UTC."""

    def __init__(self, file: Path | str) -> None:
        # It never changes once it is there, so nothing has to be locked.
        uri = f"{Path(file).absolute().as_uri()}?mode=ro&immutable=1"
        self._file = sqlite3.connect(uri, uri=True, check_same_thread=False)
        # On the instance: a cache on the class would keep every former index alive.
        self._spans = lru_cache(_REMEMBERED)(self._read)
        self._body = lru_cache(_REMEMBERED)(self._decoded)
        # Only lengths that occur are tried, the longest first: the smallest network answers.
        lengths = self._file.execute("SELECT DISTINCT key FROM entry WHERE kind = 'net'")
        networks = [ip_network(key) for (key,) in lengths]
        self._lengths = {
            version: sorted({n.prefixlen for n in networks if n.version == version}, reverse=True)
            for version in (4, 6)
        }

    def asset(
        self,
        at: int,
        *,
        mac: str | None = None,
        serial: str | None = None,
        hostname: str | None = None,
        ip: str | None = None,
        scope: str | None = None,
        leased: bool = False,
    ) -> Values | None:
        """The asset an event is about, by the surest key that knows one; None if none does.

        Hardware address, serial number, host name, address, then the smallest network. `leased`:
        DHCP says that the address was `mac`'s, so an asset that claims it as its own is another.
        """
        tries: list[tuple[str, Iterator[_Key]]] = [
            ("mac", _key("mac", mac)),
            ("serial", _key("serial", serial)),
            ("hostname", _names(hostname)),
            ("ip", _key("ip", None if leased else ip)),
            ("network", self._networks(ip)),
        ]
        return self._first(tries, at, scope)

    def user(
        self,
        at: int,
        name: str | None,
        *,
        domain: str | None = None,
        uid: str | None = None,
        mail: str | None = None,
    ) -> Values | None:
        """The user of an account; None where no inventory knows it, or it may be several users'.

        `uid`: the directory's own id, such as a SID. An account with a domain is looked for
        whole first; without one, or where no inventory has it so, by its bare name.
        """
        plain = (name or "").lower()
        written = (f"{domain}\\{plain}", f"{plain}@{domain}") if domain and plain else (plain,)
        accounts = (uid, mail, *written)
        whole = (("account", account.lower()) for account in accounts if account)
        return self._first([("account", whole), ("name", _key("bare", bare(plain)))], at, None)

    def _first(
        self, tries: Iterable[tuple[str, Iterator[_Key]]], at: int, scope: str | None
    ) -> Values | None:
        for how, keys in tries:
            for key in keys:
                span = self._at(key, at, scope)
                if span is not None:
                    return {**self._body(span.number), "matched_by": how}
        return None

    def _at(self, key: _Key, at: int, scope: str | None) -> _Span | None:
        """The version with this key at an instant: one of that scope, else the newest claim."""
        spans = [
            span
            for span in self._spans(*key)
            if span.since <= at < span.until and (span.scope is None or span.scope == scope)
        ]
        # A name without its domain may be that of several: then none of them is meant.
        if key[0] in ("short", "bare") and len({span.id for span in spans}) > 1:
            return None
        return max(spans, key=lambda s: (s.scope is not None, s.since, s.id), default=None)

    def _networks(self, ip: str | None) -> Iterator[_Key]:
        """The networks an address may lie in, the smallest first."""
        try:
            address = ip_address(ip or "")
        except ValueError:
            return
        bits = 128 if isinstance(address, IPv6Address) else 32
        for length in self._lengths[address.version]:
            low = int(address) >> (bits - length) << (bits - length)
            yield "net", f"{type(address)(low)}/{length}"

    def _read(self, kind: str, key: str) -> tuple[_Span, ...]:
        execute = self._file.execute(
            "SELECT since, until, id, scope, said FROM entry WHERE kind = ? AND key = ?",
            (kind, key),
        )
        return tuple(_Span(*row) for row in execute)

    def _decoded(self, number: int) -> Values:
        execute = self._file.execute("SELECT body FROM said WHERE number = ?", (number,))
        body: Values = msgspec.json.decode(execute.fetchone()[0])
        return body


def _key(kind: str, value: str | None) -> Iterator[_Key]:
    if value:
        yield kind, value.lower()


def _names(hostname: str | None) -> Iterator[_Key]:
    """A host name whole; a bare one also as the first part of whole ones, and the other way."""
    name = (hostname or "").lower().rstrip(".")
    if name:
        yield "host", name
        first, dot, _ = name.partition(".")
        yield ("host", first) if dot else ("short", name)


def index_of(file: str) -> AssetIndex:
    """The index in a file, opened once a process for as long as it is that file."""
    there = Path(file).stat()
    # Part of the cache's key: `renew_index` may put another file under the same name.
    return _opened(file, there.st_ino, there.st_mtime_ns)


@lru_cache(maxsize=4)
def _opened(file: str, inode: int, written_ns: int) -> AssetIndex:
    return AssetIndex(file)


def text_or_none(value: Any) -> str | None:
    """A text, or None where it is none or empty."""
    return value if isinstance(value, str) and value else None
