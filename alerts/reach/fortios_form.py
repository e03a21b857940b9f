"""A line as FortiGate writes it, made of Sigma's fields."""

from __future__ import annotations

from collections.abc import Mapping

from alerts.reach.example_values import KEYWORDS
from alerts.rulepack.log_source import LogSource

_EVERY_LINE = {
    "date": "2025-03-05", "time": "12:00:00", "tz": "+0000", "devname": "fg1", "devid": "FGT60",
    "logid": "0000000013", "srcip": "10.0.0.5", "dstip": "203.0.113.9",
}  # fmt: skip
_PROFILES = {
    "attack": "ips", "attackid": "ips", "virus": "virus", "qname": "dns", "url": "webfilter",
    "catdesc": "webfilter", "hostname": "webfilter", "app": "app-ctrl", "filtername": "dlp",
    "from": "emailfilter", "sender": "emailfilter", "filehash": "virus",
}  # fmt: skip
"""What FortiOS names the profile whose log has a field."""


def fortios_line(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None
) -> bytes:
    """A line with these fields, of the log that the log source names or the fields are of."""
    data = {"msg" if name == KEYWORDS else name: value for name, value in values.items()}
    kinds = [text for where in source.where for texts in where.values() for text in texts]
    profile = next((_PROFILES[name] for name in data if name in _PROFILES), "")
    guessed = "event" if "cfgpath" in data or "logdesc" in data else "utm" if profile else "traffic"
    kind, _, subtype = (kinds[0] if kinds else guessed).partition("/")
    usual = {"event": "system", "traffic": "forward"}.get(kind, profile or "ips")
    pairs = {"type": kind, "subtype": subtype or usual} | _EVERY_LINE | data
    return " ".join(f"{name}={_in_quotes(value)}" for name, value in pairs.items()).encode()


def _in_quotes(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
