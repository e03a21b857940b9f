"""MITRE ATT&CK as Sigma's tags name it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

TACTICS = {
    "reconnaissance": ("TA0043", "Reconnaissance"),
    "resource-development": ("TA0042", "Resource Development"),
    "initial-access": ("TA0001", "Initial Access"),
    "execution": ("TA0002", "Execution"),
    "persistence": ("TA0003", "Persistence"),
    "privilege-escalation": ("TA0004", "Privilege Escalation"),
    "defense-evasion": ("TA0005", "Defense Evasion"),
    "credential-access": ("TA0006", "Credential Access"),
    "discovery": ("TA0007", "Discovery"),
    "lateral-movement": ("TA0008", "Lateral Movement"),
    "collection": ("TA0009", "Collection"),
    "command-and-control": ("TA0011", "Command and Control"),
    "exfiltration": ("TA0010", "Exfiltration"),
    "impact": ("TA0040", "Impact"),
}
"""Tactic of a tag -> (uid, name). `attack.credential_access` is spelled with underscores too."""


def techniques_of(tags: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tactics, techniques) of Sigma tags: (("credential-access",), ("T1110.001",))."""
    tactics, techniques = [], []
    for tag in tags:
        space, _, name = tag.partition(".")
        if space != "attack":
            continue
        # Public rules spell tactics both ways.
        name = name.lower().replace("_", "-")
        if name in TACTICS:
            tactics.append(name)
        elif re.fullmatch(r"t\d{4}(\.\d{3})?", name):
            techniques.append(name.upper())
    return tuple(tactics), tuple(techniques)


def attack_entries(tactics: Sequence[str], techniques: Sequence[str]) -> list[dict[str, object]]:
    """The alert's `attack` list: one entry a technique, each with the rule's tactics."""
    named = [{"uid": TACTICS[t][0], "name": TACTICS[t][1]} for t in tactics]
    if not techniques:
        return [{"technique": None, "tactics": named}] if named else []
    return [{"technique": {"uid": uid}, "tactics": named} for uid in techniques]


def layer(rules: Iterable[tuple[str, Sequence[str]]], name: str = "Headgate") -> dict[str, Any]:
    """An ATT&CK Navigator layer (format 4.5) of rules, each a title and its techniques.

    A technique's score is the number of rules for it; one with rules only for its
    sub-techniques is there too, without a score, so that these are shown.
    """
    titles: dict[str, list[str]] = defaultdict(list)
    for title, techniques in rules:
        for technique in dict.fromkeys(techniques):
            titles[technique].append(title)
    parents = {uid.partition(".")[0] for uid in titles if "." in uid}
    return {
        "name": name,
        "versions": {"layer": "4.5", "navigator": "5.1.0"},
        "domain": "enterprise-attack",
        "description": "Rules in force; the score of a technique is their number.",
        "sorting": 3,
        "hideDisabled": False,
        "techniques": [
            _technique(uid, titles.get(uid, []), uid in parents)
            for uid in sorted(parents | titles.keys())
        ],
        "gradient": {
            "colors": ["#cfe8f3ff", "#1f6f9bff"],
            "minValue": 1,
            "maxValue": max((len(named) for named in titles.values()), default=1),
        },
        "legendItems": [],
        "metadata": [],
        "showTacticRowBackground": False,
        "selectTechniquesAcrossTactics": True,
        "selectSubtechniquesWithParent": False,
    }


def _technique(uid: str, titles: Sequence[str], has_parts: bool) -> dict[str, Any]:
    lines: dict[str, Any] = {"techniqueID": uid, "enabled": True, "showSubtechniques": has_parts}
    if titles:
        lines["score"] = len(titles)
        lines["comment"] = "\n".join(sorted(titles))
    return lines
