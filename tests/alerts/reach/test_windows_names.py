"""What an event of Windows says, a rule can ask by Windows' own name for it, in each form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from alerts.compiler.compiler import Compiled
from alerts.compiler.sigma_to_predicate import where_of
from alerts.matching.event_rows import brute_force
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import LogSource
from alerts.rulepack.predicate import holds
from tests.alerts.reach.fired import compiled, fired
from tests.alerts.reach.test_own_names import asked
from tests.ingest.logs import rows
from tests.ingest.windows_forms import FORMS, SUCCESS, Sample
from tests.ingest.windows_samples import CLASSIC, SAMPLES, other, rpc_call

OTHERWISE = {
    # It is read as a time, and rules ask for no text of it.
    ("", "UtcTime"),
    # Sigma's category means the process that began, Windows' event the one that started it.
    ("process_creation windows", "ProcessId"),
}
"""Log sources ("" is any) and fields for which a name does not mean what the event calls so."""


def questions(sample: Sample) -> list[tuple[str, Any]]:
    """What rules may ask of an event: each value by its name, those without one as `Data`."""
    if isinstance(sample.data, tuple):
        return [("Data|contains", part) for value in sample.data for part in parts(value)]
    return [question for name, value in sample.data.items() for question in of_value(name, value)]


def of_value(name: str, value: str) -> list[tuple[str, Any]]:
    """A short value is asked whole, a text and a list by what stands in them."""
    if not value.strip():
        return []
    if name == "QueryResults" or "\n" in value:
        return [(f"{name}|contains", part) for part in parts(value.replace(";", ";\n"))]
    return [(name, asked(value))]


def parts(text: str) -> list[Any]:
    """The lines of a text; blanks around them are not kept alike by all shippers."""
    return [asked(line.strip()) for line in text.splitlines() if line.strip()]


def sources_of(event: dict[str, Any]) -> Iterator[tuple[dict[str, str], LogSource]]:
    """The log sources of Windows that an event is of."""
    for (category, product, service), source in mapping().logsources.items():
        where = where_of(source)
        if product != "windows" or (source.classes and event["class_uid"] not in source.classes):
            continue
        if event["source"] not in source.sources or (where and not holds(where, event)):
            continue
        named = {"category": category, "product": product, "service": service}
        yield {key: word for key, word in named.items() if word}, source


@cache
def rules_of(name: str, logsource: tuple[tuple[str, str], ...]) -> Compiled:
    """A rule for each question; those that a log source refuses say so, and are not silent."""
    sample = SAMPLES[name]
    return compiled(
        dict(logsource),
        *({"EventID": sample.event_id, field: value} for field, value in questions(sample)),
    )


def unseen(name: str, form: str) -> set[tuple[str, str, str]]:
    """Log source, field and value that a rule which loads does not see in the event."""
    source, make = FORMS[form]
    (event,) = rows(source, make(SAMPLES[name]))
    assert event.get("dead_letter_reason") is None, event
    missed = set()
    seen = 0
    for logsource, _ in sources_of(event):
        result = rules_of(name, tuple(logsource.items()))
        hits = {rule for rule, _ in brute_force(result.pack, [event])}
        seen += len(hits)
        wanted = questions(SAMPLES[name])
        for rule in result.pack.rules:
            if rule.id not in hits:
                field, value = wanted[int(rule.title.split()[1])]
                missed.add((" ".join(logsource.values()), field, str(value)))
    assert seen or not questions(SAMPLES[name])
    return missed


QUICK = {"xml", "nxlog"}


@pytest.mark.parametrize(
    "form",
    [pytest.param(f, marks=[] if f in QUICK else pytest.mark.full) for f in FORMS],
)
@pytest.mark.parametrize("name", SAMPLES)
def test_each_value_of_an_event_is_asked_by_its_own_name(name: str, form: str) -> None:
    missed = {
        (source, field, value)
        for source, field, value in unseen(name, form)
        if not {("", field), (source, field)} & OTHERWISE
    }
    assert missed == set()


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_rpc_firewall_saw_is_asked_by_the_names_of_its_message(form: str) -> None:
    source, make = FORMS[form]
    logsource = {"product": "rpc_firewall", "category": "application"}
    asked = {"EventLog": "RPCFW", "EventID": 3, "OpNum": [0, 3],
             "InterfaceUuid": "e3514235-4b06-11d1-ab04-00c04fc2dcd2"}  # fmt: skip
    who = {"ImagePath|endswith": "\\lsass.exe", "ProcessID": 744, "RemotePort": 49801,
           "SourceNetworkAddress|cidr": "10.0.0.0/24", "SecurityID": "CORP\\ann"}  # fmt: skip
    for opnum, expected in (("3", True), ("30", False)):
        raw = make(rpc_call(SUCCESS, opnum))
        assert fired(logsource, asked | who, source, raw) is expected


def test_a_command_does_not_say_in_which_host_it_runs() -> None:
    context = CLASSIC.replace("-enc AAAA", r"-c '\tHostName=Forged\x'")
    sample = other(400, "PowerShell", ("Available", "None", context), "Windows PowerShell")
    source, make = FORMS["xml"]
    logsource = {"product": "windows", "service": "powershell-classic"}
    for host, expected in (("ConsoleHost", True), ("Forged", False)):
        assert fired(logsource, {"HostName": host}, source, make(sample)) is expected


CRASH = {
    "EventTime": "2025-03-05 12:00:00",
    "Hostname": "pc1",
    "Channel": "Application",
    "SourceName": "Application Error",
    "EventID": 1000,
    "SeverityValue": 4,
    "Data": ["mpengine.dll"],
}


@pytest.mark.parametrize("level", [2, "2", "Error", None])
@pytest.mark.parametrize(
    ("detection", "fires"),
    [
        ({"Level": "Error"}, True),
        ({"Level": 2}, True),
        ({"Level": ["Critical", "Error"]}, True),
        ({"Level|startswith": "Err"}, True),
        ({"Level": "Warning"}, False),
        ({"Level": 3}, False),
        ({"selection": {"EventID": 1000}, "filter": {"Level": "Error"},
          "condition": "selection and not filter"}, False),
    ],
)  # fmt: skip
def test_a_level_is_asked_as_number_and_in_words(
    level: object, detection: dict[str, Any], fires: bool
) -> None:
    raw = json.dumps(CRASH | ({} if level is None else {"Level": level})).encode()
    logsource = {"product": "windows", "service": "application"}
    assert fired(logsource, detection, "windows_nxlog", raw) is fires
