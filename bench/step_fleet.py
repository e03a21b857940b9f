"""A fleet made up, day by day, and recorded attacks to plant in it: models of steps are tried so.

What the devices do is written here, not recorded, but for the background: steps that more than one
of the recordings has are everyday Windows, and every device does them. Benign days have what makes
such models cry wolf: new software, software of one device, updates, an administrator's commands
and, seldom, a scanner that opens what it never opened.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alerts.domain.step import STEP_VERBS, program
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

RECORDINGS = Path(__file__).parents[1] / "samples" / "windows_processes"
DESKS, DEVELOPERS, SERVERS = 60, 20, 20
DEVICES = DESKS + DEVELOPERS + SERVERS

ATTACKERS = {
    "cmd_bitsadmin_download_psh_script": ("bitsadmin.exe",),
    "cmd_lsass_memory_dumpert_syscalls": ("outflank-dumpert.exe",),
    "cmd_sam_copy_esentutl": ("esentutl.exe", "vssvc.exe"),
    "cmd_seatbelt_group_user": ("seatbelt.exe",),
    "cmd_service_mod_fax": ("sc.exe", "powershell.exe"),
    "cmd_userinitmprlogonscript_batch": ("reg.exe",),
    "covenant_copy_smb_CreateRequest": (),
    "covenant_dcsync_dcerpc_drsuapi_DsGetNCChanges": ("grunthttp.exe",),
    "covenant_getdomaingroup_ldap_searchrequest_domain_admins": ("grunthttp.exe",),
    "covenant_psremoting_command": ("wsmprovhost.exe", "grunthttp.exe"),
    "empire_shell_rubeus_asktgt_ptt": ("rubeus.exe",),
    "psh_lsass_memory_dump_comsvcs": ("rundll#.exe",),
    "psh_mavinject_dll_notepad": ("mavinject.exe",),
    "psh_powershell_httplistener": (),
    "schtask_create": ("schtasks.exe",),
}
"""By recording the programs that the attack ran, read off it; of none where its process events
show none of it."""

_EVERY = (
    "explorer.exe started chrome.exe", "chrome.exe started chrome.exe",
    "explorer.exe started outlook.exe", "svchost.exe started backgroundtaskhost.exe",
    "services.exe started svchost.exe", "winlogon.exe started userinit.exe",
    "userinit.exe started explorer.exe", "svchost.exe started wmiprvse.exe",
    "services.exe started msmpeng.exe", "svchost.exe started consent.exe",
    "msmpeng.exe opened explorer.exe", "msmpeng.exe opened chrome.exe",
)  # fmt: skip
_DESK = (
    "explorer.exe started winword.exe", "explorer.exe started excel.exe",
    "outlook.exe started winword.exe", "winword.exe started splwow#.exe",
    "outlook.exe started acrord#.exe", "explorer.exe started teams.exe",
    "excel.exe started splwow#.exe", "explorer.exe started notepad.exe",
)  # fmt: skip
_DEVELOPER = (
    "explorer.exe started code.exe", "code.exe started powershell.exe", "code.exe started cmd.exe",
    "powershell.exe started git.exe", "git.exe started ssh.exe", "cmd.exe started node.exe",
    "node.exe started cmd.exe", "powershell.exe started python.exe", "code.exe started git.exe",
    "devenv.exe started msbuild.exe", "msbuild.exe started cl.exe", "cmd.exe started where.exe",
    "devenv.exe opened node.exe",
)  # fmt: skip
_SERVER = (
    "services.exe started sqlservr.exe", "svchost.exe started taskeng.exe",
    "taskeng.exe started powershell.exe", "powershell.exe started robocopy.exe",
    "services.exe started backupagent.exe", "backupagent.exe started vssadmin.exe",
    "w#wp.exe started csc.exe", "monitoringhost.exe started cscript.exe",
)  # fmt: skip
_ADMINISTRATOR = (
    "explorer.exe started cmd.exe", "explorer.exe started powershell.exe",
    "cmd.exe started ipconfig.exe", "cmd.exe started ping.exe", "cmd.exe started net.exe",
    "cmd.exe started whoami.exe", "cmd.exe started sc.exe", "cmd.exe started reg.exe",
    "cmd.exe started gpupdate.exe", "powershell.exe started whoami.exe",
    "explorer.exe started mmc.exe", "cmd.exe started schtasks.exe",
    "powershell.exe started rundll#.exe", "explorer.exe started taskmgr.exe",
    "taskmgr.exe opened lsass.exe", "taskmgr.exe opened chrome.exe",
)  # fmt: skip
_SCANNED = ("lsass.exe", "winword.exe", "chrome.exe", "sqlservr.exe", "notepad.exe", "services.exe")


class DeviceHour(NamedTuple):
    """What a device did in an hour of a day: each step, with how many events it was."""

    device: str
    day: int
    hour: int
    steps: Counter[str]


def recordings() -> dict[str, list[str]]:
    """The steps of each recording, as ingest and job `models` read them, in its order."""
    settings = ParseSettings()
    steps: dict[str, list[str]] = {}
    for name in json.loads((RECORDINGS / "labels.json").read_text()):
        lines = gzip.decompress((RECORDINGS / name).read_bytes()).splitlines()
        records = [
            Record(f"{name}:0:{n}", "windows_nxlog", "live", datetime.now(UTC), line, {})
            for n, line in enumerate(lines)
        ]
        rows = [row for row in event_rows(records, settings) if row["activity_id"] in STEP_VERBS]
        steps[name.removesuffix(".jsonl.gz")] = [step_of(row) for row in rows]
    return steps


def step_of(row: Mapping[str, Any]) -> str:
    """What an event of a process says that one program did to another."""
    verb = STEP_VERBS[row["activity_id"]]
    return f"{_name(row['actor']['process'])} {verb} {_name(row['process'])}"


def _name(process: Mapping[str, str | None]) -> str:
    return program(process.get("path") or process.get("name") or "")


def background(attacks: dict[str, list[str]]) -> list[str]:
    """The steps that more than one recording has, without programs of attacks."""
    count = Counter(step for steps in attacks.values() for step in set(steps))
    return sorted(step for step, number in count.items() if number > 1 and not _hostile(step))


def _hostile(step: str) -> bool:
    only = {"outflank-dumpert.exe", "seatbelt.exe", "grunthttp.exe", "rubeus.exe", "mavinject.exe"}
    return bool(only & set(step.split(" ")))


def benign(days: Iterable[int], everyday: list[str], seed: int) -> Iterator[DeviceHour]:
    """The hours of all devices on these days (0 is a Monday), by day, device and hour."""
    for day in days:
        chance = np.random.default_rng([seed, day])
        # An update is rolled out to everybody on one day of the month: new steps on all devices.
        update = f"msiexec.exe started patch{chr(97 + day // 14 % 20)}.exe" if day % 14 == 2 else ""
        for number in range(DEVICES):
            server = number >= DESKS + DEVELOPERS
            if not server and (day % 7 >= 5 or chance.random() < 0.1):
                continue
            hours = _day(number, day, chance, everyday)
            if update and chance.random() < 0.8:
                steps = hours[int(chance.integers(8, 18))]
                steps.update([update, *_beside(update, chance)])
            for hour, steps in sorted(hours.items()):
                yield DeviceHour(device(number), day, hour, steps)


def device(number: int) -> str:
    """The entity of a device."""
    return f"host|pc{number}"


def _day(
    number: int, day: int, chance: np.random.Generator, everyday: list[str]
) -> dict[int, Counter[str]]:
    desk, server = number < DESKS, number >= DESKS + DEVELOPERS
    own = _DESK if desk else _SERVER if server else _DEVELOPER
    first, last = (0, 24) if server else (8, 18)
    hours: dict[int, Counter[str]] = defaultdict(Counter)

    def does(steps: Iterable[str], likely: float, most: int = 6) -> None:
        for step in steps:
            if chance.random() < likely:
                for _ in range(int(chance.integers(1, 4))):
                    hour = hours[int(chance.integers(first, last))]
                    hour[step] += int(chance.integers(1, most))
                    hour.update(_beside(step, chance))

    does(_EVERY, 0.9, 30)
    does(own, 0.6, 40 if server else 8)
    does(everyday, 0.3, 12)
    # Every administrator has a few machines of their own; elsewhere they are seldom.
    does(_ADMINISTRATOR, 0.15 if number % 20 == 3 else 0.004, 3)
    # Software that one device has: new each time, or old and used every day.
    if chance.random() < 0.04:
        name = f"setup{number}{day}x{int(chance.integers(9))}".translate(_LETTERS)
        does([f"explorer.exe started {name}.exe", f"{name}.exe started msiexec.exe"], 1.0, 2)
    if number % 3 == 0:
        mine = f"tool{number}".translate(_LETTERS)
        does([f"explorer.exe started {mine}.exe", f"{mine}.exe started conhost.exe"], 0.5)
    # An agent that looks into other programs, a few times in the month.
    if chance.random() < 0.004:
        does([f"supportagent.exe opened {name}" for name in chance.choice(_SCANNED, 2)], 1.0, 2)
    if not server and chance.random() < 0.002:
        # A macro that is wanted, of accounting: the step that looks worst, and is benign.
        does(["excel.exe started cmd.exe"], 1.0, 2)
    return hours


def _beside(step: str, chance: np.random.Generator) -> Iterator[str]:
    """What Sysmon tells beside a start: who opened the new program, as in the recordings."""
    by, started, name = step.partition(" started ")
    if not started:
        return
    for opener, likely in ((by, 0.9), ("csrss.exe", 0.9), ("svchost.exe", 0.5), ("lsass.exe", 0.3)):
        if chance.random() < likely:
            yield f"{opener} opened {name}"
    if by in ("cmd.exe", "powershell.exe") and chance.random() < 0.8:
        yield f"conhost.exe opened {name}"


_LETTERS = str.maketrans("0123456789", "abcdefghij")
"""Numbers are left out of names of programs, and these are to differ."""
