"""Looking makes nothing: what only reads leaves no file where there was none."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from headgate.cli import main
from infra.config.settings import load

TOKEN = "t" * 32
READING = (
    "status", "jobs", "tables", "settings", "gaps", "ledger", "quality", "sql SELECT(1)",
    "alerts list", "alerts show abcd1234", "alerts published", "explain abcd1234", "suppress list",
    "triage list", "webhooks list", "webhooks retry", "rules scorecard",
    "models list", "indicators list", "report list", "audit head",
    "audit verify", "keys list", "accounts list", "lease 10.0.0.1 --at 2026-11-20T00:00:00Z",
    "who 10.0.0.1 --at 2026-11-20T00:00:00Z", "repair --dry-run",
    "erase --user anna --dry-run", "reparse --source sshd --from 2026-11-20T00:00:00Z --dry-run",
    "rollup recount --since 2026-11-20T00:00:00Z --until 2026-11-21T00:00:00Z", "verify --from 24h",
    "rules backtest dns_tunnel --from 24h", "console-link",
    "keys remove nobody", "keys rotate nobody", "import no-such-file.log --source sshd",
)  # fmt: skip


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_makes_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--home", "home", *command.split()]) in (0, 1, 2)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("keys list", "no key was made; 'headgate keys add NAME --role ROLE' makes one"),
        ("accounts list", "no account; 'headgate accounts put NAME --role ROLE' makes one"),
        ("gaps list", "job ingest has read nothing yet with the home home: start it (headgate up)"),
        ("indicators list", "'headgate indicators load NAME FILE' makes one"),
        ("indicators feeds", "no feed in the settings"),
        ("webhooks list", "the settings have no webhook"),
        ("rules backtests", "'headgate rules backtest RULE' makes one"),
        ("rules coverage", "the jobs put one in force when they start (headgate up)"),
        ("jobs list", "start the jobs with 'headgate up'"),
        ("alerts published", "job alert makes it (headgate up)"),
        ("import no-such.log --source sshd", "no-such.log: there is no such file"),
        ("console-link", "home: there is no such home; start the API with 'headgate api'"),
        ("rules backtest dns_tunnel --from 24h", "there is no lake here"),
        ("repair", "there is no lake here; start the jobs or set 'lake'"),
    ],
)
def test_where_nothing_ran_a_command_says_so_and_what_to_do(
    command: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--home", "home", *command.split()]) in (0, 1, 2)
    out, err = capsys.readouterr()
    assert (out, words in err) == ("", True), err


@pytest.mark.full
def test_an_address_that_reads_makes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    app = create_app(load(home=home, api={"token": TOKEN}))
    client = TestClient(app, raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    before = sorted(home.rglob("*"))
    read = [path for path, done in app.openapi()["paths"].items() if "get" in done]
    for path in read:
        if not path.endswith("stream"):
            client.get(path.replace("{", "x").replace("}", ""))
        assert sorted(home.rglob("*")) == before, path
    assert len(read) > 40


@pytest.mark.parametrize("command", ["lease 10.0.0.1 --at now", "alerts list", "sql SELECT(1)"])
def test_where_there_is_no_lake_the_one_that_lies_near_is_named(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home" / "demo" / "lake").mkdir(parents=True)
    assert main(["--home", "home", *command.split()]) == 1
    said = capsys.readouterr().err
    assert f"headgate --home home/demo {command.split()[0]}" in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["demo", "home", "lake"]
