"""An OCSF object as the columns of silver.event: what `ingest.parsing.ocsf_export` does, backwards.

Only what fits a column is taken; `ocsf_passed` keeps all that a column cannot give back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import address, mac_address
from ingest.parsing.timestamps import EARLIEST, EPOCH

Reader = Callable[[Any], Any]
Shape = Mapping[str, Any]
INT32, INT64 = 2**31, 2**63


def text(value: Any) -> str | None:
    """A string."""
    return value if type(value) is str else None


def small(value: Any) -> int | None:
    """A whole number of 32 bits."""
    return value if type(value) is int and -INT32 <= value < INT32 else None


def large(value: Any) -> int | None:
    """A whole number of 64 bits."""
    return value if type(value) is int and -INT64 <= value < INT64 else None


def truth(value: Any) -> bool | None:
    """True or false."""
    return value if type(value) is bool else None


def port(value: Any) -> int | None:
    """A port."""
    return value if type(value) is int and 0 <= value <= 65535 else None


def ip(value: Any) -> str | None:
    """An address in its canonical spelling."""
    return address(value) if type(value) is str else None


def mac(value: Any) -> str | None:
    """A hardware address in its canonical spelling."""
    return mac_address(value) if type(value) is str else None


def time(value: Any) -> datetime | None:
    """Milliseconds since 1970."""
    if type(value) is not int:
        return None
    try:
        found = EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return None
    return found if found >= EARLIEST else None


def texts(value: Any) -> list[str] | None:
    """A list of strings."""
    return value if type(value) is list and all(type(one) is str for one in value) else None


def names(value: Any) -> list[str] | None:
    """The names of a list of objects."""
    if type(value) is not list or not all(type(one) is dict for one in value):
        return None
    found = [one.get("name") for one in value]
    return found if found and all(type(one) is str for one in found) else None


def fingerprints(value: Any) -> list[dict[str, str]] | None:
    """A list of fingerprints."""
    if type(value) is not list:
        return None
    found = [
        {"algorithm": one.get("algorithm") or "Unknown", "value": one["value"]}
        for one in value
        if type(one) is dict
        and type(one.get("value")) is str
        and type(one.get("algorithm", "")) is str
    ]
    return found or None


def at(*path: str, reads: Reader = text) -> Callable[[dict[str, Any]], Any]:
    """A reader of what lies deeper in an object."""

    def read(node: Any) -> Any:
        for key in path:
            if type(node) is not dict:
                return None
            node = node.get(key)
        return reads(node)

    return read


def _strings(*keys: str) -> dict[str, Reader]:
    return dict.fromkeys(keys, text)


USER: Shape = {
    **_strings("name", "uid", "domain", "type", "email_addr", "full_name", "credential_uid"),
    "groups": names,
    "account_uid": at("account", "uid"),
}
ENDPOINT: Shape = {
    **_strings("hostname", "domain", "name", "svc_name", "uid", "zone", "interface_name"),
    "ip": ip,
    "port": port,
    "mac": mac,
    "country": at("location", "country"),
}
FILE: Shape = {
    **_strings("name", "path", "mime_type", "company_name", "desc", "internal_name", "version"),
    "size": large,
    "type_id": small,
    "hashes": fingerprints,
    "product": at("product", "name"),
}
PARENT: Shape = {
    **_strings("name", "cmd_line", "uid"),
    "pid": large,
    "path": lambda node: text(node),
    "user": USER,
}
PROCESS: Shape = {
    **_strings("name", "cmd_line", "uid", "integrity"),
    "pid": large,
    "tid": large,
    "user": USER,
}
CERTIFICATE: Shape = {
    **_strings("subject", "issuer", "serial_number"),
    "created_time": time,
    "expiration_time": time,
    "fingerprints": fingerprints,
}
COLUMNS: Shape = MappingProxyType(
    {
        **_strings(
            *("activity_name", "status_code", "status_detail", "message", "rcode"),
            *("command", "share", "app_name", "auth_protocol", "transaction_uid"),
        ),
        "metadata": {
            **_strings("log_name", "log_provider", "event_code", "uid", "correlation_uid"),
            **_strings("version", "original_time"),
            "product": _strings("name", "vendor_name", "version"),
        },
        "src_endpoint": ENDPOINT,
        "dst_endpoint": ENDPOINT,
        "user": USER,
        "device": {
            **_strings("hostname", "uid", "name"),
            "ip": ip,
            "mac": mac,
            "type_id": small,
        },
        "file": FILE,
        "module": {**_strings("base_address", "function_name"), "file": FILE},
        "job": _strings("name", "cmd_line", "desc"),
        "reg_key": _strings("path"),
        "query": _strings("hostname", "type", "class"),
        "rcode_id": small,
        "http_request": {
            **_strings("http_method", "version", "user_agent", "referrer"),
            "length": large,
            "x_forwarded_for": texts,
            "url": {
                **_strings("url_string", "hostname", "path", "query_string", "scheme"),
                "port": port,
            },
        },
        "http_response": {**_strings("message", "content_type"), "code": small, "length": large},
        "api": {
            **_strings("operation", "version"),
            "service": _strings("name"),
            "request": _strings("uid"),
            "response": {**_strings("error", "error_message"), "code": small},
        },
        "cloud": {**_strings("provider", "region"), "account": _strings("uid", "name")},
        "traffic": dict.fromkeys(
            ("bytes", "bytes_in", "bytes_out", "packets", "packets_in", "packets_out"), large
        ),
        "connection_info": {
            **_strings("uid", "protocol_name", "direction", "flag_history", "community_uid"),
            "protocol_num": small,
            "protocol_ver_id": small,
            "direction_id": small,
        },
        "email": {
            **_strings("from", "subject", "message_uid", "uid"),
            "to": texts,
            "cc": texts,
            "size": large,
        },
        "finding_info": {
            **_strings("uid", "title", "desc", "src_url"),
            "types": texts,
            "created_time": time,
            "analytic": {**_strings("uid", "name", "category", "version"), "type_id": small},
        },
        "firewall_rule": _strings("uid", "name", "type", "desc"),
        "group": _strings("name", "uid", "domain"),
        "privileges": texts,
        "duration": large,
        "start_time": time,
        "end_time": time,
        "logon_type_id": small,
        "is_remote": truth,
        "is_mfa": truth,
        "service": _strings("name", "uid"),
        "session": _strings("uid", "issuer", "terminal"),
        "lease_dur": large,
        "is_renewal": truth,
    }
)


def taken(node: Any, shape: Shape) -> dict[str, Any] | None:
    """What of an object fits the columns of a shape."""
    if type(node) is not dict:
        return None
    found: dict[str, Any] = {}
    for name, reads in shape.items():
        if isinstance(reads, Mapping):
            value: Any = taken(node.get(name), reads)
        elif name in ("account_uid", "country") or (name == "product" and "size" in shape):
            value = reads(node)
        else:
            value = reads(node.get(name))
        if value is not None:
            found[name] = value
    return found or None


def process(node: Any, depth: int = 0) -> dict[str, Any] | None:
    """A process, with its parent, as their columns have them."""
    found = taken(node, PARENT if depth else PROCESS)
    if found is None and type(node) is not dict:
        return None
    found = found or {}
    file = node.get("file") if type(node.get("file")) is dict else {}
    path = text(node.get("path")) or text(file.get("path"))
    if path:
        found["path"] = path
    if not depth:
        extra = {
            "cwd": text(node.get("working_directory")),
            "session_uid": at("session", "uid")(node),
            "hashes": fingerprints(file.get("hashes")),
            "parent": process(node.get("parent_process"), 1),
            **{key: text(file.get(key)) for key in ("company_name", "desc", "internal_name")},
            "version": text(file.get("version")),
            "product": at("product", "name")(file),
        }
        found |= {key: value for key, value in extra.items() if value is not None}
    return found or None


def actor(node: Any) -> dict[str, Any] | None:
    """Who did it."""
    if type(node) is not dict:
        return None
    found = {
        "user": taken(node.get("user"), USER),
        "process": process(node.get("process")),
        "session": taken(node.get("session"), {"uid": text, "is_mfa": truth}),
        "invoked_by": text(node.get("invoked_by")),
    }
    return {key: value for key, value in found.items() if value is not None} or None


def tls(node: Any) -> dict[str, Any] | None:
    """TLS; only with its version, for which `present` would put a word."""
    if type(node) is not dict or type(node.get("version")) is not str:
        return None
    found = {
        **(taken(node, _strings("version", "cipher", "sni")) or {}),
        "ja3_hash": at("ja3_hash", "value")(node),
        "ja3s_hash": at("ja3s_hash", "value")(node),
    }
    certificate = node.get("certificate")
    if type(certificate) is dict and {"issuer", "serial_number"} <= certificate.keys():
        found["certificate"] = taken(certificate, CERTIFICATE)
    return {key: value for key, value in found.items() if value is not None}


def script(node: Any) -> dict[str, Any] | None:
    """A script with its text."""
    content = at("script_content", "value")(node)
    if content is None:
        return None
    found = taken(node, {"uid": text, "name": text, "type_id": small}) or {}
    path = at("file", "path")(node)
    return found | {"content": content} | ({"path": path} if path else {})


def rows_of(*keys: tuple[str, Reader]) -> Reader:
    """A reader of a list of objects."""

    def read(value: Any) -> list[dict[str, Any]] | None:
        if type(value) is not list or not value:
            return None
        found = [taken(one, dict(keys)) for one in value]
        return [one for one in found if one] or None

    return read


def columns_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The columns that an OCSF object fills."""
    found: dict[str, Any] = taken(fields, COLUMNS) or {}
    others: dict[str, Any] = {
        "process": process(fields.get("process")),
        "actor": actor(fields.get("actor")),
        "tls": tls(fields.get("tls")),
        "script": script(fields.get("script")),
        "answers": rows_of(("rdata", text), ("type", text), ("ttl", large))(fields.get("answers")),
        "resources": rows_of(("uid", text), ("name", text), ("type", text))(
            fields.get("resources")
        ),
        "observables": _observables(fields.get("observables")),
        "reg_value": _registry(fields.get("reg_value")),
        "win_service": _service(fields.get("win_service")),
    }
    return found | {key: value for key, value in others.items() if value is not None}


def _observables(value: Any) -> list[dict[str, Any]] | None:
    reads = rows_of(("name", text), ("type", text), ("type_id", small), ("value", text))
    found = reads(value)
    return [one for one in found or () if "value" in one and "type_id" in one] or None


def _registry(node: Any) -> dict[str, Any] | None:
    found = taken(node, _strings("name", "path", "data", "type"))
    return found if found and "name" in found else None


def _service(node: Any) -> dict[str, Any] | None:
    found = taken(node, _strings("name", "cmd_line"))
    if found is None:
        return None
    for name, theirs in (
        ("start_type", "service_start_type"),
        ("start_name", "service_start_name"),
        ("type", "service_type"),
    ):
        value = text(node.get(theirs))
        if value is not None:
            found[name] = value
    return found
