"""Files of rules as drafts: read and parsed, or as they were compiled before from the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import yaml
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import (
    SigmaConditionError,
    SigmaModifierError,
    SigmaRegularExpressionError,
)
from sigma.filters import SigmaFilter
from sigma.modifiers import modifier_mapping
from sigma.rule import SigmaRule, SigmaYAMLLoader

from alerts.compiler.compile_cache import CachedRule, CompileCache
from alerts.compiler.correlation_conditions import Upper, taken_upper
from alerts.compiler.filter_expiry import require_unexpired
from alerts.compiler.indicator_lists import INDICATOR
from alerts.compiler.model_rule_files import is_model
from alerts.compiler.rule_files import name_of, parsed_document, require_small, whole_document
from alerts.compiler.rule_header import NO_HEADER, RuleHeader, header_of
from alerts.compiler.rule_text_bounds import require_bounded
from alerts.compiler.sigma_to_predicate import NO_LOOK_AROUND, Untranslatable
from alerts.compiler.sigma_to_predicate import REFUSALS as REFUSALS
from alerts.compiler.spark_rule_files import Asked, document_of, is_query, taken_fields
from alerts.rulepack.locations import BUNDLED as BUNDLED
from alerts.rulepack.rule_pack import Correlation, Query, Rule
from infra.config.bounded_yaml import yaml_documents

Parsed: TypeAlias = SigmaRule | SigmaCorrelationRule | SigmaFilter

ROLES = ("src_endpoint", "dst_endpoint", "device")
"""Endpoints a rule may be about."""


@dataclass(frozen=True)
class RefusedRule:
    """A rule that does not run: which (id, else file), why, and what to do about it."""

    rule: str
    reason: str
    remedy: str
    path: str = ""


class Own(msgspec.Struct, forbid_unknown_fields=True):
    """The keys under `headgate:` in a rule."""

    role: str | tuple[str, ...] = ()
    tests: dict[str, list[Any]] = {}
    runbook: str = ""
    generate: bool | None = None
    type: str = ""
    learn: str = ""
    asked: str = msgspec.field(default="", name="list")
    observables: tuple[str, ...] = ()
    expires: str = ""


@dataclass
class Draft:
    """A rule, correlation or filter on its way into the pack.

    `text`: its file; `documents`: how many it has, `key` names that content. `kept`: the rule,
    where the same text was compiled before; it is parsed only if more than the rule is asked for.
    `filtered`: a Sigma filter concerns it, so its rule is not of its own text alone.
    """

    path: Path
    id: str
    name: str
    own: Own
    text: str = ""
    key: str = ""
    documents: int = 0
    asked: Asked | None = None
    upper: Upper | None = None
    rule: Rule | Correlation | Query | None = None
    kept: Rule | None = None
    filtered: bool = False
    whole: Parsed | None = None
    header: RuleHeader = NO_HEADER

    @property
    def parsed(self) -> Parsed:
        """As pySigma reads it."""
        if self.whole is None:
            again = next(d for d in _drafts(self.path, self.text, []) if d.id == self.id)
            self.own, self.whole = again.own, again.parsed
        return self.whole

    @property
    def plain(self) -> bool:
        """Whether its rule follows from its text alone, on any day and beside any other."""
        own = self.own
        bare = not (own.type or own.asked or own.expires or self.filtered or self.asked)
        # `expand` puts in values of another file.
        return bare and isinstance(self.rule, Rule) and "expand" not in self.text


def read_drafts(path: Path, cache: CompileCache, refused: list[RefusedRule]) -> list[Draft]:
    """The drafts of a file; what cannot be one is refused."""
    if path.suffix == ".py":
        return _python_draft(path, refused)
    try:
        # Before it is read: rule folders are often clones of what strangers publish.
        require_small(path)
        content = path.read_bytes()
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        refused.append(_unreadable(path, error))
        return []
    key = cache.key_of(content, path.is_relative_to(BUNDLED))
    if (kept := cache.rules_of(key)) is not None:
        return [_kept_draft(path, text, rule) for rule in kept]
    before = len(refused)
    drafts = _drafts(path, text, refused)
    for draft in drafts:
        # Without a key nothing of the file is remembered: what is refused has to be told again.
        draft.key = key if len(refused) == before and len(drafts) == draft.documents else ""
    return drafts


def _kept_draft(path: Path, text: str, kept: CachedRule) -> Draft:
    own = Own(tests={"match": kept.match, "no_match": kept.no_match})
    rule = kept.rule
    return Draft(path, rule.id, rule.name, own, text, kept=rule, header=kept.header)


def _python_draft(path: Path, refused: list[RefusedRule]) -> list[Draft]:
    try:
        document = document_of(path)
    except Untranslatable as error:
        refused.append(refusal_of(path.stem, error, path))
        return []
    except (OSError, ValueError, TypeError, RecursionError, MemoryError) as error:
        refused.append(_unreadable(path, error))
        return []
    return list(_of_documents(path, "", [document], refused))


def _drafts(path: Path, text: str, refused: list[RefusedRule]) -> list[Draft]:
    try:
        documents = [d for d in yaml_documents(text, SigmaYAMLLoader) if d is not None]
    # TypeError: a key that is a list or a mapping.
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, MemoryError) as error:
        refused.append(_unreadable(path, error))
        return []
    return list(_of_documents(path, text, documents, refused))


def _of_documents(
    path: Path, text: str, documents: Sequence[Any], refused: list[RefusedRule]
) -> Iterator[Draft]:
    for document in documents:
        if is_model(document):
            # Read by `alerts.compiler.model_rule_files`: it asks nothing of single events.
            continue
        try:
            draft = _draft(path, document)
        except REFUSALS as error:
            refused.append(refusal_of(name_of(path, document), error, path))
            continue
        draft.text, draft.documents = text, len(documents)
        yield draft


def _unreadable(path: Path, error: Exception) -> RefusedRule:
    reason = " ".join(str(error).split())
    return RefusedRule(path.stem, f"not YAML: {reason}", "correct the file", str(path))


def refusal_of(rule: str, error: Exception, path: Path) -> RefusedRule:
    """An error as people read it."""
    reason = " ".join(str(error).split())
    return RefusedRule(rule, reason, getattr(error, "remedy", _remedy_for(error)), str(path))


def _remedy_for(error: Exception) -> str:
    """What to do about an error of pySigma's."""
    if isinstance(error, SigmaRegularExpressionError):
        return NO_LOOK_AROUND
    if isinstance(error, SigmaModifierError) and "Unknown modifier" in str(error):
        return f"one of {', '.join(sorted(modifier_mapping))}"
    if isinstance(error, SigmaConditionError) and "pipe syntax" in str(error):
        return (
            "leave out the `|` and what follows it, and count in a correlation "
            "(docs/how-to/write-a-correlation.md)"
        )
    return "see the Sigma specification"


def _days_as_text(own: Any) -> Any:
    """YAML takes a day without quotes for a date; here it is what was typed."""
    if isinstance(own, dict) and isinstance(own.get("expires"), date):
        return own | {"expires": own["expires"].isoformat()}
    return own


def _draft(path: Path, document: Any) -> Draft:
    """One document as pySigma reads it; raises one of `REFUSALS`."""
    if not isinstance(document, dict):
        raise Untranslatable("not a mapping", "a rule has keys such as title, id, detection")
    try:
        # Taken out first, since pySigma refuses or ignores keys that Sigma does not know.
        own = msgspec.convert(_days_as_text(document.pop("headgate", {})), Own)
    except msgspec.ValidationError as error:
        raise Untranslatable(
            f"headgate: {error}", f"its keys are {', '.join(Own.__struct_encode_fields__)}"
        ) from None
    for role in roles_of(own):
        if role not in ROLES:
            raise Untranslatable(f"headgate.role: '{role}'", f"one of {', '.join(ROLES)}")
    if not set(own.tests) <= {"match", "no_match"}:
        raise Untranslatable(f"headgate.tests: {sorted(own.tests)}", "its keys: match, no_match")
    # What ships with the product is shown to match and to stay quiet; own rules need not be.
    if path.is_relative_to(BUNDLED) and not (own.tests.get("match") and own.tests.get("no_match")):
        raise Untranslatable("it has no tests", "add headgate.tests: match and no_match events")
    require_bounded(document)
    _require_text(document.get("detection"))
    if own.expires:
        require_unexpired(own.expires, document)
    upper = taken_upper(document)
    declared = taken_fields(document, path) if is_query(document) else None
    whole = declared is not None or own.type == INDICATOR
    parsed = parsed_document(whole_document(document) if whole else document)
    if parsed.id is None:
        raise Untranslatable("it has no id", "add `id:` with a fresh uuid")
    name = str(parsed.name or "")
    header = NO_HEADER if isinstance(parsed, SigmaFilter) else header_of(parsed)
    return Draft(
        path, str(parsed.id), name, own, asked=declared, upper=upper, whole=parsed, header=header
    )


def _require_text(detection: Any) -> None:
    """A count as a mapping is a correlation's; pySigma would say that it cannot be hashed."""
    if isinstance(detection, dict) and isinstance(detection.get("condition"), dict):
        raise Untranslatable(
            "detection: its condition is a mapping",
            "write it as text, such as `selection and not filter`, and count in a correlation "
            "(docs/how-to/write-a-correlation.md)",
        )


def roles_of(own: Own) -> tuple[str, ...]:
    """The endpoints that a rule names as those it is about."""
    return (own.role,) if isinstance(own.role, str) else own.role
