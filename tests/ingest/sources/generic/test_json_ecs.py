"""JSON that states by ECS's category and type what happened to a process, a file or an account."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.conforms import faults, misfits
from tests.ingest.sources.generic.test_json_names import event

BASE: dict[str, Any] = {"host": {"name": "h1"}, "user": {"name": "ann", "id": "1000"}}
STARTED = {
    "process": {
        "pid": 42, "name": "sh", "executable": "/bin/sh", "command_line": "sh -c id",
        "parent": {"pid": 7, "executable": "/usr/sbin/sshd"},
    }
}  # fmt: skip
ANN = {"name": "ann", "uid": "1000"}


def of(category: Any, kind: Any, **fields: Any) -> dict[str, Any]:
    return event(**(BASE | fields | {"event": {"category": category, "type": kind}}))


def bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: bare(part) for name, part in value.items() if part is not None}
    return value


@pytest.mark.parametrize("words", [(["process"], ["start"]), ("process", "start")])
def test_a_process_that_began_names_what_began_it(words: tuple[Any, Any]) -> None:
    row = of(*words, **STARTED)
    assert (row["class_uid"], row["activity_id"]) == (1007, 1)
    assert bare(row["process"]) == {
        "pid": 42, "name": "sh", "path": "/bin/sh", "cmd_line": "sh -c id"
    }  # fmt: skip
    assert bare(row["actor"]) == {
        "user": ANN,
        "process": {"pid": 7, "name": "sshd", "path": "/usr/sbin/sshd"},
    }
    assert of("process", ["process_started", "start"], **STARTED)["activity_id"] == 1
    ended = of(["process"], ["end"], process={"pid": 42})
    assert (ended["class_uid"], ended["activity_id"], ended["process"]["pid"]) == (1007, 2, 42)


def test_an_object_that_names_no_machine_has_its_class_all_the_same() -> None:
    for category, kind, fields in (
        ("process", "end", {"process": {"pid": 42}}),
        ("file", "deletion", {"file": {"path": "/x"}}),
    ):
        row = event(event={"category": category, "type": kind}, **fields)
        assert row["class_uid"] in (1001, 1007)


@pytest.mark.parametrize(
    ("kind", "activity"), [("creation", 1), ("access", 2), ("change", 3), ("deletion", 4)]
)
def test_a_file_has_its_path_and_who_did_it(kind: str, activity: int) -> None:
    file = {"path": "/etc/passwd", "name": "passwd", "hash": {"sha256": "A" * 64}}
    row = of(["file"], [kind], file=file, process={"pid": 9, "name": "vi"})
    assert (row["class_uid"], row["activity_id"]) == (1001, activity)
    assert (row["file"]["path"], row["file"]["hashes"][0]["value"]) == ("/etc/passwd", "a" * 64)
    assert bare(row["actor"]) == {"user": ANN, "process": {"pid": 9, "name": "vi"}}


@pytest.mark.parametrize(
    ("kinds", "fields", "expected", "named"),
    [
        (["user", "creation"], {"user": {"name": "ann", "target": {"name": "bob"}}}, (3001, 1),
         "bob"),
        (["user", "deletion"], {"user": {"name": "ann", "target": {"name": "bob"}}}, (3001, 6),
         "bob"),
        (["user", "change"], {"user": {"name": "ann", "target": {"name": "bob"}}}, (3001, 99),
         "bob"),
        (["group", "creation"], {"group": {"name": "ops", "id": "12"}}, (3006, 6), None),
        (["group", "deletion"], {"group": {"name": "ops"}}, (3006, 5), None),
    ],
)  # fmt: skip
def test_accounts_and_groups_are_told_from_who_changed_them(
    kinds: list[str], fields: dict[str, Any], expected: tuple[int, int], named: str | None
) -> None:
    row = of(["iam"], kinds, **fields)
    assert (row["class_uid"], row["activity_id"]) == expected
    assert row["actor"]["user"]["name"] == "ann"
    assert (row["user"] or {}).get("name") == named
    if expected[0] == 3006:
        assert row["group"]["name"] == "ops"


@pytest.mark.parametrize(
    ("category", "kinds", "fields"),
    [
        (["process", "file"], ["start"], STARTED),  # two classes
        (["process"], ["start", "end"], STARTED),  # two activities
        (["process"], ["info"], STARTED),
        (["process"], ["start"], {"process": {"name": "sh"}}),  # no process but a name
        (["process"], {"start": True}, STARTED),
        ({"process": 1}, ["start"], STARTED),
        (["file"], ["change"], {"file": {"name": "passwd"}}),
        (["file"], ["change"], {"file": "/etc/passwd"}),
        (["file"], ["creation", "deletion"], {"file": {"path": "/x"}}),
        (["iam"], ["user", "creation"], {}),  # whose account: who did it, or the new one?
        (["iam"], ["user", "group", "change"], {"group": {"name": "ops"}}),
        (["iam"], ["group", "change"], {"group": {"name": "ops"}}),
        (["iam"], ["creation"], {"group": {"name": "ops"}}),
        ("process start", "start", STARTED),
        ([], [], STARTED),
    ],
)
def test_what_is_not_stated_beyond_doubt_has_no_class(
    category: Any, kinds: Any, fields: dict[str, Any]
) -> None:
    row = of(category, kinds, **fields)
    assert row["class_uid"] == 0
    rest = json.loads(row["unmapped"])
    for name in set(fields) & {"file", "group"}:
        assert rest[name] == fields[name], "what decides nothing stays as it was"


@pytest.mark.parametrize(
    "path", ['/tmp/x\n"event":{"category":"iam"}', "/a" * 5_000, "\u202egpj.exe", "C:\\a;b"]
)
def test_a_hostile_name_of_a_file_is_that_file(path: str) -> None:
    row = of(["file"], ["creation"], file={"path": path})
    assert (row["class_uid"], row["file"]["path"]) == (1001, path)
    assert (faults(row), misfits(row)) == ([], [])


def test_a_command_line_that_imitates_fields_adds_none() -> None:
    typed = 'sh -c \'{"user":{"name":"root"},"source":{"ip":"6.6.6.6"}}\''
    row = of(["process"], ["start"], process={"pid": 42, "command_line": typed})
    assert (row["process"]["cmd_line"], row["actor"]["user"]["name"]) == (typed, "ann")
    assert row.get("src_endpoint") is None


def test_hashes_of_a_process_and_a_file_are_read_by_their_length() -> None:
    started = {"process": STARTED["process"] | {"hash": {"sha256": "A" * 64, "md5": "no hash"}}}
    row = of("process", "start", **started)
    assert row["process"]["hashes"] == [{"algorithm": "SHA-256", "value": "a" * 64}]
    assert json.loads(row["unmapped"])["process"]["hash"] == {"md5": "no hash"}
    file = {"path": "/etc/passwd", "hash": {"sha1": "b" * 40, "md5": "c" * 32}}
    row = of("file", "change", file=file)
    assert [each["algorithm"] for each in row["file"]["hashes"]] == ["SHA-1", "MD5"]
    assert faults(row) == [] == misfits(row)


def test_a_flow_has_its_protocol_and_what_each_end_sent() -> None:
    row = of(
        "network",
        ["connection", "end"],
        source={"ip": "10.0.0.5", "port": 51234, "bytes": 10},
        destination={"ip": "203.0.113.9", "port": 443, "bytes": 20},
        network={"transport": "tcp", "bytes": 30},
    )
    assert (row["class_uid"], row["connection_info"]["protocol_num"]) == (4001, 6)
    assert bare(row["traffic"]) == {"bytes": 30, "bytes_out": 10, "bytes_in": 20}
    assert faults(row) == [] == misfits(row)


@pytest.mark.parametrize(
    ("dns", "expected"),
    [
        ({}, (1, None, None, None)),
        ({"response_code": "NXDOMAIN"}, (2, 2, "NXDOMAIN", None)),
        (
            {"response_code": "NOERROR", "resolved_ip": ["203.0.113.9"]},
            (2, 1, "NOERROR", ["203.0.113.9"]),
        ),
        ({"response_code": "6.6.6.6", "resolved_ip": ["nobody"]}, (1, None, None, None)),
    ],
)
def test_a_question_with_its_answer_is_a_response(
    dns: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    row = of(
        "network",
        "protocol",
        source={"ip": "10.0.0.5", "port": 51234},
        destination={"ip": "10.0.0.1", "port": 53},
        network={"transport": "udp"},
        dns=dns | {"question": {"name": "a.example", "type": "A"}},
    )
    answers = [each["rdata"] for each in row.get("answers") or ()] or None
    got = (row["activity_id"], row.get("status_id") or None, row.get("rcode"), answers)
    assert (row["class_uid"], got) == (4003, expected)
    assert row["connection_info"]["protocol_name"] == "udp"
    assert faults(row) == [] == misfits(row)
