"""A message as Cisco's firewalls write it, made of Sigma's fields."""

from __future__ import annotations

from collections.abc import Mapping

from alerts.reach.example_values import KEYWORDS
from alerts.rulepack.log_source import LogSource

_HEAD = "<166>Mar  5 2025 12:00:00 fw1 : "
_NUMBERS = ("message_number", "EventID", "logid")
_WORDS = (KEYWORDS, "message", "msg")
_REFUSED = frozenset({"deny", "denied", "drop", "dropped", "block", "blocked", "reject", "refuse"})


def asa_line(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
    """Free words where the rule asks for text, a command where for a user, else a connection."""
    number = next((values[name] for name in _NUMBERS if name in values), None)
    words = [values[name] for name in _WORDS if name in values]
    if words:
        return f"{_HEAD}%ASA-5-{number or '199999'}: {' '.join(words)}".encode()
    if "user" in values:
        text = f"User '{values['user']}' executed the 'show run' command."
        return f"{_HEAD}%ASA-5-{number or '111008'}: {text}".encode()
    return f"{_HEAD}{_connection(number, values)}".encode()


def _connection(number: str | None, values: Mapping[str, str]) -> str:
    source = _first(values, "10.0.0.5", "src_ip", "srcip", "SourceIp", "source.ip")
    target = _first(values, "203.0.113.9", "dst_ip", "dstip", "DestinationIp", "destination.ip")
    source_port = _first(values, "50000", "src_port", "srcport", "SourcePort", "source.port")
    port = _first(values, "443", "dst_port", "dstport", "DestinationPort", "destination.port")
    protocol = _first(values, "tcp", "Protocol", "proto")
    refused = values.get("action", "").lower() in _REFUSED or values.get("blocked") == "true"
    if number == "106023" or (number is None and (refused or "rule_name" in values)):
        rule = values.get("rule_name", "outside_in")
        return (
            f"%ASA-4-106023: Deny {protocol.lower()} src outside:{source}/{source_port} dst "
            f'inside:{target}/{port} by access-group "{rule}" [0x0, 0x0]'
        )
    return (
        f"%ASA-6-{number or '302013'}: Built inbound {protocol.upper()} connection 7 for "
        f"outside:{source}/{source_port} ({source}/{source_port}) to "
        f"inside:{target}/{port} ({target}/{port})"
    )


def _first(values: Mapping[str, str], default: str, *names: str) -> str:
    return next((values[name] for name in names if name in values), default)
