"""Settings that differ from their default, and webhooks: they stand in the settings' file.

Nothing rewrites that file, in which a person keeps comments and secrets: a plan names what to
change in it. Where the folder has no file of such a kind, the kind is not compared.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from alerts.delivery.platform_alert import RULE as PLATFORM_RULE
from alerts.delivery.webhook import check
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts, yaml_text
from headgate.as_code.state import Objects, ObjectValues
from infra.config.secrets import without_secrets
from infra.config.settings import Settings, WebhookSettings
from infra.errors import Fatal

SETTING, WEBHOOK = "setting", "webhook"
_FILES = {SETTING: "settings.yml", WEBHOOK: "webhooks.yml"}
_HERE = frozenset({"home", "lake", "checkpoints", "scratch", "webhooks"})
"""Places of one machine; and webhooks, which are a kind of their own."""

_STARS: str = without_secrets("x", "secret")
_KEPT = "kept in the settings"
"""Stands for a webhook's secret that is in the settings themselves."""

_BY_HAND = "change it in the settings' file (--config, HEADGATE_CONFIG or headgate.toml)"


def _settings_in_force(settings: Settings) -> Objects:
    objects: Objects = {}
    for section, value in _plain(settings).items():
        if section in _HERE:
            continue
        keys = value if isinstance(value, dict) else {"": value}
        for key, inner in keys.items():
            name = f"{section}.{key}" if key else section
            # The variable that sets it, and can hold the secret where this is applied.
            variable = f"${{HEADGATE_{name.upper().replace('.', '__')}}}"
            objects[name] = {"value": variable if inner == _STARS else inner}
    return objects


def _webhooks_in_force(settings: Settings) -> Objects:
    return {hook.name: _hook_values(hook) for hook in settings.webhooks}


def _hook_values(hook: WebhookSettings) -> ObjectValues:
    values = {key: value for key, value in _plain(hook).items() if key != "name"}
    return values | ({"secret": _KEPT} if "secret" in values else {})


def _plain(model: BaseModel) -> dict[str, Any]:
    """What differs from the defaults, as JSON has it, without a secret."""
    shown = without_secrets(model.model_dump(exclude_defaults=True))
    plain: dict[str, Any] = json.loads(json.dumps(shown, default=str))
    return plain


def _settings_texts(settings: Settings, objects: Objects) -> Texts:
    nested: dict[str, Any] = {}
    for name, values in objects.items():
        section, _, key = name.partition(".")
        if key:
            nested.setdefault(section, {})[key] = values["value"]
        else:
            nested[section] = values["value"]
    return {_FILES[SETTING]: yaml_text(nested)}


def _settings_from(reading: FolderReading) -> Objects:
    if _FILES[SETTING] not in reading.texts:
        return reading.in_force.get(SETTING, {})
    content = reading.document(SETTING, _FILES[SETTING]) or {}
    known = tuple(name for name in Settings.model_fields if name not in _HERE)
    if not reading.only_keys(SETTING, _FILES[SETTING], content, known):
        return reading.in_force.get(SETTING, {})
    objects: Objects = {}
    for section, value in content.items():
        default = Settings.model_fields[section].default
        if isinstance(default, BaseModel):
            reading.only_keys(SETTING, section, value, tuple(type(default).model_fields))
        keys = value if isinstance(value, dict) else {"": value}
        for key, inner in keys.items():
            name = f"{section}.{key}" if key else section
            objects[name] = {"value": json.loads(json.dumps(inner, default=str))}
    return objects


def _webhooks_texts(_: Settings, objects: Objects) -> Texts:
    return {_FILES[WEBHOOK]: yaml_text(objects)}


def _webhooks_from(reading: FolderReading) -> Objects:
    now = reading.in_force.get(WEBHOOK, {})
    if _FILES[WEBHOOK] not in reading.texts:
        return now
    content = reading.document(WEBHOOK, _FILES[WEBHOOK]) or {}
    if not isinstance(content, dict):
        reading.refuse(WEBHOOK, _FILES[WEBHOOK], "not a mapping of names to webhooks")
        return now
    known = tuple(name for name in WebhookSettings.model_fields if name != "name")
    objects: Objects = {}
    for name, values in content.items():
        if not reading.only_keys(WEBHOOK, str(name), values, known):
            continue
        objects[str(name)] = values
        if values != now.get(str(name)):
            _check_hook(reading, str(name), values)
    return objects


def _check_hook(reading: FolderReading, name: str, values: ObjectValues) -> None:
    """A webhook that is new or changed can be called, and its rules are there."""
    in_force = {hook.name: hook for hook in reading.settings.webhooks}.get(name)
    given = dict(values)
    if given.get("secret") == _KEPT:
        if in_force is None or in_force.secret is None:
            reading.refuse(WEBHOOK, name, "its secret is missing; give secret_env or secret_file")
            return
        given["secret"] = in_force.secret
    elif "secret" in given:
        reading.refuse(WEBHOOK, name, "a secret in a file of git; give secret_env or secret_file")
        return
    try:
        hook = WebhookSettings(name=name, **given)
        check(hook)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reading.refuse(WEBHOOK, name, f"{where + ': ' if where else ''}{first['msg']}")
    except Fatal as error:
        reading.refuse(WEBHOOK, name, str(error))
    else:
        ids = {PLATFORM_RULE, *reading.rule_ids.values()}
        if unknown := [rule for rule in hook.rules if rule not in ids]:
            reading.refuse(WEBHOOK, name, f"no rule {', '.join(unknown)} is there")


SETTINGS = ConfigKind(
    SETTING, _FILES[SETTING].__eq__, _settings_in_force, _settings_texts, _settings_from,
    by_hand=_BY_HAND,
)  # fmt: skip
WEBHOOKS = ConfigKind(
    WEBHOOK, _FILES[WEBHOOK].__eq__, _webhooks_in_force, _webhooks_texts, _webhooks_from,
    by_hand=_BY_HAND,
)  # fmt: skip
