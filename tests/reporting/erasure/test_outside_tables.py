"""Who was erased is in no index of the inventories any more, and in none that is made later."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from enrich.assets import index_store
from enrich.assets.index import index_of
from enrich.assets.index_store import index_file, index_path, newest_index
from infra.config.settings import load
from infra.delta.catalog import table
from infra.kafka.client import free_port
from infra.streaming.lake import Lake
from reporting.erasure import run
from reporting.erasure.certificate import sentences
from reporting.erasure.run import erase, preview_erasure
from tests.reporting.people import ANNA, AT, add, person, quiet, tell_of_people

NOW = round(AT.timestamp() * 1_000_000)


@pytest.fixture
def told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """With a broker that does not answer."""
    monkeypatch.setattr(run, "BROKER_SECONDS", 0.2)
    nobody = {"bootstrap": f"127.0.0.1:{free_port()}"}
    lake.settings = load(home=lake.settings.home, kafka=nobody)
    tell_of_people(lake)
    return lake


def known(file: str | Path | None, name: str) -> bool:
    return index_of(str(file)).user(NOW, name) is not None


def naming(lake: Lake, word: bytes) -> set[str]:
    """Files of the inventories' folder that have a word in their bytes."""
    folder = lake.settings.lake_side / "_inventory"
    return {file.name for file in folder.iterdir() if word in file.read_bytes().lower()}


@pytest.mark.full
def test_indexes_of_former_versions_go_and_a_batch_that_asked_for_one_goes_on(told: Lake) -> None:
    assert newest_index(told.settings) == (first := index_file(told, "0-1"))
    add(told, "silver.user_version", person("9", name="eve", aliases=[]))
    newest_index(told.settings)
    folder = told.settings.lake_side / "_inventory"
    killed, made = folder / ".0-1.sqlite.dead", folder / ".0-3.sqlite.live"
    for left in (killed, made):
        left.write_bytes((folder / "0-1.sqlite").read_bytes())
    os.utime(killed, (0, 0))
    made.write_bytes(b"")
    assert known(first, "anna")
    removed = [".0-1.sqlite.dead", "0-1.sqlite", "0-2.sqlite"]
    assert sorted(preview_erasure(told, ANNA, quiet)["indexes"]) == removed
    assert known(first, "anna")

    certificate = erase(told, ANNA, quiet, wait_seconds=0)
    assert sorted(certificate["indexes"]) == removed
    assert any("0-1.sqlite, 0-2.sqlite" in line for line in sentences(certificate))
    assert naming(told, b"anna") == set()
    assert made.exists()  # another process may be at it
    # A worker that was told of the former file asks it for others now.
    assert known(first, "bob")
    assert not known(first, "anna")
    # Made again it is of the tables as they are, though version 1 can still be read.
    index_path(told.settings, "0-1").unlink()
    assert told.read(table("silver.user_version"), 1).where("name = 'anna'").count() == 1
    again = index_file(told, "0-1")
    assert (known(again, "anna"), known(again, "bob"), known(again, "eve")) == (False, True, True)
    assert erase(told, ANNA, quiet, wait_seconds=0)["indexes"] == []


@pytest.mark.full
def test_an_index_that_is_made_while_an_erasure_ends_is_made_anew(
    told: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = index_store.build
    done: list[list[str]] = []

    def slowly(file: Path, assets: pa.Table, users: pa.Table) -> None:
        if not done:  # what it read before names anna
            done.append([])
            done[0] = erase(told, ANNA, quiet, wait_seconds=0)["indexes"]
        make(file, assets, users)

    monkeypatch.setattr(index_store, "build", slowly)
    made = index_file(told, "0-1")
    assert done == [[]]
    assert (known(made, "anna"), known(made, "bob")) == (False, True)
    assert naming(told, b"anna") == set()
