"""What of ATT&CK is watched: rules in force, whether their data comes, and what alerted."""

from __future__ import annotations

import json

import jinja2
from markupsafe import Markup

from alerts.domain.attack import TACTICS, layer
from alerts.domain.attack_techniques import technique_name
from reporting.document.content import Column, Raw, Report, Section, Table, Tile
from reporting.document.request import ReportRequest
from reporting.figures.attack_coverage import (
    Technique,
    by_tactic,
    rules_in_force,
    techniques,
)

NAME = "coverage"
QUESTIONS = 2
DOC = "ATT&CK as the rules in force cover it, with a layer for the ATT&CK Navigator."
TABLES = ("silver.event", "gold.finding", "gold.findings", "gold.alert", "gold.alert_current")

_MATRIX = jinja2.Environment(autoescape=True).from_string("""
<div class="scroll"><table class="matrix"><thead><tr>
{% for tactic, _ in columns %}<th>{{ tactic }}</th>{% endfor %}
</tr></thead><tbody><tr>
{% for _, cells in columns %}<td>{% for cell in cells %}
<div style="border:{{ borders[cell.state] }}; border-radius:3px; padding:0 2px; margin:0 0 2px;
  background:{{ fills[cell.state] }}; color:#0f172a; overflow-wrap:anywhere"
  title="{{ cell.rules|join(', ') }}"><b>{{ cell.uid }}</b>
<span style="white-space:nowrap">{{ marks[cell.state] }}&nbsp;{{ cell.rules|length
}}{% if cell.alerts %} ({{ cell.alerts }}){% endif %}</span>
{% if name(cell.uid) %}<br>{{ name(cell.uid) }}{% endif %}</div>
{% endfor %}</td>{% endfor %}
</tr></tbody></table></div>
<p class="soft">Each technique with the number of its rules, and of its alerts in brackets.
● fired in the interval (thick border); ○ watched, nothing seen; ✕ blind: no rule for it gets its
data (dashed border). Techniques without a rule are not shown.</p>
""")
# A state has a border and a mark besides its colour, which a page in grey does not show.
_LOOKS = {
    "borders": {"fired": "2px solid #0f172a", "watched": "1px solid #94a3b8",
                "blind": "2px dashed #b91c1c"},
    "fills": {"fired": "#bfdbfe", "watched": "#f1f5f9", "blind": "#ffffff"},
    "marks": {"fired": "●", "watched": "○", "blind": "✕"},
}  # fmt: skip
_COLOURS = {"fired": "#1d4ed8", "watched": "#bfdbfe", "blind": "#fecaca"}


def compose(request: ReportRequest) -> Report:
    """The report; what fired is of the interval, the rules are those in force now."""
    known = techniques(request)
    rules = rules_in_force(request.settings)
    states = [technique.state for technique in known]
    columns = by_tactic(known)
    empty = [TACTICS[tactic][1] for tactic, cells in columns.items() if not cells]
    lead = [f"No rule in force names a technique of {_listed(empty)}."] if empty and known else []
    if not known:
        lead = ["No rule is in force here that names a technique."]
    return Report(
        NAME,
        "ATT&CK coverage",
        request.interval,
        request.made_at,
        lead=lead,
        tiles=[
            Tile("Rules in force", len(rules)),
            Tile("Techniques watched", len(known)),
            Tile("Fired in the interval", states.count("fired")),
            Tile("Blind", states.count("blind"), tone="bad" if "blind" in states else "good"),
            Tile("Tactics with a rule", len(columns) - len(empty)),
        ],
        sections=[
            Section("Matrix", [Raw("matrix", _matrix(columns))]),
            Section("Techniques", [_table(known)]),
        ],
        arrival=request.arrived(),
        attachments={"navigator.json": navigator(known, request)},
        wide=True,
    )


def navigator(known: list[Technique], request: ReportRequest) -> bytes:
    """A layer of the ATT&CK Navigator; its score is the number of rules, its colour what fired."""
    rules = [(rule.title, rule.techniques) for rule in rules_in_force(request.settings)]
    made = layer(rules, f"Headgate, {request.interval}")
    by_uid = {technique.uid: technique for technique in known}
    for entry in made["techniques"]:
        technique = by_uid.get(entry["techniqueID"])
        if technique is not None:
            entry["color"] = _COLOURS[technique.state]
            entry["metadata"] = [
                {"name": "state", "value": technique.state},
                {"name": "alerts", "value": str(technique.alerts)},
                {"name": "findings", "value": str(technique.findings)},
            ]
    made["legendItems"] = [{"label": state, "color": _COLOURS[state]} for state in _COLOURS]
    return json.dumps(made, indent=1, ensure_ascii=False).encode()


def _matrix(columns: dict[str, list[Technique]]) -> Markup:
    # The longest name may part: in a narrow column it would run into the next.
    named = [
        (TACTICS[tactic][1].replace("Reconnais", "Reconnais\u00ad"), cells)
        for tactic, cells in columns.items()
        if cells
    ]
    return Markup(_MATRIX.render(columns=named, name=technique_name, **_LOOKS))


def _table(known: list[Technique]) -> Table:
    rows = [
        {
            "technique": technique.uid,
            "name": technique_name(technique.uid),
            "tactics": ", ".join(TACTICS[t][1] for t in TACTICS if t in technique.tactics),
            "state": technique.state,
            "rules": technique.rules[:4]
            + ([f"and {len(technique.rules) - 4} more"] if len(technique.rules) > 4 else []),
            "count": len(technique.rules),
            "blind": len(technique.blind),
            "findings": technique.findings,
            "alerts": technique.alerts,
        }
        for technique in known
    ]
    columns = [
        Column("technique", "Technique", "code"),
        Column("name", "Name"),
        Column("tactics", "Tactics"),
        Column("state", "State", "word"),
        Column("rules", "Rules"),
        Column("count", "Rules", "number"),
        Column("blind", "Blind", "number", bad=True),
        Column("findings", "Findings", "number"),
        Column("alerts", "Alerts", "number"),
    ]
    return Table("techniques", columns, rows, empty="No technique has a rule.")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
