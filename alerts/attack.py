"""MITRE ATT&CK as Sigma's tags name it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
