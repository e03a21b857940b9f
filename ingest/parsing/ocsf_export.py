"""Rows of silver.event as plain OCSF 1.8.0 objects, for people and other tools.

Columns that OCSF has under another name or in another shape move there; what a class
has no place for goes to `unmapped`. Copies made only for searching stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from ntpath import basename as windows_basename
from posixpath import basename
from typing import Any

import msgspec

from ingest.parsing.ocsf import BASE, FINDING, HTTP_METHODS, KINDS
from ingest.parsing.timestamps import EPOCH

SEARCH_ONLY = frozenset({"src_ip", "dst_ip", "user_name", "host_name", "mac"})
_OURS = frozenset(
    {"event_uid", "record_ids", "correlation_uid", "duplicate_of", "dead_letter_reason", "mode"}
)
_MOVED = frozenset(
    {
        *("source", "received_at", "time_quality", "scope", "auth_method", "relay_ip", "more"),
        "tenant_uid",
    }
)
_HIDDEN = SEARCH_ONLY | _OURS | _MOVED
_EVIDENCE = frozenset(
    {
        *("src_endpoint", "dst_endpoint", "connection_info", "http_request", "http_response"),
        *("process", "file", "user", "query", "tls", "api", "resources", "job", "script", "email"),
        *("url", "reg_key", "reg_value", "win_service", "actor", "device"),
    }
)
"""What OCSF lets a finding say of what it rests on."""
NO_EVIDENCE = frozenset({"device", "actor", "resources", "http_request", "http_response", "tls"})
"""What is no evidence by itself: OCSF asks for one of the others."""


def ocsf_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a row: no nulls, times in milliseconds since 1970.

    `metadata` also says the source, when the record came (`logged_time`), and in
    `labels` how good its time is and its scope. A dead letter is an object with
    `dead_letter_reason`, its source and its times.
    """
    if row.get("dead_letter_reason") is not None:
        names = ("dead_letter_reason", "source", "class_uid", "time", "received_at")
        return {name: _plain(row[name]) for name in names}
    results: dict[str, Any] = {}
    for name, value in row.items():
        if value is None or name in _HIDDEN:
            continue
        of = type(value)
        # Most values are texts and numbers, and all that has a shape of its own is a struct.
        if of is str or of is int:
            results[name] = value
            continue
        plain = _plain(value)
        if plain is not None:
            results[name] = _SHAPES[name](plain) if name in _SHAPES else plain
    if isinstance(results.get("unmapped"), str):
        results["unmapped"] = msgspec.json.decode(results["unmapped"])
    if row.get("auth_method"):
        results["unmapped"] = results.get("unmapped", {}) | {"auth_method": row["auth_method"]}
    # After the columns: `more` has what OCSF wants and no column holds, beside what one does.
    if row.get("more"):
        _merge(results, msgspec.json.decode(row["more"]))
    # Only now that all is in its place can be told what the class does not allow.
    _keep_valid(results)
    _move_misplaced(results)
    if row.get("relay_ip"):
        results["relay"] = {"ip": row["relay_ip"], "type_id": 0}
    results["metadata"] = _about(row, results["metadata"])
    return results


def _keep_valid(event: dict[str, Any]) -> None:
    """OCSF knows nine HTTP methods; another, such as PROPFIND, goes to `unmapped`."""
    request = event.get("http_request", {})
    if request.get("http_method", "GET") not in HTTP_METHODS:
        method = request.pop("http_method")
        event["unmapped"] = event.get("unmapped", {}) | {"http_method": method}


def _move_misplaced(event: dict[str, Any]) -> None:
    """What the class has no place for: of a finding its evidence, of others `unmapped`.

    A finding also keeps its endpoints where all other events have them, which OCSF does
    not provide for: who searches for an address must not have to know the class.
    """
    uid = event["class_uid"]
    if uid == FINDING:
        evidence = {name: event[name] for name in event if name in _EVIDENCE}
        if "evidences" not in event and evidence.keys() - NO_EVIDENCE:
            event["evidences"] = [evidence]
    misplaced = KINDS[uid].without & event.keys()
    if not misplaced:
        return
    moved = {name: event.pop(name) for name in sorted(misplaced) if not _kept(uid, name)}
    if uid == FINDING:
        moved = {name: value for name, value in moved.items() if name not in _EVIDENCE}
    if moved:
        event["unmapped"] = event.get("unmapped", {}) | moved


def _kept(uid: int, name: str) -> bool:
    if uid == BASE:
        return name in ("src_endpoint", "dst_endpoint", "user")
    return uid == FINDING and name in ("src_endpoint", "dst_endpoint")


def _merge(event: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        old = event.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        else:
            event[name] = value


def _about(row: Mapping[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    labels = [f"{name}:{row[name]}" for name in ("time_quality", "scope") if row.get(name)]
    if tenant := row.get("tenant_uid"):
        # Before what the product says of itself: this is who may see it.
        metadata = metadata | {"tenant_uid": tenant}
    return metadata | {
        "source": row["source"],
        "logged_time": _plain(row["received_at"]),
        "labels": [*metadata.get("labels", ()), *labels],
    }


# -- values ------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """`value` without nulls and empty structs, times as milliseconds."""
    of = type(value)
    if of is dict:
        return _struct(value)
    if of is list:
        return [_plain(element) for element in value] or None
    if of is datetime:
        return milliseconds(value)
    return value


def _struct(value: dict[str, Any]) -> dict[str, Any] | None:
    results = {}
    for name, element in value.items():
        if element is None:
            continue
        plain = element if type(element) is str or type(element) is int else _plain(element)
        if plain is not None:
            results[name] = plain
    return results or None


def milliseconds(time: datetime) -> int:
    """Milliseconds since 1970 of an aware time, rounded down."""
    since = time - EPOCH
    # In whole numbers: a float of seconds does not hold every millisecond of a far year.
    return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


# -- shapes ------------------------------------------------------------------------------------

_ALGORITHMS: Mapping[str, int] = {
    "MD5": 1,
    "SHA-1": 2,
    "SHA-256": 3,
    "SHA-512": 4,
    "CTPH": 5,
    "TLSH": 6,
    "SHA-224": 8,
    "SHA-384": 9,
    "Imphash": 18,
    "HASSH": 20,
}


def _hash(value: dict[str, Any]) -> dict[str, Any]:
    name = value.get("algorithm", "Unknown")
    return {"algorithm": name, "algorithm_id": _ALGORITHMS.get(name, 99), "value": value["value"]}


def _user(user: dict[str, Any]) -> dict[str, Any]:
    if "groups" in user:
        user["groups"] = [{"name": name} for name in user["groups"]]
    if "account_uid" in user:
        user["account"] = {"uid": user.pop("account_uid")}
    return user


def _endpoint(endpoint: dict[str, Any]) -> dict[str, Any]:
    if "country" in endpoint:
        endpoint["location"] = {"country": endpoint.pop("country")}
    return endpoint


def _last(path: str) -> str:
    # By the path's own separators, whatever system exports it.
    return (windows_basename(path) if "\\" in path else basename(path)) or path


def _file(file: dict[str, Any]) -> dict[str, Any]:
    if "hashes" in file:
        file["hashes"] = [_hash(each) for each in file["hashes"]]
    if "product" in file:
        file["product"] = {"name": file["product"]}
    if "signature" in file:
        file["signature"] = {"algorithm_id": 99, "certificate": _signer(file["signature"])}
    if "name" not in file:
        file["name"] = _last(file.get("path", "")) or "unknown"
    file.setdefault("type_id", 0)
    return file


def _signer(name: str) -> dict[str, Any]:
    # OCSF demands all three of a certificate, and logs tell the signer alone.
    return {"subject": name, "issuer": "unknown", "serial_number": "unknown"}


_OF_FILE = ("hashes", "company_name", "product", "desc", "internal_name", "version")


def _process(process: dict[str, Any]) -> dict[str, Any]:
    file = {name: process.pop(name) for name in _OF_FILE if name in process}
    if "path" in process:
        file["path"] = process["path"]
    if file:
        file.setdefault("name", process.get("name") or _last(file.get("path", "")) or "unknown")
        process["file"] = _file(file | {"type_id": 1})
    if "cwd" in process:
        process["working_directory"] = process.pop("cwd")
    if "session_uid" in process:
        process["session"] = {"uid": process.pop("session_uid")}
    if "user" in process:
        process["user"] = _user(process["user"])
    if "parent" in process:
        process["parent_process"] = _process(process.pop("parent"))
    return process


def _actor(actor: dict[str, Any]) -> dict[str, Any]:
    if "user" in actor:
        actor["user"] = _user(actor["user"])
    if "process" in actor:
        actor["process"] = _process(actor["process"])
    return actor


def _module(module: dict[str, Any]) -> dict[str, Any]:
    if "file" in module:
        module["file"] = _file(module["file"])
    return module


def _script(script: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = {key: script[key] for key in ("uid", "name") if key in script}
    if "path" in script:
        results["file"] = _file({"path": script["path"]})
    return results | {
        "script_content": {"value": script.get("content", "")},
        "type_id": script.get("type_id", 0),
    }


def _service(service: dict[str, Any]) -> dict[str, Any]:
    renamed = {"start_type": "service_start_type", "start_name": "service_start_name"}
    renamed |= {"type": "service_type"}
    renamed_fields = {renamed.get(name, name): value for name, value in service.items()}
    if "display_name" in renamed_fields:
        renamed_fields["labels"] = [f"display_name:{renamed_fields.pop('display_name')}"]
    return renamed_fields


def _tls(tls: dict[str, Any]) -> dict[str, Any]:
    for name in ("ja3_hash", "ja3s_hash"):
        if name in tls:
            tls[name] = {"algorithm": "MD5", "algorithm_id": 1, "value": tls[name]}
    if "certificate" in tls:
        tls["certificate"] = _certificate(tls["certificate"])
    # OCSF demands a version.
    return {"version": "unknown"} | tls


def _certificate(certificate: dict[str, Any]) -> dict[str, Any]:
    if "fingerprints" in certificate:
        certificate["fingerprints"] = [_hash(each) for each in certificate["fingerprints"]]
    return {"issuer": "unknown", "serial_number": "unknown"} | certificate


def _finding(finding: dict[str, Any]) -> dict[str, Any]:
    if "analytic" in finding:
        finding["analytic"].setdefault("type_id", 0)
    return finding


def _registry(value: dict[str, Any]) -> dict[str, Any]:
    # Windows leaves out the name of a key's default value, and OCSF demands one.
    return {"name": "(Default)"} | value


_SHAPES = {
    "user": _user,
    "actor": _actor,
    "process": _process,
    "file": _file,
    "module": _module,
    "script": _script,
    "win_service": _service,
    "tls": _tls,
    "finding_info": _finding,
    "reg_value": _registry,
    "src_endpoint": _endpoint,
    "dst_endpoint": _endpoint,
}
