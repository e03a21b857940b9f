"""Records of the Linux audit system that are no system calls: what programs such as PAM,
useradd and systemd report, what security modules refused, and what the daemon says of itself.

Types and their meaning: https://github.com/linux-audit/audit-documentation/wiki/Record-Types
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from posixpath import basename
from types import MappingProxyType
from typing import Any

from ingest.parsing import ocsf
from ingest.parsing.ocsf import (
    ACCOUNT,
    AUTHENTICATION,
    CONFIG,
    EVENT_LOG,
    FAILURE,
    GROUP,
    HIGH,
    LIFECYCLE,
    LOW,
    MEDIUM,
    OTHER,
    USER_ACCESS,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.linux.audit_event import Audit, acted, event, peer, subject, user
from ingest.sources.linux.audit_kernel import AVCS, READERS, anomaly, base, refusal
from ingest.sources.linux.audit_record import Part

_LOGON, _LOGOFF, _SWITCH = 1, 2, 7

KINDS: Mapping[str, tuple[int, int, str | None]] = MappingProxyType(
    {
        # One login makes several of these: USER_AUTH and USER_START come from PAM, USER_LOGIN from
        # the program.
        "USER_LOGIN": (AUTHENTICATION, _LOGON, None),
        "USER_AUTH": (AUTHENTICATION, _LOGON, None),
        "GRP_AUTH": (AUTHENTICATION, _LOGON, None),
        "USER_START": (AUTHENTICATION, _LOGON, None),
        "USER_END": (AUTHENTICATION, _LOGOFF, None),
        "USER_LOGOUT": (AUTHENTICATION, _LOGOFF, None),
        "USER_ACCT": (AUTHENTICATION, OTHER, "Account Check"),
        "USER_ERR": (AUTHENTICATION, OTHER, "Account Error"),
        "CRED_ACQ": (AUTHENTICATION, OTHER, "Credentials Acquired"),
        "CRED_REFR": (AUTHENTICATION, OTHER, "Credentials Refreshed"),
        "CRED_DISP": (AUTHENTICATION, OTHER, "Credentials Disposed"),
        "LOGIN": (AUTHENTICATION, OTHER, "Login ID Set"),
        "ADD_USER": (ACCOUNT, 1, None),
        "DEL_USER": (ACCOUNT, 6, None),
        "USER_CHAUTHTOK": (ACCOUNT, 3, None),
        "USER_MGMT": (ACCOUNT, OTHER, "Account Change"),
        "CHUSER_ID": (ACCOUNT, OTHER, "User ID Change"),
        "ACCT_LOCK": (ACCOUNT, 9, None),
        "RESP_ACCT_LOCK": (ACCOUNT, 9, None),
        "RESP_ACCT_LOCK_TIMED": (ACCOUNT, 9, None),
        "ACCT_UNLOCK": (ACCOUNT, 12, None),
        "RESP_ACCT_UNLOCK_TIMED": (ACCOUNT, 12, None),
        "ADD_GROUP": (GROUP, 6, None),
        "DEL_GROUP": (GROUP, 5, None),
        "GRP_MGMT": (GROUP, OTHER, "Group Change"),
        "GRP_CHAUTHTOK": (GROUP, OTHER, "Group Password Change"),
        "CHGRP_ID": (GROUP, OTHER, "Group ID Change"),
        "ROLE_ASSIGN": (USER_ACCESS, 1, None),
        "ROLE_REMOVE": (USER_ACCESS, 2, None),
        "ROLE_MODIFY": (USER_ACCESS, OTHER, "Role Change"),
        "USER_ROLE_CHANGE": (USER_ACCESS, OTHER, "Role Change"),
        "SERVICE_START": (LIFECYCLE, 3, None),
        "SERVICE_STOP": (LIFECYCLE, 4, None),
        "SOFTWARE_UPDATE": (LIFECYCLE, 8, None),
        "SYSTEM_BOOT": (LIFECYCLE, 3, None),
        "SYSTEM_SHUTDOWN": (LIFECYCLE, 4, None),
        "SYSTEM_RUNLEVEL": (LIFECYCLE, OTHER, "Runlevel Change"),
        "DAEMON_START": (EVENT_LOG, 6, None),
        "DAEMON_END": (EVENT_LOG, 7, None),
        "DAEMON_ABORT": (EVENT_LOG, 7, None),
        "DAEMON_ROTATE": (EVENT_LOG, 5, None),
        "DAEMON_RESUME": (EVENT_LOG, 9, None),
        "DAEMON_CONFIG": (EVENT_LOG, OTHER, "Configuration Change"),
        "DAEMON_ERR": (EVENT_LOG, OTHER, "Error"),
        "DAEMON_ACCEPT": (EVENT_LOG, OTHER, "Remote Connection"),
        "DAEMON_CLOSE": (EVENT_LOG, OTHER, "Remote Disconnection"),
        "CONFIG_CHANGE": (EVENT_LOG, OTHER, "Configuration Change"),
        "FEATURE_CHANGE": (EVENT_LOG, OTHER, "Feature Change"),
        "NETFILTER_CFG": (CONFIG, 1, None),
        "MAC_STATUS": (CONFIG, 1, None),
        "MAC_POLICY_LOAD": (CONFIG, 1, None),
        "MAC_CONFIG_CHANGE": (CONFIG, 1, None),
        "USER_MAC_CONFIG_CHANGE": (CONFIG, 1, None),
        "USER_MAC_POLICY_LOAD": (CONFIG, 1, None),
        "USYS_CONFIG": (CONFIG, 1, None),
        "TIME_INJOFFSET": (CONFIG, 1, None),
        "TIME_ADJNTPVAL": (CONFIG, 1, None),
    }
)
"""OCSF class, activity and its name where OCSF has none, by type."""

_Fields = dict[str, Any]


def _authentication(audit: Audit, main: Part, activity: int, name: str | None) -> Event:
    columns, process = acted(main, audit)
    more: _Fields = {}
    program = basename(process.get("path") or "") or process.get("name")
    about = subject(main)
    # Here `auid` is the user who logs in; in other records, who has logged in before.
    if main.type == "LOGIN":
        about = user(main.fields.get("auid"), main.names.get("AUID"))
        columns.setdefault("actor", {})
    remote = peer(main, audit)
    if (
        program in ("su", "sudo", "doas", "pkexec", "runuser", "newgrp", "sg")
        and activity == _LOGON
    ):
        activity = _SWITCH
    terminal = main.inner.get("terminal")
    ssh = terminal == "ssh" or program in ("sshd", "sshd-session", "sshd-auth")
    # OCSF's logon types: 3 network, 4 batch.
    kind = 3 if ssh else 4 if terminal == "cron" else None
    who = (about or {}).get("name") or (about or {}).get("uid") or "unknown"
    where = (remote or {}).get("ip") or (remote or {}).get("hostname")
    failed = columns["status_id"] == FAILURE
    if about is None:
        more["user"] = {"name": "", "type_id": 0}
    if not columns.get("actor"):
        columns.pop("actor", None)
    op = main.inner.get("op") or main.type
    return event(
        audit,
        AUTHENTICATION,
        activity,
        main,
        activity_name=name,
        more=more,
        user=about,
        user_name=(about or {}).get("name"),
        src_endpoint=remote,
        dst_endpoint={"hostname": audit.host} if audit.host else None,
        service={"name": program or "audit"},
        is_remote=True if where else None,
        logon_type_id=kind,
        session={"terminal": terminal} if terminal else None,
        message=f"{op} of {who}{f' from {where}' if where else ''}{' failed' if failed else ''}",
        **columns,
    )


def _from(main: Part, audit: Audit) -> _Fields | None:
    """Where the user came from; without an address, tools for accounts name their own host."""
    return peer(main, audit) if ocsf.address(main.inner.get("addr", "")) else None


_ACCOUNT_OPS: tuple[tuple[str, int], ...] = (
    # Before `lock`, which is in it.
    ("unlock", 12),
    ("lock", 9),
    ("delet", 6),
    ("password", 3),
    ("chauthtok", 3),
    ("add-user", 1),
    ("adding user", 1),
)


def _account(audit: Audit, main: Part, activity: int, name: str | None) -> Event:
    op = (main.inner.get("op") or main.fields.get("op") or "").lower()
    grp = main.inner.get("grp")
    # shadow reports a change of members under types of accounts.
    to_group = "group" in op and ("user" in op or grp is not None)
    if to_group or (main.type in ("ADD_USER", "DEL_USER") and "group" in op):
        # Tools word it `deleting`, `delete-user-from-group`, `removing`.
        removed = "delet" in op or "remov" in op
        return _group(audit, main, 4 if removed else 3, None)
    if main.type in ("USER_MGMT", "USER_CHAUTHTOK", "CHUSER_ID"):
        position = next((index for word, index in _ACCOUNT_OPS if word in op), None)
        if position is not None:
            activity, name = position, None
        elif main.type == "USER_CHAUTHTOK" and op and "pam" not in op:
            activity, name = OTHER, "Account Change"
    columns, _ = acted(main, audit)
    more: _Fields = {}
    about = subject(main)
    if about is None:
        more["user"] = {"name": "", "type_id": 0}
    who = (about or {}).get("name") or (about or {}).get("uid") or "unknown"
    return event(
        audit,
        ACCOUNT,
        activity,
        main,
        activity_name=name,
        more=more,
        user=about,
        src_endpoint=_from(main, audit),
        message=f"{op or main.type} of account {who}",
        **columns,
    )


def _group(audit: Audit, main: Part, activity: int, name: str | None) -> Event:
    op = (main.inner.get("op") or "").lower()
    columns, _ = acted(main, audit)
    more: _Fields = {}
    named = main.inner.pop("grp", None)
    about_user = activity in (3, 4)
    # `id` is the user's where members change, the group's where the group itself does.
    uid = None if about_user else main.inner.pop("id", None)
    if named is None and not about_user:
        named = main.inner.pop("acct", None)
    about = subject(main)
    if main.type == "GRP_MGMT" and "user" in op:
        activity, name = (4 if "delet" in op or "remov" in op else 3), None
    group = kept(name=named, uid=uid)
    if not group:
        more["group"] = {"name": "unknown"}
    return event(
        audit,
        GROUP,
        activity,
        main,
        activity_name=name,
        more=more,
        group=group or None,
        user=about,
        message=f"{op or main.type} of group {named or uid or 'unknown'}",
        **columns,
    )


def _access(audit: Audit, main: Part, activity: int, name: str | None) -> Event:
    columns, _ = acted(main, audit)
    more: _Fields = {}
    roles = (
        main.inner.get("new-role")
        or main.inner.get("new_role")
        or main.inner.get("selected-context")
    )
    about = subject(main)
    if about is None:
        more["user"] = {"name": "", "type_id": 0}
    return event(
        audit,
        USER_ACCESS,
        activity,
        main,
        activity_name=name,
        more=more,
        user=about,
        privileges=[roles or main.inner.get("op") or "unknown"],
        message=f"{main.inner.get('op') or main.type} {roles or ''}".strip(),
        **columns,
    )


def _lifecycle(audit: Audit, main: Part, activity: int, name: str | None) -> Event:
    columns, process = acted(main, audit)
    more: _Fields = {}
    unit = main.inner.get("unit") or main.inner.get("sw") or process.get("name")
    if main.type.startswith("SYSTEM_"):
        unit = "Linux"
    more["app"] = {"name": unit or "unknown"}
    word = main.type.replace("_", " ").lower()
    return event(
        audit,
        LIFECYCLE,
        activity,
        main,
        activity_name=name,
        more=more,
        message=f"{word}: {unit or 'unknown'}",
        **columns,
    )


def _event_log(audit: Audit, main: Part, activity: int, name: str | None) -> Event:
    enabled = main.fields.get("audit_enabled")
    # 0 switches the audit off, 1 on, and 2 locks it until the next boot.
    if main.type == "CONFIG_CHANGE" and enabled is not None:
        activity, name = (10 if enabled == "0" else 9), None
    columns, _ = acted(main, audit)
    more: _Fields = {}
    op = main.fields.get("op") or main.inner.get("op")
    key = main.fields.get("key")
    # Switching off the audit, or a rule of it, is what an intruder does first.
    weakens = enabled == "0" or (op or "").replace(" ", "_") in ("remove_rule", "remove rule")
    ip = ocsf.address(main.fields.get("addr", "").partition(":")[0])
    return event(
        audit,
        EVENT_LOG,
        activity,
        main,
        activity_name=name,
        severity_id=MEDIUM if weakens else LOW if columns["status_id"] == FAILURE else None,
        more=more | {"log_name": "audit"},
        src_endpoint={"ip": ip} if ip else None,
        message=" ".join(filter(None, (main.type, op, key))),
        **columns,
    )


def _config(audit: Audit, main: Part, activity: int, name: str | None) -> Event:
    columns, _ = acted(main, audit)
    more: _Fields = {}
    op = main.fields.get("op") or main.inner.get("op") or ""
    table = main.fields.get("table") or ""
    # SELinux still logs then, but refuses nothing.
    off = main.type == "MAC_STATUS" and main.fields.get("enforcing") == "0"
    return event(
        audit,
        CONFIG,
        activity,
        main,
        activity_name=name,
        more=more,
        severity_id=HIGH if off else None,
        message=" ".join(filter(None, (main.type, op, table))),
        **columns,
    )


BY_CLASS: Mapping[int, Callable[[Audit, Part, int, str | None], Event]] = MappingProxyType(
    {
        AUTHENTICATION: _authentication,
        ACCOUNT: _account,
        GROUP: _group,
        USER_ACCESS: _access,
        LIFECYCLE: _lifecycle,
        EVENT_LOG: _event_log,
        CONFIG: _config,
    }
)


def of_user(audit: Audit, main: Part) -> Event:
    """The event whose main record is `main`, no system call."""
    reader = READERS.get(main.type)
    # New types of anomalies and of AppArmor appear with kernels; their prefix is enough.
    if reader is None and main.type.startswith("ANOM_"):
        reader = anomaly
    if reader is None and (main.type in AVCS or main.type.startswith("APPARMOR")):
        reader = refusal
    if reader is not None:
        return reader(audit, main)
    kind = KINDS.get(main.type)
    if kind is None:
        return base(audit, main)
    class_uid, activity, name = kind
    return BY_CLASS[class_uid](audit, main, activity, name)
