"""Former words of commands: each works for one release and says its new one.

The only place that knows them. A word leaves this table with the release after the one that
brought its new name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """The former words of a command and those that took their place."""

    former: tuple[str, ...]
    now: tuple[str, ...]


ALIASES = (
    Alias(("accept-gap",), ("gaps", "accept")),
    Alias(("resume",), ("jobs", "resume")),
    Alias(("restore-backup",), ("backup", "restore")),
    Alias(("size",), ("capacity",)),
    Alias(("load", "assets"), ("assets", "import")),
    Alias(("load", "users"), ("users", "import")),
    Alias(("rules", "blind"), ("rules", "coverage")),
)

DEFAULT_VERBS = {
    "backup": ("create", ("create", "restore")),
    "gaps": ("list", ("list", "accept")),
    "jobs": ("list", ("list", "resume")),
}
"""Commands that mean one of their verbs when none is named, and all their verbs."""


def current_words(words: Sequence[str]) -> tuple[list[str], str | None]:
    """A command's words as they are today, and one sentence where they were others before."""
    # The alias whose last word stands first wins: a later word may be a file of that name.
    for alias in sorted(ALIASES, key=lambda alias: _place(alias, words)):
        if _place(alias, words) == len(words):
            break
        rest = list(words)
        for word in alias.former:
            rest.remove(word)
        former, now = " ".join(alias.former), " ".join(alias.now)
        return [*alias.now, *rest], f"'headgate {former}' is called 'headgate {now}' now"
    return _with_verb(list(words)), None


def _place(alias: Alias, words: Sequence[str]) -> int:
    """Where an alias's last word stands; behind all words where it is not meant."""
    first, *others = alias.former
    if not words or words[0] != first:
        return len(words)
    if not others:
        return 0
    # Options may stand between the two; the nearer register wins where a file is named alike.
    return words.index(others[0], 1) if others[0] in words[1:] else len(words)


def _with_verb(words: list[str]) -> list[str]:
    default, verbs = DEFAULT_VERBS.get(words[0], ("", ())) if words else ("", ())
    asked = words[1] if len(words) > 1 else ""
    # An option or a value behind the command belongs to the verb that is meant.
    if default and asked not in (*verbs, "-h", "--help"):
        return [words[0], default, *words[1:]]
    return words
