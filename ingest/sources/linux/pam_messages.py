"""What PAM's modules write, under the name of whatever program called them.

Formats: Linux-PAM (https://github.com/linux-pam/linux-pam), before and since 1.3, and the
modules of others: pam_sss, pam_krb5, pam_winbind, pam_ldap, pam_google_authenticator.

A failed login ends in `ruser=... rhost=...  user=...`, of which a stranger chooses the last and
sometimes the first. With no remote user the host is the first there is; with one, a second
` rhost=` leaves the true one in doubt, and none is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import ACCOUNT, AUTHENTICATION, FAILURE, MEDIUM, SUCCESS, kept
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import daemon_event, endpoint, pairs
from ingest.sources.shared.first_match import FirstMatch

_LOGON, _LOGOFF, _PREAUTH, _SWITCH = 1, 2, 6, 7
_PASSWORD_CHANGE, _LOCK = 3, 9
_NETWORK_LOGON, BATCH = 3, 4
LONGEST = 8192
SWITCHES = frozenset(
    {"su", "su-l", "sudo", "sudo-i", "runuser", "runuser-l", "doas", "polkit-1", "pkexec", "ksu"}
)
REMOTE = frozenset({"sshd", "vsftpd", "proftpd", "dovecot", "ftp", "rlogin", "rsh", "dropbear"})
BATCHES = frozenset({"cron", "crond", "atd"})

_MODULE = re.compile(
    r"\(?(?P<module>[Pp][Aa][Mm][_-]\w{1,40})\)?(?:\[\d{1,10}\])?"
    r"(?:\((?P<service>[\w@./-]{1,64})(?::(?P<kind>\w{1,20}))?\))?:? +(?P<text>.*)",
    re.ASCII,
)
_PROGRAM = re.compile(r"(?P<service>[\w.-]{1,64})\((?P<module>pam_\w{1,40})\)", re.ASCII)
# `3 more authentication failures` comes at the end of a connection: the first failure was told at
# once, the others are counted.
_OUTCOME = re.compile(
    r"(?:PAM )?(?:(?P<count>\d{1,6}) more )?authentication (?P<what>failures?|success); "
    r"(?P<head>logname=.{0,256}?) ruser=(?P<tail>.*)",
    re.ASCII,
)
_SESSION = re.compile(
    r"session (?P<what>opened|closed) for user (?P<user>.{1,256}?)(?:\(uid=(?P<uid>\d{1,10})\))?"
    r"(?: by (?P<by>[^()]{0,256}?)\(uid=(?P<by_uid>\d{1,10})\))?",
    re.ASCII,
)
_RHOST = re.compile(r"(?:\A|(?<= ))rhost=(\S*)(?: {1,2}user=(.*)| *\Z)", re.ASCII)
_FAILED, _DONE = FAILURE, SUCCESS

_OTHERS: tuple[tuple[int, int, int, re.Pattern[str]], ...] = tuple(
    (class_uid, activity, status, re.compile(pattern, re.ASCII))
    for class_uid, activity, status, pattern in (
        (AUTHENTICATION, _PREAUTH, _FAILED, r"(?P<detail>check pass; user unknown)"),
        (AUTHENTICATION, _PREAUTH, _FAILED, r"(?P<detail>User unknown)"),
        (AUTHENTICATION, _PREAUTH, _FAILED, r"(?P<detail>bad username) \[(?P<user>.*)\]"),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>auth could not identify password) for \[(?P<user>.*)\]",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>could not identify user) \(from getpwnam\((?P<user>.*)\)\)",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"account (?P<user>.*) (?P<detail>has expired \([a-z ]{1,40}\))",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>expired password) for user (?P<user>.*?)(?: \([a-z ]{1,40}\))?",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>requirement \"[^\"]{1,200}\" not met) by user \"(?P<user>.*)\"",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>(?i:access denied)) for user [`'\"]?(?P<user>.*?)['\"]? "
            r"from [`'\"]?(?P<rhost>[^\s'\"`]{1,256})['\"]?",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>(?i:access denied)) for user (?P<user>.*): "
            r"(?P<code>\d{1,3}) \([\w ]{1,80}\)",
        ),
        (
            AUTHENTICATION,
            _SWITCH,
            _FAILED,
            r"(?P<detail>Access denied) to '(?P<by>.*)' for '(?P<user>[^']*)'",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>Refused) user (?P<user>.*) for service (?P<to>\S{1,64})",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>user) (?P<user>.*) \((?P<uid>\d{1,10})\) "
            r"(?P<tally>has been locked|tally \d{1,6}, deny \d{1,6})",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"received for user (?P<user>.*): (?P<code>\d{1,3}) \((?P<detail>[\w .]{1,80})\)",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"error trying to bind as user \"(?P<user>.*)\" \((?P<detail>[\w ]{1,80})\)",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"(?P<detail>Invalid verification code)(?: for (?P<user>.*))?",
        ),
        (AUTHENTICATION, _LOGON, _DONE, r"Accepted google_authenticator code for (?P<user>.*)"),
        (AUTHENTICATION, _LOGON, _DONE, r"user '(?P<user>.*)' granted access"),
        (
            AUTHENTICATION,
            _LOGON,
            _FAILED,
            r"user '(?P<user>.*)' (?P<detail>denied access) .{0,200}",
        ),
        (
            AUTHENTICATION,
            _LOGON,
            _DONE,
            r"authentication succeeds for '(?P<user>.*)' \((?P<principal>[^()]{0,256})\)",
        ),
        (
            AUTHENTICATION,
            _LOGON,
            _FAILED,
            r"(?P<detail>authentication fails) for '(?P<user>.*)' "
            r"\((?P<principal>[^()]{0,256})\)(?:: .{0,200})?",
        ),
        (
            AUTHENTICATION,
            _LOGON,
            _FAILED,
            r"request \w+ failed: .{0,160}NTSTATUS: (?P<detail>NT_STATUS_\w{1,60}).{0,200}",
        ),
        (
            AUTHENTICATION,
            _PREAUTH,
            _FAILED,
            r"service\((?P<to>[\w.-]{1,64})\) (?P<detail>ignoring max retries); \d+ > \d+",
        ),
        (
            ACCOUNT,
            _LOCK,
            _DONE,
            r"Consecutive login failures for user (?P<user>.*) "
            r"(?P<detail>account temporarily locked)",
        ),
        (ACCOUNT, _PASSWORD_CHANGE, _DONE, r"password changed for (?P<user>.*)"),
        (
            ACCOUNT,
            _PASSWORD_CHANGE,
            _FAILED,
            r"user \"?(?P<user>.*?)\"? (?P<detail>does not exist in /etc/passwd)",
        ),
    )
)
_FIRST_OTHER = FirstMatch([pattern for *_, pattern in _OTHERS])


def is_pam(line: Line) -> bool:
    """Whether a module of PAM wrote the line."""
    return (
        line.text[:4].lower() in ("pam_", "pam-", "pam ", "(pam")
        # Old versions put the module into the program's name: `sshd(pam_unix)`.
        or "(pam_" in (line.program or "")
        or _PROGRAM.fullmatch(line.program or "") is not None
        or (line.program or "").upper()[:4] in ("PAM_", "PAM-")
    )


def read_pam(line: Line, product: Mapping[str, str], *, counts: bool = True) -> Event | None:
    """The event of a line that a module of PAM wrote; None for lines of no class.

    Where the program itself tells of each attempt, as sshd does, what PAM says of a failure
    must not count (`counts`): it is what precedes a logon.
    """
    if len(line.text) > LONGEST:
        return None
    text, service, fields = line.text, line.program, {}
    named = _PROGRAM.fullmatch(line.program or "")
    if named:
        service, fields["module"] = named["service"], named["module"]
        line = line._replace(program=service)
    prefix = _MODULE.fullmatch(text)
    if prefix:
        text = prefix["text"]
        service = prefix["service"] or service
        fields |= kept(module=prefix["module"], pam_type=prefix["kind"])
        # pam_tally2 and pam_krb5 name themselves twice.
        text = text.removeprefix(f"{prefix['module']}: ")
    elif text.startswith("PAM "):
        text = text[4:]
    inner = re.fullmatch(r"\((?P<service>[\w.-]{1,64})\) (?P<text>session .*)", text, re.ASCII)
    if inner and (line.program or "").lower().startswith("pam"):
        service, text = inner["service"], inner["text"]
    about = _About(line, product, service or "pam", fields, counts)
    for pattern, reader in ((_OUTCOME, about.outcome), (_SESSION, about.session)):
        match = pattern.fullmatch(text)
        if match:
            return reader(match)
    return about.other(text)


class _About:
    """One line of PAM's, and what it may be."""

    def __init__(
        self,
        line: Line,
        product: Mapping[str, str],
        service: str,
        fields: dict[str, Any],
        counts: bool,
    ) -> None:
        self.line, self.product, self.service = line, product, service
        self.fields, self.counts = fields, counts

    def event(self, class_uid: int, activity: int, **columns: Any) -> Event:
        """An event of the line, with what all of PAM's have."""
        host, batch = self.line.host, self.service.lower() in BATCHES
        columns["rest"] = self.fields | columns.get("rest", {})
        if class_uid == AUTHENTICATION:
            # su and its kind take on another account, and log nobody in.
            if activity == _LOGON and self.service in SWITCHES:
                activity = _SWITCH
            remote = self.service in REMOTE or columns.get("src_endpoint") is not None
            columns |= {
                "service": {"name": self.service},
                "dst_endpoint": {"hostname": host} if host else None,
                "is_remote": True if remote else None,
                "logon_type_id": BATCH if batch else _NETWORK_LOGON if remote else None,
            }
        return daemon_event(self.line, self.product, class_uid, activity, **columns)

    def outcome(self, match: re.Match[str]) -> Event:
        """`authentication failure; logname= uid=0 ... rhost=10.0.0.5  user=root`."""
        failed = match["what"] != "success"
        ruser, rhost, user, doubtful = _ends(match["tail"])
        rest: dict[str, Any] = {
            name: value for name, value in pairs(match["head"]).items() if value
        }
        if doubtful:
            rest |= {"ambiguous": True, "ruser": match["tail"]}
        elif ruser and ruser != user:
            rest["ruser"] = ruser
        uid, by = rest.get("uid"), rest.get("logname")
        # For su, `ruser` is who asked and not whose password was wrong.
        name = user or (ruser if not doubtful and self.service not in SWITCHES else None)
        more = {"count": int(match["count"])} if match["count"] else {}
        return self.event(
            AUTHENTICATION,
            _LOGON if self.counts else _PREAUTH,
            status_id=FAILURE if failed else SUCCESS,
            status_detail="authentication failure" if failed else None,
            # PAM puts further failures of one connection into a single line.
            severity_id=MEDIUM if (more.get("count") or 0) > 2 else None,
            user={"name": name} if name else None,
            src_endpoint=endpoint(rhost, rest=rest, name="rhost") if rhost else None,
            # A daemon runs as root and has no login of its own; then `logname` says nothing.
            by=by if self.service in SWITCHES or uid not in (None, "0") else None,
            rest=rest,
            more=more or None,
        )

    def session(self, match: re.Match[str]) -> Event:
        """`session opened for user root(uid=0) by ann(uid=1000)`."""
        by, by_uid = match["by"] or None, match["by_uid"]
        event = self.event(
            AUTHENTICATION,
            _LOGON if match["what"] == "opened" else _LOGOFF,
            status_id=SUCCESS,
            user={"name": match["user"], "uid": match["uid"]},
            by=by,
        )
        if by or by_uid:
            event["actor"] = (event.get("actor") or {}) | {"user": {"name": by, "uid": by_uid}}
        return event

    def other(self, text: str) -> Event | None:
        """What else has a class."""
        first = _FIRST_OTHER.find(text)
        if first is None:
            return None
        place, match = first
        class_uid, activity, status, _ = _OTHERS[place]
        part = match.groupdict()
        rest = kept(**{k: part.get(k) for k in ("code", "tally", "principal", "to")})
        user, rhost = part.get("user"), part.get("rhost")
        if not self.counts and activity == _LOGON and status == FAILURE:
            activity = _PREAUTH
        return self.event(
            class_uid,
            activity,
            status_id=status,
            status_detail=part.get("tally") or part.get("detail"),
            severity_id=MEDIUM if activity == _LOCK else None,
            user=kept(name=user, uid=part.get("uid")) if user else _nobody(class_uid),
            src_endpoint=endpoint(rhost, rest=rest, name="rhost") if rhost else None,
            by=part.get("by"),
            rest=rest,
        )


def _nobody(class_uid: int) -> dict[str, Any] | None:
    return None if class_uid == AUTHENTICATION else {"name": "unknown"}


def _ends(tail: str) -> tuple[str | None, str | None, str | None, bool]:
    """Remote user, host and user; and whether a forged name leaves the host in doubt."""
    first = re.match(r" ?rhost=(?P<host>\S*)(?: {1,2}user=(?P<user>.*)| *\Z)", tail, re.ASCII)
    if first:
        return None, first["host"] or None, first["user"] or None, False
    ends = [(tail[: end.start()].rstrip(" "), end[1], end[2]) for end in _hosts(tail)]
    # A daemon that asks for one name gives PAM the same as both: there the host is the true one.
    agreed = [end for end in ends if end[2] is not None and end[2] == end[0]]
    chosen = agreed if len(agreed) == 1 else ends
    if len(chosen) == 1:
        ruser, host, user = chosen[0]
        return ruser or None, host or None, user or None, False
    return None, None, None, True


def _hosts(tail: str) -> list[re.Match[str]]:
    # At most a few: whoever writes more of them only wants to be in doubt.
    starts = [match.start() for match in re.finditer(r"(?:\A|(?<= ))rhost=", tail)][:8]
    return [result for match in starts if (result := _RHOST.match(tail, match))]
