"""Several customers' audit logs on one topic: each event is of the tenant of its cloud account."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.config.settings import load
from infra.delta.parquet_writer import Target
from infra.errors import Usage
from infra.streaming.batch import Batch
from ingest.parsing.arrow_parser import Parser, records_of
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach
from ingest.pipeline.ingest_job import with_accounts
from ingest.tables import EVENT, RECORD
from tests.ingest.columnar import plain, records

ACME, GLOBEX, OTHER = "111111111111", "222222222222", "333333333333"
ORGANISATION = "6F1C2A9E-0000-4000-8000-00000000ABCD"
SETTINGS = ParseSettings(
    scopes=(("default", ()),),
    accounts={
        "aws_cloudtrail": {ACME: "acme", GLOBEX: "globex"},
        "m365_audit": {ORGANISATION.lower(): "globex"},
        "gcp_audit": {"acme-prod": "acme"},
        "azure_audit": {ORGANISATION.lower(): "acme"},
    },
)


def call(account: str | None, number: int = 0) -> dict[str, Any]:
    """An API call as CloudTrail tells it to the account that it was made in."""
    return {
        "eventVersion": "1.08", "eventTime": "2026-11-20T10:00:00Z", "eventID": f"e{number}",
        "eventSource": "s3.amazonaws.com", "eventName": "GetObject", "awsRegion": "us-east-1",
        "sourceIPAddress": "10.0.0.5", "eventType": "AwsApiCall", "eventCategory": "Data",
        # Who calls may be of another account than the one that is called.
        "userIdentity": {"type": "IAMUser", "userName": "ann", "accountId": GLOBEX},
    } | ({} if account is None else {"recipientAccountId": account})  # fmt: skip


def of_cloud(source: str) -> bytes:
    told: dict[str, dict[str, Any]] = {
        "aws_cloudtrail": call(ACME),
        "m365_audit": {
            "CreationTime": "2026-11-20T10:00:00", "Id": "1", "Operation": "UserLoggedIn",
            "OrganizationId": ORGANISATION, "RecordType": 15, "UserId": "ann@example.org",
            "UserType": 0, "Workload": "AzureActiveDirectory", "ResultStatus": "Success",
        },
        "gcp_audit": {
            "logName": "projects/acme-prod/logs/cloudaudit.googleapis.com%2Factivity",
            "resource": {"type": "gce_instance", "labels": {"project_id": "acme-prod"}},
            "timestamp": "2026-11-20T10:00:00Z", "insertId": "1",
            "protoPayload": {
                "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
                "methodName": "v1.compute.instances.insert", "resourceName": "vm",
                "serviceName": "compute.googleapis.com",
                "authenticationInfo": {"principalEmail": "ann@example.org"},
            },
        },
        "azure_audit": {
            "time": "2026-11-20T10:00:00Z", "tenantId": ORGANISATION, "category": "AuditLogs",
            "operationName": "Add user", "resourceId": "/tenants/x/providers/Microsoft.aadiam",
        },
    }  # fmt: skip
    return json.dumps(told[source]).encode()


def parsed(batch: pa.RecordBatch, settings: ParseSettings = SETTINGS) -> list[dict[str, Any]]:
    return [row for events in Parser(settings)(batch) for row in plain(events)]


@pytest.mark.parametrize(
    ("source", "tenant"),
    [("aws_cloudtrail", "acme"), ("m365_audit", "globex"), ("gcp_audit", "acme"),
     ("azure_audit", "acme")],
)  # fmt: skip
def test_an_event_of_each_cloud_is_of_the_tenant_of_its_account(source: str, tenant: str) -> None:
    (row,) = parsed(records(source, [of_cloud(source)]))
    assert row["dead_letter_reason"] is None
    assert (row["tenant_uid"], row["scope"]) == (tenant, f"tenant-{tenant}.default")
    # As if it had come by that tenant's own way in.
    by_topic = SETTINGS.of_tenant(tenant)
    own = records(source, [of_cloud(source)])
    place = own.schema.get_field_index("tenant_uid")
    own = own.set_column(place, own.schema.field(place), pa.array([tenant]))
    assert [row] == parsed(own, by_topic)


def test_accounts_that_nobody_lists_and_other_sources_stay_nobodys() -> None:
    raws = [json.dumps(call(account)).encode() for account in (OTHER, None, "")]
    assert {
        (row["tenant_uid"], row["scope"]) for row in parsed(records("aws_cloudtrail", raws))
    } == {(None, "default")}
    # What a record says of itself is believed of no source that names no accounts.
    narrow = replace(SETTINGS, accounts={"gcp_audit": {ACME: "acme"}})
    (row,) = parsed(records("aws_cloudtrail", [of_cloud("aws_cloudtrail")]), narrow)
    assert (row["cloud"]["account"]["uid"], row["tenant_uid"]) == (ACME, None)


def test_the_way_in_comes_before_the_account() -> None:
    batch = records("aws_cloudtrail", [json.dumps(call(ACME)).encode()] * 2)
    place = batch.schema.get_field_index("tenant_uid")
    named = batch.set_column(place, batch.schema.field(place), pa.array(["globex", None]))
    assert sorted(row["tenant_uid"] for row in parsed(named)) == ["acme", "globex"]


def test_one_by_one_and_many_at_once_are_marked_alike() -> None:
    batch = records(
        "aws_cloudtrail",
        [json.dumps(call((ACME, GLOBEX, OTHER)[n % 3], n)).encode() for n in range(60)],
    )
    groups = [[record] for record in records_of(batch)]
    again = [row for events in Parser(SETTINGS).groups(groups) for row in plain(events)]
    assert sorted(again, key=_uid) == sorted(parsed(batch), key=_uid)
    assert {row["tenant_uid"] for row in again} == {"acme", "globex", None}


def _uid(row: dict[str, Any]) -> str:
    return str(row["event_uid"])


def written(folder: Path, batch: pa.RecordBatch, settings: ParseSettings = SETTINGS) -> Any:
    """Whose the rows are that a batch writes: of bronze.record and of silver.event, by name."""
    folder.mkdir()
    targets = {table.name: Target.of(table, folder, table.name) for table in (RECORD, EVENT)}
    (files,) = Pass(settings, targets, (), Reach())(iter([batch]))
    rows = {row["table"]: pq.read_table(folder / row["name"]) for row in files.to_pylist()}
    return (
        dict(zip(*(rows[RECORD.name].column(n).to_pylist() for n in ("record_id", "tenant_uid")),
                 strict=True)),
        dict(zip(*(rows[EVENT.name].column(n).to_pylist() for n in ("event_uid", "tenant_uid")),
                 strict=True)),
    )  # fmt: skip


def test_a_record_is_of_the_tenant_that_all_its_events_are_of(tmp_path: Path) -> None:
    files = [[ACME, ACME], [ACME, GLOBEX], [GLOBEX], [OTHER, ACME]]
    raws = [
        json.dumps({"Records": [call(account, n) for n, account in enumerate(held)]}).encode()
        for held in files
    ]
    of_record, of_event = written(tmp_path / "mixed", records("aws_cloudtrail", [*raws, b"{"]))
    assert of_record == {
        "t:0:0": "acme", "t:0:1": None, "t:0:2": "globex", "t:0:3": None, "t:0:4": None
    }  # fmt: skip
    assert of_event == {
        "t:0:0#0": "acme", "t:0:0#1": "acme", "t:0:1#0": "acme", "t:0:1#1": "globex",
        "t:0:2#0": "globex", "t:0:3#0": None, "t:0:3#1": "acme", "t:0:4#0": None,
    }  # fmt: skip
    # Without accounts nothing changes.
    none, _ = written(tmp_path / "none", records("aws_cloudtrail", raws), ParseSettings())
    assert set(none.values()) == {None}


def test_what_bronze_says_holds_when_history_is_read_again_under_other_accounts() -> None:
    """A record that arrived as one tenant's stays that tenant's."""
    batch = records("aws_cloudtrail", [json.dumps(call(ACME)).encode()])
    first = parsed(batch)
    place = batch.schema.get_field_index("tenant_uid")
    in_bronze = batch.set_column(place, batch.schema.field(place), pa.array(["acme"]))
    moved = replace(SETTINGS, accounts={"aws_cloudtrail": {ACME: "globex"}})
    assert parsed(in_bronze, moved) == first
    groups = [records_of(in_bronze)]
    assert [row for events in Parser(moved).groups(groups) for row in plain(events)] == first


def test_a_batch_that_is_run_again_has_the_accounts_that_it_had_first(tmp_path: Path) -> None:
    def batch(number: int) -> Batch:
        at = datetime(2026, 11, 20, tzinfo=UTC)
        return Batch("ingest", "q", number, "", tmp_path, False, at, "").load()

    assert with_accounts(SETTINGS, batch(7)) == SETTINGS
    for changed in ({}, {"aws_cloudtrail": {ACME: "globex"}}):
        after = replace(SETTINGS, accounts=changed)
        assert with_accounts(after, batch(7)) == SETTINGS
    assert with_accounts(replace(SETTINGS, accounts={}), batch(8)).accounts == {}
    assert with_accounts(SETTINGS, batch(8)).accounts == {}


def test_the_settings_name_known_tenants_and_mind_no_case() -> None:
    known = {"aws_cloudtrail": {"accounts": {ORGANISATION: "acme"}}}
    parsing = ParseSettings.of(load(tenants=["acme"], sources=known))
    assert parsing.accounts_of("aws_cloudtrail") == {ORGANISATION.lower(): "acme"}
    assert parsing.accounts_of("aws_cloudtrail:x") == {ORGANISATION.lower(): "acme"}
    assert parsing.accounts_of("sshd") == {}
    with pytest.raises(Usage, match=r"sources\.aws_cloudtrail\.accounts.*no tenant 'acme'"):
        load(sources=known)
