"""What a source is: one kind of raw record and how it becomes events.

A source lives in a module of its family's folder in `ingest/sources/`, which lists it in a tuple
`SOURCES`; nothing else has to know of it. Sources know nothing of Spark.

A source gives its events one record at a time. Where one is worth it, it may also
offer `columns`, for the plain ones among many records at once.
"""

from __future__ import annotations

import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from infra.config.tenants import scope_of
from infra.errors import Usage

if TYPE_CHECKING:
    import pyarrow as pa

    from infra.config.settings import Settings

Event = dict[str, Any]
"""A row of silver.event: column name to value, absent columns left out. Structs are
dictionaries, times are aware and UTC. A row with `dead_letter_reason` needs no more."""

DEFAULT_LEASE_SECONDS = 86400
_LISTS = re.compile(r"^SOURCES\b", re.MULTILINE)
"""In a module's text: that it lists sources."""


class Unreadable(Exception):
    """The record cannot be read; its text says why, in one sentence that names the place."""


LIVE_MODES = ("live", "replay")
"""Modes whose events may raise live alerts; an import of old logs may not."""
MODES = (*LIVE_MODES, "import")
"""How records come."""
_MODE_OF_WORD = {mode.encode(): mode for mode in MODES}


def mode_of(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """The mode that a message's last header of that name says.

    `live` for a word that nobody knows: it must not keep an event from the rules.
    """
    modes = [value for name, value in headers if name == "mode"]
    return _MODE_OF_WORD.get(modes[-1] or b"", "live") if modes else "live"


@dataclass(frozen=True, slots=True)
class Record:
    """A row of bronze.record, as far as parsers need it. `received_at` is aware, UTC.

    Of the headers, `host` names the sender where the line does not, and `tz`
    the zone of its naive times.
    """

    record_id: str
    source: str
    mode: str
    received_at: datetime
    raw: bytes
    headers: Mapping[str, bytes] = field(default_factory=dict)
    tenant_uid: str | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """How a source's records are packed, where they are not text."""

    kind: str
    schema_file: str | None = None
    registry: str | None = None
    message: str | None = None
    field: str | None = None


@dataclass(frozen=True)
class ParseSettings:
    """The part of the settings that parsing depends on. Pickles, so it can go to workers."""

    zones: Mapping[str, str] = field(default_factory=dict)
    host_zones: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    leases: Mapping[str, int] = field(default_factory=dict)
    scopes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    formats: Mapping[str, Format] = field(default_factory=dict)
    accounts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source: whose a cloud account is, in small letters; of records that are no tenant's."""
    tenant: str | None = None
    """Whose records are parsed."""

    @classmethod
    def of(cls, settings: Settings) -> ParseSettings:
        """What `settings` say about sources and scopes."""
        sources = settings.sources
        return cls(
            zones={name: source.tz for name, source in sources.items()},
            host_zones={name: dict(source.hosts) for name, source in sources.items()},
            leases={name: source.lease_seconds for name, source in sources.items()},
            scopes=tuple((scope.name, scope.hosts) for scope in settings.scopes),
            formats={
                # Absolute, because a worker may run in another folder than the driver.
                name: Format(
                    options.format,
                    None if options.schema_file is None else str(options.schema_file.absolute()),
                    options.registry,
                    options.message,
                    options.field,
                )
                for name, options in sources.items()
                if options.format != "text"
            },
            accounts={
                name: {account.lower(): tenant for account, tenant in source.accounts.items()}
                for name, source in sources.items()
                if source.accounts
            },
        )

    def zone(self, source: str, host: str | None = None) -> ZoneInfo:
        """Zone of times that name none: by source, else by its family, else UTC.

        `zeek:conn` is of the family `zeek`. Where the entry names `host`, that wins.
        """
        key = self._key(source)
        if key is None:
            return ZoneInfo("UTC")
        by_host = self.host_zones.get(key, {})
        return ZoneInfo(by_host.get(host or "", self.zones[key]))

    def lease_seconds(self, source: str) -> int:
        """Length of a lease where the log does not say it."""
        return self.leases.get(source) or self.leases.get(
            source.partition(":")[0], DEFAULT_LEASE_SECONDS
        )

    def format(self, source: str) -> Format | None:
        """How records of a source are packed; None: they are text."""
        return self.formats.get(source) or self.formats.get(source.partition(":")[0])

    def accounts_of(self, source: str) -> Mapping[str, str]:
        """Tenants by cloud account, for what a source says of its account."""
        return self.accounts.get(source) or self.accounts.get(source.partition(":")[0], {})

    def scope(self, host: str | None, source: str, relay: str | None = None) -> str | None:
        """Site whose addresses a log speaks of: the one that lists the host or the source.

        Else the first site that lists none, the default. Where one DHCP server serves several
        sites, the relay agent that passed the message on tells which, before all else. What a
        tenant has of a site is a scope of its own (`tenant-acme.default`): no lease of another's
        says who held an address of theirs.
        """
        site = self._site(host, source, relay)
        return None if site is None else scope_of(site, self.tenant)

    def of_tenant(self, tenant: str | None) -> ParseSettings:
        """The same for records of one tenant."""
        return self if tenant == self.tenant else replace(self, tenant=tenant)

    def _site(self, host: str | None, source: str, relay: str | None) -> str | None:
        # A loop of its own: a relay must win over a host that an earlier site lists.
        if relay is not None:
            for name, hosts in self.scopes:
                if relay in hosts:
                    return name
        for name, hosts in self.scopes:
            if host in hosts or source in hosts:
                return name
        # No guess where every site lists its hosts: a wrong scope attributes to a wrong device.
        return next((name for name, hosts in self.scopes if not hosts), None)

    def _key(self, source: str) -> str | None:
        family = source.partition(":")[0]
        return next((key for key in (source, family) if key in self.zones), None)


@dataclass(frozen=True, slots=True)
class Context:
    """What a parser may know besides the bytes: the record, and the settings."""

    record: Record
    settings: ParseSettings

    @property
    def host(self) -> str | None:
        """The sender, where a header names it."""
        value = self.record.headers.get("host")
        return value.decode("utf-8", "replace") if value else None

    @property
    def header(self) -> bytes | None:
        """The lines that name the record's fields, in formats that have such."""
        return self.record.headers.get("header")

    def zone(self, host: str | None) -> ZoneInfo:
        """Zone of naive times: the record's own header, else the settings."""
        named = self.record.headers.get("tz")
        if named:
            try:
                return ZoneInfo(named.decode())
            except (ValueError, OSError, KeyError):
                pass  # a sender's mistake; what the operator configured holds
        return self.settings.zone(self.record.source, host)


class Read(NamedTuple):
    """What was read at once: events as a batch of silver.event, and which records are left."""

    events: pa.RecordBatch | None
    left: list[int]


class Source(ABC):
    """One kind of raw record."""

    name: str
    whole_file: ClassVar[bool] = False
    """Whether a file of this source may be one record, rather than one a line."""

    redelivery: ClassVar[tuple[str, ...]] = ()
    """Columns of an event that together tell a second delivery of it, such as the product's
    own id and the time; none: what comes twice is two events. An attacker must not choose them."""

    def is_header(self, line: bytes) -> bool:
        """Whether a line of a file names the fields of those that follow, and is no record.

        Whoever reads a file gives all such lines, joined by newlines, with each
        record after them as its header `header`. Sent as a record all the same, it
        must be parsed to an event of class 0 that says what it is.
        """
        return False

    def is_whole(self, first: bytes) -> bool:
        """Whether a file whose first line is `first` is one record. Asked if `whole_file`."""
        return _opens_json(first)

    def member(self, kind: str) -> Source | None:
        """The source called `name:kind`, if this one is a family with a source for any kind."""
        return None

    @abstractmethod
    def parse(self, record: Record, context: Context) -> list[Event]:
        """The record's events, at least one. Raises `Unreadable`."""

    def columns(self, records: pa.RecordBatch, settings: ParseSettings) -> Read | None:
        """The events of those of `records`, all of this source, that can be read at once.

        `records` is a batch of bronze.record. The others are left to `parse`, with which
        the events must agree. None: all are.
        """
        return None

    @abstractmethod
    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        """The record with its time replaced by `when`, in its own format and resolution.

        `zone` is the zone of formats that name none. All other bytes stay as
        they are. Raises `Unreadable` where there is no time to replace.
        """


class JoiningSource(Source):
    """A source whose events may need several records, such as the lines of auditd."""

    @abstractmethod
    def part_of(self, record: Record, context: Context) -> str | None:
        """Which event the record is a part of, such as its serial number; None: of one alone.

        Records of one batch that name the same, and come from the same sender, are
        joined. Raises `Unreadable`, and nothing else that `parse` would not raise.
        """

    @abstractmethod
    def join(self, parts: Sequence[Record], context: Context) -> list[Event]:
        """The events of the records that are parts of one, in order of arrival.

        `context` is that of the first. Raises `Unreadable`, which costs all of them.
        """

    def parse(self, record: Record, context: Context) -> list[Event]:
        return self.join([record], context)


def _opens_json(first: bytes) -> bool:
    """Whether a JSON text that starts so goes on behind its first line, or is a file of records."""
    if not first.strip():
        return False
    try:
        value = msgspec.json.decode(first)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # A first line that opens JSON but does not close it: the object goes on on the next lines.
        return first.strip() in (b"{", b"[", b'{"Records":[', b'{"Records": [')
    return isinstance(value, list) or (isinstance(value, dict) and "Records" in value)


@cache
def sources() -> Mapping[str, Source]:
    """Every source there is, by name."""
    by_name = {source.name: source for module in source_modules() for source in module.SOURCES}
    return MappingProxyType(by_name)


def source_modules() -> Iterator[ModuleType]:
    """Every module of a family in `ingest/sources/` that lists sources in `SOURCES`."""
    for module in map(import_module, sorted(_listing_modules())):
        if hasattr(module, "SOURCES"):
            yield module


def _listing_modules() -> Iterator[str]:
    package = import_module("ingest.sources")
    for module in pkgutil.walk_packages(package.__path__, "ingest.sources."):
        spec = find_spec(module.name)
        # By its text and not by loading it: what reads Zeek in columns takes a second to load,
        # and a command that reads one line of sshd has no use for it. Loaders of files and of
        # archives, which executors have, both give it; where one does not, the module is loaded.
        read = getattr(spec and spec.loader, "get_source", None)
        text = read(module.name) if read else None
        if text is None or _LISTS.search(text):
            yield module.name


def lookup(name: str) -> Source:
    """The source called `name`; raises `Usage` with the names there are."""
    by_name = sources()
    if name in by_name:
        return by_name[name]
    family, _, kind = name.partition(":")
    member = by_name[family].member(kind) if family in by_name else None
    if member is None:
        raise Usage(f"no source '{name}'; there are {', '.join(sorted(by_name))}")
    return member
