"""MySQL, MariaDB and OpenLDAP: logins, statements, and lines that belong together."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.record_reader import pieces
from ingest.parsing.source import lookup
from tests.ingest.daemons import TEN, Expected, brief, check, events, one, told
from tests.ingest.sources.server.test_daemon_logins import LOGOFF, LOGON, login

DENIED = "Access denied for user 'ann'@'1.2.3.4' (using password: YES)"


@pytest.mark.parametrize(
    "line",
    [
        f"260302 10:00:00 [Warning] {DENIED}",
        f"2026-03-02 10:00:00 5907 [Warning] {DENIED}",
        f"2026-03-02 10:00:00 139845235329792 [Warning] {DENIED}",
        f"2026-03-02 10:00:00 0x7f1234567890 [Warning] {DENIED}",
        f"2026-03-02T10:00:00.000000Z 6 [Note] {DENIED}",
        f"2026-03-02T10:00:00.000000Z 113 [Note] [MY-010926] [Server] {DENIED}",
        f"2026-03-02T11:00:00.000000+01:00 113 [Note] [MY-010926] [Server] {DENIED}",
        f"Mar  2 10:00:00 db1 mysqld: 260302 10:00:00 [Warning] {DENIED}",
        f"Mar  2 10:00:00 db1 mariadbd[7]: 2026-03-02 10:00:00 12 [Warning] {DENIED}",
        f"Mar  2 10:00:00 db1 mysqld[7]: [Warning] {DENIED}",
        f"<28>1 2026-03-02T10:00:00Z db1 mysqld 7 - - [MY-010926] [Server] {DENIED}",
        json.dumps(
            {
                "prio": 3,
                "err_code": 10926,
                "msg": DENIED,
                "time": "2026-03-02T10:00:00.000000Z",
                "thread": 8,
                "subsystem": "Server",
                "label": "Note",
            }
        ),
    ],
)
def test_a_refused_login_in_every_error_log(line: str) -> None:
    row = one("mysql", line)
    assert (*brief(row), row["time"]) == (LOGON, 2, "1.2.3.4", "ann", TEN)
    assert json.loads(row["unmapped"])["using_password"] == "YES"


AT = "2026-03-02T10:00:00.000000Z 9 "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[Note] [MY-010914] [Server] Aborted connection 9 to db: 'unconnected' user: 'root' "
            "host: '1.2.3.4' (Got an error reading communication packets).",
            {
                "type_uid": 400102,
                "src_endpoint.ip": "1.2.3.4",
                "actor.user.name": "root",
                "metadata.event_code": "MY-010914",
                "connection_info.uid": "9",
            },
        ),
        (
            "[Warning] Host '1.2.3.4' is blocked because of many connection errors",
            {"type_uid": 400105, "action_id": 2, "severity_id": 3},
        ),
        (
            "[Warning] [MY-010055] [Server] IP address '1.2.3.4' could not be resolved: not known",
            {"class_uid": 0, "src_endpoint.ip": "1.2.3.4"},
        ),
        (
            "[ERROR] [MY-012574] [InnoDB] Unable to lock ./ibdata1 error: 11",
            {"class_uid": 0, "severity_id": 4, "unmapped.subsystem": "InnoDB"},
        ),
        (
            "[System] [MY-010931] [Server] /usr/sbin/mysqld: ready for connections.",
            {"class_uid": 0, "severity_id": 1},
        ),
        ("[Note] Access denied for user 'a'@'localhost'", login(2, None, "a")),
        (
            "[Warning] Access denied for user 'a'@'1.2.3.4' to database 'x'",
            login(2, "1.2.3.4", "a", **{"unmapped.database": "x"}),
        ),
    ],
)
def test_messages_of_the_error_log(text: str, expected: Expected) -> None:
    check("mysql", AT + text, expected)


@pytest.mark.parametrize(
    "name", ["a'@'6.6.6.6' (using password: YES)", "'@'6.6.6.6", "x' to database 'y", "=1+1"]
)
def test_a_name_forges_no_address_of_mysql(name: str) -> None:
    line = f"{AT}[Note] Access denied for user '{name}'@'1.2.3.4' (using password: YES)"
    assert brief(one("mysql", line)) == (LOGON, 2, "1.2.3.4", name)


def test_a_database_that_imitates_an_account_leaves_it_in_doubt() -> None:
    line = f"{AT}[Note] Access denied for user 'a'@'1.2.3.4' to database 'x'@'6.6.6.6'"
    found = told("mysql", line)
    assert (found["type_uid"], "src_endpoint" in found) == (LOGON, False)
    assert found["unmapped"]["ambiguous"] is True


GENERAL = "2026-03-02T10:00:00.000000Z\t    8 "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Connect\troot@1.2.3.4 on shop using TCP/IP",
            login(0, "1.2.3.4", "root", **{"unmapped.database": "shop", "session.uid": "8"}),
        ),
        (f"Connect\t{DENIED}", login(2, "1.2.3.4", "ann")),
        (
            "Query\tSELECT * FROM t WHERE a = 'x\ty'",
            {
                "type_uid": 600504,
                "query_info.query_string": "SELECT * FROM t WHERE a = 'x\ty'",
                "actor.session.uid": "8",
            },
        ),
        ("Query\t/* hint */ (INSERT INTO t VALUES (1))", {"type_uid": 600505}),
        ("Query\tdrop table t", {"type_uid": 600507}),
        ("Init DB\tshop", {"type_uid": 600503, "database.name": "shop"}),
        ("Quit\t", {"type_uid": LOGOFF, "session.uid": "8"}),
    ],
)
def test_lines_of_the_general_log(text: str, expected: Expected) -> None:
    check("mysql", GENERAL + text, expected)
    check("mysql", f"260302 10:00:00\t    8 {text}", expected)
    check("mysql", f"\t\t    8 {text}", expected)


HEADER = (
    "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n"
    "Tcp port: 3306  Unix socket: /var/run/mysqld/mysqld.sock\n"
    "Time                 Id Command    Argument\n"
)


def test_a_general_log_read_whole_says_who_was_let_in() -> None:
    raw = (
        f"{HEADER}{GENERAL}Connect\tann@1.2.3.4 on shop using TCP/IP\n"
        "2026-03-02T10:00:00.000000Z\t    9 Connect\tbad@6.6.6.6 on  using TCP/IP\n"
        f"{GENERAL}Query\tSELECT *\nFROM t\n"
        "2026-03-02T10:00:00.000000Z\t    9 Connect\tAccess denied for user 'bad'@'6.6.6.6' "
        "(using password: YES)\n"
        f"{GENERAL}Quit\t\n"
    )
    assert [piece.raw.decode() for piece in pieces(BytesIO(raw.encode()), lookup("mysql"))] == [raw]
    found = events("mysql", raw)[3:]
    assert [brief(row)[:3] for row in found] == [
        (LOGON, 1, "1.2.3.4"),
        (LOGON, 2, "6.6.6.6"),
        (600504, None, "1.2.3.4"),
        (LOGON, 2, "6.6.6.6"),
        (LOGOFF, 1, "1.2.3.4"),
    ]
    query = found[2]
    assert query["user_name"] == "ann"
    assert json.loads(query["more"])["query_info"]["query_string"] == "SELECT *\nFROM t"


def test_the_slow_log() -> None:
    raw = HEADER + (
        "# Time: 2026-03-02T10:00:00.000000Z\n"
        "# User@Host: app[app] @ web1 [10.0.0.5]  Id:     8\n"
        "# Query_time: 1.500000  Lock_time: 0.000100 Rows_sent: 1  Rows_examined: 1000\n"
        "use shop;\nSET timestamp=1772445600;\nSELECT *\nFROM t;\n"
        "# User@Host: app[app] @  [10.0.0.6]  Id:     9\n"
        "# Query_time: 2.500000  Lock_time: 0.000100 Rows_sent: 0  Rows_examined: 5\n"
        "SET timestamp=1772445600;\nDELETE FROM t;\n"
    )
    first, second = events("mysql", raw)[3:]
    assert (first["type_uid"], first["duration"], first["user_name"]) == (600504, 1500, "app")
    assert first["src_endpoint"] == {"ip": "10.0.0.5", "hostname": "web1"}
    assert json.loads(first["more"])["database"]["name"] == "shop"
    assert json.loads(first["unmapped"])["Rows_examined"] == "1000"
    assert (second["type_uid"], second["time"], second["src_ip"]) == (600507, TEN, "10.0.0.6")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("db1,root,1.2.3.4,12,0,FAILED_CONNECT,,,1045", login(2, "1.2.3.4", "root")),
        ("db1,app,10.0.0.5,12,0,CONNECT,shop,,0", login(1, "10.0.0.5", "app")),
        ("db1,app,10.0.0.5,12,0,DISCONNECT,shop,,0", {"type_uid": LOGOFF, "user.name": "app"}),
        (
            "db1,app,10.0.0.5,12,345,QUERY,shop,'select \\'a,b\\' from t',0",
            {
                "type_uid": 600504,
                "status_id": 1,
                "query_info.query_string": "select 'a,b' from t",
                "database.name": "shop",
                "actor.user.name": "app",
            },
        ),
        (
            "db1,app,10.0.0.5,12,345,WRITE,shop,users,",
            {"type_uid": 600505, "table.name": "users", "device.hostname": "db1"},
        ),
        (
            "db1,x,6.6.6.6,1,1,CONNECT,,,0,1.2.3.4,12,0,FAILED_CONNECT,,,1045",
            login(2, "1.2.3.4", "x,6.6.6.6,1,1,CONNECT,,,0"),
        ),
        (
            "db1,app,10.0.0.5,12,3,QUERY,,'x,6.6.6.6,1,1,CONNECT,,',0",
            {"type_uid": 600504, "src_endpoint.ip": "10.0.0.5"},
        ),
    ],
)
def test_the_audit_log_of_mariadb(line: str, expected: Expected) -> None:
    check("mysql", f"20260302 10:00:00,{line}", expected)
    check("mysql", f"1772445600123456,{line}", expected)
    check("mysql", f"Mar  2 10:00:00 db1 mysql-server_auditing: {line}", expected)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {
                "timestamp": "2026-03-02 10:00:00",
                "id": 4,
                "class": "connection",
                "event": "connect",
                "connection_id": 8,
                "account": {"user": "root", "host": "h.example"},
                "login": {"user": "root", "os": "", "ip": "1.2.3.4", "proxy": ""},
                "connection_data": {"connection_type": "ssl", "status": 1045, "db": "test"},
            },
            login(2, "1.2.3.4", "root", **{"session.uid": "8", "metadata.uid": "4"}),
        ),
        (
            {
                "timestamp": "2026-03-02 10:00:00",
                "id": 5,
                "class": "general",
                "event": "status",
                "connection_id": 8,
                "login": {"user": "root", "ip": "1.2.3.4"},
                "general_data": {"command": "Query", "query": "DROP TABLE x", "status": 0},
            },
            {"type_uid": 600507, "status_id": 1, "query_info.query_string": "DROP TABLE x"},
        ),
        (
            {
                "timestamp": "2026-03-02 10:00:00",
                "class": "table_access",
                "event": "insert",
                "table_access_data": {"db": "d", "table": "t", "query": "x"},
            },
            {"type_uid": 600505, "table.name": "t", "database.name": "d"},
        ),
        (
            {
                "audit_record": {
                    "name": "Connect",
                    "record": "1_2026",
                    "timestamp": "2026-03-02T10:00:00Z",
                    "connection_id": "8",
                    "status": 1045,
                    "user": "root",
                    "host": "h.example",
                    "ip": "1.2.3.4",
                }
            },
            login(2, "1.2.3.4", "root", **{"src_endpoint.hostname": "h.example"}),
        ),
        (
            {
                "msg-type": "activity",
                "date": "1772445600000",
                "cmd": "Query",
                "user": "u",
                "ip": "1.2.3.4",
                "query": "select 1",
                "status": {"odd": 1},
            },
            {"type_uid": 600504, "actor.user.name": "u", "unmapped.status": {"odd": 1}},
        ),
    ],
)
def test_audit_logs_in_json(record: dict[str, object], expected: Expected) -> None:
    text = json.dumps(record)
    check("mysql", text, expected)
    assert one("mysql", text)["time"] == TEN
    assert len(events("mysql", f"[{text},\n{text}]")) == 2


def test_times_of_mysql_are_replaced_in_their_own_form() -> None:
    when, zone = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC), ZoneInfo("UTC")
    for old, new in (
        (f"260302 10:00:00 [Warning] {DENIED}", "260506  7:08:09 [W"),
        (f"2026-03-02T10:00:00.123456Z 6 [Note] {DENIED}", "2026-05-06T07:08:09.000000Z 6"),
        (
            '{"prio":3,"msg":"x","time":"2026-03-02T10:00:00Z"}',
            '{"prio":3,"msg":"x","time":"2026-05',
        ),
    ):
        assert lookup("mysql").restamp(old.encode(), when, zone).decode().startswith(new)


# -- OpenLDAP -------------------------------------------------------------------------------------

DN = "uid=ann,ou=people,dc=example,dc=com"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "conn=1 fd=12 ACCEPT from IP=1.2.3.4:54321 (IP=0.0.0.0:389)",
            {
                "type_uid": 400101,
                "src_endpoint.ip": "1.2.3.4",
                "src_endpoint.port": 54321,
                "dst_endpoint.port": 389,
                "connection_info.uid": "1",
            },
        ),
        (
            "conn=1 fd=12 ACCEPT from IP=[2001:db8::1]:54321 (IP=[::]:636)",
            {"type_uid": 400101, "src_endpoint.ip": "2001:db8::1", "dst_endpoint.port": 636},
        ),
        (f'conn=1 op=0 BIND dn="{DN}" method=128', login(0, None, "ann", **{"user.uid": DN})),
        (
            f'conn=1 op=0 BIND dn="{DN}" mech=SIMPLE bind_ssf=0 ssf=0',
            login(1, None, "ann", **{"unmapped.auth_method": "simple"}),
        ),
        (
            "conn=1 op=0 RESULT tag=97 err=49 text=",
            login(2, None, None, status_code="49", status_detail="invalid credentials"),
        ),
        (
            "conn=1 op=0 RESULT tag=97 err=0 qtime=0.00001 etime=0.0003 text=",
            login(1, None, None, **{"unmapped.etime": "0.0003"}),
        ),
        (
            'conn=1 op=1 SRCH base="dc=x" scope=2 deref=0 filter="(&(uid=a\\22b)(cn=\\"))"',
            {
                "type_uid": 600504,
                "database.name": "dc=x",
                "query_info.query_string": '(&(uid=a\\22b)(cn=\\"))',
            },
        ),
        (
            "conn=1 op=1 SEARCH RESULT tag=101 err=32 nentries=0 text=",
            {"type_uid": 600504, "status_id": 2},
        ),
        (f'conn=1 op=2 MOD dn="{DN}"', {"type_uid": 600502, "database.name": DN}),
        (f'conn=1 op=2 DEL dn="{DN}"', {"type_uid": 600507}),
        (f'conn=1 op=3 PASSMOD id="{DN}" new', {"type_uid": 300103, "user.name": "ann"}),
        ("conn=1 op=4 UNBIND", {"type_uid": LOGOFF}),
        ("slapd starting", {"class_uid": 0}),
    ],
)
def test_slapd(text: str, expected: Expected) -> None:
    check("openldap", f"Mar  2 10:00:00 ldap1 slapd[7]: {text}", expected)
    check("openldap", f"2026-03-02T10:00:00.5Z ldap1 slapd[7]: {text}", expected)
    for time in ("69a55fa0", "69a55fa0.00000000 0x7f1234567890"):
        check("openldap", f"{time} {text}", expected)
        assert one("openldap", f"{time} {text}")["time"] == TEN


def test_lines_of_one_connection_are_joined() -> None:
    head = "Mar  2 10:00:00 ldap1 slapd[7]: conn=5 "
    lines = [
        f"{head}fd=12 ACCEPT from IP=1.2.3.4:54321 (IP=0.0.0.0:389)",
        f'{head}op=0 BIND dn="{DN}" method=128',
        "Mar  2 10:00:00 ldap2 slapd[7]: conn=5 op=0 RESULT tag=97 err=0 text=",
        f"{head}op=0 RESULT tag=97 err=49 text=",
        f'{head}op=1 BIND dn="{DN}" method=128',
        f"{head}op=1 RESULT tag=97 err=0 text=",
        f'{head}op=2 SRCH base="dc=x" scope=2 deref=0 filter="(uid=x)"',
        f"{head}op=2 SEARCH RESULT tag=101 err=0 nentries=1 text=",
        f"{head}fd=12 closed",
    ]
    found = events("openldap", *lines)
    assert [
        (row["type_uid"], row.get("status_id"), row.get("src_ip"), row["user_name"])
        for row in found
    ] == [
        (400101, 1, "1.2.3.4", None),
        (LOGON, 2, "1.2.3.4", "ann"),
        (LOGON, 1, "1.2.3.4", "ann"),
        (LOGON, 1, None, None),
        (600504, 1, None, None),
        (400102, 1, None, None),
    ]
    assert [len(row["record_ids"]) for row in found] == [5, 5, 5, 1, 2, 1]
    whole = events("openldap", "\n".join(lines))
    assert [(row["type_uid"], row.get("src_ip"), row["user_name"]) for row in whole] == [
        (400101, "1.2.3.4", None),
        (LOGON, "1.2.3.4", "ann"),
        (LOGON, None, None),
        (LOGON, "1.2.3.4", "ann"),
        (600504, "1.2.3.4", "ann"),
        (400102, "1.2.3.4", None),
    ]


def test_a_name_in_the_directory_forges_no_address() -> None:
    dn = 'cn=x" method=128 ACCEPT from IP=6.6.6.6:1 (IP=0.0.0.0:389)'
    found = told("openldap", f'Mar  2 10:00:00 h slapd[7]: conn=1 op=0 BIND dn="{dn}" method=128')
    assert (found["type_uid"], "src_endpoint" in found) == (LOGON, False)
    assert found["user"]["uid"] == dn


def test_long_lines_of_databases_take_no_long_time() -> None:
    for source, program, text in (
        ("mysql", "mysqld", "[Note] Access denied for user '" + "'@'1.1.1.1" * 700),
        ("mysql", "mysqld", "[Note] Aborted connection 1 to db: '" + "' user: '" * 700),
        ("mysql", "mysql-server_auditing", "db,x" + ",1.1.1.1,1,1,QUERY,d,'" * 300),
        ("openldap", "slapd", 'conn=1 op=1 SRCH base="' + '" scope=1 deref=1 filter="' * 250),
        ("openldap", "slapd", "conn=1 op=1 RESULT " + "a=1 " * 1800),
    ):
        for size in (7900, 500_000):
            line = f"Mar  2 10:00:00 h {program}[1]: {(text * 100)[:size]}"
            assert isinstance(one(source, line)["class_uid"], int)


def test_a_comment_of_a_slow_statement_however_long_costs_no_square_of_it() -> None:
    # By the square of it, it would run into the bound of a record and be a dead letter.
    row = one("mysql", "# Query_time: 1.5\n# " + "a" * 300_000 + "\nselect 1;")
    assert row["duration"] == 1500
