"""What a batch decided: read as it was written, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.checkpoint.batch_decisions import (
    FORMER_DIGESTS,
    SEAL,
    decided,
    decisions_file,
    decisions_in,
    forget_digest,
    write_decision,
)
from infra.errors import Fatal
from infra.storage.checksums import Damaged

names = st.text(max_size=8).filter(lambda name: name != SEAL)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
decisions = st.dictionaries(names, values, max_size=6)
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "batches").mkdir()
    return tmp_path


@shared
@given(decisions)
def test_what_was_decided_is_read_again(folder: Path, what: dict[str, object]) -> None:
    write_decision(folder, 7, what)
    assert decided(folder, 7) == what


@shared
@given(decisions, st.data())
def test_no_turned_bit_changes_what_was_decided(
    folder: Path, what: dict[str, object], data: st.DataObject
) -> None:
    write_decision(folder, 7, what)
    content = bytearray(decisions_file(folder, 7).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decisions_in(content.decode("utf-8", "replace"))
    except Damaged:
        return
    # Else it turned in the checksum's name, which then is one more that nobody asks for.
    assert {name: found.get(name) for name in what} == what


def test_a_wrong_number_is_refused_by_the_files_name(folder: Path) -> None:
    write_decision(folder, 7, {"versions": {"silver.event": 40}})
    file = decisions_file(folder, 7)
    file.write_text(file.read_text().replace("40", "41"))
    with pytest.raises(Fatal, match=r"batches/7\.json is damaged \(its checksum says otherwise\)"):
        decided(folder, 7)


def test_what_an_older_version_wrote_or_added_to_is_taken_as_it_is(folder: Path) -> None:
    old = {"pack": "a", "versions": {"silver.event": 4}}
    decisions_file(folder, 7).write_text(json.dumps(old))
    assert decided(folder, 7) == old
    write_decision(folder, 7, old)
    added = json.loads(decisions_file(folder, 7).read_text()) | {"inventories": "i"}
    decisions_file(folder, 7).write_text(json.dumps(added))
    assert decided(folder, 7) == old | {"inventories": "i"}


def test_a_digest_that_is_forgotten_leaves_all_else_and_its_checksum(folder: Path) -> None:
    write_decision(folder, 7, {"digest": "d", "pack": "a"})
    forget_digest(folder, 7)
    forget_digest(folder, 8)
    assert decided(folder, 7) == {"pack": "a"}
    assert list(json.loads(decisions_file(folder, 7).read_text())) == ["pack", SEAL]
    with pytest.raises(FileNotFoundError):
        decided(folder, 8)


def test_former_digests_of_a_batch_that_is_not_done_are_kept(folder: Path) -> None:
    write_decision(folder, 7, {"pack": "a", "digest": "of a done one"})
    for number in (7, 8):
        for former in ("first", "second", "first"):
            forget_digest(folder, number, former)
        assert decided(folder, number)[FORMER_DIGESTS] == ["second", "first"]
    assert decided(folder, 7) == {"pack": "a", FORMER_DIGESTS: ["second", "first"]}
