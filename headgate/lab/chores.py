"""What the administrator, the backup and the monitoring do. Most of it looks like an attack.

Each chore says how often it falls: on so many days of one. `Day.every_chore` lets all fall at once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headgate.lab.day import Action, Day
from headgate.lab.leases import Use
from headgate.lab.linux_logs import (
    page,
    quiet_hours,
    ran,
    renamed,
    ssh_accepted,
    ssh_closed,
    ssh_failed,
    sudo,
    sudo_wrong,
    syslog,
    wrote,
)
from headgate.lab.site import ADMIN, BACKUP, DC, SERVERS, WEB, WINDOWS
from headgate.lab.windows_logs import (
    POWERSHELL,
    SYSTEM32,
    background,
    logged_on,
    logon_failed,
    script,
    security,
    service,
    started,
)
from headgate.lab.zeek_logs import connection, plain, secure, unanswered

_CHOCOLATEY = (
    "Set-ExecutionPolicy Bypass -Scope Process -Force; "
    "[System.Net.ServicePointManager]::SecurityProtocol = "
    "[System.Net.ServicePointManager]::SecurityProtocol -bor 3072; "
    "iex ((New-Object System.Net.WebClient)"
    ".DownloadString('https://community.chocolatey.org/install.ps1'))"
)
_EXPLORER, _CMD = "C:\\Windows\\explorer.exe", SYSTEM32 + "cmd.exe"
_TASK = (
    '<?xml version="1.0" encoding="UTF-16"?><Task version="1.2"><Actions><Exec><Command>'
    "powershell.exe</Command><Arguments>-NoProfile -File C:\\it\\inventory.ps1</Arguments></Exec>"
    "</Actions></Task>"
)


class Chore(NamedTuple):
    """`do` is called with where and since when somebody works; `per_day`: how often it falls."""

    name: str
    per_day: float
    do: Callable[[Day, Use, float], None]
    looks_bad: str


def servers(day: Day) -> None:
    """What servers do without people: cron, backups, monitoring."""
    for server in SERVERS:
        if server.system == WINDOWS:
            for hour in (2.0, 10.0, 18.0):
                background(day, day.at(hour), server.name, "svc-dc", server.ip)
        else:
            quiet_hours(day, server)
    _backups(day)
    _monitoring(day)
    _health_checks(day)
    if day.falls(1.0):
        _upgrade(day)
    if day.falls(0.2):
        _inventory_scan(day)
    _scan_to_share(day)


def administration(day: Day, uses: Sequence[Use]) -> None:
    """The administrator's chores, at hours when the administrator is there; and one user's."""
    long = [use for use in uses if use.device == ADMIN.name and use.end - use.start > 4_000]
    for chore in CHORES:
        if day.falls(chore.per_day) and long:
            use = day.dice.choice(long)
            # Ends before the device leaves: no chore takes longer than a quarter of an hour.
            now = day.dice.uniform(use.start + 120, use.end - 1_200)
            chore.do(day, use, now)
            day.did(Action(now, use.device, chore.name, use.mac, use.ip, chore.looks_bad))
    user = [u for u in uses if u.device == "lx-07" and u.end - u.start > 1_000]
    if day.falls(0.1) and user:
        _forgetful(day, user[0], user[0].start + 400)


# -- servers ---------------------------------------------------------------------------------------


def _backups(day: Day) -> None:
    """Each hour a login by key from the backup server, each night a large upload."""
    for hour in range(24):
        now = day.at(hour + 0.5)
        port = 40_000 + hour
        ssh_accepted(day, now, WEB.name, "backup", BACKUP.ip, port)
        ran(day, now + 1, WEB.name, ("rsync", "--server", "--sender", ".", "/srv/"), user="backup")
        ssh_closed(day, now + 40, WEB.name, "backup", BACKUP.ip, port)
        connection(day, now, BACKUP.ip, (WEB.ip, 22), "ssh", resp_bytes=90_000_000)
    for nth in range(4):
        sent = {"orig_bytes": 12_000_000_000, "orig_pkts": 9_000_000, "duration": 900.0}
        secure(day, day.at(1 + nth / 4), BACKUP.ip, "backups.example.net", **sent)
    what, why = "nightly backup to a store outside", "48 GB uploaded at night"
    day.did(Action(day.at(1), BACKUP.name, what, looks_bad=why))


def _monitoring(day: Day) -> None:
    """Every five minutes all servers' ports; two have been down for an hour, so it is refused."""
    targets = ((WEB.ip, 80), (WEB.ip, 443), (WEB.ip, 22), (DC.ip, 53), (DC.ip, 389), (DC.ip, 3389))
    for nth in range(24 * 12):
        now = day.at(nth / 12)
        for ip, port in targets:
            if port in (443, 3389) and 12 <= nth / 12 < 13:
                unanswered(day, now, BACKUP.ip, (ip, port), "REJ")
            else:
                connection(day, now, BACKUP.ip, (ip, port), duration=0.01)
        if nth % 3 == 0:
            plain(day, now + 1, BACKUP.ip, "intranet.corp.example", "/health", to=WEB.ip,
                  agent="check_http/v2.3 (monitoring-plugins 2.3)")  # fmt: skip


def _health_checks(day: Day) -> None:
    """A container without curl is asked whether it is well through /dev/tcp, as its makers say."""
    line = "exec 3<>/dev/tcp/127.0.0.1/9000; echo -e 'GET /health/ready HTTP/1.1' >&3; cat <&3"
    for nth in range(48):
        ran(day, day.at(nth / 2) + 11, WEB.name, ("bash", "-c", line), "/usr/bin/bash")
    what, why = "health checks of a container", "a shell that talks through /dev/tcp"
    day.did(Action(day.at(0) + 11, WEB.name, what, looks_bad=why))


def _upgrade(day: Day) -> None:
    """Packages by apt, which runs scripts of all kinds as root."""
    for server in SERVERS:
        if server.system == WINDOWS:
            continue
        now, host = day.at(6.7) + day.dice.uniform(0, 900), server.name
        for nth in range(8):
            uri = f"/debian/pool/main/o/openssl/libssl3_3.0.{nth}-1_amd64.deb"
            plain(day, now + nth, server.ip, "deb.debian.org", uri,
                  agent="Debian APT-HTTP/1.3 (2.6.1)", kind="application/x-debian-package",
                  )  # fmt: skip
        ran(day, now + 20, host, ("dpkg", "--unpack", "/var/cache/apt/archives/libssl3.deb"))
        words = ("sh", "/var/lib/dpkg/info/openssh-server.postinst", "configure", "1:9.2p1")
        ran(day, now + 22, host, words, "/usr/bin/dash")
        wrote(day, now + 23, host, "/etc/cron.daily/apt-compat.dpkg-new", "/usr/bin/dpkg")
        renamed(day, now + 23.5, host, "/etc/cron.daily/apt-compat.dpkg-new",
                "/etc/cron.daily/apt-compat", "/usr/bin/dpkg", "root")  # fmt: skip
        ran(day, now + 24, host, ("chmod", "4755", "/usr/lib/openssh/ssh-keysign"))
        ran(day, now + 25, host, ("adduser", "--system", "sshd"), "/usr/bin/perl")
        wrote(day, now + 25.5, host, "/etc/passwd", "/usr/sbin/useradd")
        ran(day, now + 26, host, ("systemctl", "daemon-reload"))
        text = "status installed libssl3:amd64 3.0.17-1"
        syslog(day, now + 27, "syslog", host, "dpkg", text)
        what, why = "packages are upgraded", "setuid bits, accounts and cron files by root"
        day.did(Action(now, host, what, looks_bad=why))


def _inventory_scan(day: Day) -> None:
    """The weekly inventory: every address of the office, some ports each, within five minutes."""
    now = day.at(22.0)
    for last in range(1, 255):
        for nth, port in enumerate((22, 80, 443, 445, 3389, 9100)):
            when = now + last * 1.1 + nth * 0.01
            unanswered(day, when, BACKUP.ip, (f"10.41.0.{last}", port))
    for port in range(1, 1_025):
        unanswered(day, now + 300 + port * 0.02, BACKUP.ip, (WEB.ip, port), "REJ")
    for nth, uri in enumerate(("/.env", "/.git/config", "/backup.sql", "/../../../etc/passwd",
                               "/a?id=1%27%20union%20select%201,2", "/phpmyadmin/index.php",
                               "/cgi-bin/test.cgi", "/server-status")):  # fmt: skip
        agent = "Mozilla/5.0 (compatible; Nmap Scripting Engine; https://nmap.org/book/nse.html)"
        plain(day, now + 330 + nth, BACKUP.ip, WEB.ip, uri, to=WEB.ip, agent=agent, code=404)
        page(day, now + 330 + nth, BACKUP.ip, uri, 404, agent)
    what, why = "weekly inventory of all addresses", "a scan of hosts, ports and a web server"
    day.did(Action(now, BACKUP.name, what, looks_bad=why))


def _scan_to_share(day: Day) -> None:
    """The printer scans to a share; it can only do RC4."""
    for hour in (10.2, 15.4):
        fields = {
            "TargetUserName": "svc-scan@CORP.EXAMPLE", "TargetDomainName": "CORP.EXAMPLE",
            "ServiceName": "FILES$", "ServiceSid": "S-1-5-21-111-222-333-1150",
            "TicketOptions": "0x40810000", "TicketEncryptionType": "0x17", "Status": "0x0",
            "IpAddress": "::ffff:10.40.0.40", "IpPort": "50001",
        }  # fmt: skip
        security(day, day.at(hour), DC.name, 4769, "SYSTEM", **fields)
        what, why = "a printer scans to a share", "a Kerberos ticket with RC4"
        day.did(Action(day.at(hour), DC.name, what, looks_bad=why))


# -- people ----------------------------------------------------------------------------------------


def _ssh(day: Day, use: Use, now: float, host: str, typos: int) -> int:
    """The administrator logs in, after so many wrong passwords; gives the port."""
    port = day.dice.randrange(49_152, 65_000)
    for nth in range(typos):
        ssh_failed(day, now + nth * 4, host, ADMIN.user, use.ip, port)
    method = "password" if typos else "publickey"
    ssh_accepted(day, now + typos * 4 + 3, host, ADMIN.user, use.ip, port, method)
    return port


def _morning_round(day: Day, use: Use, now: float) -> None:
    for nth, server in enumerate((WEB, BACKUP)):
        port = _ssh(day, use, now + nth * 200, server.name, typos=2 * nth)
        for step, command in enumerate((
            "/usr/bin/apt-get update", "/usr/bin/apt-get -y upgrade", "/usr/bin/systemctl status",
            "/usr/bin/journalctl -u nginx", "/usr/bin/less /var/log/auth.log",
        )):  # fmt: skip
            sudo(day, now + nth * 200 + 30 + step * 9, server.name, ADMIN.user, command)
        ssh_closed(day, now + nth * 200 + 180, server.name, ADMIN.user, use.ip, port)


def _root_shell(day: Day, use: Use, now: float) -> None:
    _ssh(day, use, now, WEB.name, 0)
    sudo_wrong(day, now + 20, WEB.name, ADMIN.user, "/usr/bin/su -")
    sudo(day, now + 26, WEB.name, ADMIN.user, "/usr/bin/su -")


def _keys(day: Day, use: Use, now: float) -> None:
    _ssh(day, use, now, WEB.name, 0)
    words = ("tee", "-a", "/home/deploy/.ssh/authorized_keys")
    sudo(day, now + 20, WEB.name, ADMIN.user, "/usr/bin/" + " ".join(words))
    ran(day, now + 20.1, WEB.name, words, user="hal")
    wrote(day, now + 20.2, WEB.name, "/home/deploy/.ssh/authorized_keys", "/usr/bin/tee", "hal")


def _crontab(day: Day, use: Use, now: float) -> None:
    _ssh(day, use, now, BACKUP.name, 0)
    ran(day, now + 20, BACKUP.name, ("crontab", "-e"), user="hal")
    renamed(day, now + 90, BACKUP.name, "/var/spool/cron/crontabs/tmp.Xq3a",
            "/var/spool/cron/crontabs/hal", "/usr/bin/crontab", "hal")  # fmt: skip


def _install_script(day: Day, use: Use, now: float) -> None:
    _ssh(day, use, now, BACKUP.name, 0)
    words = ("sh", "-c", "curl -fsSL https://get.docker.com | sh")
    ran(day, now + 20, BACKUP.name, words, "/usr/bin/dash", "hal")
    ran(day, now + 20.5, BACKUP.name, ("curl", "-fsSL", "https://get.docker.com"), user="hal")
    secure(day, now + 21, BACKUP.ip, "get.docker.com")


def _decode(day: Day, use: Use, now: float) -> None:
    _ssh(day, use, now, WEB.name, 0)
    words = ("sh", "-c", "echo LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t | base64 -d > /tmp/ca.crt")
    ran(day, now + 20, WEB.name, words, "/usr/bin/dash", "hal")
    ran(day, now + 20.1, WEB.name, ("base64", "-d"), user="hal")
    words = ("bash", "-c", "timeout 2 bash -c '</dev/tcp/10.40.0.10/389' && echo up")
    ran(day, now + 60, WEB.name, words, user="hal")


def _configuration(day: Day, use: Use, now: float) -> None:
    """Ansible: modules in Python that write beside a file and then take its place."""
    for nth, server in enumerate((WEB, BACKUP)):
        host, when = server.name, now + nth * 60
        _ssh(day, use, when, host, 0)
        words = ("/bin/sh", "-c", "echo BECOME-SUCCESS-kq ; /usr/bin/python3 AnsiballZ_copy.py")
        sudo(day, when + 5, host, ADMIN.user, " ".join(words))
        ran(day, when + 5.1, host, words, "/usr/bin/dash", "hal")
        for path in ("/etc/sudoers.d/90-deploy", "/etc/cron.d/certbot"):
            folder = path.rpartition("/")[0]
            renamed(day, when + 8, host, f"{folder}/.ansible_tmpw8_k2x90", path,
                    "/usr/bin/python3.11", "hal")  # fmt: skip


def _remote_desktop(day: Day, use: Use, now: float) -> None:
    for nth in range(2):
        logon_failed(day, now + nth * 6, DC.name, ADMIN.user, use.ip)
    logged_on(day, now + 20, DC.name, ADMIN.user, use.ip, 10)
    connection(day, now, use.ip, (DC.ip, 3389), "ssl,rdp", duration=800.0)
    started(day, now + 60, DC.name, ADMIN.user, SYSTEM32 + "mmc.exe", "mmc.exe dsa.msc", _EXPLORER)
    started(day, now + 200, DC.name, ADMIN.user, SYSTEM32 + "net.exe",
            'net group "Domain Admins" /domain', _CMD)  # fmt: skip
    started(day, now + 210, DC.name, ADMIN.user, SYSTEM32 + "whoami.exe", "whoami /groups", _CMD)


def _agent(day: Day, use: Use, now: float) -> None:
    """The management agent runs what it has to on each Windows machine, encoded."""
    text = "Get-CimInstance Win32_QuickFixEngineering | ConvertTo-Json"
    encoded = base64.b64encode(text.encode("utf-16-le")).decode()
    line = f"powershell.exe -NoProfile -NonInteractive -EncodedCommand {encoded}"
    agent = "C:\\Program Files\\Acme Management\\agent.exe"
    for host in (ADMIN.name, DC.name):
        started(day, now, host, "SYSTEM", POWERSHELL, line, agent)
        script(day, now + 1, host, "SYSTEM", text)


def _modules(day: Day, use: Use, now: float) -> None:
    started(day, now, use.device, ADMIN.user, POWERSHELL,
            "powershell.exe -ExecutionPolicy Bypass -NoExit", _EXPLORER)  # fmt: skip
    for nth, text in enumerate((
        "Update-Help -Force; Update-Module PSReadLine",
        "$r = Invoke-WebRequest https://www.powershellgallery.com/api/v2; $r.StatusCode",
        "Invoke-RestMethod https://intranet.corp.example/api/hosts | Export-Csv C:\\it\\hosts.csv",
        "Invoke-Command -ComputerName dc1 -ScriptBlock { Get-Service | ? Status -eq Stopped }",
    )):  # fmt: skip
        script(day, now + 10 + nth * 30, use.device, ADMIN.user, text)
    secure(day, now + 40, use.ip, "www.powershellgallery.com")


def _package_manager(day: Day, use: Use, now: float) -> None:
    script(day, now, use.device, ADMIN.user, _CHOCOLATEY)
    secure(day, now + 2, use.ip, "community.chocolatey.org")
    started(day, now + 60, use.device, ADMIN.user, "C:\\ProgramData\\chocolatey\\bin\\choco.exe",
            "choco upgrade all -y", POWERSHELL)  # fmt: skip


def _task(day: Day, use: Use, now: float) -> None:
    started(day, now, DC.name, ADMIN.user, SYSTEM32 + "schtasks.exe",
            "schtasks /create /tn Inventory /sc daily /st 03:00 /tr inventory.ps1",
            _CMD)  # fmt: skip
    security(day, now + 1, DC.name, 4698, ADMIN.user, TaskName="\\Inventory", TaskContent=_TASK)


def _psexec(day: Day, use: Use, now: float) -> None:
    started(day, now, use.device, ADMIN.user, "C:\\it\\PsExec64.exe",
            "PsExec64.exe \\\\dc1 ipconfig /all", _CMD)  # fmt: skip
    logged_on(day, now + 1, DC.name, ADMIN.user, use.ip)
    service(day, now + 1.5, DC.name, "PSEXESVC", "%SystemRoot%\\PSEXESVC.exe")
    started(day, now + 2, DC.name, ADMIN.user, SYSTEM32 + "ipconfig.exe", "ipconfig /all",
            "C:\\Windows\\PSEXESVC.exe")  # fmt: skip


def _new_colleague(day: Day, use: Use, now: float) -> None:
    member = {"MemberName": "-", "MemberSid": "S-1-5-21-111-222-333-1177"}
    security(day, now, DC.name, 4720, ADMIN.user, TargetUserName="ivan", TargetDomainName="CORP",
             TargetSid="S-1-5-21-111-222-333-1177", SamAccountName="ivan")  # fmt: skip
    security(day, now + 30, DC.name, 4728, ADMIN.user, TargetUserName="Sales",
             TargetDomainName="CORP", TargetSid="S-1-5-21-111-222-333-1160", **member)  # fmt: skip


def _exclusion(day: Day, use: Use, now: float) -> None:
    script(day, now, DC.name, ADMIN.user, "Add-MpPreference -ExclusionPath 'D:\\Backup\\Agent'")


def _pushed(day: Day, use: Use, now: float) -> None:
    """The management agent installs from the intranet, silently."""
    line = "msiexec.exe /i https://intranet.corp.example/pkg/viewer.msi /qn /norestart"
    agent = "C:\\Program Files\\Acme Management\\agent.exe"
    for nth, host in enumerate(("ws-01", "ws-03")):
        started(day, now + nth * 40, host, "SYSTEM", SYSTEM32 + "msiexec.exe", line, agent)


def _files(day: Day, use: Use, now: float) -> None:
    for nth, (image, line) in enumerate((
        ("certutil.exe", "certutil -hashfile C:\\it\\viewer.msi SHA256"),
        ("wevtutil.exe", "wevtutil epl Security C:\\it\\security.evtx"),
        ("vssadmin.exe", "vssadmin list shadows"),
        ("reg.exe", "reg export HKLM\\SOFTWARE\\Acme C:\\it\\acme.reg"),
        ("rundll32.exe", "rundll32 printui.dll,PrintUIEntry /in /n \\\\dc1\\printer-10"),
        ("netsh.exe", "netsh advfirewall show allprofiles"),
    )):  # fmt: skip
        started(day, now + nth * 20, DC.name, ADMIN.user, SYSTEM32 + image, line, _CMD)


def _support(day: Day, use: Use, now: float) -> None:
    """A user's machine: its person becomes a local administrator for a while."""
    security(day, now, "ws-02", 4732, ADMIN.user, TargetUserName="Administrators",
             TargetDomainName="Builtin", TargetSid="S-1-5-32-544", MemberName="-",
             MemberSid="S-1-5-21-111-222-333-1121")  # fmt: skip


def _forgetful(day: Day, use: Use, now: float) -> None:
    """Back from holidays: three tries, three more, then it comes back."""
    for nth in range(6):
        ssh_failed(day, now + nth * 12, WEB.name, "gita", use.ip, 50_400 + nth // 3)
    ssh_accepted(day, now + 110, WEB.name, "gita", use.ip, 50_402, "password")
    why = "six wrong passwords, then a right one"
    day.did(Action(now, use.device, "a user remembers the password", use.mac, use.ip, why))


CHORES = (
    Chore("morning round by ssh", 1.0, _morning_round, "two wrong passwords, then a right one"),
    Chore("a root shell", 0.8, _root_shell, "su after a wrong password for sudo"),
    Chore("checks with base64 and /dev/tcp", 0.8, _decode, "decodes to /tmp, opens /dev/tcp"),
    Chore("Remote Desktop to the domain controller", 1.0, _remote_desktop, "wrong passwords first"),
    Chore("the management agent", 1.0, _agent, "PowerShell with an encoded command"),
    Chore("PowerShell modules and help", 0.8, _modules, "downloads in scripts, policy bypassed"),
    Chore("configuration by Ansible", 0.4, _configuration, "sudoers and cron files by Python"),
    Chore("somebody's key", 0.3, _keys, "authorized_keys written through tee"),
    Chore("a crontab", 0.3, _crontab, "a cron job changed"),
    Chore("an installer from the web", 0.2, _install_script, "curl piped into a shell"),
    Chore("a scheduled task", 0.2, _task, "a task that runs PowerShell"),
    Chore("a new colleague", 0.2, _new_colleague, "an account made and put into a group"),
    Chore("system tools at the prompt", 0.8, _files, "certutil, wevtutil, vssadmin, rundll32"),
    Chore("software pushed", 0.2, _pushed, "msiexec installs from an address, silently"),
    Chore("a local administrator", 0.2, _support, "a member of Administrators"),
    Chore("PsExec to the domain controller", 0.2, _psexec, "service PSEXESVC"),
    Chore("a package manager for Windows", 0.1, _package_manager, "iex of what was downloaded"),
    Chore("an exclusion for the antivirus", 0.05, _exclusion, "Defender told to look away"),
)
"""The administrator's chores, with how often each falls."""
