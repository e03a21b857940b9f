"""Indicators and observables in the one spelling in which they are compared.

A value of an event says by its OCSF type what it may be: a URL is sought itself and by its host,
a mail address itself and by its domain, a host by its name and every parent or, where it is
written as an address, by that.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address, ip_network
from types import MappingProxyType

from ingest.parsing.ocsf import A_FINGERPRINT, A_HASH, A_HOST, A_MAIL, A_URL, AN_IP

INDICATOR_KINDS = ("ip", "network", "domain", "hash", "url", "email")
"""What an entry of a list may be."""

SOUGHT = ("ip", "domain", "hash", "url", "email")
"""What a rule may restrict itself to; `ip` means listed addresses and networks alike."""

OBSERVABLES = MappingProxyType(
    {
        AN_IP: ("ip",),
        A_HOST: ("domain", "ip"),
        A_MAIL: ("email", "domain"),
        A_URL: ("url", "domain", "ip"),
        A_HASH: ("hash",),
        A_FINGERPRINT: ("hash",),
    }
)
"""What an observable may be sought as, by OCSF's `type_id`; others are never sought."""

_MAX_CHARS = 2_048
"""Longest entry; names are far shorter, and what a longer URL says is not said twice."""

_HEX = re.compile(r"[0-9a-f]+")
_DIGITS = MappingProxyType({32: "md5", 40: "sha1", 64: "sha256"})
# DNS carries 253 characters at most, and 63 of a label (RFC 1035, 2.3.4).
_NAME = re.compile(
    r"(?=.{4,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
_MAIL = re.compile(r"[^@\s]{1,64}@[^@\s]+")
_USUAL_PORTS = ("80", "443")
_DEFANGED = (("[.]", "."), ("(.)", "."), ("[dot]", "."), ("[:]", ":"), ("[@]", "@"))


def address_bytes(text: str) -> bytes | None:
    """An address as 16 bytes, IPv4 as IPv6 maps it (RFC 4291, 2.5.5.2); None where it is none."""
    try:
        if ":" in text:
            # The zone behind `%` is the name of an interface on one machine, no part of the
            # address.
            return socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
        return b"\0" * 10 + b"\xff\xff" + socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError):
        return None


def domain_of(text: str) -> str:
    """A name without case and final dot, beyond ASCII as DNS carries it (IDNA)."""
    name = text.rstrip(".")
    if not name.isascii():
        try:
            # Logs carry what DNS carried, lists what people read; both become the DNS form.
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            return name.lower()
    return name.lower()


def _url_of(text: str) -> tuple[str, str] | None:
    """(URL in one spelling, its host); None for what names no host, such as a mere path.

    Compared are host, unusual port, path and query: scheme, user and fragment are left out,
    for logs often lack them.
    """
    scheme, result, rest = text.strip().partition("://")
    rest = (rest if result else scheme).partition("#")[0]
    position = next((place for place, sign in enumerate(rest) if sign in "/?"), len(rest))
    # At the last `@`: before it stand user and password, which may hold one too.
    authority, tail = rest[:position].rpartition("@")[2], rest[position:]
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    host = address_of(host) or domain_of(host)
    if not host:
        return None
    named = f"[{host}]" if ":" in host else host
    colon = f":{port}" if port and port not in _USUAL_PORTS else ""
    return f"{named}{colon}{tail if tail.startswith('/') else '/' + tail}", host


def address_of(text: str) -> str | None:
    """An address as Python writes it, one that IPv6 maps as IPv4; None where it is none."""
    data = address_bytes(text)
    return None if data is None else _spelt(data)


def _spelt(data: bytes) -> str:
    """16 bytes as an address."""
    whole = ip_address(data)
    mapped = getattr(whole, "ipv4_mapped", None)
    return str(mapped or whole)


def network_around(data: bytes, prefix: int) -> str:
    """The network of `prefix` bits (of 128) around an address, as an entry spells it."""
    number = int.from_bytes(data, "big") >> (128 - prefix) << (128 - prefix)
    network = number.to_bytes(16, "big")
    if prefix == 128:
        return _spelt(network)
    if prefix >= 96 and network.startswith(b"\0" * 10 + b"\xff\xff"):
        return f"{ip_address(network[12:])}/{prefix - 96}"
    return f"{ip_address(network)}/{prefix}"


def prefix_of(value: str) -> tuple[bytes, int]:
    """An entry of kind ip or network as (16 bytes, bits of 128)."""
    # All in 128 bits: IPv4 lies within IPv6, so one search serves both.
    address, result, bits = value.partition("/")
    data = address_bytes(address)
    if data is None:
        raise ValueError(f"'{value}' is no address")
    return data, (int(bits) + (0 if ":" in address else 96)) if result else 128


def sought(type_id: int, value: str) -> tuple[tuple[str, str], ...]:
    """What an observable is sought as: (kind of `SOUGHT`, text in the one spelling)."""
    if type_id == AN_IP:
        return _host(value, name=False)
    if type_id == A_HOST:
        return _host(value)
    if type_id == A_URL:
        parts = _url_of(value)
        return (("url", parts[0]), *_host(parts[1])) if parts else ()
    if type_id == A_MAIL:
        address = mail_of(value)
        return (("email", address), ("domain", domain_of(address.rpartition("@")[2])))
    if type_id in (A_HASH, A_FINGERPRINT):
        return (("hash", value.lower()),)
    return ()


def _host(text: str, name: bool = True) -> tuple[tuple[str, str], ...]:
    address = address_of(text) if maybe_address(text) else None
    if address:
        return (("ip", address),)
    return (("domain", domain_of(text)),) if name else ()


def maybe_address(text: str) -> bool:
    """Whether a text could be an address; cheap, and true of every one."""
    return text[-1:].isdigit() or ":" in text


def mail_of(text: str) -> str:
    """A mail address without case, and without the name before it."""
    return text.rpartition("<")[2].partition(">")[0].strip().lower()


def entry(text: str, kind: str = "auto") -> tuple[str, str]:
    """(kind, value in the one spelling) of an entry; raises `ValueError` that says what is wrong.

    Dots and schemes that were broken so that nobody clicks on them are mended.
    """
    plain = text.strip()
    for broken, whole in _DEFANGED:
        plain = plain.replace(broken, whole)
    plain = re.sub(r"^hxxp(s?)(?=://)", r"http\1", plain, flags=re.IGNORECASE)
    if not plain or len(plain) > _MAX_CHARS:
        raise ValueError("empty" if not plain else f"longer than {_MAX_CHARS} characters")
    return _READERS[guess(plain) if kind == "auto" else kind](plain)


def guess(text: str) -> str:
    """The kind that a text looks like; `domain` where nothing else fits."""
    if "://" in text:
        return "url"
    if address_bytes(text) is not None:
        return "ip"
    address, slash, bits = text.partition("/")
    if slash and bits.isdecimal() and address_bytes(address) is not None:
        return "network"
    if len(text) in _DIGITS and _HEX.fullmatch(text.lower()):
        return "hash"
    if "@" in text:
        return "email"
    return "url" if slash else "domain"


def _network(text: str) -> tuple[str, str]:
    """A network; one of a single address is that address."""
    if "/" not in text:
        address = address_of(text)
        if address is None:
            raise ValueError(f"'{text}' is no address or network")
        return "ip", address
    # Lists write addresses inside a network as well as its first one.
    network = ip_network(text, strict=False)
    # One such entry would make a finding of every event.
    if network.prefixlen == 0:
        raise ValueError(f"'{text}' is every address there is")
    data, prefix = prefix_of(str(network))
    return ("ip" if prefix == 128 else "network"), network_around(data, prefix)


def _domain(text: str) -> tuple[str, str]:
    # Lists write `*.example.com`; an entry means its subdomains anyway.
    name = domain_of(text.removeprefix("*").removeprefix("."))
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{text}' is no domain name of two labels or more")
    return "domain", name


def _hash(text: str) -> tuple[str, str]:
    digits = text.lower()
    if len(digits) not in _DIGITS or not _HEX.fullmatch(digits):
        raise ValueError(f"'{text}' is no hash: 32, 40 or 64 hex digits")
    return "hash", digits


def _url(text: str) -> tuple[str, str]:
    parts = _url_of(text)
    if parts is None or (address_of(parts[1]) is None and not _NAME.fullmatch(parts[1])):
        raise ValueError(f"'{text}' is no URL with a host")
    return "url", parts[0]


def _email(text: str) -> tuple[str, str]:
    address = mail_of(text)
    if not _MAIL.fullmatch(address):
        raise ValueError(f"'{text}' is no mail address")
    return "email", address


_READERS = MappingProxyType(
    {
        "ip": _network,
        "network": _network,
        "domain": _domain,
        "hash": _hash,
        "url": _url,
        "email": _email,
    }
)
