"""Records of Microsoft 365 and Entra ID in the forms that their documents show."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.ingest.cloud_samples import check, lost, spoilt
from tests.ingest.logs import good, reason, rows

SIGN_IN: dict[str, Any] = {  # Graph v1.0, `signIn`
    "id": "66ea54eb-6301-4ee5-be62-ff5a759b0100",
    "createdDateTime": "2026-03-02T09:00:00Z",
    "userDisplayName": "Ann Smith",
    "userPrincipalName": "ann@example.com",
    "userId": "26be570a-ae82-4189-b4e2-a37c6808512d",
    "appId": "de8bc8b5-d9f9-48b1-a8ad-b748da725064",
    "appDisplayName": "Graph explorer",
    "ipAddress": "203.0.113.9",
    "clientAppUsed": "Browser",
    "correlationId": "d79f5bee-5860-4832-928f-3133e22ae912",
    "conditionalAccessStatus": "notApplied",
    "isInteractive": True,
    "riskDetail": "none",
    "resourceDisplayName": "Microsoft Graph",
    "status": {"errorCode": 50126, "failureReason": "Invalid username or password"},
    "deviceDetail": {"deviceId": "", "operatingSystem": "Windows 10", "browser": "Edge 80"},
    "location": {"city": "Redmond", "state": "Washington", "countryOrRegion": "US"},
}
ROW = {  # Log Analytics, table SigninLogs
    "TimeGenerated": "2026-03-02T09:00:00.1234567Z",
    "Type": "SigninLogs",
    "ResultType": "0",
    "UserPrincipalName": "ann@example.com",
    "IPAddress": "2001:db8::9",
    "AppDisplayName": "Azure Portal",
    "AuthenticationRequirement": "multiFactorAuthentication",
    "LocationDetails": '{"city":"Redmond","countryOrRegion":"US"}',
    "Status": '{"errorCode":0}',
    "UserAgent": "Mozilla/5.0",
}
CHANGE = {  # Graph, `directoryAudit`
    "id": "Directory_504a302d",
    "category": "GroupManagement",
    "correlationId": "da159bfb-54fa-4092-8a38-6e1fa7870e30",
    "result": "success",
    "activityDisplayName": "Add member to group",
    "activityDateTime": "2026-03-02T09:00:00Z",
    "loggedByService": "Core Directory",
    "operationType": "Assign",
    "initiatedBy": {
        "user": {"id": "u1", "userPrincipalName": "root@example.com", "ipAddress": "203.0.113.9"}
    },
    "targetResources": [{"id": "g1", "displayName": "Admins", "type": "Group"}],
}
RISK: dict[str, Any] = {  # Graph v1.0, `riskDetection`
    "id": "6a5874ca-abcd-9d82-5ad39bd71600",
    "requestId": "6a5874ca-abcd",
    "correlationId": "abcd74ca-9823",
    "riskEventType": "unfamiliarFeatures",
    "riskState": "atRisk",
    "riskLevel": "medium",
    "riskDetail": "none",
    "source": "IdentityProtection",
    "detectionTimingType": "realtime",
    "activity": "signin",
    "tokenIssuerType": "AzureAD",
    "ipAddress": "203.0.113.9",
    "location": {"city": "Redmond", "state": "Washington", "countryOrRegion": "US"},
    "activityDateTime": "2026-03-02T09:00:00Z",
    "detectedDateTime": "2026-03-02T09:01:00Z",
    "userId": "a1b2",
    "userDisplayName": "Ann Smith",
    "userPrincipalName": "ann@example.com",
    "additionalInfo": '[{"Key":"userAgent","Value":"curl"}]',
}
RISK_ROW = {  # Log Analytics, table AADUserRiskEvents
    "TimeGenerated": "2026-03-02T09:05:00Z",
    "Type": "AADUserRiskEvents",
    "OperationName": "User Risk Detection",
    "ActivityDateTime": "2026-03-02T09:00:00Z",
    "RiskEventType": "anonymizedIPAddress",
    "RiskLevel": "high",
    "RiskState": "atRisk",
    "IpAddress": "203.0.113.9",
    "Location": '{"city":"Redmond","countryOrRegion":"US"}',
    "UserPrincipalName": "ann@example.com",
}
RISKY = {  # Graph v1.0, `riskyUser`
    "id": "c2b6c2b9",
    "isDeleted": False,
    "isProcessing": False,
    "riskLastUpdatedDateTime": "2026-03-02T09:00:00Z",
    "riskLevel": "high",
    "riskState": "atRisk",
    "riskDetail": "none",
    "userDisplayName": "Ann Smith",
    "userPrincipalName": "ann@example.com",
}
RISK_EVENT = {  # as a diagnostic setting writes it; its own time is American
    "time": "3/2/2026 9:05:16 AM",
    "resourceId": "/tenants/t1/providers/microsoft.aadiam",
    "operationName": "User Risk Detection",
    "operationVersion": "1.0",
    "category": "UserRiskEvents",
    "tenantId": "t1",
    "callerIpAddress": "203.0.113.9",
    "correlationId": "ce0ed07f",
    "identity": "ann smith",
    "Level": 4,
    "location": "us",
    "properties": RISK,
}
STALE = {  # Graph beta, an incident of an alert of Privileged Identity Management
    "@odata.type": "#microsoft.graph.staleSignInAlertIncident",
    "id": "13d5df6a",
    "roleDisplayName": "Global Administrator",
    "assigneeId": "13d5df6a",
    "assigneeDisplayName": "Ann Smith",
    "assigneeUserPrincipalName": "ann@example.com",
    "lastSignInDateTime": "2025-01-01T00:00:00Z",
}
ALERT = {  # Graph beta, `unifiedRoleManagementAlert`
    "id": "DirectoryRole_9d5d_TooManyGlobalAdminsAssignedToTenantAlert",
    "alertDefinitionId": "DirectoryRole_9d5d_TooManyGlobalAdminsAssignedToTenantAlert",
    "scopeType": "DirectoryRole",
    "scopeId": "9d5d",
    "incidentCount": 9,
    "isActive": True,
    "lastModifiedDateTime": "0001-01-01T08:00:00Z",
    "lastScannedDateTime": "2026-03-02T09:00:00Z",
}
LOGIN: dict[str, Any] = {
    "CreationTime": "2026-03-02T09:00:00",
    "Id": "e1",
    "Operation": "UserLoginFailed",
    "OrganizationId": "org",
    "RecordType": 15,
    "ResultStatus": "Failed",
    "UserKey": "k1",
    "UserType": 0,
    "Version": 1,
    "Workload": "AzureActiveDirectory",
    "ClientIP": "203.0.113.9",
    "ObjectId": "00000002",
    "UserId": "ann@example.com",
    "LogonError": "InvalidUserNameOrPassword",
    "ExtendedProperties": [{"Name": "UserAgent", "Value": "Mozilla/5.0"}],
}
FILE = LOGIN | {
    "Operation": "FileDownloaded",
    "Workload": "SharePoint",
    "ResultStatus": None,
    "ClientIP": "[2001:db8::9]:4242",
    "SourceFileName": "plan.docx",
    "ObjectId": "https://example.sharepoint.com/sites/a/plan.docx",
    "SiteUrl": "https://example.sharepoint.com/sites/a/",
}
RULE = LOGIN | {
    "Operation": "New-InboxRule",
    "Workload": "Exchange",
    "ResultStatus": "True",
    "ClientIP": "203.0.113.9:51234",
    "Parameters": [{"Name": "ForwardTo", "Value": "x@evil.example"}],
}


def about(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("class_uid", "activity_id", "status_id", "src_ip"))


@pytest.mark.parametrize(
    ("source", "record", "expected", "user"),
    [
        ("entra_id", SIGN_IN, (3002, 1, 2, "203.0.113.9"), "ann@example.com"),
        ("entra_id", ROW, (3002, 1, 1, "2001:db8::9"), "ann@example.com"),
        ("entra_id", CHANGE, (6003, 1, 1, "203.0.113.9"), "root@example.com"),
        ("entra_id", RISK, (2004, 1, 0, "203.0.113.9"), "ann@example.com"),
        ("entra_id", RISK_ROW, (2004, 1, 0, "203.0.113.9"), "ann@example.com"),
        ("azure_audit", RISK_EVENT, (2004, 1, 0, "203.0.113.9"), "ann@example.com"),
        ("entra_id", RISKY, (2004, 1, 0, None), "ann@example.com"),
        ("entra_id", RISKY | {"riskState": "remediated"}, (2004, 3, 0, None), "ann@example.com"),
        ("entra_id", ALERT, (2004, 1, 0, None), None),
        ("entra_id", ALERT | {"isActive": False}, (2004, 3, 0, None), None),
        ("entra_id", {"value": [SIGN_IN]}, (3002, 1, 2, "203.0.113.9"), "ann@example.com"),
        ("m365_audit", LOGIN, (3002, 1, 2, "203.0.113.9"), "ann@example.com"),
        ("m365_audit", FILE, (6006, 2, 1, "2001:db8::9"), "ann@example.com"),
        ("m365_audit", RULE, (6003, 1, 1, "203.0.113.9"), "ann@example.com"),
        (
            "m365_audit",
            {"UserIds": "ann@example.com", "AuditData": json.dumps(LOGIN)},
            (3002, 1, 2, "203.0.113.9"),
            "ann@example.com",
        ),
    ],
)
def test_records_in_each_form(
    source: str, record: dict[str, Any], expected: tuple[Any, ...], user: str | None
) -> None:
    raw = json.dumps(record)
    row = good(source, raw)
    assert about(row) == expected
    assert row.get("user_name") == user
    assert row["time"].isoformat()[:19] == "2026-03-02T09:00:00"
    check([row])
    # Packed texts and addresses with a port are taken apart.
    gone = {word for word in lost(raw.encode(), [row]) if word[0] not in "{[" and ":" not in word}
    assert gone - {"0"} == set()


def test_a_login_that_failed_says_why() -> None:
    assert good("entra_id", json.dumps(SIGN_IN))["status_code"] == "50126"
    row = good("m365_audit", json.dumps(LOGIN))
    assert row["status_detail"] == "InvalidUserNameOrPassword"
    assert row["http_request"]["user_agent"] == "Mozilla/5.0"


def test_an_incident_of_a_role_names_its_holder() -> None:
    row = good("entra_id", json.dumps({"value": [STALE]}))
    check([row])
    assert row["user"]["uid"] == "13d5df6a"
    assert row["finding_info"]["analytic"]["name"] == "staleSignInAlert"


@pytest.mark.parametrize("source", ["entra_id", "m365_audit"])
def test_what_is_no_record_is_a_dead_letter(source: str) -> None:
    for raw in (b"{}", b'{"a":1}', b"[]", b"x"):
        assert reason(source, raw)


@pytest.mark.parametrize(
    ("source", "record"),
    [
        *(("entra_id", record) for record in (SIGN_IN, ROW, CHANGE, RISK, ALERT)),
        *(("m365_audit", record) for record in (LOGIN, FILE, RULE)),
    ],
)
def test_odd_values_cost_no_event(source: str, record: dict[str, Any]) -> None:
    chance = Random(7)
    raws = [json.dumps(spoilt(record, chance)).encode() for _ in range(60)]
    found = rows(source, *raws)
    assert [one for one in found if "failed:" in str(one.get("dead_letter_reason"))] == []
    check([one for one in found if one.get("dead_letter_reason") is None])
    assert sum(one.get("dead_letter_reason") is None for one in found) > 40
