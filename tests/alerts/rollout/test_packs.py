"""Packs of public rules: versions, what an update changes, first in shadow, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alerts.rollout.pack_versions import VERSIONS_KEPT, PackVersions
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from infra.config.settings import AlertSettings, Settings, load
from infra.errors import Fatal, Usage
from tests.alerts.cli.test_rules import run

RULE = """\
title: {name} logs in
name: {name}
id: 66666666-0000-4000-8000-00000000000{number}
level: {level}
logsource: {{product: ocsf, category: authentication}}
detection:
  who: {{user.name: {user}}}
  condition: who
"""
NUMBERS = {"root": 1, "admin": 2, "guest": 3, "backup": 4, "oracle": 5}


def rule(name: str, user: str = "", level: str = "high") -> str:
    return RULE.format(name=name, number=NUMBERS[name], user=user or name, level=level)


class Pack:
    """A lake, a clone of public rules, and the pack that is made of it."""

    def __init__(self, path: Path) -> None:
        self.clone, self.into = path / "clone", path / "public"
        self.clone.mkdir()
        self.into.mkdir()
        alerts = AlertSettings(bundled=False, rules=(self.into,))
        self.settings: Settings = load(home=path, alerts=alerts)

    def offers(self, **texts: str) -> None:
        """What the clone holds from now on."""
        for old in self.clone.glob("*.yml"):
            old.unlink()
        for name, text in texts.items():
            (self.clone / f"{name}.yml").write_text(text, "utf-8")

    def take(self, *words: str) -> int:
        return run(self.settings, "import", str(self.clone), "--into", str(self.into), *words)

    def holds(self) -> dict[str, str]:
        return {path.stem: path.read_text("utf-8") for path in self.into.glob("*.yml")}

    def in_force(self) -> RulePack:
        store = PackStore(store_folder(self.settings))
        return store.get(store.current())


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    made = Pack(tmp_path)
    made.offers(root=rule("root"), admin=rule("admin"), guest=rule("guest"))
    assert made.take("--version", "r1") == 0
    return made


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_an_update_is_told_before_it_is_done_and_keeps_what_was_edited(
    pack: Pack, capsys: pytest.CaptureFixture[str]
) -> None:
    (pack.into / "guest.yml").write_text(rule("guest", "visitor"), "utf-8")
    (pack.into / "own.yml").write_text(rule("oracle"), "utf-8")
    before = pack.holds()
    pack.offers(
        root=rule("root", "[root, toor]"), backup=rule("backup"), guest=rule("guest", level="low")
    )
    with pytest.raises(Usage, match="then add --yes"):
        pack.take("--version", "r2")
    capsys.readouterr()
    assert pack.take("--version", "r2", "--dry-run", "--output", "json") == 0
    told = document(capsys)["update"]
    assert {(r["path"], r["act"]) for r in told["rules"]} == {
        *(("root.yml", "changed"), ("backup.yml", "added"), ("admin.yml", "removed")),
        ("guest.yml", "kept"),
    }
    assert [r["note"] for r in told["rules"] if r["act"] == "kept"] == [
        "edited here; this version changes it too"
    ]
    assert pack.holds() == before, "so far it was only told"

    assert pack.take("--version", "r2", "--yes") == 0
    err = capsys.readouterr().err
    assert "version r1 -> r2: 1 rules added, 1 changed, 1 removed, 1 kept as they are here" in err
    assert pack.holds() == {
        "root": rule("root", "[root, toor]"), "backup": rule("backup"),
        "guest": rule("guest", "visitor"), "own": rule("oracle"),
    }  # fmt: skip
    assert run(pack.settings, "packs", "--output", "json") == 0
    (row,) = document(capsys)
    assert (row["pack"], row["version"], row["rules"], row["edited"]) == ("public", "r2", 4, 1)
    assert row["source"] == str(pack.clone)


def test_one_goes_back_to_the_former_version_and_to_one_by_name(
    pack: Pack, capsys: pytest.CaptureFixture[str]
) -> None:
    first, hash_before = pack.holds(), pack.in_force().hash
    pack.offers(root=rule("root", "toor"))
    assert pack.take("--yes") == 0
    assert pack.holds() == {"root": rule("root", "toor")}
    with pytest.raises(Usage, match="add --yes to go back"):
        run(pack.settings, "rollback", "public")
    assert "added: admin logs in" in capsys.readouterr().out
    assert pack.holds() == {"root": rule("root", "toor")}
    assert run(pack.settings, "rollback", "public", "--yes", "--reason", "too loud") == 0
    assert (pack.holds(), pack.in_force().hash) == (first, hash_before)
    with pytest.raises(Usage, match="no version 'r9' is kept; there are r1, "):
        run(pack.settings, "rollback", "public", "--to", "r9")
    capsys.readouterr()
    assert run(pack.settings, "packs", "public", "--output", "json") == 0
    rows = document(capsys)
    assert [(row["act"], row["version"] == "r1") for row in rows] == [
        ("rollback", True), ("imported", False), ("imported", True)
    ]  # fmt: skip
    assert rows[0]["reason"] == "too loud"
    (packed,) = (store_folder(pack.settings) / "packs").glob(
        f"{PackVersions(pack.settings).of(pack.into)[0].content}.json.gz"
    )
    packed.write_bytes(b"torn")
    with pytest.raises(Fatal, match="damaged"):
        run(pack.settings, "rollback", "public", "--to", "r1")


def test_what_is_new_or_changed_is_tried_first_and_promoted_by_a_word(
    pack: Pack, capsys: pytest.CaptureFixture[str]
) -> None:
    several = rule("guest", "visitor") + "---\n" + rule("oracle")
    pack.offers(root=rule("root", "toor"), admin=rule("admin"), backup=rule("backup"),
                guest=several)  # fmt: skip
    assert pack.take("--version", "r2", "--shadow", "3", "--yes") == 0
    err = capsys.readouterr().err
    assert "3 rules are in shadow for 3 days" in err
    assert "1 changed rules alert at once: their files hold several rules" in err
    live = {each.title: each.alerting for each in pack.in_force().rules if not each.in_shadow}
    assert live == {"root logs in": True, "admin logs in": True, "guest logs in": True}
    assert pack.holds()["root"] == rule("root"), "its new text is tried beside it"
    tried = sorted(each.title for each in pack.in_force().rules if each.in_shadow)
    assert tried == ["backup logs in", "oracle logs in", "root logs in"]
    assert run(pack.settings, "packs", "--output", "json") == 0
    (row,) = document(capsys)
    assert (row["rules"], row["on"], row["shadow"], row["edited"]) == (5, 3, 3, 0)

    assert pack.take("--version", "r2", "--shadow", "9", "--dry-run", "--output", "json") == 0
    (again,) = document(capsys)["update"]["rules"]
    assert (again["path"], again["note"]) == ("root.yml", "in shadow already")
    assert run(pack.settings, "promote", "--pack", "public", "--yes") == 0
    assert all(each.alerting and not each.in_shadow for each in pack.in_force().rules)
    assert pack.holds()["root"] == rule("root", "toor")
    assert run(pack.settings, "packs", "--output", "json") == 0
    (row,) = document(capsys)
    assert (row["on"], row["shadow"], row["edited"]) == (5, 0, 0)


def test_going_back_also_gives_up_what_is_tried(pack: Pack) -> None:
    before = pack.in_force().hash
    pack.offers(root=rule("root", "toor"), admin=rule("admin"), guest=rule("guest"),
                backup=rule("backup"))  # fmt: skip
    assert pack.take("--shadow", "3", "--yes") == 0
    assert len(pack.in_force().rules) == 5
    assert run(pack.settings, "rollback", "public", "--yes") == 0
    assert pack.in_force().hash == before == recompile(pack.settings).pack.hash


def test_a_text_that_no_longer_loads_does_not_take_its_rule_away(
    pack: Pack, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = rule("root").replace("user.name", "no.such.field")
    pack.offers(root=broken, admin=rule("admin"), guest=rule("guest"))
    assert pack.take("--version", "r2", "--yes", "--output", "json") == 0
    (kept,) = document(capsys)["update"]["rules"]
    assert kept["act"] == "kept"
    assert kept["note"].startswith("its new text is refused: ")
    assert pack.holds()["root"] == rule("root")


def test_a_name_is_of_one_content_and_old_versions_go(pack: Pack) -> None:
    pack.offers(root=rule("root", "toor"))
    with pytest.raises(Usage, match="with other files; give this one another name"):
        pack.take("--version", "r1", "--yes")
    assert "admin" in pack.holds()
    for number in range(VERSIONS_KEPT + 2):
        pack.offers(root=rule("root", f"user{number}"))
        assert pack.take("--yes") == 0
    known = PackVersions(pack.settings).of(pack.into)
    assert len(known) == VERSIONS_KEPT
    kept = {path.name for path in (store_folder(pack.settings) / "packs").glob("*.gz")}
    assert kept == {f"{each.content}.json.gz" for each in known}


def test_a_folder_without_a_record_becomes_a_version_to_go_back_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Pack(tmp_path)
    (made.into / "root.yml").write_text(rule("root", "toor"), "utf-8")
    made.offers(root=rule("root"), admin=rule("admin"))
    assert made.take("--version", "r1", "--yes") == 0
    assert "becomes version 'before'" in capsys.readouterr().err
    assert set(made.holds()) == {"root", "admin"}
    assert run(made.settings, "rollback", "public", "--yes") == 0
    assert made.holds() == {"root": rule("root", "toor")}


def test_looking_at_packs_creates_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Pack(tmp_path)
    made.offers(root=rule("root"))
    assert run(made.settings, "packs", "--output", "json") == 0
    (row,) = document(capsys)
    assert (row["version"], row["imported"], row["rules"]) == ("", "", 0)
    assert made.take("--dry-run") == 0
    assert not (store_folder(made.settings) / "packs").exists()
    assert made.holds() == {}
    with pytest.raises(Usage, match="no pack 'private' was imported; there are public"):
        run(made.settings, "packs", "private")
    with pytest.raises(Usage, match="pack 'bundled' comes with Headgate"):
        run(made.settings, "rollback", "bundled")
    with pytest.raises(Usage, match="no version before this one is kept"):
        run(made.settings, "rollback", "public")


def test_a_pack_below_a_folder_of_the_settings_is_one_of_its_own(
    pack: Pack, capsys: pytest.CaptureFixture[str]
) -> None:
    below = pack.into / "more"
    pack.offers(oracle=rule("oracle"))
    words = ("import", str(pack.clone), "--into", str(below))
    assert run(pack.settings, *words, "--version", "m1", "--shadow", "7") == 0
    assert "rules promote --pack more --yes" in capsys.readouterr().err
    pack.offers(oracle=rule("oracle", "system"))
    assert run(pack.settings, *words, "--version", "m2", "--yes") == 0
    capsys.readouterr()
    assert run(pack.settings, "packs", "--output", "json") == 0
    rows = {row["pack"]: (row["version"], row["rules"], row["edited"]) for row in document(capsys)}
    assert rows == {"public": ("r1", 3, 0), "more": ("m2", 1, 0)}
    assert run(pack.settings, "rollback", "more", "--yes") == 0
    assert (below / "oracle.yml").read_text("utf-8") == rule("oracle")
    with pytest.raises(Usage, match="there are public, more"):
        run(pack.settings, "rollback", "nothing")
