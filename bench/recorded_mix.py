"""Recorded process starts, varied, and rules in the manner of the public ones about them.

The events are those of the bundled attack recordings (`samples/windows`, with their notice).
A variation has another user, host, numbers and, half of the time, another program of Windows
with arguments of recorded and everyday command lines. The rules name programs that run often
and switches that are common, as public rules do; a few have no literal worth a search but long
lists of what is harmless. `SEED` makes the same of both each time.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from alerts.matching.event_rows import event_batch
from alerts.rulepack.predicate import All, Either, Node, Not, Test, literals_of
from alerts.rulepack.rule_pack import Rule, RulePack
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

SEED = 20261125
NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
RECORDINGS = Path(__file__).parents[1] / "samples" / "windows"
SOURCE = "windows_nxlog"

COMMON = (
    "cmd", "powershell", "svchost", "conhost", "rundll32", "regsvr32", "reg", "net", "net1", "sc",
    "schtasks", "whoami", "tasklist", "wmic", "mshta", "cscript", "wscript", "certutil",
    "bitsadmin", "msiexec", "explorer", "taskhostw", "dllhost", "notepad", "ipconfig", "nslookup",
    "ping", "netsh", "findstr", "attrib", "icacls", "takeown", "wevtutil", "vssadmin", "bcdedit",
    "fsutil",
)  # fmt: skip
SELDOM = (
    "nltest", "quser", "dsquery", "csvde", "ldifde", "ntdsutil", "esentutl", "diskshadow",
    "cmstp", "odbcconf", "installutil", "regasm", "regsvcs", "msbuild", "cdb", "forfiles",
    "pcalua", "control", "hh", "makecab", "expand", "extrac32", "desktopimgdownldr", "finger",
    "tftp", "ftp", "at", "curl", "tar", "ssh", "scp", "wsl", "bash", "mavinject",
    "presentationhost", "xwizard", "runonce", "ie4uinit", "msdt", "mmc", "eventvwr", "fodhelper",
    "computerdefaults", "sdclt", "wsreset", "slui", "dism", "pnputil", "print", "replace",
)  # fmt: skip
PARENTS = ("explorer", "cmd", "powershell", "svchost", "services", "winword", "excel", "wmiprvse")
FOLDERS = ("C:\\Windows\\System32\\", "C:\\Windows\\SysWOW64\\", "C:\\Program Files\\Vendor\\",
           "C:\\Users\\ann\\AppData\\Local\\Temp\\", "C:\\ProgramData\\",
           "C:\\Windows\\")  # fmt: skip
SWITCHES = (
    " -enc", " -nop", " -w hidden", " /c ", " /k ", " -ep bypass", " /create", " /add", " query",
    " -urlcache", " -decode", " /transfer", " export", " save", " delete", " shadows", " /quiet",
    " http://", " https://", ".dll,", " -c ", " /s ", " /tn ", " /run", " stop", " config",
    " user ",
    " group ", " localgroup", " /domain", " process call create",
    " \\\\", " > ", " | ", " & ",
)  # fmt: skip
EVERYDAY = (
    " -k netsvcs -p", " 0xffffffff -ForceV1", " /all", " /flushdns",
    " -NoProfile -File C:\\it\\a.ps1",
    " shell32.dll,Control_RunDLL", " /v:on", " /i C:\\it\\a.msi", " -Embedding", " status", " list",
)  # fmt: skip
EXTENSIONS = (".exe", ".dll", ".com", ".scr", ".bin", ".tmp", ".txt", ".jpg", ".rar", ".iso")


def recorded_batches(count: int, rows: int) -> list[pa.RecordBatch]:
    """So many process starts, in batches."""
    events = list(_varied(count, random.Random(SEED)))
    return [event_batch(events[start : start + rows]) for start in range(0, count, rows)]


def recorded_lines(count: int, seed: int = SEED) -> Iterator[bytes]:
    """So many process starts as raw lines: the recorded ones, varied as those of the batches."""
    rng = random.Random(seed)
    recorded = [(msgspec.json.decode(record.raw), row["process"]) for record, row in _recorded()]
    for number in range(count):
        fields, process = rng.choice(recorded)
        stamp = NOON + timedelta(milliseconds=number)
        yield _line(fields, _variation(process, rng), number, stamp)


def _recorded() -> list[tuple[Record, dict[str, Any]]]:
    """The recorded process starts, each with the event made of it."""
    settings = ParseSettings(scopes=(("default", ()),))
    records = {
        f"{path.name}-{number}": Record(f"{path.name}-{number}", SOURCE, "live", NOON, line)
        for path in sorted(RECORDINGS.glob("*.gz"))
        for number, line in enumerate(gzip.decompress(path.read_bytes()).splitlines())
    }
    rows = event_rows(list(records.values()), settings)
    starts = (row for row in rows if row.get("class_uid") == 1007 and row["activity_id"] == 1)
    return [(records[row["record_ids"][0]], row) for row in starts]


def _varied(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    recorded = [row for _, row in _recorded()]
    for number in range(count):
        event = dict(rng.choice(recorded))
        stamp = NOON + timedelta(milliseconds=number)
        yield event | {
            "event_uid": f"{number:032x}",
            "time": stamp,
            "received_at": stamp,
            "process": _variation(event["process"], rng),
            "host_name": f"host-{number % 200}",
        }


def _variation(recorded: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """The process of an event with other numbers, another user and, half of the time, program."""
    process = dict(recorded)
    if rng.random() < 0.5:
        name = rng.choice(COMMON[:12] if rng.random() < 0.8 else COMMON + SELDOM)
        folder = FOLDERS[0] if rng.random() < 0.85 else rng.choice(FOLDERS)
        process |= {"path": f"{folder}{name}.exe", "internal_name": f"{name.upper()}.EXE"}
        process["cmd_line"] = f"{folder}{name}.exe{rng.choice(EVERYDAY)}"
        if rng.random() < 0.3:
            process["cmd_line"] += rng.choice(SWITCHES) + str(rng.randint(0, 99))
        parent = rng.choice(PARENTS[:5] if rng.random() < 0.9 else PARENTS)
        process["parent"] = {"path": f"{FOLDERS[0]}{parent}.exe", "cmd_line": f"{parent}.exe"}
    elif rng.random() < 0.5 and process.get("cmd_line"):
        process["cmd_line"] = re.sub(
            r"\d{2,}", lambda m: str(rng.randint(10, 10 ** len(m[0]))), process["cmd_line"]
        )
    process["pid"] = rng.randint(4, 60_000)
    process["user"] = {"name": f"user{rng.randint(0, 80)}", "domain": "CORP"}
    return process


def _line(
    recorded: Mapping[str, Any], process: Mapping[str, Any], number: int, stamp: datetime
) -> bytes:
    """The recorded line of a process start, which tells of another process."""
    user, parent = process["user"], process.get("parent") or {}
    values = {
        "Image": process.get("path"),
        "NewProcessName": process.get("path"),
        "OriginalFileName": process.get("internal_name"),
        "CommandLine": process.get("cmd_line"),
        "ParentImage": parent.get("path"),
        "ParentProcessName": parent.get("path"),
        "ParentCommandLine": parent.get("cmd_line"),
        "User": f"{user['domain']}\\{user['name']}",
        "SubjectUserName": user["name"],
        "SubjectDomainName": user["domain"],
        "Hostname": f"host-{number % 200}",
        "UtcTime": f"{stamp:%Y-%m-%d %H:%M:%S}.{stamp.microsecond // 1000:03}",
        "NewProcessId": hex(process["pid"]),
    }
    if "NewProcessId" not in recorded:  # there `ProcessId` is the parent's
        values["ProcessId"] = str(process["pid"])
    changed = {name: text for name, text in values.items() if text and name in recorded}
    fields = {**recorded, **changed}
    if "Message" not in recorded:
        return msgspec.json.encode(fields)
    # The rendered text names most of them a second time.
    message = str(recorded["Message"])
    for name in ("Image", "NewProcessName", "CommandLine", "ParentImage", "ParentProcessName"):
        if name in changed:
            message = message.replace(str(recorded[name]), str(changed[name]))
    return msgspec.json.encode(fields | {"Message": message})


def recorded_pack(count: int) -> RulePack:
    """So many rules about process starts."""
    rng = random.Random(SEED + 1)
    nodes = [*_broad(), *(_rule(rng) for _ in range(count))][:count]
    return RulePack(
        rules=tuple(
            Rule(
                id=f"rule-{number:05}",
                title=f"process {number}",
                level="high",
                classes=(1007,),
                sources=(SOURCE,),
                predicate=node,
                literals=literals_of(node),
            )
            for number, node in enumerate(nodes)
        )
    )


def _ends(path: str, names: Sequence[str]) -> Node:
    return Either(tuple(Test(path, "endswith", f"\\{name}.exe") for name in names))


def _rule(rng: random.Random) -> Node:
    """Which program, with which words in its command line; often with what is harmless."""
    asks_words = rng.random() < 0.9
    # A rule that names programs alone names such as hardly ever run.
    programs = COMMON if asks_words and rng.random() < 0.6 else SELDOM
    parts: list[Node] = []
    if not asks_words or rng.random() < 0.75:
        names = rng.sample(programs, rng.randint(1, 3))
        original = [Test("process.internal_name", "eq", f"{name}.exe") for name in names]
        parts.append(Either((_ends("process.path", names), *original)))
    if rng.random() < 0.2:
        parts.append(_ends("process.parent.path", rng.sample(PARENTS, 2)))
    if asks_words:
        # Most rules ask for a word that hardly any command has besides a switch that many have.
        rare = [f"{rng.choice(SELDOM)}{rng.random():.3f}" for _ in range(rng.randint(1, 4))]
        switches = [_has(switch) for switch in rng.sample(SWITCHES, 3)]
        usual = All(tuple(switches)) if rng.random() < 0.1 else None
        tests = Either(tuple(_has(word) for word in rare))
        parts.append(usual or (All((switches[0], tests)) if rng.random() < 0.4 else tests))
    if rng.random() < 0.35:
        parts.append(Not(All((
            Test("process.parent.path", "startswith", rng.choice(FOLDERS)),
            Test("process.cmd_line", "contains", rng.choice(EVERYDAY)),
        ))))  # fmt: skip
    return All(tuple(parts))


def _has(word: str) -> Test:
    return Test("process.cmd_line", "contains", word)


def _broad() -> list[Node]:
    """Rules without a text worth a search: a name out of its place, an odd extension, itself as
    parent, a file that is none. Public ones of these kinds take most of the time."""
    known = (*COMMON, *SELDOM)[:60]
    line, path = "process.cmd_line", "process.path"
    return [
        All((
            _ends(path, known),
            Not(Either(tuple(Test(path, "startswith", folder) for folder in FOLDERS[:3]))),
        )),
        All((
            Test(path, "exists", True),
            Not(Either(tuple(Test(path, "endswith", e) for e in EXTENSIONS))),
            Not(Either((Test(path, "eq", "registry"), Test(path, "eq", "memcompression")))),
        )),
        All((
            _ends(path, known),
            Either(tuple(Test(line, "endswith", f"\\{name}.exe") for name in known)),
            Not(Test("process.parent.path", "contains", "\\Windows\\")),
        )),
        Not(Either((Test(path, "contains", "\\"), Test(path, "eq", "system")))),
    ]  # fmt: skip
