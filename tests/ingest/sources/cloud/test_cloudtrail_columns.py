"""CloudTrail's calls read many at once equal those read one by one."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.source import lookup
from tests.ingest.columnar import SETTINGS, agree, records
from tests.ingest.logs import SAMPLES, lines
from tests.ingest.sources.cloud.test_aws_cloudtrail import RECORD

SOURCE = "aws_cloudtrail"
IDENTITIES: list[Any] = [
    RECORD["userIdentity"],
    {"type": "Root", "accountId": "1"},
    {"type": "AWSService", "invokedBy": "ec2.amazonaws.com"},
    {"type": "IAMUser", "userName": "HIDDEN_DUE_TO_SECURITY_REASONS", "principalId": "p"},
    {"userName": "CORP\\anna", "principalId": "p"},
    {"userName": "a", "sessionContext": {"attributes": {"mfaAuthenticated": "true"}}},
    {"sessionContext": {"sessionIssuer": {"userName": "role"}, "attributes": []}},
    {"onBehalfOf": {"userId": "u"}, "credentialId": "c", "type": "IdentityCenterUser"},
    {"type": "Unknown"},
    {"userName": 7},
    {},
    None,
    "ann",
]


def raw(**more: Any) -> bytes:
    return msgspec.json.encode(RECORD | more)


def samples() -> list[bytes]:
    result = lines("cloudtrail/otrf_ec2_proxy_s3_exfiltration.jsonl")
    for file in sorted((SAMPLES / "cloudtrail").glob("*.json.gz")):
        whole = msgspec.json.decode(gzip.decompress(file.read_bytes()))
        result += [msgspec.json.encode(entry) for entry in whole["Records"]]
    return result


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.full)])
def test_real_records_are_read_alike(every: int) -> None:
    raws = samples()[::every]
    assert agree(SOURCE, raws) >= 0.95 * len(raws)


def test_records_written_with_spaces_are_read_at_once_too() -> None:
    raws = [json.dumps(msgspec.json.decode(each)).encode() for each in samples()[:50]]
    assert agree(SOURCE, raws) >= 45


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(IDENTITIES),
    st.lists(
        st.one_of(
            st.text(max_size=3),
            st.fixed_dictionaries(
                {"ARN": st.sampled_from(["a", "b", "", 3])},
                optional={"type": st.sampled_from(["t", 4]), "accountId": st.just("1")},
            ),
        ),
        max_size=6,
    ),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    st.sampled_from(["", "::ffff:10.0.0.1", "10.0.0.01", "fe80::1%eth0", "s3.amazonaws.com"]),
    st.sampled_from(["ConsoleLogin", "Authenticate", "sso.amazonaws.com", "GetX", "oddly", "Getx"]),
    st.sampled_from(
        [
            *("2026-03-02T09:00:00Z", "2026-03-02T09:00:00.123Z", "2026-03-02T09:00:00.1234567Z"),
            *("2026-02-30T09:00:00Z", "2026-03-02T24:00:00Z", "2026-03-02T09:00:60Z"),
            *("1899-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "2026-03-02T09:00:00+01:00"),
            *("2026-03-02 09:00:00", "2026-03-02T09:00:00Z\n", "2026-00-02T09:00:00Z"),
        ]
    ),
)
NAMES = st.sampled_from([*RECORD, "errorCode", "errorMessage", "resources", "@timestamp", "odd"])


@pytest.mark.full
@given(
    changes=st.lists(
        st.dictionaries(NAMES, st.one_of(VALUES, st.just(...)), max_size=5), min_size=1, max_size=5
    )
)
def test_records_with_any_field_changed_are_read_alike(changes: list[dict[str, Any]]) -> None:
    wholes = [
        {name: value for name, value in (RECORD | change).items() if value is not ...}
        for change in changes
    ]
    agree(SOURCE, [json.dumps(whole, separators=(",", ":")).encode() for whole in wholes])


@pytest.mark.parametrize("identity", IDENTITIES)
def test_every_identity_is_read_alike(identity: Any) -> None:
    left = "CORP" in str(identity) or identity == "ann" or identity == {"userName": 7}
    left = left or "sessionIssuer" in str(identity)
    assert agree(SOURCE, [raw(userIdentity=identity), raw()]) == (1 if left else 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line[:-1] + b',"eventName":"ListBuckets"}',
        lambda line: line[:-1] + b',"eventName" :"ListBuckets"}',
        lambda line: line + b"{}",
        lambda line: line + b"\n" + line,
        lambda line: line.replace(b'"ann"', b'"a\xffn"'),
        lambda line: line.replace(b'"ann"', b'"a\x00n"'),
        lambda line: line.replace(b'"eventName"', b'"Records":[],"eventName"'),
        lambda line: line[: len(line) // 2],
        lambda line: b"[" + line + b"]",
        gzip.compress,
        lambda line: b'{"detail":' + line + b"}",
        lambda line: line.replace(b"RunInstances", b"ConsoleLogin"),
        lambda line: line[:-1] + b',"x":"' + b"y" * 65536 + b'"}',
        lambda line: b"",
    ],
)
def test_what_is_unusual_is_left_to_be_read_by_itself(change: Any) -> None:
    read = lookup(SOURCE).columns(records(SOURCE, [raw(), change(raw())]), SETTINGS)
    assert read is not None
    assert read.left == [1]


def test_a_record_with_a_header_is_left_to_be_read_by_itself() -> None:
    batch = records(SOURCE, [raw()], headers=[{"key": "host", "value": b"h"}])
    read = lookup(SOURCE).columns(batch, SETTINGS)
    assert read is not None
    assert (read.events, read.left) == (None, [0])


def test_a_key_that_stands_twice_deep_inside_is_named_alike() -> None:
    twice = raw().replace(b'{"x":1}', b'{"x":1,"x":2,"big":99999999999999999999}')
    assert agree(SOURCE, [twice, raw()]) == 2
