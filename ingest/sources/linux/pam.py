"""PAM and the programs around logins and accounts, as they write to syslog.

Programs: su and login of util-linux and shadow (https://github.com/util-linux/util-linux,
https://github.com/shadow-maint/shadow), the BSDs' su, systemd-logind, useradd and its family,
polkit and pkexec, cron. Lines of sshd and sudo are read as their own sources read them.

Names are quoted by some of these programs and by others not, and no program escapes them; so a
pattern binds what a stranger cannot write from both ends of the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ingest.parsing import syslog
from ingest.parsing.ocsf import (
    ACCOUNT,
    AUTHENTICATION,
    FAILURE,
    GROUP,
    HIGH,
    JOB,
    LOW,
    MEDIUM,
    OTHER,
    PROCESS,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line, SyslogSource
from ingest.sources.linux import sshd, sudo
from ingest.sources.linux.pam_messages import LONGEST, is_pam, read_pam
from ingest.sources.shared.daemon_source import daemon_event, endpoint

_PRODUCT: Mapping[str, str] = {"name": "Linux-PAM", "vendor_name": "Linux-PAM"}
_LOGON, _LOGOFF, _PREAUTH, _SWITCH = 1, 2, 6, 7
_Q = r"[`'\"]"

_Rule = tuple[int, int, int, re.Pattern[str]]


def _rules(*these: tuple[int, int, int, str]) -> tuple[_Rule, ...]:
    return tuple(
        (class_uid, activity, status, re.compile(pattern, re.ASCII))
        for class_uid, activity, status, pattern in these
    )


SU = _rules(
    # util-linux: `(to root) ann on pts/0`, and `FAILED SU (to root) ann on pts/0`.
    (AUTHENTICATION, _SWITCH, SUCCESS, r"\(to (?P<user>.*)\) (?P<by>.*) on (?P<tty>\S{1,64})"),
    (
        AUTHENTICATION,
        _SWITCH,
        FAILURE,
        r"(?P<detail>FAILED (?:SU|RUNUSER)) \(to (?P<user>.*)\) (?P<by>.*) on (?P<tty>\S{1,64})",
    ),
    # Debian's shadow: `Successful su for root by ann`.
    (AUTHENTICATION, _SWITCH, SUCCESS, r"[Ss]uccessful su for (?P<user>.*) by (?P<by>\S{1,256})"),
    (
        AUTHENTICATION,
        _SWITCH,
        FAILURE,
        r"(?P<detail>FAILED su) for (?P<user>.*) by (?P<by>\S{1,256})",
    ),
    (
        AUTHENTICATION,
        _SWITCH,
        FAILURE,
        # The BSDs: `BAD SU ann to root on /dev/ttyp0`.
        r"(?P<detail>BAD SU) (?P<by>\S{1,256}) to (?P<user>.*) on (?P<tty>\S{1,64})",
    ),
    (
        AUTHENTICATION,
        _SWITCH,
        SUCCESS,
        # shadow tells the outcome by a sign: `+ pts/0 ann:root`, `- pts/0 ann:root`.
        r"\+ (?P<tty>\S{1,64}) (?P<by>[^\s:]{1,256})[:-](?P<user>.*)",
    ),
    (
        AUTHENTICATION,
        _SWITCH,
        FAILURE,
        r"(?P<detail>-) (?P<tty>\S{1,64}) (?P<by>[^\s:]{1,256})[:-](?P<user>.*)",
    ),
    (
        AUTHENTICATION,
        _SWITCH,
        SUCCESS,
        r"(?P<by>[^\s:]{1,256}) to (?P<user>\S{1,256}) on (?P<tty>\S{1,64})",
    ),
)
_TTY = rf"{_Q}?(?P<tty>[^\s'\"`]{{1,64}}){_Q}?"
_LOGIN = _rules(
    (
        AUTHENTICATION,
        _LOGON,
        SUCCESS,
        rf"(?P<user>ROOT) LOGIN {{1,2}}ON {_TTY}(?: FROM {_Q}?(?P<rhost>[^\s'`]{{1,256}}){_Q}?)?",
    ),
    (
        AUTHENTICATION,
        _LOGON,
        SUCCESS,
        # shadow puts two blanks there, as the place that it adds begins with one.
        rf"(?P<user>ROOT) LOGIN {{1,2}}on {_TTY}(?: from "
        rf"{_Q}?(?P<rhost>[^\s'`]{{1,256}}){_Q}?)?",
    ),
    (
        AUTHENTICATION,
        _LOGON,
        SUCCESS,
        rf"(?:LOGIN ON|DIALUP AT) {_TTY} BY (?P<user>\S{{1,256}})"
        r"(?: FROM (?P<rhost>\S{1,256}))?",
    ),
    (
        AUTHENTICATION,
        _LOGON,
        FAILURE,
        rf"FAILED LOGIN (?:SESSION )?(?:\(?\d{{1,4}}\)? )?(?:FROM|from|on) {_TTY}"
        rf"(?: (?:FROM|from) {_Q}?(?P<rhost>[^\s'`]{{1,256}}?){_Q}?)? (?:FOR|for) "
        rf"{_Q}?(?P<user>.*?){_Q}?(?:, (?P<detail>[A-Z][\w ()-]{{1,100}}))?",
    ),
    (
        AUTHENTICATION,
        _LOGON,
        FAILURE,
        rf"(?P<detail>TOO MANY LOGIN TRIES) \(\d{{1,4}}\) (?:FROM|from|on) {_TTY}"
        rf"(?: (?:FROM|from) (?P<rhost>\S{{1,256}}))? (?:FOR|for) {_Q}?(?P<user>.*?){_Q}?"
        r"(?:, [A-Z][\w ()-]{1,100})?",
    ),
    (
        AUTHENTICATION,
        _LOGON,
        FAILURE,
        rf"(?P<detail>invalid password) for {_Q}?(?P<user>.*?){_Q}? {{1,2}}on {_Q}?"
        rf"(?P<tty>[^\s'`]{{1,64}}){_Q}?(?: from {_Q}?(?P<rhost>[^\s'`]{{1,256}}){_Q}?)?",
    ),
)
LOGIND = _rules(
    (
        AUTHENTICATION,
        _LOGON,
        SUCCESS,
        rf"New session {_Q}?(?P<session>[\w-]{{1,32}}){_Q}? of user {_Q}?(?P<user>.*?){_Q}?"
        r"(?: with class '(?P<class>[\w-]{1,32})' and type '(?P<type>[\w-]{1,32})')?\.",
    ),
    (AUTHENTICATION, _LOGOFF, SUCCESS, rf"Removed session {_Q}?(?P<session>[\w-]{{1,32}}){_Q}?\."),
)
_BY = rf"(?: by {_Q}?(?P<by>[^\s'`]{{1,256}}){_Q}?)?"
# Activities of OCSF's Account Change (1 create, 3 change password, 6 delete, 9 lock, 12 unlock) and
# Group Management (3 add a user, 4 remove one, 5 delete, 6 create).
SHADOW = _rules(
    (
        ACCOUNT,
        1,
        SUCCESS,
        r"new user: name=(?P<user>.*?), UID=(?P<uid>\d{1,10}), GID=(?P<gid>\d{1,10}), "
        r"home=(?P<home>.*), shell=(?P<shell>[^,]*)(?:, from=(?P<tty>\S{1,64}))?",
    ),
    (ACCOUNT, 1, FAILURE, rf"(?P<detail>failed adding user) {_Q}(?P<user>.*){_Q}, (?P<why>.*)"),
    (ACCOUNT, 6, SUCCESS, rf"delete user {_Q}(?P<user>[^'`]*){_Q}"),
    (ACCOUNT, 9, SUCCESS, rf"lock user {_Q}(?P<user>[^'`]*){_Q} password"),
    (ACCOUNT, 12, SUCCESS, rf"unlock user {_Q}(?P<user>[^'`]*){_Q} password"),
    (ACCOUNT, 3, SUCCESS, rf"change user {_Q}(?P<user>[^'`]*){_Q} password"),
    (ACCOUNT, 3, SUCCESS, rf"password for {_Q}?(?P<user>[^'`]*?){_Q}? changed{_BY}"),
    (ACCOUNT, 9, SUCCESS, rf"(?:password for )?{_Q}?(?P<user>[^'`]*?){_Q}? locked{_BY}"),
    (
        ACCOUNT,
        OTHER,
        SUCCESS,
        rf"change(?:d)? user {_Q}(?P<user>[^'`]*){_Q} (?P<what>[A-Za-z ]{{1,40}}?)"
        rf"(?: from {_Q}(?P<old>[^'`]*){_Q})? to {_Q}(?P<new>[^'`]*){_Q}",
    ),
    (
        ACCOUNT,
        OTHER,
        SUCCESS,
        rf"change user (?P<what>name) {_Q}(?P<user>[^'`]*){_Q} to {_Q}(?P<new>[^'`]*){_Q}",
    ),
    (ACCOUNT, OTHER, SUCCESS, r"(?P<what>changed password expiry) for (?P<user>\S{1,256})"),
    (
        GROUP,
        6,
        SUCCESS,
        r"(?:new group|group added to \S{1,64}): name=(?P<group>[^,]*)"
        r"(?:, GID=(?P<group_uid>\d{1,10}))?",
    ),
    (
        GROUP,
        5,
        SUCCESS,
        rf"group {_Q}(?P<group>[^'`]*){_Q} removed(?: from (?P<where>\S{{1,64}}))?",
    ),
    (
        GROUP,
        5,
        SUCCESS,
        rf"removed (?:shadow )?group {_Q}(?P<group>[^'`]*){_Q}"
        rf"(?: owned by {_Q}(?P<owner>[^'`]*){_Q})?",
    ),
    (
        GROUP,
        3,
        SUCCESS,
        rf"add {_Q}(?P<user>[^'`]*){_Q} to (?:shadow )?group {_Q}(?P<group>[^'`]*){_Q}",
    ),
    (
        GROUP,
        4,
        SUCCESS,
        rf"delete {_Q}(?P<user>[^'`]*){_Q} from (?:shadow )?group {_Q}(?P<group>[^'`]*){_Q}",
    ),
    (
        GROUP,
        3,
        SUCCESS,
        r"user (?P<user>\S{1,256}) added by (?P<by>\S{1,256}) to group (?P<group>\S{1,256})",
    ),
    (
        GROUP,
        4,
        SUCCESS,
        r"user (?P<user>\S{1,256}) removed by (?P<by>\S{1,256}) from group (?P<group>\S{1,256})",
    ),
    (
        GROUP,
        OTHER,
        SUCCESS,
        r"(?P<what>members|administrators|password) of group (?P<group>\S{1,256}) "
        r"(?:set|changed|removed) by (?P<by>\S{1,256})(?: to (?P<new>\S{1,2000}))?",
    ),
    (
        GROUP,
        OTHER,
        SUCCESS,
        r"(?P<what>group changed) in \S{1,64} "
        r"\(group (?P<group>[^/()]{1,256})/(?P<group_uid>\d{1,10})(?:, (?P<new>[^()]{1,256}))?\)",
    ),
)
POLKIT = _rules(
    (
        AUTHENTICATION,
        _SWITCH,
        SUCCESS,
        r"Operator of (?P<subject>\S{1,128}) successfully authenticated as unix-user:"
        r"(?P<user>\S{1,256}) to gain (?P<grant>\S{1,32}) authorization for action "
        r"(?P<action>\S{1,256}) for .{1,512} \(owned by unix-user:(?P<by>[^\s()]{1,256})\)",
    ),
    (
        AUTHENTICATION,
        _SWITCH,
        FAILURE,
        r"Operator of (?P<subject>\S{1,128}) (?P<detail>FAILED to authenticate) to gain "
        r"authorization for action (?P<action>\S{1,256}) for .{1,512} "
        r"\(owned by unix-user:(?P<by>[^\s()]{1,256})\)",
    ),
)
PKEXEC = re.compile(
    r"(?P<by>[^\s:]{1,256}): (?P<what>[^\[\]]{1,200}?) \[USER=(?P<user>[^\]\s]{1,256})\] "
    r"\[TTY=(?P<tty>[^\]\s]{1,64})\] \[CWD=(?P<cwd>.{0,4096}?)\] \[COMMAND=(?P<cmd>.*)\]",
    re.ASCII,
)
# Vixie cron and what came of it: `(root) CMD (run-parts /etc/cron.hourly)`.
CRON = re.compile(
    r"\((?P<user>[^()]{1,256})\) (?P<verb>[A-Z][A-Z ]{1,20}) \((?P<what>.*)\)", re.ASCII
)
BUSYBOX_CRON = re.compile(
    r"USER (?P<user>\S{1,64}) pid +(?P<pid>\d{1,10}) cmd (?P<what>.*)", re.ASCII
)
_VERBS: Mapping[str, tuple[int, str | None]] = MappingProxyType(
    {
        "CMD": (6, None),
        "CMDEND": (OTHER, "Finish"),
        "CMDOUT": (OTHER, "Output"),
        "REPLACE": (2, None),
        "RELOAD": (OTHER, "Reload"),
        "BEGIN EDIT": (OTHER, "Begin Edit"),
        "END EDIT": (OTHER, "End Edit"),
        "LIST": (OTHER, "List"),
        "DELETE": (3, None),
        # crontab's, to whom cron.allow does not let in.
        "AUTH": (OTHER, "Refused"),
        "FAILED": (OTHER, "Failed"),
    }
)

_RULES: Mapping[str, tuple[_Rule, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("su", "su-l", "runuser"), SU),
        **dict.fromkeys(("login", "rlogind", "telnetd"), _LOGIN),
        "systemd-logind": LOGIND,
        "polkitd": POLKIT,
        **dict.fromkeys(
            (
                *("useradd", "userdel", "usermod", "groupadd", "groupdel", "groupmod", "gpasswd"),
                *("passwd", "chage", "chsh", "chfn", "newusers", "chpasswd", "adduser", "deluser"),
                *("addgroup", "delgroup", "vipw", "chgpasswd", "groupmems", "shadow"),
            ),
            SHADOW,
        ),
    }
)
_CRONS = frozenset({"cron", "crond", "crontab", "anacron", "cronie", "/usr/sbin/cron"})


def _read(line: Line, context: Context) -> Event | None:
    """The event of a line of PAM's, or of one of the programs around it."""
    # Patterns with two open ends take time that grows with the square of a line.
    if len(line.text) > LONGEST:
        return None
    if is_pam(line):
        return read_pam(line, _PRODUCT)
    for name in syslog.names_of((line.program or "").rstrip("]")):
        if name in _CRONS:
            return _cron(line)
        if name == "pkexec":
            return _pkexec(line)
        if name in _RULES:
            return _ruled(_RULES[name], line, name)
    # An auth.log holds the lines of all of them, so what sshd and sudo know is theirs.
    event = sshd.SOURCES[0].known(line, context) or sudo.SOURCES[0].known(line, context)
    return event or read_pam(line, _PRODUCT)


def _ruled(rules: tuple[_Rule, ...], line: Line, program: str) -> Event | None:
    for class_uid, activity, status, pattern in rules:
        match = pattern.fullmatch(line.text)
        if match:
            return _told(class_uid, activity, status, match.groupdict(), line, program)
    return read_pam(line, _PRODUCT)


def _product(program: str) -> dict[str, str]:
    return {"name": program, "vendor_name": "Linux"}


def _told(
    class_uid: int,
    activity: int,
    status: int,
    part: dict[str, str | None],
    line: Line,
    program: str,
) -> Event:
    name, rhost = part.pop("user", None), part.pop("rhost", None)
    by, tty = part.pop("by", None), part.pop("tty", None)
    detail, uid, session = (
        part.pop("detail", None),
        part.pop("uid", None),
        part.pop("session", None),
    )
    group = kept(name=part.pop("group", None), uid=part.pop("group_uid", None))
    # login writes the name so, in capitals; the account is root.
    if name == "ROOT":
        name = "root"
    rest: dict[str, Any] = {key: value for key, value in part.items() if value}
    columns: dict[str, Any] = {"status_id": status, "status_detail": detail}
    if name:
        columns["user"] = kept(name=name, uid=uid)
    if class_uid == AUTHENTICATION:
        switched = activity == _SWITCH
        columns |= {
            "service": {"name": program},
            "dst_endpoint": {"hostname": line.host} if line.host else None,
            "src_endpoint": endpoint(rhost, rest=rest, name="rhost") if rhost else None,
            "is_remote": bool(rhost) if rhost or switched else None,
            "session": kept(uid=session, terminal=tty) or None,
            "severity_id": (MEDIUM if switched else LOW) if status == FAILURE else None,
        }
    else:
        columns["group"] = group or None
        rest |= kept(tty=tty)
    if activity == OTHER:
        columns["activity_name"] = (rest.get("what") or "Change").capitalize()
    return daemon_event(line, _product(program), class_uid, activity, by=by, rest=rest, **columns)


def _pkexec(line: Line) -> Event | None:
    match = PKEXEC.fullmatch(line.text)
    if match is None:
        return read_pam(line, _PRODUCT)
    command, ran = match["cmd"], match["what"].startswith("Executing")
    path = command.partition(" ")[0]
    process = {
        "name": path.rsplit("/", 1)[-1] or None,
        "path": path or None,
        "cmd_line": command,
        "cwd": match["cwd"],
        "user": {"name": match["user"]},
    } | ({"pid": line.pid} if line.pid is not None else {"uid": line.text[:256]})
    return daemon_event(
        line,
        _product("pkexec"),
        PROCESS,
        1,
        by=match["by"],
        status_id=SUCCESS if ran else FAILURE,
        status_detail=None if ran else match["what"],
        severity_id=None if ran else HIGH,
        process=process,
        rest={"tty": match["tty"]},
    )


def _cron(line: Line) -> Event | None:
    """A job that cron started, or a table of jobs that somebody changed."""
    match = CRON.fullmatch(line.text) or BUSYBOX_CRON.fullmatch(line.text)
    if match is None:
        return read_pam(line, _PRODUCT)
    part = match.groupdict()
    verb, what, user = part.get("verb") or "CMD", match["what"].strip(), match["user"]
    verb_activity = _VERBS.get(verb)
    if verb_activity is None:
        return None
    activity, name = verb_activity
    # Behind other verbs stands the name of a user's table, or a reason.
    command = what if verb.startswith("CMD") else None
    refused = verb in ("AUTH", "FAILED")
    pid = part.get("pid")
    return daemon_event(
        line,
        _product("cron"),
        JOB,
        activity,
        activity_name=name,
        by=user,
        status_id=FAILURE if refused else SUCCESS,
        job={"name": command or what or "crontab", "cmd_line": command},
        more={"job": {"user": {"name": user}}},
        rest=kept(verb=verb, job_pid=pid),
    )


@dataclass(frozen=True)
class Pam(SyslogSource):
    """PAM's lines, whichever program's name stands over them."""

    def reads_program(self, program: str) -> bool:
        """All programs: any may call PAM."""
        return True

    def known(self, line: Line, context: Context) -> Event | None:
        read_event = _read(line, context)
        return read_event and syslog.with_device(syslog.counted(read_event, line))


PAM = Pam(
    name="pam",
    programs=frozenset(_RULES) | _CRONS | {"pkexec"},
    product=_PRODUCT,
    reader=_read,
)
SOURCES = (PAM,)
