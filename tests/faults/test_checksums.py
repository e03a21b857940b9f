"""Files against the checksums that Hadoop keeps beside them."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from infra.storage.checksums import Damaged, emptied, logged, objects, read_checked
from tests.examples import examples

texts = st.text(st.characters(codec="ascii"), min_size=1, max_size=2_000)
shared = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(file: Path, content: bytes, step: int) -> None:
    """A file and its checksums, as Hadoop's ChecksumFileSystem writes them."""
    file.write_bytes(content)
    sums = b"".join(
        zlib.crc32(content[at : at + step]).to_bytes(4, "big")
        for at in range(0, len(content), step)
    )
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + step.to_bytes(4, "big") + sums)


@shared
@given(texts, st.integers(1, 600), st.data())
def test_a_turned_bit_shows_wherever_it_is(
    tmp_path: Path, text: str, step: int, data: st.DataObject
) -> None:
    file, content = tmp_path / "7", bytearray(text.encode())
    write(file, content, step)
    assert read_checked(file) == text
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    with pytest.raises(Damaged):
        read_checked(file)


@shared
@given(texts, st.integers(1, 600), st.data())
def test_what_is_cut_off_shows(tmp_path: Path, text: str, step: int, data: st.DataObject) -> None:
    file = tmp_path / "7"
    write(file, text.encode(), step)
    file.write_bytes(text.encode()[: data.draw(st.integers(0, len(text) - 1))])
    with pytest.raises(Damaged):
        read_checked(file)


def test_a_file_that_hadoop_wrote_is_sound(tmp_path: Path) -> None:
    """The commit of a batch as Spark 4.2 left it, and its checksum."""
    (tmp_path / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (tmp_path / ".0.crc").write_bytes(bytes.fromhex("6372630000000200f32abfdd"))
    assert logged(tmp_path / "0", 2) == ["v1", '{"nextBatchWatermarkMs":0}']


def test_a_file_without_checksum_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "7").write_text('v1\n{"a": 1}\n{}')
    assert logged(tmp_path / "7", 3) == ["v1", '{"a": 1}', "{}"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "empty"), ("v1", "cut short"), ("v2\n{}\n{}", "cut short"), ("v1\n{\n{}", "no JSON")],
)
def test_an_entry_that_is_not_whole_says_why(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "7").write_text(text)
    with pytest.raises(Damaged, match=says):
        logged(tmp_path / "7", 3)


@pytest.mark.parametrize("text", ["", "\n", "[1]", '{"a": 1', '{"a": 1}\n{"b"'])
def test_a_commit_holds_whole_objects(text: str) -> None:
    with pytest.raises(Damaged):
        objects(text)


def test_state_without_a_byte_is_found(tmp_path: Path) -> None:
    part = tmp_path / "0" / "1"
    part.mkdir(parents=True)
    (part / "4.delta").write_bytes(b"x")
    (part / ".5.delta.tmp").touch()  # not yet what it is to be
    assert emptied(tmp_path) is None
    (part / "5.delta").touch()
    assert emptied(tmp_path) == part / "5.delta"
