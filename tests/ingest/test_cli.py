"""`headgate parse`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.errors import Usage
from ingest.cli import main
from tests.ingest.logs import SAMPLES, lines, trails


def run(capfdbinary: pytest.CaptureFixture[bytes], *argv: str) -> list[dict[str, Any]]:
    assert main(["parse", *argv]) == 0
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


def test_each_line_becomes_an_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = SAMPLES / "lab/dhcpd/syslog_rfc3164.log"
    found = run(capfdbinary, "--source", "isc_dhcpd", "--now", "2026-11-21T04:00:00Z", str(path))
    assert len(found) == 1558
    assert sum(one["class_uid"] == 4004 for one in found) == 500
    assert {one["metadata"]["logged_time"] for one in found} == {1795233600000}


def test_a_file_of_records_is_one_record(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    packed = tmp_path / "trail.json.gz"
    packed.write_bytes(trails()[0])
    assert len(run(capfdbinary, "--source", "aws_cloudtrail", str(packed))) == 29
    pretty = tmp_path / "pretty.json"
    record = {"eventName": "GetX", "eventSource": "x", "eventTime": "2026-03-02T09:00:00Z"}
    pretty.write_text(json.dumps({"Records": [record, record]}, indent=2))
    assert len(run(capfdbinary, "--source", "aws_cloudtrail", str(pretty))) == 2
    each = tmp_path / "lines.jsonl"
    each.write_bytes(b"\n".join(lines("cloudtrail/otrf_ec2_proxy_s3_exfiltration.jsonl")) + b"\n")
    assert len(run(capfdbinary, "--source", "aws_cloudtrail", str(each))) == 40


def test_dead_letters_come_out_in_their_place(
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = lines("zeek/json_corelight/NASHUA_conn.log")[0]

    class Stdin:
        buffer = io.BytesIO(good + b"\r\n\n" + good + good + b"\n" + good)

    monkeypatch.setattr(sys, "stdin", Stdin)
    found = run(capfdbinary, "--source", "zeek:conn", "-")
    assert [one.get("dead_letter_reason", "")[:14] for one in found] == [
        "",
        "the record is ",
        "a second value",
        "",
    ]


def test_the_zone_is_that_of_the_option_else_of_the_settings(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text('[sources.kea_dhcp4]\ntz = "Asia/Tokyo"\n')
    log = tmp_path / "kea.log"
    log.write_text("2026-03-02 09:00:00.1 INFO  [a/1.2] DHCP4_STARTED x\n")
    monkeypatch.setenv("HEADGATE_CONFIG", str(config))
    (set_up,) = run(capfdbinary, "--source", "kea_dhcp4", str(log))
    (asked,) = run(capfdbinary, "--source", "kea_dhcp4", "--tz", "UTC", str(log))
    assert asked["time"] - set_up["time"] == 9 * 3_600_000


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--source", "x", "-"], "no source 'x'; there are apache"),
        (["--source", "sshd", "--tz", "Mars", "-"], "no time zone 'Mars'"),
        (["--source", "sshd", "--now", "later", "-"], "--now later: write an instant"),
        (["--source", "sshd", "/no/such/file"], "/no/such/file: cannot be read"),
        (["--source", "sshd", "--header", "/no/such/file", "-"], "/no/such/file: cannot be read"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(argv: list[str], why: str) -> None:
    with pytest.raises(Usage, match=why):
        main(["parse", *argv])
