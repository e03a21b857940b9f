"""What the `alert` object of Suricata's events says of the rule that matched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import ALLOWED, DENIED, HIGH, INFORMATIONAL, LOW, MEDIUM, UNKNOWN, kept
from ingest.sources.shared.firewall import Fields
from ingest.sources.suricata.common import strings

_SEVERITIES: Mapping[int, int] = MappingProxyType({1: HIGH, 2: MEDIUM, 3: LOW, 4: INFORMATIONAL})
_BY_RULE = 1
_ATTACK = re.compile(r"[A-Za-z0-9.]{1,32}", re.ASCII)


def rule_columns(detail: Fields) -> dict[str, Any]:
    """The arguments of `located` that the object fills; what fills none stays in it.

    `finding_info` still lacks `created_time`, which is the event's own.
    """
    title, category = detail.text("signature"), detail.text("category")
    sid = detail.number("signature_id")
    level = detail.number("severity", most=255)
    revision = detail.number("rev")
    action = detail.text("action")
    allowed = {"allowed": True, "blocked": False}.get(action or "")
    attacks = _attacks(detail.get("metadata"))
    uid = "unknown" if sid is None else str(sid)
    if action and allowed is None:
        detail["action"] = action
    decision = None if allowed is None else ALLOWED if allowed else DENIED
    return {
        "severity_id": _SEVERITIES.get(level or 0, UNKNOWN),
        "action_id": decision,
        "disposition_id": decision,
        "message": title,
        "finding_info": {
            "uid": uid,
            "title": title or "unknown",
            "types": [category] if category else None,
            "analytic": kept(
                uid=uid,
                name=title,
                category=category,
                version=None if revision is None else str(revision),
                type_id=_BY_RULE,
            ),
        },
        "more": {"is_alert": True} | ({"attacks": attacks} if attacks else {}),
    }


def _attacks(about: object) -> list[dict[str, Any]]:
    """MITRE's tactics and techniques that the rule names, pair by pair."""
    if type(about) is not dict:
        return []
    named = {
        key: strings(about.get(f"mitre_{key}")) or []
        for key in ("tactic_id", "tactic_name", "technique_id", "technique_name")
    }
    attacks = []
    # The lists belong together by position; one may be shorter than the others.
    for index in range(max(map(len, named.values()))):
        tactic = _named(named["tactic_id"], named["tactic_name"], index)
        technique = _named(named["technique_id"], named["technique_name"], index)
        attacks.append(kept(tactic=tactic, technique=technique))
    return [attack for attack in attacks if attack]


def _named(uids: list[str], names: list[str], position: int) -> dict[str, str] | None:
    uid = uids[position] if position < len(uids) and _ATTACK.fullmatch(uids[position]) else None
    name = names[position].replace("_", " ") if position < len(names) else None
    return kept(uid=uid, name=name) or None
