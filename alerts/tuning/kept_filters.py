"""Filters that narrow a rule, as the files of `alerts.rules` have them, and ending one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from alerts.compiler.rule_files import files_of
from alerts.rulebook.own_rules import is_own
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.rule_pack import Rule
from infra.config.bounded_yaml import yaml_documents
from infra.config.settings import Settings
from infra.errors import NoSuch, Usage

ANY = "any"
"""In place of rules: the filter is of all those of its log source."""


@dataclass(frozen=True)
class KeptFilter:
    """A Sigma filter. `text`: what it leaves out, as its file says it; `expires`: None, it does not
    end by itself; `of_all`: it narrows every rule of its log source; `shared`: it narrows others
    than the one it was asked for; `alone`: nothing else is in its file."""

    filter_id: str
    title: str
    text: str
    owner: str
    reason: str
    expires: date | None
    of_all: bool
    shared: bool
    path: Path
    alone: bool

    @property
    def over(self) -> bool:
        """Whether its day has come: the rule runs without it."""
        return self.expires is not None and self.expires <= datetime.now(UTC).date()

    @property
    def can_end(self) -> bool:
        """Whether its file can go: nothing else is in it, and no other rule misses it."""
        return self.alone and not self.shared


def kept_filters(settings: Settings, rule: Rule) -> list[KeptFilter]:
    """The filters that name a rule or any: those whose day is over last, the next to end first."""
    known = [each for each in _filters(settings) if _names(each[1], rule)]
    kept = [_kept(path, document, rule, alone) for path, document, alone in known]
    return sorted(kept, key=lambda each: (each.over, str(each.expires or ""), each.filter_id))


def standing_filters(settings: Settings, rule: Rule) -> dict[str, KeptFilter]:
    """Those whose day is not over, by what they leave out."""
    return {kept.text: kept for kept in kept_filters(settings, rule) if not kept.over}


def end_filter(settings: Settings, rule: Rule, filter_id: str) -> tuple[KeptFilter, str]:
    """Take a filter's file away and put the rules in force without it: it, and the pack's hash.

    Raises `NoSuch` where it is gone, `Usage` where its file holds more, or several have its id.
    """
    known = [each for each in kept_filters(settings, rule) if each.filter_id == filter_id]
    if not known:
        raise NoSuch(f"no filter {filter_id} of rule {rule.id}: somebody took it away meanwhile")
    ended = known[0]
    if len(known) > 1:
        # A file that was copied, or filters without an id: which is meant nobody here knows.
        files = ", ".join(sorted(each.path.name for each in known))
        raise Usage(f"several filters have the id '{filter_id}' ({files}); end it in its file")
    if not ended.alone or not is_own(settings, ended.path):
        raise Usage(f"{ended.path.name} holds more than this filter; take it out of the file there")
    if ended.shared:
        raise Usage(f"{ended.path.name} narrows other rules, too; end it in its file")
    ended.path.unlink(missing_ok=True)
    return ended, recompile(settings).pack.hash


def _filters(settings: Settings) -> Iterator[tuple[Path, Mapping[str, Any], bool]]:
    """Each filter with its file, and whether it is alone there; what is no YAML holds none."""
    for path in files_of([folder for folder in settings.alerts.rules if folder.exists()]):
        with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
            text = path.read_text("utf-8")
            # Most files hold rules, and a folder may have thousands.
            if "filter" not in text:
                continue
            documents = list(yaml_documents(text))
            for document in documents:
                if isinstance(document, dict) and isinstance(document.get("filter"), dict):
                    yield path, document, len(documents) == 1


def _names(document: Mapping[str, Any], rule: Rule) -> bool:
    return document["filter"].get("rules") == ANY or bool(_named(document) & _names_of(rule))


def _named(document: Mapping[str, Any]) -> set[str]:
    named = document["filter"].get("rules")
    return {str(each) for each in (named if isinstance(named, list) else [named])}


def _names_of(rule: Rule) -> set[str]:
    return {rule.id, rule.name, rule.title} - {""}


def _kept(path: Path, document: Mapping[str, Any], rule: Rule, alone: bool) -> KeptFilter:
    filter_fields = {name: value for name, value in document["filter"].items() if name != "rules"}
    own = document.get("headgate")
    expires = own.get("expires") if isinstance(own, dict) else None
    end = None
    # A date that is none is refused by the compiler, which says so among the refused files.
    with suppress(ValueError):
        end = date.fromisoformat(str(expires)) if expires else None
    return KeptFilter(
        filter_id=str(document.get("id") or ""),
        title=str(document.get("title") or path.name),
        text=str(yaml.safe_dump(filter_fields, sort_keys=False, width=2**20)).rstrip(),
        owner=str(document.get("author") or ""),
        reason=str(document.get("description") or ""),
        expires=end,
        of_all=document["filter"].get("rules") == ANY,
        shared=bool(_named(document) - _names_of(rule)),
        path=path,
        alone=alone,
    )
