"""`headgate rules new`: a rule made from chosen events passes its own tests at once."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from alerts.cli import new_rule
from alerts.compiler.compiler import compile_rules
from alerts.rulebook.rule_draft import DraftOptions, RawTest, drafted
from alerts.rulebook.rule_tests import check_rules
from infra.config.settings import load
from infra.errors import Fatal, Usage
from tests.alerts import raw_records as raw

SSHD = "Mar  5 12:00:00 h sshd[1]: Failed password for root from 10.0.0.5 port 22 ssh2"
OTHER = "Mar  5 12:00:09 h sshd[2]: Failed password for ann from 10.0.0.6 port 23 ssh2"
ZEEK = (
    b'{"ts":1741176000.1,"uid":"C1","id.orig_h":"10.0.0.5","id.orig_p":50000,"proto":"udp",'
    b'"id.resp_h":"192.0.2.8","id.resp_p":53,"query":"x.example","qtype_name":"TXT"}'
)
RECORDS = [
    ("sshd", SSHD.encode(), {"product": "linux", "service": "sshd"}, "Method"),
    (
        "windows_xml",
        raw.ran(raw.SYS + "cmd.exe", 'cmd.exe /c "who*?" \\\\srv\\x\\'),
        {"product": "windows", "category": "process_creation"},
        "Image|endswith",
    ),
    (
        "windows_xml",
        raw.value_set("HKLM\\x\\y", "1"),
        {"product": "windows", "category": "registry_set"},
        "TargetObject",
    ),
    ("windows_xml", raw.block("iex\nx" * 300), {"category": "ps_script"}, "ScriptBlockText"),
    ("windows_xml", raw.member(4728, "S-1-5-21-1-2-3-512"), {"service": "security"}, "EventID"),
    (
        "auditd",
        raw.execve("/usr/bin/curl", "curl", "-s"),
        {"product": "linux", "category": "process_creation"},
        "Image|endswith",
    ),
    ("okta", raw.okta("user.mfa.factor.reset_all"), {"product": "okta"}, "eventtype"),
    ("zeek:dns", ZEEK, {"product": "zeek", "service": "dns"}, "query"),
    ("cisco_asa", raw.asa_denied("10.0.0.5").encode(), {"category": "firewall"}, "dst_port"),
    ("github_audit", raw.github("repo.access"), {"product": "github"}, "action"),
    (
        "syslog",
        b"<13>Mar  5 12:00:00 h prog[1]: a 'quote\" # \xc3\xa4",
        {"product": "linux", "service": "syslog"},
        "Message",
    ),
]


@pytest.mark.parametrize(("source", "line", "logsource", "field"), RECORDS)
def test_a_draft_loads_and_passes_its_tests(
    tmp_path: Path, source: str, line: bytes, logsource: dict[str, str], field: str
) -> None:
    text = drafted([RawTest(source, line.decode())], DraftOptions("draft"))
    rule = yaml.safe_load(text)
    assert rule["logsource"].items() >= logsource.items()
    assert any(key.startswith(field) for key in rule["detection"]["selection"])
    path = tmp_path / "draft.yml"
    path.write_text(text, "utf-8")
    compiled = compile_rules([path])
    assert not compiled.refused
    assert [outcome.passed for outcome in check_rules(compiled)] == [True]


def test_of_several_events_only_what_all_have_is_asked() -> None:
    rule = yaml.safe_load(
        drafted([RawTest("sshd", SSHD), RawTest("sshd", OTHER)], DraftOptions("draft"))
    )
    assert rule["detection"]["selection"] == {
        "Method": "password",
        "activity_id": 1,
        "status_id": 2,
    }
    assert len(rule["headgate"]["tests"]["match"]) == 2


def test_a_record_that_cannot_be_read_is_told_with_the_reason() -> None:
    with pytest.raises(Fatal, match="sshd cannot read the line: no syslog header"):
        drafted([RawTest("sshd", "x")], DraftOptions("draft"))


def run(tmp_path: Path, *words: str) -> int:
    parser = argparse.ArgumentParser()
    new_rule.build(parser.add_subparsers())
    args = parser.parse_args(["new", *words])
    code: int = args.run(args, load(home=tmp_path / "home"))
    return code


def typed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_lines_from_stdin_make_a_file_which_is_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wrong password.yml"
    typed(monkeypatch, f"{SSHD}\r\n\n{OTHER}\n".encode())
    assert run(tmp_path, str(path), "--source", "sshd", "--level", "high", "--title", "A: b") == 0
    text = path.read_text("utf-8")
    rule = yaml.safe_load(text)
    assert (rule["title"], rule["name"], rule["level"]) == ("A: b", "wrong_password", "high")
    with pytest.raises(Usage, match="there already"):
        run(tmp_path, str(path), "--source", "sshd")
    assert path.read_text("utf-8") == text
    assert not (tmp_path / "home").exists()


def test_lines_of_one_event_and_one_record_over_several_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, raw.execve("/usr/bin/curl", "curl"))
    assert run(tmp_path, "-", "--source", "auditd") == 0
    (test,) = yaml.safe_load(capsys.readouterr().out)["headgate"]["tests"]["match"]
    assert len(test["line"].split("\n")) == 2
    typed(monkeypatch, raw.ran(raw.SYS + "cmd.exe", "cmd").replace(b"><", b">\n<"))
    assert run(tmp_path, "-", "--source", "windows_xml") == 0
    assert "process_creation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "data", "reason"),
    [
        (["--source", "sshd"], b"x\n", "line 1: sshd cannot read it"),
        (["--source", "sshd"], b"\n", "no line is in it"),
        (["--source", "sshd"], b"\xff\n", "no text in UTF-8"),
        (["--source", "sshd"], f"{SSHD}\n".encode() * 21, "21 events; a rule is made from at most"),
        ([], b"", "name events of the lake with --event, or a source"),
        (["--source", "sshd", "--event", "x"], b"", "name events of the lake with --event, or"),
    ],
)
def test_what_makes_no_rule_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], data: bytes, reason: str
) -> None:
    typed(monkeypatch, data)
    path = tmp_path / "a.yml"
    with pytest.raises(Usage, match=reason):
        run(tmp_path, str(path), *words)
    assert not path.exists()


def test_events_of_the_lake_give_their_raw_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA silver; CREATE SCHEMA bronze")
    connection.execute(
        "CREATE TABLE silver.event (event_uid TEXT, source TEXT, time TIMESTAMPTZ, "
        "record_ids TEXT[]); CREATE TABLE bronze.record (record_id TEXT, raw BLOB)"
    )
    now = datetime(2026, 3, 1, tzinfo=UTC)
    for name, line in (("t:0:1", SSHD), ("t:0:2", OTHER)):
        connection.execute(
            "INSERT INTO silver.event VALUES (?, 'sshd', ?, [?])", [f"{name}#0", now, name]
        )
        connection.execute("INSERT INTO bronze.record VALUES (?, ?)", [name, line.encode()])
    connection.execute("INSERT INTO silver.event VALUES ('t:0:3#0', 'sshd', ?, ['t:0:3'])", [now])

    @contextmanager
    def asking(_settings: object) -> Iterator[Any]:
        def ask(
            sql: str, params: Mapping[str, Any], *, needs: Sequence[str] = ()
        ) -> list[dict[str, Any]]:
            answer = connection.execute(sql, dict(params))
            names = [column[0] for column in answer.description]
            return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

        yield ask

    monkeypatch.setattr(new_rule, "asking", asking)
    assert run(tmp_path, "-", "--event", "t:0:2#0", "t:0:1#0") == 0
    tests = yaml.safe_load(capsys.readouterr().out)["headgate"]["tests"]["match"]
    assert [test["line"] for test in tests] == [OTHER, SSHD]
    with pytest.raises(Usage, match="no event t:9:9#0 in"):
        run(tmp_path, "-", "--event", "t:0:1#0", "t:9:9#0")
    with pytest.raises(Usage, match="not kept any more"):
        run(tmp_path, "-", "--event", "t:0:3#0")
