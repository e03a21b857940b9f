"""Classes that an object of the Elastic Common Schema states by its category and type.

The words and which of them go together are those of ECS
(https://www.elastic.co/docs/reference/ecs/ecs-allowed-values-event-category). One category and one
type decide; an object of several says no single class, and stays without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ingest.parsing import field_lookup
from ingest.parsing.field_lookup import Named
from ingest.parsing.ocsf import ACCOUNT, FILE, GROUP, OTHER, PROCESS, kept
from ingest.sources.shared.firewall import file_hash

_PROCESS: Mapping[str, int] = MappingProxyType({"start": 1, "end": 2})
_FILE: Mapping[str, int] = MappingProxyType(
    {"creation": 1, "access": 2, "change": 3, "deletion": 4}
)
_ACCOUNT: Mapping[str, int] = MappingProxyType({"creation": 1, "deletion": 6, "change": OTHER})
_GROUP: Mapping[str, int] = MappingProxyType({"creation": 6, "deletion": 5})


class ClassGuess(NamedTuple):
    """A class, its activity, and the columns that only it has."""

    class_uid: int
    activity_id: int
    columns: dict[str, Any]


def words_of(named: Named, name: str) -> frozenset[str]:
    """A field of one word or several, without case."""
    return named.find((name,), _words)[0] or frozenset()


def by_category(
    named: Named, user: dict[str, Any] | None, process: dict[str, Any] | None
) -> ClassGuess | None:
    """What the object states, with the fields of that class taken out; else None."""
    categories, kinds = words_of(named, "eventcategory"), words_of(named, "eventtype")
    if len(categories) != 1:
        return None
    (category,) = categories
    if category == "process" and process:
        return _of_process(named, _single(kinds, _PROCESS), user, process)
    if category == "file":
        return _of_file(named, _single(kinds, _FILE), user, process)
    if category == "iam" and "group" in kinds and "user" not in kinds:
        return _of_group(named, _single(kinds, _GROUP), user, process)
    if category == "iam" and "user" in kinds and "group" not in kinds:
        return _of_account(named, _single(kinds, _ACCOUNT), user, process)
    return None


def _words(value: Any) -> frozenset[str] | None:
    values = value if type(value) is list else [value]
    return frozenset(word.lower() for word in values if type(word) is str) or None


def _single(kinds: frozenset[str], activities: Mapping[str, int]) -> int | None:
    ids = [activities[kind] for kind in kinds if kind in activities]
    return ids[0] if len(ids) == 1 else None


def _actor(user: dict[str, Any] | None, process: dict[str, Any] | None) -> dict[str, Any]:
    # OCSF demands an actor, if only by what called it.
    return kept(user=user, process=process) or {"invoked_by": "unknown"}


def _of_process(
    named: Named, activity: int | None, user: dict[str, Any] | None, process: dict[str, Any]
) -> ClassGuess | None:
    if activity is None:
        return None
    path = named.take(("processparentexecutable",))
    parent = kept(
        pid=named.take(("processparentpid",), field_lookup.whole),
        name=named.take(("processparentname",)) or (path or "").rpartition("/")[2] or None,
        path=path,
        cmd_line=named.take(("processparentcommandline",)),
    )
    # OCSF has no process of a name alone.
    whole = parent if parent.keys() - {"name"} else None
    process = process | kept(hashes=_hashes(named, "processhash"))
    return ClassGuess(PROCESS, activity, {"process": process, "actor": _actor(user, whole)})


def _of_file(
    named: Named,
    activity: int | None,
    user: dict[str, Any] | None,
    process: dict[str, Any] | None,
) -> ClassGuess | None:
    path, _ = named.find(("filepath",), field_lookup.text)
    if activity is None or path is None:
        return None
    named.take(("filepath",))
    file = kept(path=path, name=named.take(("filename",)), hashes=_hashes(named, "filehash"))
    return ClassGuess(FILE, activity, {"file": file, "actor": _actor(user, process)})


def _hashes(named: Named, prefix: str) -> list[dict[str, str]] | None:
    """What `process.hash` or `file.hash` holds; the length tells of which kind each is."""
    written = (named.take((prefix + kind,), file_hash) for kind in ("sha256", "sha1", "md5"))
    return [
        each | {"value": each["value"].lower()} for hashes in written for each in hashes or ()
    ] or None


def _of_group(
    named: Named,
    activity: int | None,
    user: dict[str, Any] | None,
    process: dict[str, Any] | None,
) -> ClassGuess | None:
    name, _ = named.find(("groupname",), field_lookup.text)
    if activity is None or name is None:
        return None
    named.take(("groupname",))
    group = kept(name=name, uid=named.take(("groupid",), field_lookup.word))
    return ClassGuess(GROUP, activity, {"group": group, "actor": _actor(user, process)})


def _of_account(
    named: Named,
    activity: int | None,
    user: dict[str, Any] | None,
    process: dict[str, Any] | None,
) -> ClassGuess | None:
    # `user` is who does it. Where nobody is named beside him, it may be either.
    name, _ = named.find(("usertargetname",), field_lookup.text)
    if activity is None or name is None:
        return None
    named.take(("usertargetname",))
    whom = kept(
        name=name,
        uid=named.take(("usertargetid",), field_lookup.word),
        domain=named.take(("usertargetdomain",)),
    )
    word = {"activity_name": "Change"} if activity == OTHER else {}
    return ClassGuess(ACCOUNT, activity, {"user": whom, "actor": _actor(user, process), **word})
