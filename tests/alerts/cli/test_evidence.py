"""`headgate evidence export --format stix`: one file to share, and what it leaves in the audit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import stix2

from headgate.cli import main
from tests.alerts.lifecycle.test_alert_fold import action
from tests.api.plain_desk import PlainDesk


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> PlainDesk:
    return PlainDesk(tmp_path_factory.mktemp("lake"))


def export(desk: PlainDesk, file: Path, *ids: str) -> int:
    home = str(desk.settings.home)
    command = ["--home", home, "evidence", "export", *ids, "--format", "stix", "--file", str(file)]
    return main(command)


def noted(desk: PlainDesk) -> dict[str, Any]:
    files = sorted((desk.settings.home / "spool" / "audit").glob("*.json"))
    acts = [json.loads(file.read_text()) for file in files]
    return [act for act in acts if act["act"] == "evidence.stix"][-1]


def test_an_alert_becomes_a_bundle_that_the_standard_s_library_reads(
    desk: PlainDesk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (alert_id,) = desk.batch(desk.seen(7, 7))
    file = tmp_path / "shared.json"
    assert export(desk, file, alert_id) == 0
    content = file.read_bytes()
    bundle = stix2.parse(content.decode(), allow_custom=False)
    kinds = {each.type for each in bundle.objects}
    assert {"sighting", "observed-data", "grouping", "identity"} <= kinds
    digest = hashlib.sha256(content).hexdigest()
    assert capsys.readouterr().out.split() == [digest, str(file)]
    act = noted(desk)
    assert (act["outcome"], act["target"]) == ("ok", alert_id)
    detail = json.loads(act["detail"])
    assert (detail["digest"], detail["alerts"], detail["bundle"]) == (digest, 1, bundle.id)


@pytest.mark.full
def test_what_was_judged_no_attack_is_left_out_and_said(
    desk: PlainDesk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, judged = desk.batch(desk.seen(8, 8), desk.seen(9, 9))
    desk.batch(action(judged, "close", value="false_positive"))
    assert export(desk, tmp_path / "shared.json", good, judged) == 0
    assert "1 alerts are not in it: they were judged no attack" in capsys.readouterr().err
    assert json.loads(noted(desk)["detail"])["alerts"] == 1
    bundle = stix2.parse((tmp_path / "shared.json").read_text(), allow_custom=False)
    assert len([each for each in bundle.objects if each.type == "grouping"]) == 1


def test_a_file_that_is_there_and_an_alert_that_is_not_are_refused(
    desk: PlainDesk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (alert_id,) = desk.batch(desk.seen(10, 10))
    there = tmp_path / "there.json"
    there.write_text("mine")
    assert export(desk, there, alert_id) == 2
    assert "is there already" in capsys.readouterr().err
    assert there.read_text() == "mine"
    assert export(desk, tmp_path / "new.json", "f" * 32) != 0
    assert "f" * 32 in capsys.readouterr().err
    assert not (tmp_path / "new.json").exists()
