"""`headgate evidence export --tenant`: a file for a tenant's people has what they get over REST."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.cases.evidence_check import check_bundle
from headgate.cli import main
from tests.api.tenant_desk import OTHERS_CASES, TenantDesk, assert_own
from tests.api.test_tenants import NOBODY, OTHER, OWN

pytestmark = pytest.mark.full

OWN_CASE = "case-aa00000001"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("tenant-evidence"))
    config = running.settings.home / "headgate.toml"
    config.write_text('tenants = ["acme", "globex"]')
    yield running
    running.close()


def export(desk: TenantDesk, file: Path, *words: str) -> int:
    home = desk.settings.home
    before = ["--config", str(home / "headgate.toml"), "--home", str(home)]
    return main([*before, "evidence", "export", *words, "--file", str(file)])


def rows_in(file: Path) -> dict[str, list[dict[str, Any]]]:
    with zipfile.ZipFile(file) as bundle:
        return {
            name: [json.loads(line) for line in bundle.read(name).decode().splitlines()]
            for name in bundle.namelist()
            if name.endswith(".ndjson")
        }


def noted_acts(desk: TenantDesk, name: str) -> list[dict[str, Any]]:
    """What the audit has of exports for some tenants alone."""
    acts = [
        json.loads(act.read_text())
        for act in (desk.settings.home / "spool" / "audit").glob("*.json")
    ]
    return [act for act in acts if act["act"] == name and "tenants" in json.loads(act["detail"])]


def test_a_tenants_file_is_the_one_that_rest_gives_them(desk: TenantDesk, tmp_path: Path) -> None:
    file = tmp_path / "case.zip"
    assert export(desk, file, OWN_CASE, "--tenant", "acme") == 0
    checked = check_bundle(file)
    assert checked.problems == []
    assert "batches and versions of tables" in checked.manifest["left_out"]
    assert checked.manifest["tables"] == {}
    with zipfile.ZipFile(file) as bundle:
        for name in bundle.namelist():
            assert_own(desk, bundle.read(name).decode())
    sent = tmp_path / "sent.zip"
    sent.write_bytes(desk.limited("ann").get(f"/api/v1/cases/{OWN_CASE}/evidence").content)
    assert rows_in(file) == rows_in(sent)
    assert OWN in str(rows_in(file)["events.ndjson"])
    (noted,) = noted_acts(desk, "evidence.export")
    assert json.loads(noted["detail"])["tenants"] == ["acme"]


@pytest.mark.parametrize("form", ["zip", "stix"])
def test_what_is_of_others_is_as_if_it_were_not_there(
    desk: TenantDesk, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    file = tmp_path / "theirs"
    refused = [[name] for name in (*OTHERS_CASES, *desk.others)]
    for words in [*refused, [desk.ids["acme"], desk.ids["globex"]]]:
        assert export(desk, file, *words, "--tenant", "acme", "--format", form) == 2, words
        said = capsys.readouterr().err
        assert f"no case '{words[-1]}'" in said or f"no alert '{words[-1]}'" in said
        assert not file.exists()
    assert export(desk, file, OWN_CASE, "--tenant", "acmee") == 2
    assert "--tenant: no tenant 'acmee'; there are acme, globex" in capsys.readouterr().err
    mine = desk.ids["acme"]
    assert export(desk, file, mine, "--tenant", "acme", "--format", form) == 0
    if form == "stix":
        assert_own(desk, file.read_text())
        (noted,) = noted_acts(desk, "evidence.stix")
        assert json.loads(noted["detail"])["tenants"] == ["acme"]


def test_a_file_that_nobody_limited_says_whose_rows_it_holds(
    desk: TenantDesk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "whole.zip"
    assert export(desk, file, OTHERS_CASES[0]) == 0
    said = capsys.readouterr().err
    assert "it holds what is of tenant acme, globex, and what is everybody's" in said
    assert OTHER in str(rows_in(file)["events.ndjson"])
    assert export(desk, tmp_path / "nobodys.zip", desk.ids[None]) == 0
    assert "it holds" not in capsys.readouterr().err
    assert NOBODY in str(rows_in(tmp_path / "nobodys.zip")["events.ndjson"])
