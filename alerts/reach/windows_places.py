"""Where each event id of Windows leaves a field, found by sending events through the parser.

`SubjectUserName` is the actor of most events and the user of a few. Which, the parsers'
tables say; here each event is made with one field after the other and looked at after parsing,
so that a rule asks the one column where its product's field is. The result is the file
`mapping/windows_places.yml`, which `python -m alerts.reach.windows_places` writes anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import yaml

from alerts.rulepack.derived_fields import fold, text_of
from alerts.rulepack.event_paths import event_paths
from alerts.rulepack.field_mapping import MAPPING_FOLDER, mapping_data
from alerts.rulepack.predicate import at, present
from ingest.parsing.timestamps import Stamp
from ingest.sources.windows import event_of
from ingest.sources.windows.providers import BY_PROVIDER
from ingest.sources.windows.record import Logged

PLACES_FILE = MAPPING_FOLDER / "windows_places.yml"
HEADING = "# Written by `python -m alerts.reach.windows_places`: event ids by where a field is.\n"


class Log(NamedTuple):
    """A list of fields in `mapping/windows.yml`, and the channel and providers it is about."""

    channel: str
    providers: tuple[str, ...]


_MACHINE = (
    *("service control manager", "eventlog", "microsoft-windows-eventlog", "user32"),
    *("microsoft-windows-kernel-general", "microsoft-windows-userpnp"),
    *("microsoft-windows-kernel-pnp", "volsnap"),
)
_APPLICATIONS = (
    *("application error", "application hang", "windows error reporting", ".net runtime"),
    *("msiinstaller", "esent", "mssqlserver"),
)


def _operational(provider: str) -> Log:
    return Log(f"{provider}/Operational", (provider.lower(),))


LOGS: Mapping[str, Log] = {
    "win_security": Log("Security", ("microsoft-windows-security-auditing",)),
    "win_system": Log("System", _MACHINE),
    "win_application": Log("Application", _APPLICATIONS),
    "win_sysmon": _operational("Microsoft-Windows-Sysmon"),
    "win_task": _operational("Microsoft-Windows-TaskScheduler"),
    "win_defender": _operational("Microsoft-Windows-Windows Defender"),
    "win_bits": _operational("Microsoft-Windows-Bits-Client"),
    "win_dns_server": Log(
        "Microsoft-Windows-DNSServer/Analytical",
        ("microsoft-windows-dnsserver", "microsoft-windows-dns-server-service"),
    ),
    "win_ntlm": _operational("Microsoft-Windows-NTLM"),
    "win_wmi_activity": _operational("Microsoft-Windows-WMI-Activity"),
    "win_applocker": Log(
        "Microsoft-Windows-AppLocker/EXE and DLL", ("microsoft-windows-applocker",)
    ),
    "win_codeintegrity": _operational("Microsoft-Windows-CodeIntegrity"),
    "win_terminal": Log(
        "Microsoft-Windows-TerminalServices-LocalSessionManager/Operational",
        (
            "microsoft-windows-terminalservices-localsessionmanager",
            "microsoft-windows-terminalservices-remoteconnectionmanager",
            "microsoft-windows-remotedesktopservices-rdpcorets",
            "microsoft-windows-terminalservices-gateway",
        ),
    ),
    "win_firewall": Log(
        "Microsoft-Windows-Windows Firewall With Advanced Security/Firewall",
        ("microsoft-windows-windows firewall with advanced security",),
    ),
    "win_smb": Log(
        "Microsoft-Windows-SMBServer/Security",
        ("microsoft-windows-smbserver", "microsoft-windows-smbclient"),
    ),
}

KINDS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "win_security": tuple({"ObjectType": kind} for kind in ("File", "Key", "Process", "SAM_USER")),
    "win_sysmon": tuple(
        {"EventType": kind} for kind in ("CreateKey", "SetValue", "RenameKey", "DeleteValue")
    ),
}
"""Fields that decide where others go, with the values that decide differently."""

# Each is a value of a kind that some reader of fields insists on; the number keeps them apart.
_SAMPLES = (
    "C:\\dir\\val{0}.exe",
    "{0}",
    "10.1.2.{1}",
    "CORP\\val{0}",
    "S-1-5-21-1-2-3-{0}",
    "{{11111111-2222-3333-4444-5555{0:08d}}}",
    "0xC000{0:04X}",
    "val{0}@corp.example",
    "%%14592",
    "S-1-16-12288",
    "MD5=a094e2b38d3dd864b07580d2{0:08d}",
    "a094e2b38d3dd864b07580d2a094e2b38d3dd864b07580d2a094e2b3{0:08d}",
    "3",
    "0x10",
    "type:  5 val{0}.example.org",
    "AA-BB-CC-00-11-{1:02X}",
)


_ACCOUNT = 3


def sample(number: int, kind: int) -> str:
    """The value of field `number`, in the form `kind` (an index of `_SAMPLES`)."""
    return _SAMPLES[kind].format(1000 + number, 1 + number % 250)


class _Asked(dict[str, Any]):
    """The data of an event, which remembers the names a parser asked for."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """As a dictionary does."""
        self.names.add(key)
        return super().get(key, default)


def event_of_data(
    log: Log, provider: str, event_id: int, data: Mapping[str, str]
) -> tuple[Mapping[str, Any], set[str], Mapping[str, Any]]:
    """The event of some data, the names the parser asked for, and the data it left."""
    asked = _Asked(data)
    stamp = Stamp(datetime(2024, 3, 5, tzinfo=UTC), "exact", None)
    logged = Logged(event_id, provider, log.channel, "WS01.corp.example", stamp, asked)
    return event_of(logged), asked.names, asked


def consumed(log: Log, provider: str, event_id: int, kinds: Mapping[str, str]) -> dict[str, int]:
    """Names that the parser takes out of the data, each with the form of a value it takes."""
    names: set[str] = set()
    taken: dict[str, int] = {}
    # Some fields are only asked for once others are there, so until nothing new comes.
    while True:
        _, asked, _ = event_of_data(log, provider, event_id, _filled(names, taken, kinds))
        fresh = asked - names
        if not fresh:
            break
        names |= fresh
        for number, name in enumerate(sorted(fresh)):
            form = _form_taken(log, provider, event_id, name, number, kinds)
            if form is not None:
                taken[name] = form
    _, _, left = event_of_data(log, provider, event_id, _filled(names, taken, kinds))
    return {name: taken.get(name, 0) for name in sorted(names) if name in taken or name not in left}


def _form_taken(
    log: Log, provider: str, event_id: int, name: str, number: int, kinds: Mapping[str, str]
) -> int | None:
    for form in range(len(_SAMPLES)):
        _, _, left = event_of_data(log, provider, event_id, {**kinds, name: sample(number, form)})
        if name not in left:
            return form
    return None


def _filled(
    names: Iterable[str], forms: Mapping[str, int], kinds: Mapping[str, str]
) -> dict[str, str]:
    data = {name: sample(number, forms.get(name, 0)) for number, name in enumerate(sorted(names))}
    return data | dict(kinds)


def places_of(
    log: Log,
    provider: str,
    event_id: int,
    candidates: Mapping[str, Sequence[str]],
    kinds: Mapping[str, str],
) -> dict[str, str | None]:
    """The column that holds each field which the parser takes; None: its value was changed.

    The first of the candidates that holds it, else whichever column does.
    """
    taken = consumed(log, provider, event_id, kinds)
    names = sorted({*taken} - {*kinds})
    whole = _filled(names, taken, kinds)
    held: dict[str, str | None] = {}
    for name in names:
        number = names.index(name)
        # All together first: some fields are only taken beside others.
        tries = [whole]
        # What takes any text takes the other forms in the same way, but for an account.
        forms = (_ACCOUNT, 0) if taken[name] == 0 else range(len(_SAMPLES))
        tries += [{**kinds, name: sample(number, form)} for form in forms]
        columns = (_column(name, data, candidates, log, provider, event_id) for data in tries)
        held[name] = next((column for column in columns if column), None)
    return held


def _column(
    name: str,
    data: Mapping[str, str],
    candidates: Mapping[str, Sequence[str]],
    log: Log,
    provider: str,
    event_id: int,
) -> str | None:
    """Where this event has the field; None where it is in no column, or still in the rest."""
    event, _, left = event_of_data(log, provider, event_id, data)
    if name in left:
        return None
    wanted = fold(data[name])
    # The column nearest to the root is what people ask; by name, so that the file comes out the
    # same each time.
    elsewhere = sorted(_leaves_with(event, wanted), key=lambda leaf: (leaf.count("."), leaf))
    return next(
        (
            place
            for place in (*candidates.get(name, ()), *elsewhere)
            if any(fold(text_of(v)) == wanted for v in present(at(event, place)))
        ),
        None,
    )


def _leaves_with(event: Mapping[str, Any], wanted: str) -> Iterator[str]:
    """Columns with a value, those that repeat others left out; accounts in one piece."""
    for path, value in _leaves("", {k: v for k, v in event.items() if k not in _REPEATING}):
        if fold(text_of(value)) == wanted:
            yield path
        if path.endswith("user.name") and path in event_paths():
            yield f"{path.removesuffix('.name')}@"


_REPEATING = ("observables", "message", "unmapped")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path == "more" and isinstance(value, str):
        # What no column is for is kept as JSON, under the column and a colon.
        yield from ((f"more:{p}", v) for p, v in _leaves("", msgspec.json.decode(value)))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, inner)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(path, item)
    elif value is not None:
        yield path, value


def field_candidates(fields: Mapping[str, Any]) -> dict[str, list[str]]:
    """The columns a list of fields names for each, of what has a column."""
    # Of several places at once none is the one.
    single = {
        name: paths["first"] if isinstance(paths, dict) else paths
        for name, paths in fields.items()
        if not isinstance(paths, dict) or "first" in paths
    }
    listed = {name: paths if isinstance(paths, list) else [paths] for name, paths in single.items()}
    return {
        name: [path for path in paths if not path.startswith("unmapped:")]
        for name, paths in listed.items()
    }


def traced() -> tuple[dict[str, Any], list[tuple[str, int, str]]]:
    """By list and field: each column with the event ids that leave the field there.

    Besides, what a parser takes and keeps in other words: (list, event id, field).
    """
    fields = mapping_data()["fields"]
    places: dict[str, Any] = {}
    changed: list[tuple[str, int, str]] = []
    for name, log in LOGS.items():
        candidates = field_candidates(fields["windows"] | fields[name])
        ids: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        several = {field for field, paths in fields[name].items() if isinstance(paths, dict)}
        every = set()
        for provider, event_id, kinds in _events(name, log):
            every.add(event_id)
            for field, column in places_of(log, provider, event_id, candidates, kinds).items():
                if column is None:
                    changed.append((name, event_id, field))
                else:
                    ids[field][column].add(event_id)
        places[name] = {
            "event_ids": number_runs(every),
            "fields": {
                field: {column: number_runs(numbers) for column, numbers in sorted(columns.items())}
                for field, columns in sorted(ids.items())
                if field not in several
            },
        }
    return places, changed


def number_runs(numbers: Iterable[int]) -> str:
    """`4624, 4720-4726`: runs of numbers."""
    ordered = sorted(numbers)
    starts = [n for n in ordered if n - 1 not in numbers]
    ends = [n for n in ordered if n + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


def _events(name: str, log: Log) -> Iterator[tuple[str, int, Mapping[str, str]]]:
    for provider in log.providers:
        for event_id in sorted(BY_PROVIDER[provider]):
            for kinds in KINDS.get(name, ({},)):
                yield provider, event_id, kinds


def places_text(places: Mapping[str, Any]) -> str:
    """The file's text."""
    return HEADING + yaml.safe_dump(
        {"places": dict(places)}, default_flow_style=False, width=100, sort_keys=False
    )


if __name__ == "__main__":
    PLACES_FILE.write_text(places_text(traced()[0]), "utf-8")
