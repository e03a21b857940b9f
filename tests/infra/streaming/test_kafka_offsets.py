"""A damaged file of a checkpoint is named, before anything is concluded from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.errors import Fatal
from infra.streaming.kafka_offsets import kafka_checkpoint

WHOLE = "\n".join(["v1", json.dumps({"batchTimestampMs": 5}), json.dumps({"logs.a": {"0": 7}})])


def plant(folder: Path, content: bytes) -> Path:
    for name, text in (("offsets", content), ("commits", b"v1\n{}")):
        (folder / "spark" / name).mkdir(parents=True)
        (folder / "spark" / name / "0").write_bytes(text)
    return folder


def test_a_whole_one_says_where_the_job_stands(tmp_path: Path) -> None:
    found = kafka_checkpoint(plant(tmp_path, WHOLE.encode()))
    assert (found.done, found.planned_ms, found.offsets) == (0, 5, {("logs.a", 0): 7})


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 40, WHOLE[:-9].encode(), WHOLE[:30].encode(), WHOLE.replace("v1", "v2").encode()],
)
def test_a_damaged_one_is_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Fatal, match=r"offsets/0 is damaged .*restore the checkpoint"):
        kafka_checkpoint(plant(tmp_path, content))


def test_a_turned_digit_shows_by_the_checksum_and_is_no_gap(tmp_path: Path) -> None:
    plant(tmp_path, WHOLE.replace("7", "1").encode())
    crc = b"crc\0" + (512).to_bytes(4, "big") + b"\1\2\3\4"
    (tmp_path / "spark" / "offsets" / ".0.crc").write_bytes(crc)
    with pytest.raises(Fatal, match="its checksum says otherwise"):
        kafka_checkpoint(tmp_path)
