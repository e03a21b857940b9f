"""An event of a Windows event log, whoever wrote it down, and its fields as they are used up."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import address
from ingest.parsing.strict_json import integral
from ingest.parsing.timestamps import Stamp
from ingest.sources.windows.columns.many import Many, each, holds

AUDIT_FAILURE = 0x10000000000000
AUDIT_SUCCESS = 0x20000000000000
NOTHING = frozenset({"", "-", "S-1-0-0", "NULL SID", "(null)", "(NULL)", "%%1793"})
"""What Windows writes where there is no value."""
NO_GUID = frozenset({"{00000000-0000-0000-0000-000000000000}"})
MOST_PID = 2**32 - 1
# The mask of an audit does not fit 64 bits with a sign, in which numbers are read; JavaScript
# rounds it as well.
UNSIGNED = re.compile(rb'("[Kk]eywords"\s{0,9}:\s{0,9})(-?\d{19,20})(?=[\s,}])')
INTEGER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|\d{1,19}", re.ASCII)
SID = re.compile(r"S-1-[0-9x-]{1,180}", re.ASCII | re.IGNORECASE)

_SYSMON = frozenset({"microsoft-windows-sysmon", "linux-sysmon"})
SYSMON_GUIDS = frozenset(
    {"5770385f-c22a-43e0-bf4c-06f5698ffbd9", "ff032593-a8d3-4f13-b0d6-01fc615a0f97"}
)


@dataclass(slots=True)
class Logged:
    """One event: what its `System` part says, its data by name, and what is left of both.

    `failed` is what the keywords Audit Success and Audit Failure say, `level` the
    number of Windows (1 critical to 5 verbose), `sid` the account in whose name it was
    logged, `pid` and `tid` who wrote it. `rest` has no place in OCSF.
    """

    event_id: int
    provider: str | None
    channel: str | None
    computer: str | None
    stamp: Stamp
    data: dict[str, Any]
    guid: str | None = None
    record_id: str | None = None
    activity_id: str | None = None
    level: int | None = None
    failed: bool | None = None
    sid: str | None = None
    account: tuple[str | None, str | None] = (None, None)
    pid: int | None = None
    tid: int | None = None
    message: str | None = None
    rest: dict[str, Any] = field(default_factory=dict)


def whole(value: object) -> int | None:
    """A whole number from a number, or from decimal or hexadecimal text."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is int:
        return value
    if type(value) is str:
        text = value.strip()
        if INTEGER.fullmatch(text):
            # Not base 0 for all: Python refuses `0123` there, which is a plain number here.
            return int(text, 0 if text[:2] in ("0x", "0X") else 10)
    many: int | None = _of_many(whole, value)
    return many


def _of_many(function: Callable[[Any], Any], value: object) -> Any:
    """`function` of each of many values; None of anything else."""
    # Asked last, as what is no text is rare.
    return each(function, value) if isinstance(value, Many) else None


def as_text(value: Any) -> Any:
    """A scalar as Windows writes it in XML; anything else, and null, as it is.

    So that `3`, `"3"` and `true`, `"true"` of several writers are one value.
    """
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int or type(value) is float:
        return str(integral(value))
    # Many of one type: texts are what they are.
    return each(as_text, value) if isinstance(value, Many) and value.kind is not str else value


def keywords_of(value: object) -> tuple[bool | None, str | None]:
    """What keywords say of an audit (whether it failed), and the mask as text."""
    # Few masks occur in all logs; long texts stay out, with which a sender could fill the cache.
    if type(value) is str and len(value) < 64:
        return _keywords_of_text(value)
    return _keywords_of(value)


def _keywords_of(value: object) -> tuple[bool | None, str | None]:
    if type(value) is float and abs(value) < 2**64:
        value = int(value)
    mask = value if type(value) is int else whole(value)
    if mask is None and type(value) is str and re.fullmatch(r"-\d{1,19}|\d{19,20}", value):
        mask = int(value)
    if mask is None or abs(mask) >= 2**64:
        return None, None
    if abs(mask) > 2**53 and mask % 100 == 0:
        # A relay in JavaScript wrote zeros for the last digits; the bits of an audit are in the
        # double that it had.
        mask = int(float(mask))
    # Some writers give the mask as a signed number, and an audit sets its top bit.
    mask &= 2**64 - 1
    failed = True if mask & AUDIT_FAILURE else False if mask & AUDIT_SUCCESS else None
    return failed, f"0x{mask:x}"


_keywords_of_text = lru_cache(maxsize=1024)(_keywords_of)


_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "critical": 1,
        "error": 2,
        "warning": 3,
        "information": 4,
        "informational": 4,
        "info": 4,
        "verbose": 5,
        "debug": 5,
        "log always": 0,
        "logalways": 0,
    }
)


def level_of(value: object) -> int | None:
    """Windows' number of a level, written as number or word."""
    number = whole(value)
    if number is not None:
        return number if 0 <= number <= 255 else None
    return _LEVELS.get(value.strip().lower()) if type(value) is str else None


def is_sysmon(provider: str | None, guid: str | None, channel: str | None) -> bool:
    """Whether Sysmon wrote it, by whichever of these is there."""
    # The provider decides where it is there: another may write to a channel of the same name.
    if provider:
        return provider.lower() in _SYSMON
    if guid:
        return guid.strip("{}").lower() in SYSMON_GUIDS
    return (channel or "").lower() in (
        "microsoft-windows-sysmon/operational",
        "linux-sysmon/operational",
    )


def valued(value: object) -> str | None:
    """A text without white space around it, unless it says that there is no value."""
    if type(value) is str:
        text = value.strip()
        return None if text in NOTHING else text
    return None


def _written(value: object) -> str | None:
    return value if type(value) is str and value.strip() not in NOTHING else None


def _between(value: object, least: int, most: int) -> int | None:
    number = whole(value)
    return number if number is not None and least <= number <= most else None


def _address(value: object) -> tuple[str, bool] | None:
    """An address, and whether a zone stands behind it, for which a bare address has no room."""
    if type(value) is not str:
        return None
    bare, _, zone = value.strip().removeprefix("\\\\").partition("%")
    ip_address = address(bare.removeprefix("[").removesuffix("]"))
    return None if ip_address is None else (ip_address, bool(zone))


def _truth(value: str) -> bool | None:
    return {"true": True, "1": True, "false": False, "0": False}.get(value.lower())


def _parted(name: str, domain: str | None) -> tuple[str, str | None, bool]:
    """The bare name, the domain, and whether the realm behind the name was cut off."""
    bare, of = split_account(name, domain)
    return bare, of, bare != name and "@" in name


NAMELESS = re.compile(r"[Pp]aram\d{1,3}", re.ASCII)
"""Names under which values are kept that an event gives none."""


class Fields:
    """The data of an event: what a mapping takes is gone, the rest is kept as unmapped.

    A value that means "none" is never taken, so that rules can still ask for it; nor is one
    without a name (`param1`), since rules ask for all of those together, as `Data`.
    """

    __slots__ = ("left",)

    def __init__(self, data: dict[str, Any]) -> None:
        self.left = data

    def peek(self, *names: str) -> str | None:
        """The first of these that has a value, left in place."""
        for name in names:
            value = self.left.get(name)
            if type(value) is str:
                value = value.strip()
                if value not in NOTHING:
                    return value
            elif value is not None and (text := _of_many(valued, value)) is not None:
                return text  # type: ignore[no-any-return]  # or a column of it
        return None

    def text(self, *names: str) -> str | None:
        """Take the first of these that has a value."""
        for name in names:
            value = self.left.get(name)
            if type(value) is str:
                value = value.strip()
                if value not in NOTHING:
                    self._took(name)
                    return value
            elif value is not None and (text := _of_many(valued, value)) is not None:
                self._took(name)
                return text  # type: ignore[no-any-return]  # or a column of it
        return None

    def _took(self, name: str) -> None:
        if not NAMELESS.fullmatch(name):
            del self.left[name]

    def raw(self, *names: str) -> str | None:
        """Take the first of these that holds text, with its white space."""
        for name in names:
            value: str | None = each(_written, self.left.get(name))
            if value is not None:
                self._took(name)
                return value
        return None

    def guid(self, *names: str) -> str | None:
        """Take an id that may be written as all zeros for none."""
        value = self.peek(*names)
        return None if value is None or holds(NO_GUID.__contains__, value) else self.text(*names)

    def logon(self, *names: str) -> str | None:
        """Take the id of a logon session, which is written as 0 for none."""
        value = self.peek(*names)
        return None if value is None or whole(value) == 0 else self.text(*names)

    def number(self, *names: str, least: int = 0, most: int = 2**63 - 1) -> int | None:
        """Take a number, decimal or hexadecimal, that lies between these."""
        for name in names:
            value = self.left.get(name)
            if value is None:
                continue
            number: int | None = each(_between, value, least, most)
            if number is not None:
                self._took(name)
                return number
        return None

    def pid(self, *names: str) -> int | None:
        """Take a process id; 0 is nobody's."""
        return self.number(*names, least=1, most=MOST_PID)

    def port(self, *names: str) -> int | None:
        """Take a port; 0 means none."""
        return self.number(*names, least=1, most=65535)

    def ip(self, *names: str) -> str | None:
        """Take an address. One with a zone (`fe80::1%4`) also stays, as it was."""
        for name in names:
            parsed = each(_address, self.left.get(name))
            if parsed is not None:
                ip_address, zone = parsed
                if not zone:
                    self._took(name)
                return ip_address  # type: ignore[no-any-return]  # or a column of it
        return None

    def flag(self, *names: str) -> bool | None:
        """Take a truth value."""
        value = self.peek(*names)
        truth: bool | None = None if value is None else each(_truth, value)
        if truth is not None:
            self.text(*names)
        return truth

    def user(self, name: str, domain: str = "", sid: str = "") -> dict[str, Any] | None:
        """Take a user from the fields of these names; None where all are without value.

        `DOMAIN\\name` is split, and `name@REALM` where the realm is also its domain.
        """
        who = self.text(name) if name else None
        # Only looked at: where there is neither name nor SID, nothing may be taken.
        uid = self.peek(sid) if sid else None
        if who is None and uid is None:
            return None
        of = self.text(domain) if domain else None
        if uid is not None:
            self.text(sid)
        if who is not None and uid is None and holds(SID.fullmatch, who):
            who, uid = None, who
        if who is not None:
            written = who
            who, of, cut = each(_parted, who, of)
            if cut:
                # Rules tell by the realm behind it (`$@`) what kind of account it is.
                self.left[name] = written
        return filled(name=who, domain=of, uid=uid)


def split_account(name: str, domain: str | None = None) -> tuple[str, str | None]:
    """The bare name and the domain of `DOMAIN\\name`, or of `name@REALM` in that realm."""
    before, slash, after = name.partition("\\")
    # With a domain in its own field the name is kept whole, so that neither domain is lost.
    if slash and after and before and domain is None:
        return after, before
    bare, position, realm = name.rpartition("@")
    if position and bare and domain is not None and realm.lower() == domain.lower():
        return bare, domain
    return name, domain


def filled(**parts: Any) -> dict[str, Any] | None:
    """A struct of the parts that have a value; None where none has."""
    results = {name: value for name, value in parts.items() if value is not None}
    return results or None
