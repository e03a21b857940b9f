"""Rules that are switched off, each with its reason. Every other rule is on."""

from __future__ import annotations

from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts, yaml_text
from headgate.as_code.state import ConfigChange, Objects
from infra.config.settings import Settings
from infra.process.os_user import acting_user

_KIND = "rule off"
_FILE = "rules-off.yml"


def names_of_rules(settings: Settings) -> dict[str, str]:
    """Names of the rules in force by id; one without a name has its id."""
    sources = compiled_rules(settings).sources
    names = {rule_id: source.rule.name or rule_id for rule_id, source in sources.items()}
    models = model_rules(settings).sources.values()
    return names | {source.rule.id: source.rule.name or source.rule.id for source in models}


def _in_force(settings: Settings) -> Objects:
    switches = PackStore(store_folder(settings)).disabled()
    return {rule_id: {"reason": switch.reason} for rule_id, switch in switches.items()}


def _to_texts(settings: Settings, objects: Objects) -> Texts:
    names = names_of_rules(settings) if objects else {}
    # A switch stays when its rule is gone; it then has only its id.
    reasons = {names.get(rule_id, rule_id): off["reason"] for rule_id, off in objects.items()}
    return {_FILE: yaml_text(reasons)}


def _from_texts(reading: FolderReading) -> Objects:
    content = reading.document(_KIND, _FILE) or {}
    if not isinstance(content, dict):
        reading.refuse(_KIND, _FILE, "not a mapping of rules to reasons")
        return {}
    objects: Objects = {}
    for rule, reason in content.items():
        name = str(rule)
        rule_id = reading.rule_ids.get(name)
        if rule_id is None and name in reading.in_force.get(_KIND, {}):
            rule_id = name
        if rule_id is None:
            reading.refuse(_KIND, name, "no such rule; 'headgate rules list' shows them")
        elif not isinstance(reason, str | None):
            reading.refuse(_KIND, name, "its value is the reason, a text")
        elif rule_id in objects:
            reading.refuse(_KIND, name, "it is named twice")
        else:
            objects[rule_id] = {"reason": reason or ""}
    return objects


def _put(settings: Settings, change: ConfigChange, _: str) -> None:
    store = PackStore(store_folder(settings))
    if change.after is None:
        store.enable(change.name)
    elif _in_force(settings).get(change.name) != change.after:
        store.disable(change.name, acting_user(), change.after["reason"])


RULES_OFF = ConfigKind(_KIND, _FILE.__eq__, _in_force, _to_texts, _from_texts, _put)
