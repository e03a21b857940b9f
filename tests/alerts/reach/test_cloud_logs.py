"""Rules about cloud services on records as their products document them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.alerts.reach.fired import compiled, fired

M365: dict[str, Any] = {
    "CreationTime": "2026-03-02T09:00:00",
    "Id": "e1",
    "Operation": "New-InboxRule",
    "OrganizationId": "org",
    "RecordType": 1,
    "ResultStatus": "True",
    "UserKey": "k1",
    "UserType": 0,
    "Version": 1,
    "Workload": "Exchange",
    "ClientIP": "203.0.113.9:51234",
    "UserId": "ann@example.com",
    "Parameters": [
        {"Name": "ForwardTo", "Value": "x@evil.example"},
        {"Name": "MarkAsRead", "Value": "True"},
    ],
}
ALERT = M365 | {
    "Operation": "AlertTriggered",
    "Workload": "SecurityComplianceCenter",
    "ResultStatus": "Succeeded",
    "AlertId": "a1",
    "Name": "Impossible travel activity",
}
SETTING: dict[str, Any] = {
    "id": {
        "time": "2026-03-02T09:00:00Z",
        "uniqueQualifier": "1",
        "applicationName": "admin",
        "customerId": "C1",
    },
    "actor": {"email": "root@example.com", "profileId": "1"},
    "ipAddress": "203.0.113.9",
    "events": [
        {
            "type": "SECURITY_SETTINGS",
            "name": "ENFORCE_STRONG_AUTHENTICATION",
            "parameters": [{"name": "NEW_VALUE", "value": "false"}],
        }
    ],
}
WARNING = SETTING | {
    "id": SETTING["id"] | {"applicationName": "login"},
    "events": [{"type": "attack_warning", "name": "gov_attack_warning"}],
}
SIGN_IN = {  # Microsoft Graph, `signIn`
    "id": "66ea54eb",
    "createdDateTime": "2026-03-02T09:00:00Z",
    "userPrincipalName": "ann@example.com",
    "appDisplayName": "Graph explorer",
    "ipAddress": "203.0.113.9",
    "clientAppUsed": "IMAP4",
    "resourceDisplayName": "Microsoft Graph",
    "status": {"errorCode": 50126, "failureReason": "Invalid username or password"},
}
REFUSED = SIGN_IN | {
    "authenticationProtocol": "deviceCode",
    "deviceDetail": {"trustType": "AzureAd", "operatingSystem": ""},
    "status": SIGN_IN["status"] | {"additionalDetails": "MFA denied; user declined"},
}
ROW = {  # of `SigninLogs` in Log Analytics
    "TimeGenerated": "2026-03-02T09:00:00Z",
    "Type": "SigninLogs",
    "UserPrincipalName": "ann@example.com",
    "AppDisplayName": "Mail",
    "ResourceDisplayName": "Directory",
    "ClientAppUsed": "IMAP4",
    "ResultType": "50126",
    "ResultDescription": "Invalid username or password",
    "AuthenticationRequirement": "singleFactorAuthentication",
    "RiskState": "atRisk",
}
CONSENT: dict[str, Any] = {  # Microsoft Graph, `directoryAudit`
    "id": "Directory_1",
    "activityDateTime": "2026-03-02T09:00:00Z",
    "activityDisplayName": "Consent to application",
    "category": "ApplicationManagement",
    "result": "failure",
    "resultReason": "too risky",
    "loggedByService": "Core Directory",
    "initiatedBy": {"user": {"id": "u1", "userPrincipalName": "ann@example.com"}},
    "targetResources": [
        {
            "id": "a1",
            "displayName": "App",
            "type": "ServicePrincipal",
            "modifiedProperties": [
                {"displayName": "Other", "oldValue": None, "newValue": '"True"'},
                {
                    "displayName": "ConsentContext.IsAdminConsent",
                    "oldValue": None,
                    "newValue": '"False"',
                },
            ],
        }
    ],
    "additionalDetails": [
        {"key": "User-Agent", "value": "curl"},
        {"key": "additionalInfo", "value": "Recovered a password"},
    ],
}
ACTIVITY = {
    "time": "2026-03-02T09:00:00Z",
    "resourceId": "/SUBSCRIPTIONS/S/PROVIDERS/MICROSOFT.COMPUTE/DISKS/D",
    "operationName": "MICROSOFT.COMPUTE/DISKS/DELETE",
    "category": "Administrative",
    "resultType": "Success",
    "properties": {"entity": "/e"},
}
LOGGED_IN = M365 | {
    "Operation": "UserLoggedIn",
    "Workload": "AzureActiveDirectory",
    "ExtendedProperties": [
        {"Name": "UserAgent", "Value": "curl"},
        {"Name": "RequestType", "Value": "Login:reprocess"},
    ],
}
POLICY: dict[str, Any] = {
    "eventVersion": "1.08",
    "eventTime": "2026-03-02T09:00:00Z",
    "eventSource": "iam.amazonaws.com",
    "eventName": "PutUserPolicy",
    "awsRegion": "us-east-1",
    "sourceIPAddress": "203.0.113.9",
    "userIdentity": {"type": "IAMUser", "userName": "ann", "accountId": "1"},
    "requestParameters": {
        "userName": "ann",
        "policyDocument": '{"Effect": "Allow", "Action": "iam:*"}',
    },
    "eventID": "e1",
}
GCP: dict[str, Any] = {
    "insertId": "i1",
    "timestamp": "2026-03-02T09:00:00Z",
    "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
    "protoPayload": {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "serviceName": "compute.googleapis.com",
        "methodName": "v1.compute.firewalls.insert",
        "authenticationInfo": {"principalEmail": "ann@example.com"},
        "authorizationInfo": [{"permission": "compute.firewalls.create", "granted": True}],
        "request": {"sourceRanges": ["0.0.0.0/0"], "direction": "INGRESS"},
    },
}
POD = {
    "kind": "Event",
    "apiVersion": "audit.k8s.io/v1",
    "auditID": "a1",
    "stage": "ResponseComplete",
    "requestURI": "/api/v1/namespaces/default/pods",
    "verb": "create",
    "user": {"username": "ann"},
    "objectRef": {"resource": "pods", "namespace": "default"},
    "requestReceivedTimestamp": "2026-03-02T09:00:00.000000Z",
    "requestObject": {
        "spec": {
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
            "containers": [{"name": "c", "securityContext": {"capabilities": {"add": ["ALL"]}}}],
        }
    },
}
AUDIT, EXCHANGE = (
    {"product": "m365", "service": "audit"},
    {"product": "m365", "service": "exchange"},
)
THREATS = {"product": "m365", "service": "threat_management"}
SIGNED, CHANGED, DONE = (
    {"product": "azure", "service": service}
    for service in ("signinlogs", "auditlogs", "activitylogs")
)
RISK = {  # Microsoft Graph, `riskDetection`
    "id": "6a58",
    "riskEventType": "unfamiliarFeatures",
    "riskState": "atRisk",
    "riskLevel": "medium",
    "detectionTimingType": "realtime",
    "ipAddress": "203.0.113.9",
    "activityDateTime": "2026-03-02T09:00:00Z",
    "userPrincipalName": "ann@example.com",
}
RISK_ROW = {  # of `AADUserRiskEvents` in Log Analytics
    "TimeGenerated": "2026-03-02T09:05:00Z",
    "Type": "AADUserRiskEvents",
    "RiskEventType": "unfamiliarFeatures",
    "UserPrincipalName": "ann@example.com",
}
RISK_EVENT = {  # of a diagnostic setting
    "time": "3/2/2026 9:05:16 AM",
    "operationName": "User Risk Detection",
    "category": "UserRiskEvents",
    "properties": RISK,
}
STALE = {  # Microsoft Graph, an incident of an alert of Privileged Identity Management
    "@odata.type": "#microsoft.graph.staleSignInAlertIncident",
    "id": "13d5",
    "assigneeUserPrincipalName": "ann@example.com",
}
OUTSIDE = {  # the alert itself
    "id": "a1",
    "alertDefinitionId": "DirectoryRole_t_RolesAssignedOutsidePrivilegedIdentityManagementAlert",
    "isActive": True,
    "lastScannedDateTime": "2026-03-02T09:00:00Z",
}
TRIGGERED = {  # and how the audit log tells of one
    "activityDateTime": "2026-03-02T09:00:00Z",
    "activityDisplayName": "Triggered PIM alert",
    "category": "RoleManagement",
    "targetResources": [{"displayName": "Potential stale accounts in a privileged role"}],
}
RESOLVED = TRIGGERED | {"activityDisplayName": "Resolve PIM alert"}
RISKS, ROLES = ({"product": "azure", "service": service} for service in ("riskdetection", "pim"))
TRAIL = {"product": "aws", "service": "cloudtrail"}
K8S = {"category": "application", "product": "kubernetes", "service": "audit"}
ADMIN = {"product": "gcp", "service": "google_workspace.admin"}
OF_GCP = {"product": "gcp", "service": "gcp.audit"}


@pytest.mark.parametrize(
    ("logsource", "detection", "source", "record", "fires"),
    [
        (
            AUDIT,
            {"Operation": "New-InboxRule", "ClientIP": "203.0.113.9"},
            "m365_audit",
            M365,
            True,
        ),
        (EXCHANGE, {"Parameters|contains|all": ["ForwardTo", "evil"]}, "m365_audit", M365, True),
        (EXCHANGE, {"Parameters.Name": "RedirectTo"}, "m365_audit", M365, False),
        (EXCHANGE, {"eventName": "New-InboxRule", "status": "success"}, "m365_audit", M365, True),
        (
            THREATS,
            {
                "eventSource": "SecurityComplianceCenter",
                "eventName": "Impossible travel activity",
                "status": "success",
            },
            "m365_audit",
            ALERT,
            True,
        ),
        (THREATS, {"eventName": "New-InboxRule"}, "m365_audit", M365, False),
        (AUDIT, {"o365.audit.Workload": "Exchange"}, "m365_audit", M365, True),
        (
            ADMIN,
            {
                "eventService": "admin.googleapis.com",
                "eventName": "ENFORCE_STRONG_AUTHENTICATION",
                "new_value": "false",
            },
            "google_workspace",
            SETTING,
            True,
        ),
        (ADMIN, {"new_value": "true"}, "google_workspace", SETTING, False),
        (ADMIN, {"eventName": "gov_attack_warning"}, "google_workspace", WARNING, False),
        (
            {"product": "gcp", "service": "google_workspace.login"},
            {"protoPayload.metadata.event.eventName": "gov_attack_warning"},
            "google_workspace",
            WARNING,
            True,
        ),
        (
            {"product": "azure", "service": "signinlogs"},
            {"ResultType": 50126, "ClientApp": "IMAP4"},
            "entra_id",
            SIGN_IN,
            True,
        ),
        (
            OF_GCP,
            {
                "gcp.audit.method_name|endswith": ".firewalls.insert",
                "gcp.audit.request.source_ranges": "0.0.0.0/0",
                "data.protoPayload.authorizationInfo.permission": "compute.firewalls.create",
                "data.protoPayload.logName": "cloudaudit.googleapis.com%2Factivity",
            },
            "gcp_audit",
            GCP,
            True,
        ),
        (OF_GCP, {"gcp.audit.request.direction": "EGRESS"}, "gcp_audit", GCP, False),
        (K8S, {"verb": "create", "hostPath": "*", "capabilities": "*"}, "k8s_audit", POD, True),
        (K8S, {"hostPath": "*"}, "k8s_audit", POD | {"requestObject": {"spec": {}}}, False),
        (SIGNED, {"Status|contains": "MFA denied"}, "entra_id", REFUSED, True),
        (SIGNED, {"Status|contains": "MFA denied"}, "entra_id", SIGN_IN, False),
        (SIGNED, {"properties.message": "Device Code"}, "entra_id", REFUSED, True),
        (SIGNED, {"properties.message": "Device Code"}, "entra_id", SIGN_IN, False),
        (SIGNED, {"ActivityDetails": "Sign-ins"}, "entra_id", SIGN_IN, True),
        # Whichever way its name is written, a field that is there is not an empty one.
        (SIGNED, {"DeviceDetail.trusttype": ""}, "entra_id", REFUSED, False),
        (SIGNED, {"DeviceDetail.trusttype": "azuread"}, "entra_id", REFUSED, True),
        (SIGNED, {"ClientAppUsed": ""}, "entra_id", SIGN_IN, False),
        (SIGNED, {"DeviceDetail.operatingSystem": ""}, "entra_id", REFUSED, True),
        (SIGNED, {"DeviceDetail.browser": ""}, "entra_id", REFUSED, True),
        (
            SIGNED,
            {
                "ResultDescription|contains": "password",
                "AuthenticationRequirement": "singleFactorAuthentication",
                "AppDisplayName": "Mail",
                "ClientApp": "IMAP4",
                "riskState": "atRisk",
                "properties.riskState": "atRisk",
            },
            "entra_id",
            ROW,
            True,
        ),
        (CHANGED, {"Category": "ApplicationManagement"}, "entra_id", CONSENT, True),
        (CHANGED, {"failure_status_reason": "too risky"}, "entra_id", CONSENT, True),
        (CHANGED, {"ConsentContext.IsAdminConsent": "false"}, "entra_id", CONSENT, True),
        (CHANGED, {"ConsentContext.IsAdminConsent": "true"}, "entra_id", CONSENT, False),
        (CHANGED, {"additionalDetails.additionalInfo|contains": "pass"}, "entra_id", CONSENT, True),
        (CHANGED, {"additionalDetails.additionalInfo": "curl"}, "entra_id", CONSENT, False),
        *(
            (RISKS, {"riskEventType": "unfamiliarFeatures"}, source, record, True)
            for source, record in (
                ("entra_id", RISK),
                ("entra_id", RISK_ROW),
                ("azure_audit", RISK_EVENT),
            )
        ),
        (RISKS, {"riskEventType": "unfamiliarFeatures"}, "entra_id", SIGN_IN, False),
        (RISKS, {"riskLevel": "medium", "riskState": "atRisk"}, "entra_id", RISK, True),
        (RISKS, {"riskEventType": "leakedCredentials"}, "entra_id", RISK, False),
        (ROLES, {"riskEventType": "staleSignInAlertIncident"}, "entra_id", STALE, True),
        (ROLES, {"riskEventType": "staleSignInAlertIncident"}, "entra_id", TRIGGERED, True),
        (ROLES, {"riskEventType": "staleSignInAlertIncident"}, "entra_id", RESOLVED, False),
        (ROLES, {"riskEventType": "staleSignInAlertIncident"}, "entra_id", OUTSIDE, False),
        *(
            (
                ROLES,
                {
                    "riskEventType": "rolesAssignedOutsidePrivilegedIdentityManagementAlert"
                    "Configuration"
                },
                "entra_id",
                OUTSIDE | {"isActive": active},
                active is True,
            )
            for active in (True, False, "False")
        ),
        (
            {"product": "azure", "service": "audit"},
            {"ActivityDisplayName|contains": "Consent"},
            "entra_id",
            CONSENT,
            True,
        ),
        (
            DONE,
            {"CategoryValue": "Administrative", "ResourceProviderValue": "Microsoft.Compute"},
            "azure_audit",
            ACTIVITY,
            True,
        ),
        (DONE, {"ResourceProviderValue": "Microsoft.Network"}, "azure_audit", ACTIVITY, False),
        (AUDIT, {"RequestType": "Login:reprocess"}, "m365_audit", LOGGED_IN, True),
        (AUDIT, {"RequestType": "curl"}, "m365_audit", LOGGED_IN, False),
        (EXCHANGE, {"eventData|contains": "ForwardTo"}, "m365_audit", M365, True),
        (EXCHANGE, {"status": "Failed"}, "m365_audit", M365 | {"ResultStatus": "False"}, True),
        (EXCHANGE, {"status": "Failed"}, "m365_audit", M365, False),
        (
            TRAIL,
            {"requestParameters|contains|all": ['"Allow"', '"iam:*"']},
            "aws_cloudtrail",
            POLICY,
            True,
        ),
        (TRAIL, {"requestParameters|contains": '"Deny"'}, "aws_cloudtrail", POLICY, False),
    ],
)
def test_a_rule_fires_on_the_product_s_own_record(
    logsource: dict[str, str],
    detection: dict[str, Any],
    source: str,
    record: dict[str, Any],
    fires: bool,
) -> None:
    assert fired(logsource, detection, source, json.dumps(record).encode()) is fires


MFA_OFF: dict[str, Any] = {  # of `AuditLogs` in Log Analytics
    "TimeGenerated": "2026-03-02T09:00:00Z",
    "Type": "AuditLogs",
    "ActivityDisplayName": "Update user",
    "OperationName": "Update user",
    "TargetResources": [
        {
            "type": "User",
            "modifiedProperties": [
                {"displayName": "StrongAuthenticationRequirement", "newValue": '[{"State":0}]'}
            ],
        }
    ],
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("value", "fires"), [('State":0', True), ('State":1', False)])
def test_what_an_operation_changed_is_asked_whether_packed_or_not(
    packed: bool, value: str, fires: bool
) -> None:
    changed = MFA_OFF["TargetResources"]
    record = MFA_OFF | {"TargetResources": json.dumps(changed) if packed else changed}
    detection = {"TargetResources.ModifiedProperties.NewValue|contains": value}
    logsource = {"product": "azure", "service": "auditlogs"}
    assert fired(logsource, detection, "entra_id", json.dumps(record).encode()) is fires


@pytest.mark.parametrize(
    ("logsource", "field", "meant"),
    [
        (OF_GCP, "gcp.audit.method_nam", "protoPayload.methodName"),
        (OF_GCP, "protoPayload.servicName", "protoPayload.serviceName"),
        (K8S, "objectRef.resourc", "objectRef.resource"),
        (K8S, "verbs", "verb"),
        ({"product": "okta", "service": "okta"}, "eventtyp", "eventType"),
        ({"product": "zeek", "service": "conn"}, "id.orig_hh", "id.orig_h"),
        ({"product": "zeek", "service": "http"}, "user_agnt", "user_agent"),
        ({"product": "azure", "service": "signinlogs"}, "ResultTyp", "ResultType"),
        ({"product": "windows", "service": "security"}, "TargetUserNam", "TargetUserName"),
        (AUDIT, "Operatio", "Operation"),
    ],
)
def test_a_field_that_no_record_can_have_is_refused_with_what_is_meant(
    logsource: dict[str, str], field: str, meant: str
) -> None:
    (refusal,) = compiled(logsource, {field: "x"}).refused
    assert f"did you mean {meant}?" in str(refusal).replace("'", "")


@pytest.mark.parametrize(
    ("logsource", "field"),
    [
        (OF_GCP, "protoPayload.request.anything.at_all"),
        (K8S, "requestObject.spec.serviceAccountName"),
        (K8S, "annotations.authorization"),
        ({"product": "okta", "service": "okta"}, "debugContext.debugData.risk"),
        ({"product": "okta", "service": "okta"}, "device.managed"),
        ({"product": "zeek", "service": "dns"}, "Z"),
        ({"product": "zeek", "service": "dns"}, "original_query"),
        ({"product": "zeek", "service": "ssl"}, "client_curves"),
        ({"product": "zeek", "service": "conn"}, "id.ctx.vlan"),
        ({"product": "zeek", "service": "conn"}, "src_port"),
        ({"product": "zeek", "service": "conn"}, "unmapped:my_own_field"),
        (AUDIT, "ApplicationId"),
    ],
)
def test_fields_that_records_may_have_are_taken(logsource: dict[str, str], field: str) -> None:
    assert not compiled(logsource, {field: "x"}).refused


def in_cloud_logging(method: str, name: str) -> bytes:
    """An administrator's act as Workspace hands it to Cloud Logging."""
    parameters = [
        {"label": "LABEL_OPTIONAL", "name": "ROLE_NAME", "type": "TYPE_STRING", "value": "_ADMIN"},
        {"label": "LABEL_OPTIONAL", "name": "USER_EMAIL", "value": "bob@example.com"},
        {"label": "LABEL_OPTIONAL", "name": "GROUP_EMAIL", "value": "staff@example.com"},
        {"label": "LABEL_REPEATED", "name": "SCOPES", "multiStrValue": ["drive", "mail"]},
        {"label": "LABEL_OPTIONAL", "name": "IS_SUSPENDED", "boolValue": True},
    ]
    payload = {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "authenticationInfo": {"principalEmail": "ann@example.com"},
        "requestMetadata": {"callerIp": "203.0.113.9"},
        "serviceName": "admin.googleapis.com",
        "methodName": f"google.admin.AdminService.{method}",
        "metadata": {"event": [{"eventName": name, "eventType": "X", "parameter": parameters}]},
    }
    entry = {
        "insertId": "i1",
        "timestamp": "2026-03-02T09:00:00Z",
        "logName": "organizations/1/logs/cloudaudit.googleapis.com%2Factivity",
        "resource": {"type": "audited_resource", "labels": {"method": method}},
        "protoPayload": payload,
    }
    return json.dumps(entry).encode()


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("enforceStrongAuthentication", "ENFORCE_STRONG_AUTHENTICATION"),
        # Events of a class of their own, in which the call stands beside what was changed.
        ("createUser", "CREATE_USER"),
        ("assignRole", "ASSIGN_ROLE"),
        ("addGroupMember", "ADD_GROUP_MEMBER"),
    ],
)
@pytest.mark.parametrize(
    ("detection", "fires"),
    [
        ({"eventService": "admin.googleapis.com", "role_name": "_ADMIN"}, True),
        ({"protoPayload.serviceName": "login.googleapis.com"}, False),
        ({"user_email": "bob@example.com", "actor.email": "ann@example.com"}, True),
        ({"protoPayload.metadata.event.parameter.value": "staff@example.com"}, True),
        ({"protoPayload.metadata.event.parameter.value": "mail"}, True),
        ({"protoPayload.metadata.event.parameter.value": "true"}, True),
        ({"protoPayload.metadata.event.parameter.value": "ROLE_NAME"}, False),
        ({"protoPayload.metadata.event.parameter.name": "ROLE_NAME"}, True),
    ],
)
def test_workspace_in_cloud_logging_is_asked_as_its_own_records_are(
    method: str, name: str, detection: dict[str, Any], fires: bool
) -> None:
    raw = in_cloud_logging(method, name)
    assert fired(ADMIN, {"eventName": name} | detection, "gcp_audit", raw) is fires


def test_a_parameter_of_workspaces_own_records_is_asked_without_its_name() -> None:
    raw = json.dumps(SETTING).encode()
    for value, fires in (("false", True), ("NEW_VALUE", False)):
        detection = {"protoPayload.metadata.event.parameter.value": value}
        assert fired(ADMIN, detection, "google_workspace", raw) is fires


def of_service(service: str) -> bytes:
    """An entry of Cloud Logging by a service of Workspace."""
    raw = in_cloud_logging("x", "X").decode()
    return raw.replace("admin.googleapis.com", service).encode()


@pytest.mark.parametrize(
    ("logsource", "service", "fires"),
    [
        ({"product": "gcp", "service": "google_workspace.drive"}, "drive.googleapis.com", True),
        ({"product": "gcp", "service": "google_workspace.drive"}, "oauth2.googleapis.com", False),
        ({"product": "gcp", "service": "google_workspace.token"}, "oauth2.googleapis.com", True),
        ({"product": "gcp", "service": "google_workspace.token"}, "storage.googleapis.com", False),
        ({"product": "google_workspace"}, "admin.googleapis.com", True),
        ({"product": "google_workspace"}, "login.googleapis.com", True),
        ({"product": "google_workspace"}, "storage.googleapis.com", False),
    ],
)
def test_rules_over_a_log_of_workspace_see_it_in_cloud_logging(
    logsource: dict[str, str], service: str, fires: bool
) -> None:
    detection = {"eventName": "X", "user_email": "bob@example.com"}
    assert fired(logsource, detection, "gcp_audit", of_service(service)) is fires


def test_rules_over_workspace_see_its_own_records() -> None:
    raw = json.dumps(SETTING).encode()
    assert fired({"product": "google_workspace"}, {"new_value": "false"}, "google_workspace", raw)


@pytest.mark.parametrize(
    ("field", "value"), [("value", "_ADMIN"), ("multiStrValue", "mail"), ("boolValue", "true")]
)
def test_rules_over_google_cloud_ask_workspaces_parameters_where_the_entry_has_them(
    field: str, value: str
) -> None:
    logsource = {"product": "gcp", "service": "gcp.audit"}
    detection = {f"protoPayload.metadata.event.parameter.{field}": value}
    raw = in_cloud_logging("createUser", "CREATE_USER")
    assert fired(logsource, detection, "gcp_audit", raw)
    two = json.loads(raw)
    events = two["protoPayload"]["metadata"]["event"]
    events.append({"eventName": "OTHER", "parameter": []})
    assert fired(logsource, detection, "gcp_audit", json.dumps(two).encode())
