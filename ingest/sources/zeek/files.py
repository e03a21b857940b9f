"""Zeek's logs of files and certificates: files, pe, x509, smb_files, smb_mapping, ftp.

https://docs.zeek.org/en/master/script-reference/log-files.html . A file that Zeek saw pass
(`files`) is Network Activity with the column `file` filled: OCSF's File System Activity is
about a process on a machine, and File Hosting Activity about the user of a service; neither
is in the log. What it says of a file alone (`pe`, `x509`) is a base event.
"""

from __future__ import annotations

from collections.abc import Mapping
from ntpath import basename as windows_basename
from posixpath import basename
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_FILE,
    A_FINGERPRINT,
    A_HASH,
    A_HOST,
    A_USER,
    BASE,
    FAILURE,
    FTP,
    NETWORK,
    OTHER,
    SMB,
    SUCCESS,
    UNKNOWN,
    address,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.zeek.row import PORT, Row

_TRAFFIC = 6
_HASHES = MappingProxyType({"md5": "MD5", "sha1": "SHA-1", "sha256": "SHA-256"})
BY_LENGTH = MappingProxyType({32: "MD5", 40: "SHA-1", 64: "SHA-256"})


def named_file(name: str | None, folder: str | None = None, **leaves: Any) -> dict[str, Any]:
    """The column `file` of a file, whose name may hold a path below `folder`."""
    given_columns: dict[str, Any] = kept(**leaves)
    if name is not None:
        whole = name if folder is None else f"{folder}\\{name}"
        # The name tells which system it is from: SMB writes backslashes, HTTP does not.
        last = windows_basename(name) if "\\" in name else basename(name)
        given_columns["name"] = last or name
        if whole != last:
            given_columns["path"] = whole
    return given_columns


def files(row: Row) -> Event:
    """A file that passed, with its hashes; the sides are those of its connection."""
    _sides(row)
    fuid, name = row.text("fuid"), row.text("filename")
    hashes = [
        {"algorithm": algorithm, "value": value}
        for key, algorithm in _HASHES.items()
        if (value := row.text(key)) is not None
    ]
    size = row.count("total_bytes")
    file = named_file(name, size=size, mime_type=row.text("mime_type"), hashes=hashes or None)
    event = row.event(
        NETWORK,
        _TRAFFIC,
        app_name=row.text("source"),
        file=file or None,
        seconds=row.span("duration"),
        more={"file": {"uid": fuid}} if file and fuid else None,
        seen=(
            ("file.name", A_FILE, file.get("name")),
            *(("file.hashes", A_HASH, each["value"]) for each in hashes),
        ),
    )
    event["metadata"]["uid"] = fuid
    return event


def _sides(row: Row) -> None:
    """Before Zeek 5.1 there are sets of senders and receivers, and no connection's ends."""
    if row.uid is None:
        uids = row.fields.get("conn_uids")
        # Several are of no one connection; an empty one is of none.
        named = row.texts("conn_uids") if type(uids) is list and len(uids) == 1 else ()
        row.uid = next(iter(named), None)
    if row.src or row.dst:
        return
    # The sender is the side that answered, unless the file came from who opened it.
    ends = (
        ("rx_hosts", "tx_hosts")
        if row.fields.get("is_orig") is False
        else (
            "tx_hosts",
            "rx_hosts",
        )
    )
    row.src, row.dst = (_only(row, key) for key in ends)


def _only(row: Row, key: str) -> dict[str, Any]:
    hosts = row.fields.get(key)
    # Of several hosts nobody can tell which of them is the end of the connection.
    if type(hosts) is not list or len(hosts) != 1 or type(hosts[0]) is not str:
        return {}
    ip = address(hosts[0])
    if ip is None:
        return {}
    del row.fields[key]
    return {"ip": ip, "port": None}


def pe(row: Row) -> Event:
    """What the head of a Windows program says of it."""
    fuid = row.text("id")
    event = row.event(BASE, 0, message="Windows program seen in traffic")
    event["metadata"]["uid"] = fuid
    return event


# -- certificates ------------------------------------------------------------------------------

_CERTIFICATE = ("fingerprint", "certificate.subject", "certificate.issuer", "certificate.serial")


def x509(row: Row) -> Event:
    """A certificate that was shown; the log does not say by whom."""
    if not any(type(row.fields.get(key)) is str for key in _CERTIFICATE):
        return pe(row)
    fuid, print_ = row.text("id"), row.text("fingerprint")
    subject = row.text("certificate.subject")
    names = {kind: row.texts(f"san.{kind}") for kind in ("dns", "uri", "email", "ip")}
    version = row.count("certificate.version", 2**31)
    length = row.count("certificate.key_length", 2**31)
    certificate = kept(
        subject=subject,
        issuer=row.text("certificate.issuer"),
        serial_number=row.text("certificate.serial"),
        created_time=row.time("certificate.not_valid_before"),
        expiration_time=row.time("certificate.not_valid_after"),
        fingerprints=None if print_ is None else [fingerprint(print_)],
    )
    more = kept(
        version=None if version is None else str(version),
        uid=fuid,
        sans=[{"name": name, "type": kind} for kind, each in names.items() for name in each]
        or None,
    )
    event = row.event(
        BASE,
        0,
        message="Certificate seen in traffic" + (f": {subject}" if subject else ""),
        tls={"certificate": certificate} if certificate else None,
        more=kept(tls=kept(certificate=more or None, key_length=length) or None)
        if certificate
        else None,
        seen=(
            ("tls.certificate.fingerprints", A_FINGERPRINT, print_),
            *(("tls.certificate.sans", A_HOST, name) for name in names["dns"]),
        ),
    )
    event["metadata"]["uid"] = fuid or print_
    return event


def fingerprint(value: str) -> dict[str, str]:
    """A hash by its length."""
    return {"algorithm": BY_LENGTH.get(len(value), "Unknown"), "value": value}


# -- SMB ---------------------------------------------------------------------------------------

# Zeek writes it of every SMB request to create, whether that opens a file or makes one.
FILE_OPEN = 2
SHARES = MappingProxyType({"DISK": 1, "PIPE": 2, "PRINT": 3})


def smb_files(row: Row) -> Event:
    """An action on a file of a share."""
    action, share, name = row.text("action"), row.text("path"), row.text("name")
    verb = (action or "").removeprefix("SMB::")
    activity = FILE_OPEN if verb == "FILE_OPEN" else OTHER if action else UNKNOWN
    file = named_file(name, share, size=row.count("size"))
    about = {}
    if file:
        about = kept(
            modified_time=row.time_ms("times.modified"),
            accessed_time=row.time_ms("times.accessed"),
            created_time=row.time_ms("times.created"),
            uid=row.text("fuid"),
        )
    return row.event(
        SMB,
        activity,
        activity_name=verb.replace("_", " ").title() if activity == OTHER else None,
        code=action,
        command=action,
        share=share,
        file=file or None,
        app_name="smb",
        protocol="tcp",
        more={"file": about} if about else None,
        seen=(("file.name", A_FILE, file.get("name")),),
    )


def smb_mapping(row: Row) -> Event:
    """A share that was connected to."""
    share, kind = row.text("path"), row.text("share_type")
    more = {} if kind is None else {"share_type": kind, "share_type_id": SHARES.get(kind, OTHER)}
    return row.event(
        SMB,
        OTHER,
        activity_name="Share Mapping",
        share=share,
        app_name="smb",
        protocol="tcp",
        more=more,
    )


# -- FTP ---------------------------------------------------------------------------------------

_PUT, _GET, _DELETE, _RENAME, _LIST = 1, 2, 4, 5, 6
_COMMANDS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("STOR", "STOU", "APPE"), _PUT),
        "RETR": _GET,
        **dict.fromkeys(("DELE", "RMD", "XRMD"), _DELETE),
        **dict.fromkeys(("RNFR", "RNTO"), _RENAME),
        **dict.fromkeys(("LIST", "NLST", "MLSD", "MLST"), _LIST),
    }
)


def ftp(row: Row) -> Event:
    """A command and its reply."""
    command, argument = row.text("command"), row.fields.get("arg")
    activity = _COMMANDS.get((command or "").upper(), OTHER if command else UNKNOWN)
    code, message = row.count("reply_code", 999), row.text("reply_msg")
    # The argument of another command, such as USER, is no file.
    about_file = activity not in (UNKNOWN, OTHER, _LIST) and type(argument) is str and argument
    file = named_file(
        row.text("arg") if about_file else None,
        size=row.count("file_size"),
        mime_type=row.text("mime_type"),
    )
    fuid, user = row.text("fuid") if file else None, row.text("user")
    passive, port = row.flag("data_channel.passive"), row.count("data_channel.resp_p", PORT)
    return row.event(
        FTP,
        activity,
        activity_name=command if activity == OTHER else None,
        status_id=UNKNOWN if code is None else SUCCESS if code < 400 else FAILURE,
        status_code=None if code is None else str(code),
        status_detail=message,
        command=command,
        file=file or None,
        actor={"user": {"name": user}} if user else None,
        app_name="ftp",
        protocol="tcp",
        more=kept(
            codes=None if code is None else [code],
            command_responses=None if message is None else [message],
            port=port,
            type=None if passive is None else "passive" if passive else "active",
            file={"uid": fuid} if fuid else None,
        ),
        seen=(("actor.user.name", A_USER, user), ("file.name", A_FILE, file.get("name"))),
    )
