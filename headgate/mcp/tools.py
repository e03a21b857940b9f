"""The tools: each is one question to the API, with its arguments checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from alerts.domain.verdict import VERDICTS
from infra.errors import Usage

_TIME = "instant with its zone, such as 2026-11-20T14:00:00Z"
_MOST_TEXT = 20_000
_MEANINGS = "; ".join(f"{name}: {meaning}" for name, (_, meaning) in VERDICTS.items())
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A request to the API. `body` None: a GET."""

    path: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True)
class Tool:
    """One tool. `properties`: its arguments as JSON Schema; `required`: those that it needs."""

    name: str
    doc: str
    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    call: Callable[[Arguments], Call]
    proposes: bool = False
    """Whether it leaves a proposal; all others only read."""

    def described(self) -> dict[str, Any]:
        """As `tools/list` gives it."""
        return {
            "name": self.name,
            "description": self.doc,
            "inputSchema": {
                "type": "object",
                "properties": dict(self.properties),
                "required": list(self.required),
                "additionalProperties": False,
            },
            "annotations": {
                "readOnlyHint": not self.proposes,
                "destructiveHint": False,
                "openWorldHint": False,
            },
        }

    def checked(self, arguments: Arguments) -> Call:
        """The request; raises `Usage` for an argument that is missing, unknown or of another
        type."""
        unknown = sorted(arguments.keys() - self.properties.keys())
        if unknown:
            known = ", ".join(self.properties) or "none"
            raise Usage(f"{self.name}: no argument '{unknown[0]}'; it has {known}")
        for name in self.required:
            if arguments.get(name) in (None, ""):
                raise Usage(f"{self.name}: give '{name}'")
        for name, value in arguments.items():
            wanted = _TYPES[self.properties[name]["type"]]
            # Exactly: in Python True is an integer, too.
            if type(value) is not wanted:
                raise Usage(f"{self.name}: '{name}' has to be {self.properties[name]['type']}")
            if isinstance(value, str) and len(value) > _MOST_TEXT:
                raise Usage(f"{self.name}: '{name}' is longer than {_MOST_TEXT} characters")
        return self.call(arguments)


_TYPES: Mapping[str, type] = {"integer": int, "boolean": bool, "string": str}


def _text(doc: str) -> dict[str, Any]:
    return {"type": "string", "description": doc}


_LIMIT = {"type": "integer", "minimum": 1, "maximum": 100, "description": "most rows; default 20"}


def _get(path: str, *names: str) -> Callable[[Arguments], Call]:
    """A GET of a path; `{name}` in it is an argument, `names` go into the query."""

    def call(arguments: Arguments) -> Call:
        # A slash would lead to another endpoint, quoted too: servers unquote a path before they
        # look it up. A segment of dots alone would be folded away on the way.
        segments = {name: quote(str(value), safe="") for name, value in arguments.items()}
        for name, value in segments.items():
            if "{" + name + "}" in path and (not value.strip(".") or "%2F" in value):
                raise Usage(f"'{name}': {arguments[name]} names nothing")
        asked = {name: arguments[name] for name in names if name in arguments}
        if "limit" in names:
            asked["limit"] = min(max(int(asked.get("limit", 20)), 1), 100)
        return Call(path.format(**segments) + (f"?{urlencode(asked)}" if asked else ""))

    return call


def _statement(arguments: Arguments) -> Call:
    asked = {"sql": arguments["sql"], "as_of": arguments["as_of"]}
    # Waited for as long as may be: most are answered by then, without a second question.
    return Call("/api/v1/statements?wait_seconds=20", asked)


def _try(kind: str) -> Callable[[Arguments], Call]:
    """A rule tried on history, as a job of a kind."""

    def call(arguments: Arguments) -> Call:
        # Waited for a little: some days are looked through by then, without a second question.
        return Call("/api/v1/rule-jobs?wait_seconds=20", {"kind": kind, **arguments})

    return call


def _propose(kind: str) -> Callable[[Arguments], Call]:
    """A proposal of a kind: the arguments are the fields of its change."""

    def call(arguments: Arguments) -> Call:
        return Call("/api/v1/proposals", {"kind": kind, **arguments})

    return call


_WHY = _text("the evidence, for the person who decides")
_SPAN = {"since": _text(f"begin: {_TIME}"), "until": _text(f"end, not in it: {_TIME}")}
_RULE = _text("its id or name")
_ENTITY = {
    "type": {"type": "string", "enum": ["ip", "mac", "user", "host", "domain"],
             "description": "what the value is"},
    "value": _text("the address, MAC address, user, host or domain"),
}  # fmt: skip

TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "alerts", "Alerts of a span, newest first.",
            _SPAN | {"level": _text("informational, low, medium, high or critical"),
                     "status": _text("open or closed"), "entity": _text("who it is about"),
                     "q": _text("words in it"), "limit": _LIMIT},
            ("since", "until"),
            _get("/api/v1/alerts", "since", "until", "level", "status", "entity", "q", "limit"),
        ),
        Tool(
            "alert", "One alert whole, with its evidence and revisions.",
            {"alert_id": _text("its id")}, ("alert_id",), _get("/api/v1/alerts/{alert_id}"),
        ),
        Tool(
            "explain", "Why an alert is there: rule, values that matched, evidence, versions.",
            {"alert_id": _text("its id")}, ("alert_id",),
            _get("/api/v1/alerts/{alert_id}/explain"),
        ),
        Tool(
            "lease", "Which device held an address at an instant, with the proof.",
            {"ip": _text("the address"), "at": _text(_TIME), "scope": _text("site")},
            ("ip", "at"), _get("/api/v1/leases", "ip", "at", "scope"),
        ),
        Tool(
            "who", "Which users logs saw at an address, a device or a host at an instant.",
            _ENTITY | {"at": _text(_TIME)}, ("type", "value", "at"),
            _get("/api/v1/entities/{type}/{value}/witnesses", "at"),
        ),
        Tool(
            "timeline", "Events, findings, alerts and leases of one entity in a span.",
            _ENTITY | _SPAN | {"limit": _LIMIT}, ("type", "value", "since", "until"),
            _get("/api/v1/entities/{type}/{value}", "since", "until", "limit"),
        ),
        Tool(
            "search", "Events with the device that held their address, of a span.",
            _SPAN | {"ip": _text("address"), "mac": _text("device"), "host": _text("host"),
                     "limit": _LIMIT},
            ("since", "until"),
            _get("/api/v1/events/attributed", "ip", "mac", "host", "since", "until", "limit"),
        ),
        Tool(
            "sql", "One SELECT in Spark SQL over the tables as they were at an instant; the answer "
            "has the version of each table. Bound it by time. Gives a job where it takes longer "
            "than 20 s; ask sql_result later.",
            {"sql": _text("the statement"), "as_of": _text(_TIME)}, ("sql", "as_of"), _statement,
        ),
        Tool(
            "sql_result", "What a statement came to that took longer: its first rows.",
            {"job_id": _text("its id"), "limit": _LIMIT}, ("job_id",),
            _get("/api/v1/search/jobs/{job_id}/results", "limit"),
        ),
        Tool("tables", "Tables and views, with what each column means.", {}, (),
             _get("/api/v1/tables")),
        Tool("rules", "The rules, whether they are on, and whether they see their input.", {}, (),
             _get("/api/v1/rules")),
        Tool("rule", "One rule with its text.", {"rule": _RULE}, ("rule",),
             _get("/api/v1/rules/{rule}")),
        Tool(
            "preview", "Findings that a rule in force would have made from an instant until now. "
            "Gives a job; where it is not done yet, ask try_result later.",
            {"rule": _RULE, "since": _SPAN["since"]}, ("rule", "since"), _try("preview"),
        ),
        Tool(
            "backtest", "Alerts that a rule would have raised in a span, as the jobs would have; "
            "none is made. Takes minutes and a key of role engineer. Gives a job; ask try_result.",
            {"rule": _RULE} | _SPAN, ("rule", "since", "until"), _try("backtest"),
        ),
        Tool(
            "try_result", "What a preview or backtest came to.", {"job_id": _text("its id")},
            ("job_id",), _get("/api/v1/rule-jobs/{job_id}/results"),
        ),
        Tool("status", "Whether the tables can be read and every job keeps up.", {}, (),
             _get("/readyz")),
        Tool(
            "propose_verdict", "Propose a verdict on an alert; a person confirms or rejects it.",
            {"alert_id": _text("its id"),
             "verdict": {"type": "string", "enum": list(VERDICTS), "description": _MEANINGS},
             "close": {"type": "boolean", "description": "close the alert as well"},
             "why": _WHY},
            ("alert_id", "verdict", "why"), _propose("verdict"), proposes=True,
        ),
        Tool(
            "propose_note", "Propose a note on an alert; a person confirms or rejects it.",
            {"alert_id": _text("its id"), "text": _text("the note"), "why": _WHY},
            ("alert_id", "text", "why"), _propose("note"), proposes=True,
        ),
        Tool(
            "propose_suppression", "Propose that alerts of a rule, of an entity or of both "
            "together are silenced until a time; a person confirms or rejects it.",
            {"rule": _text("id, name or pattern with *"),
             "entity": _text("MAC address, address, network, host or user"),
             "until": _text("its end: an instant, a date or a span such as +7d"), "why": _WHY},
            ("until", "why"), _propose("suppression"), proposes=True,
        ),
    )
}  # fmt: skip
"""Every tool by name."""
