"""The lease database of ISC dhcpd (dhcpd.leases(5)), IPv4 and IPv6: what was leased, and ended.

The file is an append log: each `lease` or `ia-na` is what dhcpd knew of an address after a
change. A record is the whole file, or some of its declarations. An active lease was granted
at its start; a free one was released where it ended before the granted end, which the
declaration before it tells, or else ran out. Alone it counts as released: dhcpd does not write
down by itself that a lease ran out, only, once it hands out the address, that it did.

Times are UTC, or, with `db-time-format local`, seconds since 1970. Names come from clients:
a quoted text is one token, whatever is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import BASE, OTHER, address, event, mac_address, metadata, unmapped
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, not_utf8
from ingest.parsing.timestamps import Stamp, of_epoch
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    EXPIRE,
    INFINITE,
    RELEASE,
    dhcp_event,
    mac_of_duid,
)

_PRODUCT: Mapping[str, str] = {"name": "ISC DHCP", "vendor_name": "ISC"}
# One alternative for every byte, so that the search never skips over anything unseen.
_TOKEN = re.compile(r'\s+|#[^\n]*|"(?:[^"\\\n]|\\[^\n])*"|[{};]|[^\s{};"#]+|.', re.ASCII)
_DATE = re.compile(r"(\d{4})/(\d\d?)/(\d\d?)", re.ASCII)
_CLOCK = re.compile(r"(\d\d?):(\d\d):(\d\d)", re.ASCII)
# dhcpd writes what is not printable in octal, and a backslash before what has a meaning of its own.
OCTAL = re.compile(r"\\([0-3][0-7]{2}|[^\n])", re.ASCII)
_TIMES = re.compile(
    rb"(?m)^(\s*(?:starts|ends|cltt|tstp|tsfp|atsfp) )"
    rb"(\d \d{4}/\d\d?/\d\d? \d\d?:\d\d:\d\d|epoch \d{1,12})(?=;)"
)
# Its files nest a few blocks: more is none of them, and would only fill the memory.
DEEPEST = 16
IDENTITIES = frozenset({"ia-na", "ia-ta", "ia-pd"})
_OVER = frozenset({"free", "expired", "released", "reset"})


class Block(NamedTuple):
    """A declaration: its words, its statements as words, the blocks in it."""

    words: tuple[str, ...]
    statements: list[tuple[str, ...]]
    blocks: list[Block]

    def value(self, *name: str) -> tuple[str, ...] | None:
        """The words of a statement behind its name; of several, as dhcpd does, the last."""
        ones = (
            statement[len(name) :]
            for statement in reversed(self.statements)
            if statement[: len(name)] == name
        )
        return next(ones, None)

    def word(self, *name: str) -> str | None:
        """The one word of a statement behind its name."""
        value = self.value(*name)
        return value[0] if value and len(value) == 1 else None


def unquoted(word: str) -> str:
    """A quoted text without its quotes and escapes, its bytes as UTF-8 where they are."""
    if word[:1] != '"':
        return word
    octets = _octets(word)
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets.hex(":")


def _octets(word: str) -> bytes:
    """The bytes of a quoted text."""
    if word[:1] != '"':
        return b""
    unescaped = bytearray()
    end = 1
    body = word[:-1]
    for match in OCTAL.finditer(body, 1):
        unescaped += body[end : match.start()].encode()
        code = match[1]
        unescaped += bytes([int(code, 8)]) if len(code) == 3 else code.encode()
        end = match.end()
    return bytes(unescaped + body[end:].encode())


# -- the file ------------------------------------------------------------------------------------


def declarations(text: str) -> Iterator[Block | tuple[str, ...] | Unreadable]:
    """The declarations of a file: blocks, statements by themselves, and what is neither."""
    words: list[str] = []
    stack: list[Block] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token[0].isspace() or token[0] == "#":
            continue
        if token == "{":
            if len(stack) >= DEEPEST:
                yield Unreadable(f"blocks nested deeper than {DEEPEST} at byte {match.start()}")
                return
            stack.append(Block(tuple(words), [], []))
            words = []
        elif token == "}":
            if not stack or words:
                yield Unreadable(f"a '}}' at byte {match.start()} that ends no block")
                words, stack = [], []
                continue
            done = stack.pop()
            if stack:
                stack[-1].blocks.append(done)
            else:
                yield done
        elif token == ";":
            if words and stack:
                stack[-1].statements.append(tuple(words))
            elif words:
                yield tuple(words)
            words = []
        elif token == '"':
            # From here on inside and outside of quotes cannot be told apart, so the rest is left.
            yield Unreadable(f"a text at byte {match.start()} without its end")
            return
        else:
            words.append(token)
    if stack:
        yield Unreadable(f"the block '{' '.join(stack[0].words)[:60]}' has no end")
    elif words:
        yield Unreadable(f"'{' '.join(words)[:60]}' is no declaration")


def _time(words: tuple[str, ...] | None) -> datetime | None:
    """`5 2026/11/20 10:00:00` or `epoch 1795228827`; None for `never` and what is no time."""
    if not words:
        return None
    if words[0] == "epoch" and len(words) == 2 and words[1].isdecimal() and len(words[1]) < 13:
        return of_epoch(int(words[1]))
    # The weekday, from Sunday on: it follows from the date and is not compared with it.
    if len(words) < 3 or words[0] not in "0123456" or not words[0]:
        return None
    day, clock = _DATE.fullmatch(words[1]), _CLOCK.fullmatch(words[2])
    if not day or not clock:
        return None
    try:
        year, month, date, hour, minute, second = map(int, (*day.groups(), *clock.groups()))
        return datetime(year, month, date, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


@dataclass
class _File:
    """One record being read, with what is known of each address so far."""

    context: Context
    held: dict[str, tuple[datetime | None, str | None]] = field(default_factory=dict)
    """The end that was granted of an address that is leased, and to whom."""
    statements: list[str] = field(default_factory=list)

    def events(self, text: str) -> Iterator[Event]:
        for declaration in declarations(text):
            if isinstance(declaration, Unreadable):
                yield {"dead_letter_reason": str(declaration)}
            elif isinstance(declaration, Block):
                try:
                    yield from self._block(declaration)
                except Unreadable as why:
                    yield {"dead_letter_reason": f"{' '.join(declaration.words)[:60]}: {why}"}
            else:
                self.statements.append(" ".join(declaration))
        if self.statements:
            yield self._plain("; ".join(self.statements), {"statements": self.statements})

    def _block(self, block: Block) -> Iterator[Event]:
        word = block.words[0] if block.words else ""
        if word == "lease" and len(block.words) == 2:
            yield self._lease(block, None)
        elif word in IDENTITIES and block.blocks:
            for inner in block.blocks:
                yield self._lease(inner, block)
        else:
            yield self._plain(" ".join(block.words), _statements(block))

    def _plain(self, words: str, rest: dict[str, Any]) -> Event:
        """A declaration that is no lease: a host, the state of a failover, an identifier."""
        stamp = Stamp.missing(self.context.record.received_at, None)
        return event(
            BASE,
            0,
            stamp,
            message=f"dhcpd.leases: {words}"[:1000],
            metadata=metadata(_PRODUCT, stamp, log_name="dhcpd.leases"),
            unmapped=unmapped(rest),
        )

    def _lease(self, block: Block, identity: Block | None) -> Event:
        written = block.words[1] if len(block.words) == 2 else ""
        ip = address(written)
        if ip is None and identity is None:
            raise Unreadable(f"'{written[:60]}' where an IP address should stand")
        whole = identity or block
        starts, ends = _time(block.value("starts")), _time(block.value("ends"))
        last = _time(whole.value("cltt")) or _time(block.value("cltt"))
        life = block.word("max-life")
        # dhcpd6.leases has no `starts`; the last contact with the client is the nearest to it.
        if starts is None and identity is not None:
            starts = last
        state = block.word("binding", "state") or ("abandoned" if block.value("abandoned") else "")
        state = state or ("active" if ends is None or starts else "")
        # Popped in any state: what follows a release is a new lease, and no renewal.
        before = self.held.pop(written, None)
        activity, when = _change(before and before[0], state, starts, ends, last)
        # The first four bytes are the IAID; the client's DUID stands behind.
        duid = _octets(identity.words[1])[4:] if identity and len(identity.words) > 1 else b""
        uid = whole.word("uid")
        mac = _hardware(block) or mac_of_duid(duid)
        if activity == ACK:
            self.held[written] = (ends, mac)
        name = block.word("client-hostname")
        previous = _statements(block) | (_statements(identity, blocks=False) if identity else {})
        for key, value in (("starts", starts), ("ends", ends), ("hardware", mac), ("lease", ip)):
            if value is not None:
                previous.pop(key, None)
        for key in ("binding state", "client-hostname", "uid"):
            previous.pop(key, None)
        return dhcp_event(
            activity,
            self.context,
            Stamp.exact(when) if when else Stamp.missing(self.context.record.received_at, None),
            _PRODUCT,
            activity_name=state.capitalize() or "Unknown" if activity == OTHER else None,
            ip=ip,
            mac=mac,
            hostname=unquoted(name) or None if name else None,
            host=self.context.host,
            client_uid=duid.hex(":") or (_client(uid) if uid else None),
            lease_seconds=_seconds(starts, ends, life, block),
            start_time=starts,
            end_time=ends,
            message=f"lease {written} {state}".strip(),
            is_renewal=_renews(before, mac, starts) if activity == ACK else None,
            rest=previous,
            fields={"log_name": "dhcpd.leases", "event_code": state or None},
        )


def _change(
    granted: datetime | None,
    state: str,
    starts: datetime | None,
    ends: datetime | None,
    last: datetime | None,
) -> tuple[int, datetime | None]:
    """What happened to an address that was `granted` until then, and when."""
    if state == "active":
        return ACK, starts or last
    if state == "abandoned":
        return DECLINE, starts or last or ends
    if state not in _OVER:
        return OTHER, last or ends or starts
    # `free` alone leaves it open; an end as it was granted means that nobody gave it back.
    ran_out = state == "expired" or (granted is not None and ends == granted)
    return EXPIRE if ran_out else RELEASE, ends or last


def _renews(
    before: tuple[datetime | None, str | None] | None, mac: str | None, starts: datetime | None
) -> bool | None:
    """Whether the address was this client's already; None where nothing is known of before."""
    if before is None or mac is None:
        return None
    end, holder = before
    return holder == mac and (end is None or starts is None or starts <= end)


def _hardware(block: Block) -> str | None:
    value = block.value("hardware")
    return mac_address(value[1]) if value and len(value) == 2 else None


def _client(word: str) -> str | None:
    """A client's identifier as octets; text was put in quotes by dhcpd, bytes too."""
    return _octets(word).hex(":") or (word if word[:1] != '"' else None)


def _seconds(
    starts: datetime | None, ends: datetime | None, life: str | None, block: Block
) -> int | None:
    if block.value("ends") == ("never",):
        return INFINITE
    if starts and ends and starts <= ends:
        return int((ends - starts).total_seconds())
    return int(life) if life and life.isdecimal() and len(life) < 11 else None


def _statements(block: Block, blocks: bool = True) -> dict[str, Any]:
    """All a block says, under the names it uses."""
    result: dict[str, Any] = {block.words[0]: " ".join(block.words[1:])} if block.words else {}
    for words in block.statements:
        position = 2 if words[0] in ("set", "binding", "option", "ddns-fwd-name") else 1
        if len(words) > 2 and words[1] == "binding":
            position = 3
        value = " ".join(word for word in map(unquoted, words[position:]) if word != "=") or True
        name = " ".join(words[:position])
        result[name] = value if name not in result else f"{result[name]}; {value}"
    if blocks and block.blocks:
        result["blocks"] = [_statements(word) for word in block.blocks]
    return result


@dataclass(frozen=True)
class DhcpdLeases(Source):
    """dhcpd.leases and dhcpd6.leases: the file, or some of its declarations."""

    name: str = "isc_dhcpd_leases"
    whole_file: ClassVar[bool] = True

    def is_whole(self, first: bytes) -> bool:
        return True

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = record.raw
        if not raw.strip():
            raise Unreadable("the record is empty")
        if len(raw) > FILE_BYTES:
            raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
        # A crash can leave NULs in a file that was being written.
        if b"\x00" in raw:
            raise Unreadable(f"a NUL at byte {raw.index(0)}")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise Unreadable(not_utf8(raw)) from None
        read = _File(context)
        events = list(read.events(text))
        if not events and text.lstrip()[:1] == "#":
            events = [read._plain(text.strip(), {})]
        if all("dead_letter_reason" in event for event in events):
            why = events[0]["dead_letter_reason"] if events else "no declaration in it"
            raise Unreadable(str(why))
        return events

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        """As in `Source`. The earliest start or change becomes `when`, all others follow."""
        spans = list(_TIMES.finditer(raw))
        times = [_time(tuple(span[2].decode().split())) for span in spans]
        dated = [stamp for stamp in times if stamp]
        if not dated:
            raise Unreadable("no time of a lease in it")
        # The file has whole seconds.
        by = when.replace(microsecond=0) - min(dated)
        parts, end = [], 0
        for span, time in zip(spans, times, strict=True):
            parts += [raw[end : span.start(2)], _moved(span[2], time, by)]
            end = span.end(2)
        return b"".join([*parts, raw[end:]])


def _moved(written: bytes, time: datetime | None, by: timedelta) -> bytes:
    """A time moved; one that cannot be read, or would leave the calendar, as it was."""
    try:
        new = time + by if time else None
    except OverflowError:
        new = None
    if new is None:
        return written
    if written.startswith(b"epoch"):
        return f"epoch {int(new.timestamp())}".encode()
    day = (new.weekday() + 1) % 7  # dhcpd counts from Sunday
    return f"{day} {new.year:04d}/{new:%m/%d %H:%M:%S}".encode()


SOURCES = (DhcpdLeases(),)
