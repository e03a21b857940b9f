"""New files of rules: in a folder, never over another's, and gone where they were no good."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.rulebook.new_rule_files import folder_for_rules, new_rule_file
from infra.config.settings import load
from infra.errors import Usage


def test_a_file_among_the_rule_folders_is_no_place_for_another(tmp_path: Path) -> None:
    single = tmp_path / "single.yml"
    settings = load(home=tmp_path, alerts={"rules": [single, tmp_path / "rules"]})
    assert folder_for_rules(settings, "filter") == tmp_path / "rules"
    alone = load(home=tmp_path, alerts={"rules": [single]})
    with pytest.raises(Usage, match="names no folder to keep a filter in"):
        folder_for_rules(alone, "filter")


def test_what_is_no_good_goes_again_and_another_file_stays(tmp_path: Path) -> None:
    texts = []

    def refused() -> None:
        with new_rule_file(tmp_path, "a.yml", "x") as path:
            texts.append(path.read_text("utf-8"))
            raise Usage("refused")

    with pytest.raises(Usage, match="refused"):
        refused()
    assert texts == ["x"]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.yml").write_text("another's", "utf-8")
    with pytest.raises(Usage, match="is there already"), new_rule_file(tmp_path, "a.yml", "x"):
        pass
    assert (tmp_path / "a.yml").read_text("utf-8") == "another's"
