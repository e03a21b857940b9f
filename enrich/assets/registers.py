"""What a line of an inventory says: assets and users, read strictly, brought into one form.

Plain Python. A register knows its columns, what other inventories call them, and how each
value is read; what cannot be read is refused with a sentence that names the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any

import msgspec

from enrich.tables_assets import ASSET_VERSION, USER_VERSION
from infra.delta.schema import Table
from ingest.parsing.ocsf import address, mac_address

VALUE_CHARS = 1_000
LIST_VALUES = 200
CRITICALITIES = ("low", "medium", "high", "critical")

Values = dict[str, Any]
_Read = Callable[[Any], Any]

_SEPARATED = re.compile(r"[;,|]")


@dataclass(frozen=True)
class RegisterEntry:
    """One line of an inventory. `valid_from` is None where the line names no instant."""

    id: str
    valid_from: datetime | None
    values: Values
    line: int = 0


@dataclass(frozen=True)
class Register:
    """A kind of inventory. `keys`: columns of which a line must fill one; the first filled
    one is the entry's identity where the line gives none."""

    name: str
    one: str
    table: Table
    identity: str
    columns: Mapping[str, _Read]
    keys: tuple[str, ...]
    headings: Mapping[str, str]

    def entry(self, fields: Mapping[str, Any], line: int = 0) -> RegisterEntry:
        """A line's fields as an entry; raises `ValueError` with a sentence that says why not."""
        named, more = self._named(fields)
        values = {column: _read(column, read, named) for column, read in self.columns.items()}
        # Sorted, so that columns in another order are no change.
        values["more"] = msgspec.json.encode(more, order="sorted").decode() if more else None
        given = _read(self.identity, _text, named)
        identifying = (values[key] for key in self.keys)
        name = given or next((_first(value) for value in identifying if value), None)
        # An id alone would never be found: events know no numbers of an inventory.
        if name is None or not any(values[key] for key in self.keys):
            raise ValueError(f"no {', '.join(self.keys[:-1])} or {self.keys[-1]} to know it by")
        return RegisterEntry(name, _read("valid_from", _instant, named), values, line)

    def column(self, heading: str) -> str | None:
        """The column that a heading means; None for one of no register."""
        plain = re.sub(r"[\s.-]+", "_", heading.strip().lower())
        headings = self.headings.get(plain, plain)
        return headings if headings in (*self.columns, self.identity, "valid_from") else None

    def _named(self, fields: Mapping[str, Any]) -> tuple[Values, Values]:
        """The fields by column, and those that are none of ours."""
        named: Values = {}
        more: Values = {}
        for heading, value in fields.items():
            column = self.column(heading)
            if value is None or value == "" or value == []:
                continue
            if column is None:
                more[heading.strip()] = value
            elif column in named:
                raise ValueError(f"{column}: given twice, the second time as '{heading}'")
            else:
                named[column] = value
        return named, more


def _read(column: str, read: _Read, named: Mapping[str, Any]) -> Any:
    try:
        return read(named.get(column))
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from None


def _first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) else value)


def _text(value: Any) -> str | None:
    """A short text without control characters; None for nothing."""
    if value is None:
        return None
    # A bool is an int to Python, and `true` is nobody's name.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a text, found {value!r:.80}")
    clean = str(value).strip()
    if len(clean) > VALUE_CHARS:
        raise ValueError(f"{len(clean)} characters; at most {VALUE_CHARS} are taken")
    # What an inventory says is shown on terminals.
    if not clean.isprintable():
        raise ValueError(f"{clean[:80]!r} has control characters")
    return clean or None


def _texts(value: Any) -> list[str] | None:
    """Several texts: a list, or one text in which `;`, `,` or `|` parts them; each once."""
    parts = value if isinstance(value, list) else _SEPARATED.split(_text(value) or "")
    result = [clean for part in parts if (clean := _text(part))]
    if len(result) > LIST_VALUES:
        raise ValueError(f"{len(result)} values; at most {LIST_VALUES} are taken")
    return list(dict.fromkeys(result)) or None


def lowered(value: Any) -> list[str] | None:
    """Several texts in lower case, a dot at the end taken off: host names and accounts."""
    names = [text_value.lower().rstrip(".") for text_value in _texts(value) or ()]
    return list(dict.fromkeys(text_value for text_value in names if text_value)) or None


def macs(value: Any) -> list[str] | None:
    """Hardware addresses in the form that events have."""
    return _each(value, mac_address, "is no hardware address; write 02:42:ac:77:0b:19")


def networks(value: Any) -> list[str] | None:
    """Addresses and networks (10.1.0.0/16) in their canonical spelling."""
    return _each(value, _network, "is neither an address nor a network such as 10.1.0.0/16")


def _network(given: str) -> str | None:
    if "/" not in given:
        return address(given)
    try:
        # Strict: where bits are set behind the mask, which network was meant is not guessed.
        network = ip_network(given)
    except ValueError:
        return None
    # A network of one address is kept as that address, which events are looked up by.
    whole = network.prefixlen == network.max_prefixlen
    return str(network.network_address if whole else network)


def _each(value: Any, read: Callable[[str], str | None], otherwise: str) -> list[str] | None:
    results = []
    for given in _texts(value) or ():
        read_event = read(given)
        if read_event is None:
            raise ValueError(f"'{given:.80}' {otherwise}")
        results.append(read_event)
    return list(dict.fromkeys(results)) or None


def criticality(value: Any) -> str | None:
    """One of four words, in any case."""
    word = (_text(value) or "").lower()
    if word and word not in CRITICALITIES:
        raise ValueError(f"'{word:.80}' is none of {', '.join(CRITICALITIES)}")
    return word or None


def _instant(value: Any) -> datetime | None:
    """An instant with its zone."""
    given = _text(value)
    if given is None:
        return None
    try:
        instant_read = datetime.fromisoformat(given)
        utc = instant_read.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"'{given:.80}' is no instant; write one such as 2026-11-20T00:00:00Z"
        ) from None
    # Above, a time without a zone was taken for one of this machine's.
    if instant_read.tzinfo is None:
        raise ValueError(f"'{given}' names no zone; write {given}Z for UTC")
    return utc


def _headings(**columns: Sequence[str]) -> dict[str, str]:
    return {heading: column for column, headings in columns.items() for heading in headings}


ASSETS = Register(
    name="assets",
    one="asset",
    table=ASSET_VERSION,
    identity="asset_id",
    columns={
        "name": _text,
        "kind": _text,
        "owner": _text,
        "criticality": criticality,
        "site": _text,
        "scope": _text,
        "tags": _texts,
        "macs": macs,
        "serial": _text,
        "hostnames": lowered,
        "ips": networks,
    },
    keys=("macs", "serial", "hostnames", "ips"),
    headings=_headings(
        asset_id=("id", "asset", "asset_tag", "ci"),
        name=("display_name", "asset_name", "label"),
        kind=("type", "category", "asset_type", "role"),
        owner=("owned_by", "assigned_to", "responsible"),
        criticality=("importance", "business_criticality", "impact"),
        site=("location", "building", "office"),
        tags=("tag", "labels"),
        macs=("mac", "mac_address", "mac_addresses", "hardware_address", "ethernet"),
        serial=("serial_number", "sn"),
        hostnames=("hostname", "host", "host_name", "fqdn", "dns_name", "computer_name"),
        ips=(
            "ip",
            "ip_address",
            "ip_addresses",
            "address",
            "cidr",
            "network",
            "networks",
            "subnet",
        ),
    ),
)

USERS = Register(
    name="users",
    one="user",
    table=USER_VERSION,
    identity="user_id",
    columns={
        "name": _text,
        "full_name": _text,
        "department": _text,
        "title": _text,
        "manager": _text,
        "mail": _text,
        "site": _text,
        "criticality": criticality,
        "tags": _texts,
        "aliases": lowered,
    },
    keys=("name", "mail", "aliases"),
    headings=_headings(
        user_id=("id", "employee_id", "employee_number", "object_id"),
        name=("user", "user_name", "username", "login", "account", "samaccountname", "uid"),
        full_name=("display_name", "cn", "person"),
        department=("dept", "division", "team"),
        title=("job_title", "position"),
        manager=("manager_name", "reports_to"),
        mail=("email", "e_mail", "mail_address", "email_address"),
        site=("location", "office", "building"),
        criticality=("importance", "risk"),
        tags=("tag", "labels", "groups"),
        aliases=("alias", "accounts", "sid", "upn", "userprincipalname", "logins"),
    ),
)

REGISTERS = {register.name: register for register in (ASSETS, USERS)}
