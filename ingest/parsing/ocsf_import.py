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

_Reader = Callable[[Any], Any]
_Shape = Mapping[str, Any]
INT32, _INT64 = 2**31, 2**63


def _text(value: Any) -> str | None:
    """A string."""
    return value if type(value) is str else None


def small(value: Any) -> int | None:
    """A whole number of 32 bits."""
    # `type(...) is int`, since to Python `true` is an `int` as well.
    return value if type(value) is int and -INT32 <= value < INT32 else None


def large(value: Any) -> int | None:
    """A whole number of 64 bits."""
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def truth(value: Any) -> bool | None:
    """True or false."""
    return value if type(value) is bool else None


def _port(value: Any) -> int | None:
    """A port."""
    return value if type(value) is int and 0 <= value <= 65535 else None


def _ip(value: Any) -> str | None:
    """An address in its canonical spelling."""
    return address(value) if type(value) is str else None


def _mac(value: Any) -> str | None:
    """A hardware address in its canonical spelling."""
    return mac_address(value) if type(value) is str else None


def time(value: Any) -> datetime | None:
    """Milliseconds since 1970."""
    if type(value) is not int:
        return None
    try:
        # Whole milliseconds: what OCSF says of a time, and no float in between.
        instant = EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return None
    # The bound of all times here; what lies before it stays in `more`.
    return instant if instant >= EARLIEST else None


def _texts(value: Any) -> list[str] | None:
    """A list of strings."""
    return value if type(value) is list and all(type(element) is str for element in value) else None


def _names(value: Any) -> list[str] | None:
    """The names of a list of objects."""
    if type(value) is not list or not all(type(element) is dict for element in value):
        return None
    name_list = [element.get("name") for element in value]
    # All or none: a list in which one has no name could not be given back.
    return name_list if name_list and all(type(element) is str for element in name_list) else None


def fingerprints(value: Any) -> list[dict[str, str]] | None:
    """A list of fingerprints."""
    if type(value) is not list:
        return None
    hash_list = [
        {"algorithm": fingerprint.get("algorithm") or "Unknown", "value": fingerprint["value"]}
        for fingerprint in value
        if type(fingerprint) is dict
        and type(fingerprint.get("value")) is str
        and type(fingerprint.get("algorithm", "")) is str
    ]
    return hash_list or None


def _at(*path: str, reads: _Reader = _text) -> Callable[[dict[str, Any]], Any]:
    """A reader of what lies deeper in an object."""

    def read(node: Any) -> Any:
        for key in path:
            if type(node) is not dict:
                return None
            node = node.get(key)
        return reads(node)

    return read


def _strings(*keys: str) -> dict[str, _Reader]:
    return dict.fromkeys(keys, _text)


_USER: _Shape = {
    **_strings("name", "uid", "domain", "type", "email_addr", "full_name", "credential_uid"),
    "groups": _names,
    "account_uid": _at("account", "uid"),
}
_ENDPOINT: _Shape = {
    **_strings("hostname", "domain", "name", "svc_name", "uid", "zone", "interface_name"),
    "ip": _ip,
    "port": _port,
    "mac": _mac,
    "country": _at("location", "country"),
}
_FILE: _Shape = {
    **_strings("name", "path", "mime_type", "company_name", "desc", "internal_name", "version"),
    "size": large,
    "type_id": small,
    "hashes": fingerprints,
    "product": _at("product", "name"),
}
_PARENT: _Shape = {
    **_strings("name", "cmd_line", "uid"),
    "pid": large,
    "path": lambda node: _text(node),
    "user": _USER,
}
_PROCESS: _Shape = {
    **_strings("name", "cmd_line", "uid", "integrity"),
    "pid": large,
    "tid": large,
    "user": _USER,
}
_CERTIFICATE: _Shape = {
    **_strings("subject", "issuer", "serial_number"),
    "created_time": time,
    "expiration_time": time,
    "fingerprints": fingerprints,
}
_COLUMNS: _Shape = MappingProxyType(
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
        "src_endpoint": _ENDPOINT,
        "dst_endpoint": _ENDPOINT,
        "user": _USER,
        "device": {
            **_strings("hostname", "uid", "name"),
            "ip": _ip,
            "mac": _mac,
            "type_id": small,
        },
        "file": _FILE,
        "module": {**_strings("base_address", "function_name"), "file": _FILE},
        "job": _strings("name", "cmd_line", "desc"),
        "reg_key": _strings("path"),
        "query": _strings("hostname", "type", "class"),
        "rcode_id": small,
        "http_request": {
            **_strings("http_method", "version", "user_agent", "referrer"),
            "length": large,
            "x_forwarded_for": _texts,
            "url": {
                **_strings("url_string", "hostname", "path", "query_string", "scheme"),
                "port": _port,
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
            "to": _texts,
            "cc": _texts,
            "size": large,
        },
        "finding_info": {
            **_strings("uid", "title", "desc", "src_url"),
            "types": _texts,
            "created_time": time,
            "analytic": {**_strings("uid", "name", "category", "version"), "type_id": small},
        },
        "firewall_rule": _strings("uid", "name", "type", "desc"),
        "group": _strings("name", "uid", "domain"),
        "privileges": _texts,
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


def _taken(node: Any, shape: _Shape) -> dict[str, Any] | None:
    """What of an object fits the columns of a shape."""
    if type(node) is not dict:
        return None
    results: dict[str, Any] = {}
    for name, reads in shape.items():
        if isinstance(reads, Mapping):
            value: Any = _taken(node.get(name), reads)
        # These stand deeper in OCSF than in silver, so their readers need the whole object.
        elif name in ("account_uid", "country") or (name == "product" and "size" in shape):
            value = reads(node)
        else:
            value = reads(node.get(name))
        if value is not None:
            results[name] = value
    return results or None


def _process(node: Any, depth: int = 0) -> dict[str, Any] | None:
    """A process, with its parent, as their columns have them."""
    # The column has one parent; what lies above it stays in `more`.
    taken_columns = _taken(node, _PARENT if depth else _PROCESS)
    if taken_columns is None and type(node) is not dict:
        return None
    taken_columns = taken_columns or {}
    file = node.get("file") if type(node.get("file")) is dict else {}
    path = _text(node.get("path")) or _text(file.get("path"))
    if path:
        taken_columns["path"] = path
    if not depth:
        extra = {
            "cwd": _text(node.get("working_directory")),
            "session_uid": _at("session", "uid")(node),
            "hashes": fingerprints(file.get("hashes")),
            "parent": _process(node.get("parent_process"), 1),
            **{key: _text(file.get(key)) for key in ("company_name", "desc", "internal_name")},
            "version": _text(file.get("version")),
            "product": _at("product", "name")(file),
        }
        taken_columns |= {key: value for key, value in extra.items() if value is not None}
    return taken_columns or None


def _actor(node: Any) -> dict[str, Any] | None:
    """Who did it."""
    if type(node) is not dict:
        return None
    results = {
        "user": _taken(node.get("user"), _USER),
        "process": _process(node.get("process")),
        "session": _taken(node.get("session"), {"uid": _text, "is_mfa": truth}),
        "invoked_by": _text(node.get("invoked_by")),
    }
    return {key: value for key, value in results.items() if value is not None} or None


def _tls(node: Any) -> dict[str, Any] | None:
    """TLS; only with its version, for which `present` would put a word."""
    if type(node) is not dict or type(node.get("version")) is not str:
        return None
    result = {
        **(_taken(node, _strings("version", "cipher", "sni")) or {}),
        "ja3_hash": _at("ja3_hash", "value")(node),
        "ja3s_hash": _at("ja3s_hash", "value")(node),
    }
    certificate = node.get("certificate")
    # Without these two the export would write words of its own into them.
    if type(certificate) is dict and {"issuer", "serial_number"} <= certificate.keys():
        result["certificate"] = _taken(certificate, _CERTIFICATE)
    return {key: value for key, value in result.items() if value is not None}


def _script(node: Any) -> dict[str, Any] | None:
    """A script with its text."""
    content = _at("script_content", "value")(node)
    if content is None:
        return None
    taken_columns = _taken(node, {"uid": _text, "name": _text, "type_id": small}) or {}
    path = _at("file", "path")(node)
    return taken_columns | {"content": content} | ({"path": path} if path else {})


def _rows_of(*keys: tuple[str, _Reader]) -> _Reader:
    """A reader of a list of objects."""

    def read(value: Any) -> list[dict[str, Any]] | None:
        if type(value) is not list or not value:
            return None
        takens = [_taken(element, dict(keys)) for element in value]
        return [element for element in takens if element] or None

    return read


def columns_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The columns that an OCSF object fills."""
    taken_columns: dict[str, Any] = _taken(fields, _COLUMNS) or {}
    others: dict[str, Any] = {
        "process": _process(fields.get("process")),
        "actor": _actor(fields.get("actor")),
        "tls": _tls(fields.get("tls")),
        "script": _script(fields.get("script")),
        "answers": _rows_of(("rdata", _text), ("type", _text), ("ttl", large))(
            fields.get("answers")
        ),
        "resources": _rows_of(("uid", _text), ("name", _text), ("type", _text))(
            fields.get("resources")
        ),
        "observables": _observables(fields.get("observables")),
        "reg_value": _registry(fields.get("reg_value")),
        "win_service": _service(fields.get("win_service")),
    }
    return taken_columns | {key: value for key, value in others.items() if value is not None}


def _observables(value: Any) -> list[dict[str, Any]] | None:
    reads = _rows_of(("name", _text), ("type", _text), ("type_id", small), ("value", _text))
    value_read = reads(value)
    # Half of an observable cannot be searched for; as a whole it stays in `more`.
    return [name for name in value_read or () if "value" in name and "type_id" in name] or None


def _registry(node: Any) -> dict[str, Any] | None:
    taken_columns = _taken(node, _strings("name", "path", "data", "type"))
    # Without a name the export would write `(Default)`, which the object did not say.
    return taken_columns if taken_columns and "name" in taken_columns else None


def _service(node: Any) -> dict[str, Any] | None:
    taken_columns = _taken(node, _strings("name", "cmd_line"))
    if taken_columns is None:
        return None
    for name, theirs in (
        ("start_type", "service_start_type"),
        ("start_name", "service_start_name"),
        ("type", "service_type"),
    ):
        value = _text(node.get(theirs))
        if value is not None:
            taken_columns[name] = value
    return taken_columns
