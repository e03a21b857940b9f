"""Rules that can never fire are told, with the field at fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.reach.example_values import matching
from alerts.reach.reach import reach_of
from alerts.rulebook.public_rules import look_through, summary_json, summary_text
from alerts.rulepack.predicate import regex
from tests.alerts.public_rules import RULES, document
from tests.alerts.reach.fired import compiled

LINUX = {"product": "linux"}
UNREACHED = {"file_rename"}
"""Log sources in the file of public styles that no event of ours, or no form here, reaches."""


def test_no_bundled_rule_is_dead() -> None:
    reached = reach_of(compile_rules([BUNDLED]))
    assert [(r.path.name, r.reason) for r in reached if r.state == "dead"] == []
    assert sum(r.state == "fires" for r in reached) >= 15


def test_rules_in_public_styles_fire_on_events_made_for_them(tmp_path: Path) -> None:
    for number, rule in enumerate(RULES):
        (tmp_path / f"{number}.yml").write_text(document(number, rule), "utf-8")
    failed = {
        (r.path.name, r.reason)
        for r in reach_of(compile_rules([tmp_path]))
        if r.state != "fires" and not UNREACHED & {*RULES[int(r.path.stem)]["logsource"].values()}
    }
    assert failed == set()


def test_a_dead_rule_names_the_field_and_stands_in_the_import(tmp_path: Path) -> None:
    rule = {
        "logsource": {"product": "windows", "service": "security"},
        "detection": {"selection": {"EventID": 4624, "Image": "a.exe"}, "condition": "selection"},
    }
    # No event of Windows that has a parser tells of a file that was renamed.
    dead = {
        "logsource": {"product": "windows", "category": "file_rename"},
        "detection": {"selection": {"TargetFilename": "C:\\a"}, "condition": "selection"},
    }
    for number, entry in enumerate((rule, dead)):
        (tmp_path / f"{number}.yml").write_text(document(number, entry), "utf-8")
    report = look_through(tmp_path, ())
    assert [d.path.name for d in report.dead] == ["1.yml"]
    assert any("cannot fire" in line and "1.yml" in line for line in summary_text(report))
    assert len(json.loads(json.dumps(summary_json(report)))["cannot_fire"]) == 1


def test_rights_in_words_are_tried_as_the_codes_that_an_event_has(tmp_path: Path) -> None:
    rule = {
        "logsource": SECURITY,
        "detection": {
            "selection": {"EventID": 5145, "Accesses|contains": "WriteData"},
            "condition": "selection",
        },
    }
    (tmp_path / "rule.yml").write_text(document(0, rule), "utf-8")
    (reached,) = reach_of(compile_rules([tmp_path]))
    assert reached.state == "fires"
    assert b"%%4417" in reached.record
    assert b"WriteData" not in reached.record


@pytest.mark.parametrize("network", ["203.0.113.9/32", "203.0.113.8/31", "2001:db8::1/128"])
def test_a_network_of_one_address_is_tried(network: str, tmp_path: Path) -> None:
    rule = {
        "logsource": {"product": "windows", "category": "network_connection"},
        "detection": {"s": {"DestinationIp|cidr": network}, "condition": "s"},
    }
    (tmp_path / "rule.yml").write_text(document(0, rule), "utf-8")
    (reached,) = reach_of(compile_rules([tmp_path]))
    assert reached.state == "fires"


def test_a_list_of_words_under_a_field_name_is_dead(tmp_path: Path) -> None:
    rule = {
        "logsource": {"product": "cisco", "service": "aaa"},
        "detection": {"session": {"keywords": ["one", "two"]}, "condition": "session"},
    }
    (tmp_path / "0.yml").write_text(document(0, rule), "utf-8")
    (dead,) = reach_of(compile_rules([tmp_path]))
    assert (dead.state, "for keywords" in dead.reason) == ("dead", True)


def test_a_field_none_of_whose_alternatives_can_be_is_the_one_at_fault(tmp_path: Path) -> None:
    asked = {"requestURI|contains": ["bin%2fash", "bin%2fbash"], "responseStatus.code": "ALLOW"}
    rule = {
        "logsource": {"product": "kubernetes", "service": "audit"},
        "detection": {"selection": asked, "condition": "selection"},
    }
    (tmp_path / "0.yml").write_text(document(0, rule), "utf-8")
    (dead,) = reach_of(compile_rules([tmp_path]))
    assert dead.reason == "no event of k8s_audit has these values for responseStatus.code"


SECURITY = {"product": "windows", "service": "security"}


@pytest.mark.parametrize(
    "name", ["SubjectUserNme", "SubjectUsreName", "TargetUserNamme", "CallerProcesName"]
)
def test_a_slip_of_the_hand_is_refused_where_other_fields_are_in_the_rest(name: str) -> None:
    (refused,) = compiled(SECURITY, {"EventID": 4624, name: "x"}).refused
    assert "did you mean" in refused.remedy


@pytest.mark.parametrize(
    "name", ["OldTargetUserName", "AccessMask", "param9", "EventIdx", "subjectusername"]
)
def test_other_names_of_the_product_are_not_taken_for_slips(name: str) -> None:
    assert not compiled(SECURITY, {"EventID": 4624, name: "x"}).refused


@pytest.mark.parametrize(
    "pattern",
    [r"(?i)[a-z]:\\\\users\\\\[^\\\\]+\\\\x{8}\.exe", r"^a(?:b|c)d?$", r"\d{2}\s\w+[^a]", "x|y"],
)
def test_a_text_is_made_for_an_expression(pattern: str) -> None:
    assert regex(pattern).search(matching(pattern))


def test_a_part_of_a_resource_is_asked_by_its_own_name() -> None:
    detection: dict[str, Any] = {"objectRef.resource": "pods", "objectRef.subresource": "exec"}
    result = compiled({"product": "kubernetes", "service": "audit"}, detection)
    assert not result.refused


@pytest.mark.parametrize(
    ("logsource", "detection"),
    [
        (SECURITY, {"EventID": 4688, "Image": "a.exe"}),
        (SECURITY, {"EventID": 4688, "parentimage": "a.exe"}),
        ({"product": "windows", "service": "taskscheduler"}, {"TargetFilename": "x"}),
        ({"product": "aws", "service": "cloudtrail"}, {"eventNme": "x"}),
        ({"product": "aws", "service": "cloudtrail"}, {"requestParameter.x": "y"}),
        ({"product": "bitbucket", "service": "audit"}, {"audit.action": "x"}),
    ],
)
def test_a_field_that_no_event_of_the_log_can_have_is_refused(
    logsource: dict[str, str], detection: dict[str, Any]
) -> None:
    (refused,) = compiled(logsource, detection).refused
    assert "field" in refused.reason


@pytest.mark.parametrize(
    ("logsource", "detection"),
    [
        ({"product": "windows"}, {"EventID": 1, "Image": "a.exe"}),
        ({"product": "windows", "service": "sysmon"}, {"EventID": 1, "ParentUser": "x"}),
        (SECURITY, {"EventID": 4688, "unmapped:Image": "a.exe"}),
        (SECURITY, {"EventID": 4688, "CommandLine": "a"}),
        (
            {"product": "windows", "service": "codeintegrity-operational"},
            {"EventID": 3077, "OriginalFileName": "a.sys"},
        ),
        ({"product": "aws", "service": "cloudtrail"}, {"requestParameters.x.y": "z"}),
        ({"product": "aws", "service": "cloudtrail"}, {"eventname": "x"}),
    ],
)
def test_fields_that_a_log_may_have_are_asked(
    logsource: dict[str, str], detection: dict[str, Any]
) -> None:
    assert not compiled(logsource, detection).refused


@pytest.mark.parametrize(
    ("logsource", "detection"),
    [
        ({"product": "cisco", "service": "asa"}, {"EventID": 106023, "dst_port": 22}),
        ({"product": "cisco", "service": "asa"}, {"action": "deny", "src_ip": "198.51.100.7"}),
        ({"product": "cisco", "service": "asa"}, {"action": ["accept", "permit"]}),
        ({"product": "cisco", "service": "asa"}, {"user": "enable_15"}),
        ({"product": "cisco", "service": "asa"}, {"msg|contains": "IKE negotiation aborted"}),
        ({"product": "cisco", "category": "firewall"}, {"dst_ip|cidr": "192.0.2.0/24"}),
        ({"category": "antivirus"}, {"Signature|startswith": "HTOOL", "Filename|endswith": ".exe"}),
        ({"category": "antivirus"}, {"Filename|contains": "\\Temp\\", "Action": "Quarantine"}),
        (
            {"product": "macos", "category": "process_creation"},
            {
                "Image|endswith": "/osascript",
                "CommandLine|contains|all": ["-e", "password"],
                "ParentImage|endswith": "/curl",
            },
        ),
        (
            {"product": "macos", "category": "file_event"},
            {"TargetFilename|contains": "/LaunchAgents/", "TargetFilename|endswith": ".plist"},
        ),
        (
            {"product": "azure", "service": "auditlogs"},
            {
                "OperationName": "Update user",
                "TargetResources.ModifiedProperties.DisplayName": "StrongAuthenticationRequirement",
                "TargetResources.ModifiedProperties.NewValue|contains": 'State":0',
            },
        ),
        # Without an address, which a line of sshd has all the same.
        ({"product": "linux", "service": "sshd"}, {"User": "root"}),
        # Two of the properties that an operation changed.
        (
            {"product": "azure", "service": "auditlogs"},
            {
                "ConsentContext.IsAdminConsent": "false",
                "TargetResources.modifiedProperties.newValue|contains": "offline_access",
            },
        ),
        # A parameter that the mapping does not name; an administrator's are in capitals.
        (
            {"product": "gcp", "service": "google_workspace.admin"},
            {"eventName": "ADD_GROUP_MEMBER", "member_type": "EXTERNAL"},
        ),
        (
            {"product": "okta", "service": "okta"},
            {
                "okta.event_type": "user.session.start",
                "okta.debugContext.debugData.behaviors|contains": "Velocity=POSITIVE",
            },
        ),
        (
            {"category": "windows_filtering_platform", "product": "windows", "service": "security"},
            {"EventID": 5447, "FilterName|contains": "Custom Outbound Filter"},
        ),
        ({"category": "application", "product": "generic"}, {"message|contains": "as before"}),
        # A text in whose middle anything may stand has its end, too.
        ({"product": "gcp", "service": "gcp.audit"}, {"gcp.audit.method_name": "v*.Odd.Thing"}),
        (LINUX | {"service": "clamav"}, {"words": ["Odd*FOUND"], "condition": "words"}),
        (LINUX | {"service": "syslog"}, {"words": [" giving up"], "condition": "words"}),
        ({"product": "aws", "service": "cloudtrail"}, {"eventName": "ListOdd", "type": "Root"}),
        # Programs whose lines have a form of their own.
        (LINUX | {"service": "sudo"}, {"USER": ["#-2", "#*4294967294"], "TTY": "pts/1"}),
        (LINUX | {"service": "cron"}, {"words": ["DELETE"], "condition": "words"}),
        (LINUX | {"service": "vsftpd"}, {"words": ["odd state:"], "condition": "words"}),
        ({"service": "apache"}, {"words": ["exit signal Odd"], "condition": "words"}),
        ({"service": "nginx"}, {"words": ["exited on signal 7"], "condition": "words"}),
        ({"category": "database"}, {"words": ["grant all"], "condition": "words"}),
        # The classic log of PowerShell tells of its host in the text of its context.
        (
            {"product": "windows", "category": "ps_classic_start"},
            {"HostApplication|contains|all": ["pwsh", "-odd"], "HostName|endswith": "RemoteHost"},
        ),
        # Sysmon's own event has no parent, a shipper may add it; the rule rules it out.
        (
            {"product": "windows", "category": "network_connection"},
            {
                "asked": {"Image|endswith": "\\odd.exe"},
                "filter": {"ParentImage": "C:\\known.exe", "DestinationPort": 443},
                "condition": "asked and not filter",
            },
        ),
        ({"category": "proxy", "product": "windows"}, {"cs-uri-stem|contains": "/a.gif"}),
        # What it rules out is whoever a record names where a rule does not say.
        (
            {"category": "webserver"},
            {
                "asked": {"cs-uri-stem|endswith": "/cron.php"},
                "filter": {"c-ip|cidr": ["10.0.0.0/8", "192.168.0.0/16"]},
                "condition": "asked and not filter",
            },
        ),
        (
            {"product": "okta", "service": "okta"},
            {
                "failed": {"legacyeventtype": "core.user_auth.login_failed"},
                "filter": {"actor.alternateid|re": "[a-z.]+@[a-z.]+"},
                "condition": "failed and not filter",
            },
        ),
    ],
)
def test_a_rule_is_tried_on_its_products_own_record(
    logsource: dict[str, str], detection: dict[str, Any], tmp_path: Path
) -> None:
    whole = {"selection": detection, "condition": "selection"}
    rule = {
        "logsource": logsource,
        "detection": detection if "condition" in detection else whole,
    }
    (tmp_path / "rule.yml").write_text(document(0, rule), "utf-8")
    (reached,) = reach_of(compile_rules([tmp_path]))
    assert (reached.state, reached.reason) == ("fires", ""), reached.record
