"""Settings, plans and lists from outside: too large, too deep or too long is a plain refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alerts.indicators import import_formats
from alerts.indicators.import_formats import Bad, read_indicators
from enrich.assets.inventory_file import read_inventory
from enrich.assets.registers import REGISTERS
from infra.config import bounded_files
from infra.config.bounded_files import MAX_TOML_BYTES
from infra.config.settings import load
from infra.errors import Usage
from ingest.replay.schedule import load_plan

DEEP = "[" * 100_000


@pytest.mark.parametrize("read", [load, load_plan])
@pytest.mark.parametrize(
    "text",
    [
        f"a = {DEEP}",
        "a = " + "{a=" * 50_000,
        "[" + ".".join("a" * 60_000) + "]\nb = 1",
        ".".join(['"a"'] * 30_000) + " = 1",
        f"a = {'9' * 5_000}",
        "#" * (MAX_TOML_BYTES + 1),
    ],
    ids=["deep", "inline tables", "long table", "long key", "digits", "large"],
)
def test_toml_that_is_too_much_is_refused(
    read: Callable[[Path], Any], text: str, tmp_path: Path
) -> None:
    file = tmp_path / "outside.toml"
    file.write_text(text)
    with pytest.raises(Usage, match=r"outside\.toml"):
        read(file)


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(Usage, match="larger than"):
        load(Path("/dev/zero"))


def _indicators(file: Path) -> tuple[list[str], list[Bad]]:
    bad: list[Bad] = []
    return [entry.value for entry in read_indicators(file, None, "auto", bad)], bad


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", DEEP),
        ("deep.ndjson", '{"a":' + DEEP),
        ("deep.stix", '{"objects":' + DEEP),
        ("open.csv", 'value,label\na.com,"x\n' + "b.com,y\n" * 50_000),
    ],
)
def test_a_list_that_is_too_much_is_refused_by_name(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(Usage, match=name):
        _indicators(file)


def test_entries_that_are_too_much_are_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_files, "MAX_LINE_CHARS", 1_000)
    long_line = tmp_path / "long.txt"
    long_line.write_text("a.example.com\n" + "x" * 5_000 + "\nb.example.com\n" + "y" * 1_000)
    values, bad = _indicators(long_line)
    assert values == ["a.example.com", "b.example.com"]
    assert [entry.number for entry in bad] == [2, 4]

    digits = tmp_path / "digits.json"
    digits.write_text(f'[{"9" * 5_000}, "a.example.com"]')
    assert _indicators(digits)[0] == ["a.example.com"]

    edge = tmp_path / "edge.json"
    edge.write_text('[{"value": "a.example.com", "valid_until": "9999-12-31T23:59:59-14:00"}]')
    assert "is no instant" in _indicators(edge)[1][0].reason

    pattern = tmp_path / "pattern.stix"
    pattern.write_text(f'{{"objects": [{{"type": "indicator", "pattern": "[{"a" * 200_000}"}}]}}')
    assert "200001 characters" in _indicators(pattern)[1][0].reason


def test_entries_of_a_list_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_formats, "MAX_ENTRIES", 10)
    file = tmp_path / "many.txt"
    file.write_text("no indicator\n" * 11)
    with pytest.raises(Usage, match="more than 10 entries"):
        _indicators(file)


def test_an_inventory_of_too_many_columns_or_lines_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    file.write_text(",".join(f"c{number}" for number in range(50_000)))
    with pytest.raises(Usage, match="50000 columns"):
        read_inventory(str(file), REGISTERS["assets"])
    file.write_bytes(b"\r" * 2_000_001)
    with pytest.raises(Usage, match="2000001 lines"):
        read_inventory(str(file), REGISTERS["assets"])
