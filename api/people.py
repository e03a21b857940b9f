"""People whom an identity provider knows: who they are here, and what they may."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from api.auth_roles import LADDER, Role
from api.services.act_store import StateFolder
from infra.config.settings import OidcSettings, Settings

_REMEMBERED = timedelta(days=30)
"""After their last sign-in: for so long the queries that they scheduled go on."""
_MOST_GROUPS = 1000


@dataclass(frozen=True)
class Person:
    """Somebody as the provider says; `groups`: the values that roles go by."""

    name: str
    """`oidc:` and a name: no key and no local user can have it."""
    subject: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class KnownPerson:
    """What somebody may by the settings as they are now."""

    name: str
    role: Role
    credential: str
    """Another one for another subject: a name that is given anew takes no session along."""
    tenants: tuple[str, ...] | None = None
    """Tenants whose rows their statements see; None: all."""


def known_person(oidc: OidcSettings, person: Person) -> KnownPerson | None:
    """The person with the highest role of their groups; None when no group has one."""
    roles = [oidc.roles[group] for group in person.groups if group in oidc.roles]
    if not roles:
        return None
    mark = "\n".join((oidc.issuer, oidc.client_id, person.subject))
    held = [oidc.tenants[group] for group in person.groups if group in oidc.tenants]
    # One group is enough: a limit that another group lifted would limit nobody.
    tenants = tuple(dict.fromkeys(name for names in held for name in names)) if held else None
    return KnownPerson(person.name, max(roles, key=LADDER.index), _hash(mark)[:16], tenants)


class People:
    """Who signed in lately, with the groups they had then, in `<home>/api/people`."""

    def __init__(self, settings: Settings) -> None:
        self._oidc = settings.api.oidc
        self._files = StateFolder(settings, "people", _REMEMBERED)

    def keep(self, person: Person) -> None:
        """Remember a sign-in."""
        limiting = self._oidc.tenants if self._oidc else {}
        # First what limits: of too many groups the rest is left out.
        groups = sorted(person.groups, key=lambda group: group not in limiting)
        self._files.put(
            _hash(person.name),
            {
                "name": person.name,
                "subject": person.subject,
                "groups": groups[:_MOST_GROUPS],
            },
        )

    def named(self, name: str) -> KnownPerson | None:
        """Who has that name, by their last sign-in and the roles of today's settings."""
        if self._oidc is None or not name.startswith("oidc:"):
            return None
        kept = self._files.get(_hash(name))
        if kept is None:
            return None
        person = Person(str(kept["name"]), str(kept["subject"]), tuple(map(str, kept["groups"])))
        return known_person(self._oidc, person)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
