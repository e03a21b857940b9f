"""Files of tables that were damaged come back from a backup, and nothing else is touched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate.packages  # noqa: F401  # the tables are known by their packages
from headgate.cli import main
from infra.config.settings import Settings, load
from infra.delta.catalog import catalog
from infra.errors import Fatal, Usage
from infra.maintenance import damaged_files
from infra.maintenance.backup import backup, copy_file
from infra.maintenance.damaged_files import put_back_damaged
from infra.storage.put_back_mark import PUT_BACK, put_back_at
from tests.examples import examples
from tests.headgate.as_code.delta_by_hand import append_rows

TABLES = ("ops.audit", "gold.alert_action")


def lake(home: Path, commits: int = 2) -> Settings:
    """A home with two tables, each with a file a commit."""
    settings = load(home=home)
    settings.checkpoint_root.mkdir(parents=True)
    for name in TABLES:
        for _ in range(commits):
            grow(settings, name)
    return settings


def grow(settings: Settings, name: str) -> None:
    root = settings.lake_root
    assert isinstance(root, Path)
    append_rows(root, catalog()[name], [{}])


def files(settings: Settings) -> dict[str, bytes]:
    """What lies below the lake, but for the mark that files were put back."""
    root = Path(str(settings.lake_root))
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*"))
            if file.is_file() and file.name != PUT_BACK}  # fmt: skip


def data(settings: Settings) -> list[Path]:
    return sorted(Path(str(settings.lake_root)).rglob("part-*.parquet"))


DAMAGES = st.lists(st.sampled_from(["whole", "torn", "flipped", "gone", "empty"]), min_size=4,
                   max_size=4)  # fmt: skip


@given(DAMAGES)
@examples(25)
def test_what_differs_comes_back_and_the_rest_stays(
    tmp_path_factory: pytest.TempPathFactory, damages: list[str]
) -> None:
    settings = lake(tmp_path_factory.mktemp("damaged") / "home")
    made = backup(settings, settings.home.parent / "backups")
    before = files(settings)
    for file, damage in zip(data(settings), damages, strict=True):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x10
        kept = {"torn": content[:40], "flipped": content, "empty": b""}.get(damage)
        if damage == "gone":
            file.unlink()
        elif kept is not None:
            file.write_bytes(kept)
    result = put_back_damaged(settings, made)
    assert (put_back_at(settings.lake_root) > 0) == bool(result.files)
    assert files(settings) == before
    assert len(result.files) == sum(damage != "whole" for damage in damages)
    assert (result.compared, result.not_in_backup) == (4, 0)
    assert put_back_damaged(settings, made).files == []


def test_a_table_alone_and_what_came_later_stay_as_they_are(tmp_path: Path) -> None:
    settings = lake(tmp_path / "home")
    made = backup(settings, tmp_path / "backups")
    grow(settings, "ops.audit")
    for file in data(settings):
        file.write_bytes(b"damaged")
    result = put_back_damaged(settings, made, ["ops.audit"])
    assert (len(result.files), result.compared, result.not_in_backup) == (2, 2, 1)
    damaged = [file for file in data(settings) if file.read_bytes() == b"damaged"]
    assert [file.parent.name for file in damaged].count("audit") == 1
    assert len(damaged) == 3
    with pytest.raises(Usage, match=r"no table 'gold\.nothing'"):
        put_back_damaged(settings, made, ["gold.nothing"])


def test_what_an_erasure_took_out_of_the_table_does_not_come_back(tmp_path: Path) -> None:
    settings = lake(tmp_path / "home")
    made = backup(settings, tmp_path / "backups")
    erased = data(settings)[0]
    log = erased.parent / "_delta_log"
    removed = {"remove": {"path": erased.name, "dataChange": True}}
    (log / f"{2:020}.json").write_text(json.dumps(removed))
    erased.unlink()
    assert put_back_damaged(settings, made).files == []
    assert not erased.exists()


def test_what_an_erasure_takes_out_while_it_is_copied_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = lake(tmp_path / "home")
    made = backup(settings, tmp_path / "backups")
    file, kept = data(settings)[0], data(settings)[1]
    file.write_bytes(b"damaged")
    kept.write_bytes(b"damaged")

    def erased_meanwhile(source: Path, target: Path) -> tuple[str, int]:
        if source.name == file.name:
            removed = {"remove": {"path": file.name, "dataChange": True}}
            (file.parent / "_delta_log" / f"{2:020}.json").write_text(json.dumps(removed))
            file.unlink()
        return copy_file(source, target)

    monkeypatch.setattr(damaged_files, "copy_file", erased_meanwhile)
    result = put_back_damaged(settings, made)
    assert [Path(name).name for name in result.files] == [kept.name]
    assert not file.exists()
    assert pq.read_table(kept).num_rows == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_was_gone_belongs_to_whom_its_table_does(tmp_path: Path) -> None:
    settings = lake(tmp_path / "home")
    made = backup(settings, tmp_path / "backups")
    file = data(settings)[0]
    os.chown(file.parent, 4711, 4712)
    file.unlink()
    assert len(put_back_damaged(settings, made).files) == 1
    assert (file.stat().st_uid, file.stat().st_gid) == (4711, 4712)


def test_a_copy_that_is_damaged_itself_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    settings = lake(tmp_path / "home")
    made = backup(settings, tmp_path / "backups")
    file = data(settings)[0]
    copy = made / "lake" / file.relative_to(str(settings.lake_root))
    copy.write_bytes(copy.read_bytes()[:-1] + b"X")
    file.write_bytes(b"damaged")
    with pytest.raises(Fatal, match="is not what was backed up"):
        put_back_damaged(settings, made)
    assert file.read_bytes() == b"damaged"
    assert [each.name for each in file.parent.iterdir() if each.name.startswith(".")] == []


def test_a_log_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    settings = lake(tmp_path / "home")
    made = backup(settings, tmp_path / "backups")
    (data(settings)[0].parent / "_delta_log" / f"{1:020}.json").write_text('{"add": {"pa')
    with pytest.raises(Fatal, match=r": its log cannot be read .*restore the whole backup"):
        put_back_damaged(settings, made)
    with pytest.raises(Fatal, match="there is no lake here; restore the backup without --damaged"):
        put_back_damaged(load(home=tmp_path / "other"), made)


def test_what_was_put_back_before_one_that_could_not_be_is_told_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lake(tmp_path / "home", commits=1)
    made = backup(settings, tmp_path / "backups")
    by_table = {str(file.parent.relative_to(str(settings.lake_root))): file
                for file in data(settings)}  # fmt: skip
    first, last = (by_table[each.path] for each in catalog().values() if each.name in TABLES)
    for file in (first, last):
        file.write_bytes(b"damaged")
    (made / "lake" / last.relative_to(str(settings.lake_root))).write_bytes(b"damaged as well")
    command = ["--home", str(settings.home), "backup", "restore", str(made), "--damaged"]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert f"{first}: put back" in said
    assert "is not what was backed up" in said
    (noted,) = (settings.home / "spool" / "audit").glob("backup.put_back-*.json")
    assert json.loads(json.loads(noted.read_text("utf-8"))["detail"])["files"] == [
        str(first.relative_to(str(settings.lake_root)))
    ]


def test_the_command_says_what_it_put_back_and_the_audit_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lake(tmp_path / "home")
    made = backup(settings, tmp_path / "backups")
    file = data(settings)[0]
    file.chmod(0o640)
    written = file.stat().st_mtime
    os.truncate(file, 40)
    command = ["--home", str(settings.home), "backup", "restore", str(made)]
    assert main([*command, "--table", "ops.audit"]) == 2
    assert "goes with --damaged" in capsys.readouterr().err
    assert main([*command, "--damaged"]) == 0
    said = capsys.readouterr().err
    assert f"{file}: put back" in said
    assert "4 files of tables compared, 1 put back\n" in said
    assert (Path(str(settings.lake_root)) / PUT_BACK).stat().st_mode & 0o777 == 0o644
    assert pq.read_table(file).num_rows == 1
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.stat().st_mtime > written
    (noted,) = (settings.home / "spool" / "audit").glob("backup.put_back-*.json")
    row = json.loads(noted.read_text("utf-8"))
    assert row["target"] == str(made)
    assert file.name in row["detail"]
