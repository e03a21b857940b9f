"""Sigma's names lead to what the parsers made of real-looking events."""

from __future__ import annotations

from typing import Any

import pytest

from alerts.rulepack.event_paths import event_paths
from alerts.rulepack.field_mapping import mapping, read_mapping
from alerts.rulepack.log_source import LogSource, Unmapped
from alerts.rulepack.predicate import at, fold, present, text_of
from infra.errors import Fatal
from tests.ingest.logs import good, lines
from tests.ingest.windows_forms import Sample, xml
from tests.ingest.windows_samples import SAMPLES

# Written in another way by OCSF than by Windows, or kept where no Sigma rule looks.
OTHERWISE = {
    *("IpAddress", "GroupMembership", "PrivilegeList", "ServiceType", "ServiceStartType"),
    *("ProcessId", "NewProcessId", "SourceProcessId", "TargetProcessId", "CallerProcessId"),
    *("TargetDomainName", "TargetUserName", "UtcTime", "Hashes", "Hash", "QueryResults"),
    *("ContextInfo", "ResultCode", "QueryType", "ClientName", "Version", "param3"),
}


def source_of(sample: Sample) -> LogSource | None:
    """The log source by service that an event of this channel belongs to."""
    if "Sysmon" in sample.provider:
        return mapping().logsource(None, "windows", "sysmon")
    for (_, product, service), source in mapping().logsources.items():
        channels = {fold(text) for one in source.where for text in one.get("metadata.log_name", ())}
        if product == "windows" and service and fold(sample.channel) in channels:
            return source
    return None


def values(row: dict[str, Any], source: LogSource, name: str) -> list[str]:
    return [text_of(v) for path in source.paths(name) for v in present(at(row, path))]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_field_of_a_windows_event_is_found_under_its_own_name(name: str) -> None:
    sample = SAMPLES[name]
    source = source_of(sample)
    if source is None or not isinstance(sample.data, dict):
        assert sample.event_id >= 0
        return
    row = good("windows_xml", xml(sample))
    lost = {
        field: value
        for field, value in sample.data.items()
        if value not in ("", "-") and field not in OTHERWISE
        if not any(fold(value) in fold(found) for found in values(row, source, field))
    }
    assert lost == {}


CATEGORIES = [
    ("process_creation", "sysmon 1", "Image", r"C:\Windows\System32\cmd.exe"),
    ("process_creation", "sysmon 1", "OriginalFileName", "Cmd.Exe"),
    ("process_creation", "sysmon 1", "User", r"CORP\ann"),
    ("process_creation", "sysmon 1", "Hashes", "MD5=a094e2b38d3dd864b07580d243cb6e43"),
    ("process_creation", "sysmon 1", "md5", "a094e2b38d3dd864b07580d243cb6e43"),
    ("process_creation", "4688", "NewProcessName", r"C:\Windows\System32\bitsadmin.exe"),
    ("process_access", "sysmon 10", "GrantedAccess", "0x1010"),
    ("process_access", "sysmon 10", "TargetImage", r"C:\Windows\system32\lsass.exe"),
    ("process_access", "sysmon 10", "TargetUser", r"NT AUTHORITY\SYSTEM"),
    ("registry_set", "sysmon 13", "TargetObject", r"HKLM\SOFTWARE\Run\x"),
    ("network_connection", "sysmon 3", "Initiated", "true"),
    ("network_connection", "sysmon 3", "DestinationPort", "443"),
    ("dns_query", "sysmon 22", "QueryName", "www.example.com"),
    ("image_load", "sysmon 7", "Signed", None),
    ("pipe_created", "sysmon 17", "PipeName", None),
    ("file_event", "sysmon 11", "TargetFilename", None),
]


@pytest.mark.parametrize(("category", "name", "field", "expected"), CATEGORIES)
def test_a_category_of_windows_takes_its_events_and_names_their_fields(
    category: str, name: str, field: str, expected: str | None
) -> None:
    source = mapping().logsource(category, "windows", None)
    row = good("windows_xml", xml(SAMPLES[name]))
    assert not source.classes or row["class_uid"] in source.classes
    assert "windows_xml" in source.sources
    assert any(
        all(
            any(text_of(v) == text for v in present(at(row, path)) for text in texts)
            for path, texts in one.items()
        )
        for one in source.where
    )
    found = values(row, source, field)
    assert found
    assert expected is None or expected in found


@pytest.mark.parametrize(
    ("key", "source", "path", "field"),
    [
        ((None, "zeek", "ssl"), "zeek:ssl", "zeek/json_corelight/SCRANTON_ssl.log", "cipher"),
        ((None, "zeek", "dce_rpc"), "zeek:dce_rpc", "zeek/json_corelight/SCRANTON_dce_rpc.log",
         "operation"),
        ((None, "zeek", "http"), "zeek:http", "zeek/json_corelight/SCRANTON_http.log", "c-uri"),
        ((None, "okta", "okta"), "okta", "saas_cloud/okta.jsonl", "eventType"),
        ((None, "github", "audit"), "github_audit", "saas_cloud/github_audit.jsonl", "action"),
        ((None, "gcp", "gcp.audit"), "gcp_audit", "saas_cloud/gcp_audit.jsonl",
         "gcp.audit.method_name"),
        ((None, "aws", "cloudtrail"), "aws_cloudtrail", "saas_cloud/aws_cloudtrail.jsonl",
         "eventName"),
        ((None, "azure", "auditlogs"), "azure_audit", "saas_cloud/azure_audit.jsonl",
         "properties.message"),
    ],
)  # fmt: skip
def test_fields_of_other_sources_are_found(
    key: tuple[str | None, str, str], source: str, path: str, field: str
) -> None:
    of = mapping().logsource(*key)
    row = good(source, lines(path)[0])
    assert source in of.sources
    assert values(row, of, field)


def test_a_name_is_found_whatever_its_case_and_the_rest_in_unmapped() -> None:
    trail = mapping().logsource(None, "aws", "cloudtrail")
    assert trail.paths("EVENTNAME") == trail.paths("eventName")
    assert trail.paths("requestParameters.x") == ("unmapped:requestParameters.x",)


def test_a_category_ignores_the_service_named_beside_it() -> None:
    plain = mapping().logsource("process_creation", "windows", None)
    assert mapping().logsource("process_creation", "windows", "sysmon") is plain


def test_a_field_that_is_no_column_cannot_group() -> None:
    of = mapping().logsource("process_access", "windows", None)
    with pytest.raises(Unmapped, match="no column of its own"):
        of.path("GrantedAccess")
    assert of.path("SourceUser") == "actor.user.name"


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"fields": {"a": {"X": "user.nam"}}}, "user.nam"),
        ({"fields": {"a": {"X": {"an": ["user.name"]}}}}, "under `any:` or `first:`"),
        ({"logsources": [{"product": "a"}, {"product": "a"}]}, "twice"),
        ({"logsources": [{"product": "a", "fields": ["b"]}]}, "no field list 'b'"),
        ({"logsources": [{"product": "a", "where": {"clas": 1}}]}, "clas"),
        ({"keywords": ["{user.name"]}, "{user.name"),
    ],
)
def test_a_mapping_with_a_mistake_is_an_error(data: dict[str, Any], named: str) -> None:
    with pytest.raises(Fatal, match=named.replace("{", r"\{")):
        read_mapping({"fields": {}, "logsources": [], "keywords": []} | data)
    assert "user.name" in event_paths()
