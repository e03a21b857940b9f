"""Saved queries with their schedules."""

from __future__ import annotations

from pathlib import PurePosixPath

from pydantic import ValidationError

from api.services.searches.saved_queries import MOST_QUERIES, QUERY_NAME, QueryStore
from api.sql.allowlist import parse
from api.wire.jobs import QueryContent
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts, files_in, yaml_text
from headgate.as_code.state import ConfigChange, Objects, ObjectValues
from infra.config.settings import Settings
from infra.delta.catalog import catalog, views
from infra.errors import Usage
from infra.process.os_user import acting_user

_KIND = "query"
_BELOW = "queries/"
_owns = files_in(_BELOW, ".yml")
_KEYS = (*QueryContent.model_fields, "who")


def _in_force(settings: Settings) -> Objects:
    return {
        query.name: {key: getattr(query, key) for key in _KEYS}
        for query in QueryStore(settings).listed()
    }


def _to_texts(_: Settings, objects: Objects) -> Texts:
    return {f"{_BELOW}{name}.yml": yaml_text(values) for name, values in objects.items()}


def _from_texts(reading: FolderReading) -> Objects:
    objects: Objects = {}
    in_force = reading.in_force.get(_KIND, {})
    for path in filter(_owns, reading.texts):
        name = PurePosixPath(path).stem
        content = reading.document(_KIND, path)
        if not reading.only_keys(_KIND, name, content, _KEYS):
            continue
        try:
            values = _taken(content, in_force.get(name))
            if not QUERY_NAME.fullmatch(name):
                raise Usage("its name: letters, digits and . _ - , at most 64")
            if values != in_force.get(name):
                # Its schedule runs it without anybody who could read the refusal.
                parse(values["sql"], {*catalog(), *views()}, {})
            objects[name] = values
        except Usage as error:
            reading.refuse(_KIND, name, str(error))
    if len(in_force | objects) > MOST_QUERIES:
        reading.refuse(_KIND, _BELOW, f"more than {MOST_QUERIES} queries; remove some first")
    return objects


def _taken(content: ObjectValues, now: ObjectValues | None) -> ObjectValues:
    # With whose rights it runs: whoever saved it, where the file does not say.
    who = content.pop("who", None) or (now["who"] if now else acting_user())
    if not isinstance(who, str):
        raise Usage("who: the name of whoever it runs for")
    try:
        return QueryContent.model_validate(content).model_dump() | {"who": who}
    except ValidationError as error:
        first = error.errors()[0]
        raise Usage(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _put(settings: Settings, change: ConfigChange, _: str) -> None:
    store = QueryStore(settings)
    if _in_force(settings).get(change.name) == change.after:
        return
    if change.after is None:
        store.remove(change.name)
    else:
        content = {key: value for key, value in change.after.items() if key != "who"}
        store.put(change.after["who"], change.name, QueryContent.model_validate(content))


QUERIES = ConfigKind(_KIND, _owns, _in_force, _to_texts, _from_texts, _put)
