"""Alerts and cases as a STIX 2.1 bundle: what was seen, of what, when and how often.

The same alert in the same revision is the same bytes: ids are UUIDv5, of observables by the
standard's own rule (STIX 2.1, 2.9), so that a server that gets a bundle twice has it once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from uuid import UUID, uuid5

from alerts.cases.case import Case
from infra.config.intelligence_section import StixSettings

Body = Mapping[str, Any]
Stix = dict[str, Any]
MEDIA_TYPE = "application/stix+json;version=2.1"
NO_SIGHTING = frozenset({"false_positive", "benign", "test", "duplicate"})
"""Verdicts by which an alert is no sighting: to share it would send others after nothing."""

_OBSERVABLES = UUID("00abedb4-aa42-466c-9c01-fed23315a9b7")
"""Namespace of the ids of observables (STIX 2.1, 2.9)."""
_OWN = UUID("6f0c1f1e-6c0a-5d1c-9a55-4a1f8d2b7e90")
_EPOCH = "1970-01-01T00:00:00.000Z"
"""Of objects that stand for a name: they were made at no time, and never change."""

_MOST = 999_999_999
"""The largest count that the standard knows."""

_TLP = {
    "clear": ("white", "613f2e26-407d-48c7-9eca-b8e91df99dc9"),
    "green": ("green", "34098fce-860f-48ae-8e50-ebd3cc5e41da"),
    "amber": ("amber", "f88d31f6-486f-44da-b317-01333bde0b82"),
    "red": ("red", "5e57c739-391a-4eb3-b6be-7d15ca92d5ed"),
}
"""The markings that the standard defines (STIX 2.1, 7.2.1.4); TLP 2.0 calls white clear."""

_VALUES = {"email": "email-addr", "domain": "domain-name", "host": "domain-name", "url": "url"}
_PATTERNS = {
    "ip": "{family}:value", "network": "{family}:value", "domain": "domain-name:value",
    "url": "url:value", "email": "email-addr:value",
}  # fmt: skip
_HASHES = {32: "MD5", 40: "'SHA-1'", 64: "'SHA-256'"}


def stix_bundle(
    bodies: Iterable[Body], settings: StixSettings, case: Case | None = None
) -> tuple[Stix, int]:
    """The bundle of alerts, given by the body of their newest revision, and how many are not in it.

    Each alert is a grouping of a sighting (of the indicator that it met, else of its ATT&CK
    techniques) and of what was observed. Left out are alerts judged as no attack (`NO_SIGHTING`).
    With a `case` an incident holds them together.
    """
    work = _Bundle(settings)
    left_out, groupings = 0, []
    for body in sorted(bodies, key=lambda body: str(body["alert_id"])):
        if body.get("verdict") in NO_SIGHTING:
            left_out += 1
        else:
            groupings.append(work.alert(body))
    if case is not None:
        work.case(case, groupings)
    objects = list(work.objects.values())
    named = " ".join(f"{each['id']} {each.get('modified', '')}" for each in objects)
    return {"type": "bundle", "id": f"bundle--{uuid5(_OWN, named)}", "objects": objects}, left_out


class _Bundle:
    """Objects by id, in the order in which they are named first."""

    def __init__(self, settings: StixSettings) -> None:
        self.objects: dict[str, Stix] = {}
        self._settings = settings
        colour, uuid = _TLP[settings.tlp]
        self._marking = f"marking-definition--{uuid}"
        self.objects[self._marking] = {
            "type": "marking-definition",
            "spec_version": "2.1",
            "id": self._marking,
            # As the standard has them, to the letter: every server knows these objects already.
            "created": "2017-01-20T00:00:00.000Z",
            "definition_type": "tlp",
            "name": f"TLP:{colour.upper()}",
            "definition": {"tlp": colour},
        }
        self._producer = f"identity--{uuid5(_OWN, f'identity {settings.identity}')}"
        self._add("identity", settings.identity, _EPOCH, _EPOCH,
                  name=settings.identity, identity_class="organization")  # fmt: skip

    def alert(self, body: Body) -> str:
        """Add an alert; the id of its grouping."""
        alert_id = str(body["alert_id"])
        made, changed = _times(body)
        first, last = _exact(body["window_start"]), _exact(body["window_end"])
        observed = self._observed(body, alert_id, made, changed, first, last)
        seen: list[str] = []
        for target in self._targets(body):
            seen.append(
                self._add(
                    "sighting", f"{alert_id} {target}", made, changed,
                    first_seen=first, last_seen=max(first, last),
                    count=min(int(body["count"]), _MOST), sighting_of_ref=target,
                    observed_data_refs=observed, where_sighted_refs=[self._producer],
                )
            )  # fmt: skip
        shared = self._settings.entities
        rule = body.get("rule") or {}
        return self._add(
            "grouping", alert_id, made, changed,
            # A title names the device it is about.
            name=body["title"] if shared else rule.get("name") or "Alert",
            description=body.get("summary") if shared else None,
            context="suspicious-activity",
            labels=[
                f"{name}:{str(body[name]).lower()}"
                for name in ("severity", "verdict")
                if body.get(name)
            ],
            external_references=[{"source_name": "headgate", "external_id": alert_id}],
            # A grouping of nothing is not allowed.
            object_refs=[*seen, *observed] or [self._producer],
        )  # fmt: skip

    def case(self, case: Case, groupings: Sequence[str]) -> None:
        """Add a case over the groupings of its alerts."""
        made, changed = _exact(case.opened_at), _exact(case.changed_at)
        name = case.title if self._settings.entities else case.case_id
        reference = [{"source_name": "headgate", "external_id": case.case_id}]
        incident = self._add("incident", case.case_id, made, changed, name=name,
                             external_references=reference)  # fmt: skip
        self._add("grouping", case.case_id, made, changed, name=name, context="suspicious-activity",
                  external_references=reference, object_refs=[incident, *groupings])  # fmt: skip

    def _targets(self, body: Body) -> list[str]:
        """What was sighted: the indicator that an event met, else techniques, else the rule."""
        fields = body.get("fields") or {}
        source = str(fields.get("indicator.source") or "").partition(":")[2]
        if _is_id(source, "indicator"):
            # Whoever sent the indicator has it; a copy of ours would be another object.
            return [source]
        pattern = _pattern(fields.get("indicator.kind"), fields.get("indicator.value"))
        if pattern:
            key = f"{fields.get('indicator.list')} {pattern}"
            return [self._add("indicator", key, _EPOCH, _EPOCH, name=fields["indicator.value"],
                              pattern=pattern, pattern_type="stix", valid_from=_EPOCH,
                              indicator_types=["malicious-activity"])]  # fmt: skip
        techniques = [
            each["technique"] for each in body.get("attack") or () if each.get("technique")
        ]
        return [
            self._add(
                "attack-pattern", technique["uid"], _EPOCH, _EPOCH,
                name=technique.get("name") or technique["uid"],
                external_references=[
                    {"source_name": "mitre-attack", "external_id": technique["uid"]}
                ],
            )
            for technique in techniques
        ]  # fmt: skip

    def _observed(
        self, body: Body, alert_id: str, made: str, changed: str, first: str, last: str
    ) -> list[str]:
        """Add the entities and that they were observed; none where they are not to be named."""
        if not self._settings.entities:
            return []
        observables = [
            observable
            for each in body.get("entities") or ()
            if (observable := _observable(each["type"], str(each["value"])))
        ]
        if not observables:
            return []
        for observable in observables:
            self.objects[observable["id"]] = observable | {"object_marking_refs": [self._marking]}
        refs = list(dict.fromkeys(observable["id"] for observable in observables))
        return [
            self._add("observed-data", alert_id, made, changed, first_observed=first,
                      last_observed=max(first, last), object_refs=refs,
                      number_observed=min(int(body.get("evidence_total") or body["count"]), _MOST))
        ]  # fmt: skip

    def _add(self, kind: str, key: str, created: str, modified: str, **more: Any) -> str:
        """Add an object, whose id is made of its kind and key; the id."""
        identity = f"{kind}--{uuid5(_OWN, f'{kind} {key}')}"
        self.objects[identity] = {
            "type": kind,
            "spec_version": "2.1",
            "id": identity,
            "created_by_ref": self._producer,
            "created": created,
            "modified": modified,
            "object_marking_refs": [self._marking],
            **{name: value for name, value in more.items() if value not in (None, [])},
        }
        return identity


def _observable(kind: str, value: str) -> Stix | None:
    """An entity as a cyber observable; None for what the standard has no type for."""
    if kind == "user":
        return _identified("user-account", {"account_login": value})
    if kind == "ip":
        try:
            version = ip_address(value).version
        except ValueError:  # a log may write a name where an address belongs
            return None
        return _identified(f"ipv{version}-addr", {"value": value})
    # A device is named by its MAC address, or where it has none by its host's name.
    if kind == "device" and value.count(":") == 5:
        return _identified("mac-addr", {"value": value.lower()})
    name = _VALUES.get("host" if kind == "device" else kind)
    return _identified(name, {"value": value}) if name else None


def _identified(kind: str, contributing: Stix) -> Stix:
    """An observable whose id is made of all its values, as the standard says (RFC 8785, UUIDv5)."""
    canonical = json.dumps(contributing, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    identity = f"{kind}--{uuid5(_OBSERVABLES, canonical)}"
    return {"type": kind, "spec_version": "2.1", "id": identity, **contributing}


def _pattern(kind: str | None, value: str | None) -> str | None:
    """The STIX pattern of an entry of an indicator list."""
    if not kind or not value:
        return None
    if kind == "hash":
        path: str | None = f"file:hashes.{_HASHES.get(len(value), '')}"
        path = None if len(value) not in _HASHES else path
    else:
        path = _PATTERNS.get(kind)
    if path is None:
        return None
    path = path.format(family="ipv6-addr" if ":" in value else "ipv4-addr")
    # STIX patterns escape a backslash and an apostrophe, and nothing else.
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"[{path} = '{quoted}']"


def _times(body: Body) -> tuple[str, str]:
    """When the alert was made, and when its revision was."""
    made = _exact(body["detected_at"])
    later = [_exact(body[name]) for name in ("event_time", "changed_at") if body.get(name)]
    return made, max([made, *later])


def _exact(value: str | datetime) -> str:
    """An instant as STIX writes it, to the millisecond."""
    instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _is_id(text: str, kind: str) -> bool:
    try:
        return text.startswith(f"{kind}--") and bool(UUID(text.removeprefix(f"{kind}--")))
    except ValueError:
        return False
