"""Which of Zeek's logs a record is of, by other names of a log and by its fields."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "dpd": "analyzer",
        "conn_long": "conn",
        "conn_red": "conn",
        "dns_red": "dns",
        "http_red": "http",
        "http2": "http",
        "ssl_red": "ssl",
        "files_red": "files",
        "weird_red": "weird",
        "notice_alarm": "notice",
    }
)
"""Logs with the fields of another: what Corelight's sensors write of it in short (`_red`),
and names of other versions."""
_SIGNS: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (log, frozenset(keys.split()))
    for log, keys in (
        ("conn", "conn_state"),
        ("dns", "trans_id rcode_name"),
        ("dns", "trans_id qtype_name"),
        ("http", "trans_depth status_code"),
        ("http", "trans_depth method"),
        ("ssl", "established resumed"),
        ("files", "fuid seen_bytes"),
        ("x509", "certificate.serial"),
        ("notice", "note msg"),
        ("weird", "name notice peer"),
        ("ssh", "auth_attempts"),
        ("dhcp", "msg_types"),
        ("dhcp", "assigned_ip mac"),
        ("kerberos", "request_type"),
        ("ntlm", "server_dns_computer_name"),
        ("smb_files", "action times.modified"),
        ("smb_mapping", "share_type"),
        ("dce_rpc", "named_pipe operation"),
        ("rdp", "security_protocol"),
        ("ftp", "command reply_code"),
        ("smtp", "helo trans_depth"),
        ("software", "software_type"),
        ("syslog", "facility severity message"),
        ("analyzer", "failure_reason"),
        ("pe", "machine is_exe"),
        ("tunnel", "tunnel_type"),
        ("intel", "seen.indicator"),
    )
)
"""Fields by which a record is told that does not say of which log it is."""


def read_as(log: str | None) -> str | None:
    """The log whose fields `log` has, mostly itself."""
    return _ALIASES.get(log, log) if log else log


def looks_like(fields: Mapping[str, Any]) -> str | None:
    """The log whose fields a record has; None where they are no known log's."""
    # The first that fits: logs with signs of their own stand before those with common ones.
    return next((log for log, keys in _SIGNS if keys <= fields.keys()), None)
