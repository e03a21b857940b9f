"""Syslog to silver.event as one would with stock Spark: regular expressions and column expressions.

The header is read by one expression for each framing, a message by the one whose first words
it has (`syslog_words`). Each runs once a line.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bench.stock import (
    MALFORMED,
    captured,
    classified,
    identity,
    is_address,
    left,
    lookup,
    observable,
    observables,
    part,
    silver,
    status_of,
    struct,
)
from bench.syslog_words import ACTIVITIES, CLASSES, PARTS, PROGRAMS, Words

NOT_DONE = (
    "syslog: other messages than those in the samples; refuse bad UTF-8 and lines that hold two; "
    "notice fields that an attacker imitates; addresses out of range or in another spelling; "
    "zones by source, host or record"
)
NEW = r"<(\d{1,3})>1 (\S+) (\S+) (\S+) (\S+) (\S+) (-|\[.*?\]) ?(.*)"
OLD = (
    r"(?:<(\d{1,3})>)?([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S+) ([^\s:\[]+)(?:\[(\d+)\])?: ?(.*)"
)
HEADER = ("pri", "clock", "host", "program", "pid", "msgid", "data", "text")
SEVERITIES = (6, 5, 5, 4, 3, 2, 1, 1)
VENDORS = {
    "sshd": ("OpenSSH", "OpenBSD"),
    "sudo": ("sudo", "Sudo Project"),
    "dnsmasq": ("dnsmasq", "Simon Kelley"),
    "isc_dhcpd": ("ISC DHCP", "ISC"),
}
RCODES = {"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
LEFT = (
    "facility", "level", "pid", "interface", "invalid_user", "protocol", "method", "session",
    "code", "rdomain", "module", "pam_type", "uid", "euid", "tty", "command", "kind", "COMMAND",
    "PWD",
)  # fmt: skip


def events(records: DataFrame) -> DataFrame:
    """Rows of bronze.record as rows of silver.event, dead letters included."""
    line = F.col("raw").cast("string")
    new = captured(line, NEW, [f"${n}" for n in range(1, 9)])
    old = captured(line, OLD, ["$1", "$2", "$3", "$4", "$5", "", "", "$6"])
    read = records.select(
        "record_id",
        "source",
        "mode",
        "received_at",
        F.when(line.rlike(r"^<\d{1,3}>1 "), new).otherwise(old).alias("head"),
    )
    framed = read.select("*", *[_head(name).alias(name) for name in HEADER])
    good = (F.size("head") == len(HEADER)) & (F.coalesce("pri", F.lit("0")).cast("int") <= 191)
    told = framed.withColumns(
        {
            "text": F.trim(F.coalesce("text", F.lit(""))),
            "good": good,
            "dead_letter_reason": F.when(~good, F.lit(MALFORMED)),
        }
    )
    found = told.withColumns({"found": _found(), "at": _time()}).select(
        "*", *[part(F.col("found"), at).alias(f"p_{name}") for at, name in enumerate(PARTS)]
    )
    prepared = found.withColumns(_prepared())
    given = _identity() | _class() | _ends() | _objects() | _dns()
    return silver(prepared, given)


def _head(name: str) -> Column:
    found = F.nullif(part(F.col("head"), HEADER.index(name)), F.lit("-"))
    return F.when(F.size("head") == len(HEADER), found)


def _p(name: str) -> Column:
    return F.col(f"p_{name}")


def _good(value: Column) -> Column:
    return F.when(F.col("good"), value)


def _found() -> Column:
    """What the message says, as `PARTS`; shorter where its words are not known."""
    text = F.col("text")

    def one(words: Words) -> Column:
        return captured(text, words.pattern, [words.parts.get(name, "") for name in PARTS])

    def of(several: tuple[Words, ...]) -> Column:
        first, *others = several
        start = F.when(_has(first), one(first))
        return reduce(lambda made, words: made.when(_has(words), one(words)), others, start)

    cases = [(F.col("program") == name, of(several)) for name, several in PROGRAMS.items()]
    return reduce(lambda made, case: made.when(*case), cases[1:], F.when(*cases[0]))


def _has(words: Words) -> Column:
    text = F.col("text")
    if words.begins:
        return F.startswith(text, F.lit(words.begins))
    return F.contains(text, F.lit(words.holds))


def _time() -> Column:
    """ISO as it is; without a year, the latest that is not ahead of arrival."""
    newest = F.col("received_at") + F.expr("INTERVAL 1 DAY")
    padded = F.replace(F.col("clock"), F.lit("  "), F.lit(" 0"))
    dated = F.concat_ws(" ", F.year(newest), padded)
    this = F.try_to_timestamp(dated, F.lit("yyyy MMM dd HH:mm:ss"))
    past = F.when(this > newest, this - F.expr("INTERVAL 1 YEAR")).otherwise(this)
    return F.when(_is_old(), past).otherwise(F.col("clock").try_cast("timestamp"))


def _is_old() -> Column:
    return ~F.substring("clock", 1, 1).between("0", "9")


def _prepared() -> dict[str, Column]:
    """What several columns need."""
    known = F.coalesce(F.size("found") == len(PARTS), F.lit(False))
    level = (F.col("pri").cast("int")).bitwiseAND(7)
    class_uid = F.when(known, _p("class").cast("int")).otherwise(0)
    invalid = F.when(_p("invalid").isNotNull(), "invalid user")
    dhcp = class_uid == 4004
    detail = F.coalesce(_p("detail"), invalid)
    status = F.when(
        dhcp, F.when(detail.isNotNull() | (_p("activity") == "6"), 2).otherwise(1)
    ).otherwise(_p("status").cast("int"))
    return {
        "known": known,
        "level": level,
        "class_id": F.when(F.col("good"), class_uid).otherwise(0),
        "activity": F.when(known, _p("activity").cast("int")).otherwise(0),
        "severity_level": F.coalesce(
            _p("severity").cast("int"),
            F.get(F.array(*[F.lit(one) for one in SEVERITIES]), level),
            F.lit(1),
        ),
        "status_uid": status,
        "detail": detail,
        "acting": F.col("source").isin("sshd", "sudo") & known,
        "rcode": F.when(
            _p("answer").isNotNull(),
            F.coalesce(
                F.nullif(
                    F.regexp_extract(_p("answer"), "^(NXDOMAIN|SERVFAIL|REFUSED|NOTIMP)$", 1),
                    F.lit(""),
                ),
                F.lit("NOERROR"),
            ),
        ),
        "hardware": F.lower(_p("mac")),
        "process_path": F.substring_index(_p("command"), " ", 1),
        "login": F.when(class_uid.isin(3002, 0), _p("user")),
        "runs": class_uid == 1007,
    }


def _identity() -> dict[str, Column]:
    quality = F.when(F.col("at").isNull(), "received").when(_is_old(), "assumed_year")
    return {
        **identity(
            F.col("good"),
            F.coalesce(F.col("at"), F.col("received_at")),
            quality.otherwise("exact"),
        ),
        "src_ip": _good(_p("ip")),
        "dst_ip": _good(_p("here")),
        "user_name": _good(F.coalesce(_p("by"), F.col("login"))),
        "host_name": _good(F.col("host")),
        "mac": _good(F.col("hardware")),
    }


def _class() -> dict[str, Column]:
    class_uid, activity = F.col("class_id"), F.col("activity")
    severity = F.when(F.col("good"), F.col("severity_level")).otherwise(0)
    status = F.when(
        F.col("rcode").isNotNull(), F.when(F.col("rcode") == "NOERROR", 1).otherwise(2)
    ).otherwise(F.col("status_uid"))
    logon = F.col("known") & (class_uid == 3002)
    return {
        **classified(class_uid, activity, severity, CLASSES),
        "activity_name": _good(lookup(ACTIVITIES, class_uid * 100 + activity)),
        **status_of(_good(status)),
        "status_detail": _good(F.col("detail")),
        "message": _good(F.col("text")),
        "auth_method": F.when(logon, _p("method")),
        "logon_type_id": F.when(logon & (F.col("source") == "sshd"), 3),
        "is_remote": F.when(logon, F.col("source") == "sshd"),
        "app_name": F.when(class_uid == 4007, "ssh"),
        "lease_dur": F.when((class_uid == 4004) & (activity == 5), 86400),
        "transaction_uid": F.when(class_uid == 4004, _p("serial")),
    }


def _ends() -> dict[str, Column]:
    dhcp = F.col("class_id") == 4004
    alone = dhcp & _p("ip").isNull() & _p("client").isNull()
    some = F.coalesce(_p("ip"), F.col("hardware"), _p("client")).isNotNull()
    ssh = F.col("class_id") == 4007
    inbound = _p("ip").isNotNull()
    connection = struct(
        "connection_info",
        protocol_name=F.lit("tcp"),
        protocol_num=F.lit(6),
        protocol_ver_id=F.when(inbound, F.when(F.contains(_p("ip"), F.lit(":")), 6).otherwise(4)),
        direction_id=F.when(inbound, 1).otherwise(0),
        direction=F.when(inbound, "Inbound").otherwise("Unknown"),
    )
    target = F.col("known") & ~F.col("runs")
    return {
        "src_endpoint": F.when(
            some,
            struct(
                "src_endpoint",
                ip=_p("ip"),
                port=_p("port").cast("int"),
                mac=F.col("hardware"),
                hostname=_p("client"),
                uid=F.when(alone, F.col("hardware")),
            ),
        ),
        "dst_endpoint": F.when(
            target & (_p("end") != "none"),
            struct(
                "dst_endpoint",
                hostname=F.col("host"),
                ip=_p("here"),
                port=_p("here_port").cast("int"),
            ),
        ),
        "connection_info": F.when(ssh, connection),
    }


def _objects() -> dict[str, Column]:
    vendor = F.col("source")
    named = struct(
        "metadata.product",
        name=lookup({key: name for key, (name, _) in VENDORS.items()}, vendor),
        vendor_name=lookup({key: name for key, (_, name) in VENDORS.items()}, vendor),
    )
    pid = F.when(F.col("acting") & F.col("pid").isNotNull(), F.col("pid").try_cast("long"))
    process = struct("actor.process", name=F.col("program"), pid=pid)
    by = struct("actor.user", name=_p("by"), uid=_p("by_uid"))
    is_by = F.coalesce(_p("by"), _p("by_uid")).isNotNull()
    return {
        "metadata": _good(
            struct(
                "metadata",
                version=F.lit("1.8.0"),
                product=named,
                log_provider=F.col("program"),
                correlation_uid=F.when(F.col("class_id") != 4004, _p("serial")),
                original_time=F.when(_is_old(), F.col("clock")),
            )
        ),
        "device": _good(struct("device", hostname=F.col("host"), type_id=F.lit(0))),
        "actor": F.when(
            pid.isNotNull() | is_by,
            struct("actor", user=F.when(is_by, by), process=F.when(pid.isNotNull(), process)),
        ),
        "user": F.when(
            F.col("login").isNotNull(), struct("user", name=F.col("login"), uid=_p("user_uid"))
        ),
        "process": F.when(F.col("runs"), _process()),
        "service": F.when(
            F.col("known") & (F.col("class_id") == 3002), struct("service", name=F.col("source"))
        ),
        "observables": _good(_observables()),
        "unmapped": _good(_unmapped()),
    }


def _process() -> Column:
    return struct(
        "process",
        name=F.substring_index("process_path", "/", -1),
        path=F.col("process_path"),
        cmd_line=_p("command"),
        cwd=_p("cwd"),
        user=struct("process.user", name=_p("user")),
        uid=F.col("record_id"),
    )


def _dns() -> dict[str, Column]:
    answer = _p("answer")
    ip = is_address(answer)
    record = F.struct(
        answer.alias("rdata"),
        F.when(ip, F.when(F.contains(answer, F.lit(":")), "AAAA").otherwise("A")).alias("type"),
        F.lit(None).cast("long").alias("ttl"),
    )
    kind = F.when(ip, record["type"]).otherwise(_p("asked_type"))
    return {
        "query": F.when(_p("asked").isNotNull(), struct("query", hostname=_p("asked"), type=kind)),
        "answers": F.when(answer.isNotNull() & (F.col("rcode") == "NOERROR"), F.array(record)),
        "rcode": F.col("rcode"),
        "rcode_id": lookup(RCODES, F.col("rcode")),
    }


def _observables() -> Column:
    command = F.when(F.col("runs"), _p("command"))
    found = observables(
        ("src_endpoint.ip", 2, _p("ip")),
        ("src_endpoint.mac", 3, F.col("hardware")),
        ("src_endpoint.hostname", 1, _p("client")),
        ("query.hostname", 1, _p("asked")),
        ("actor.user.name", 4, F.when(F.col("source") == "sudo", _p("by"))),
        ("user.name", 4, F.col("login")),
        ("actor.user.name", 4, F.when(F.col("source") == "sshd", _p("by"))),
        ("process.user.name", 4, F.when(F.col("runs"), _p("user"))),
        ("process.cmd_line", 13, command),
    )
    answered = F.array(observable("answers[].rdata", 2, _p("answer")))
    return F.when(is_address(_p("answer")), F.concat(found, answered)).otherwise(found)


def _unmapped() -> Column:
    switch = (F.col("source") == "sudo") & (F.col("class_id") == 3002)
    ssh = F.col("class_id") == 4007
    given = {
        "facility": F.shiftright(F.col("pri").cast("int"), 3),
        "level": F.col("level"),
        "pid": F.when(~F.col("acting"), F.col("pid").try_cast("long")),
        "invalid_user": F.when(_p("invalid").isNotNull(), F.lit(True)),
        "method": F.when(F.col("class_id") == 0, _p("method")),
        "command": F.when(ssh, _p("command")),
        "COMMAND": F.when(switch, _p("command")),
        "PWD": F.when(switch, _p("cwd")),
    }
    return left(*[given.get(name, F.col(f"p_{name}")).alias(name) for name in LEFT
                  if name in given or name in PARTS])  # fmt: skip
