"""Bearer tokens: the API's own, from the settings or made once, and keys that may do less."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from api.auth_roles import LADDER, Role, role_of
from api.credentials import Credentials, StoredKey, StoredUser
from api.oidc import Provider
from api.people import KnownPerson, People, known_person
from infra.config.secrets import either, of_file
from infra.config.settings import Settings
from infra.errors import Fatal


def token_of(settings: Settings) -> str:
    """The API's token; when none is set, that of `<home>/api.token`, made if missing.

    The file is its owner's alone (0600). Raises `Fatal` when it cannot be kept
    or others may read it.
    """
    given = either(settings.api.token, settings.api.token_file, "api.token")
    if given is not None:
        return given
    file = token_file(settings)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _make(file)
        # Refused and not put right: who could read it may have the token already.
        if file.stat().st_mode & 0o077:
            raise Fatal(f"{file}: others may read it; run chmod 600 {file}")
        token = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Fatal(f"{file}: the API token cannot be kept there ({error})") from error
    if not token:
        raise Fatal(f"{file}: empty; remove it and a new token is made")
    return token


def token_file(settings: Settings) -> Path:
    """Where a token that was made is kept."""
    return settings.home.absolute() / "api.token"


@dataclass(frozen=True)
class Limits:
    """All that a limited key or user may read; None: every table, source or tenant."""

    tables: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None

    @property
    def of_tenants_alone(self) -> bool:
        """Whether it is tenants, and nothing else, that it is limited to."""
        return self.tenants is not None and self.tables is None and self.sources is None

    @property
    def of_what(self) -> str:
        """What it is that is limited, in words."""
        given = {"tables": self.tables, "sources": self.sources, "tenants": self.tenants}
        return " and ".join(name for name, value in given.items() if value is not None)


@dataclass(frozen=True)
class Caller:
    """Whose token came with a request."""

    name: str
    role: Role
    requests_per_minute: int | None = None
    limits: Limits | None = None
    credential: str = ""
    """A mark of the token or password: another one once that was changed."""

    def may(self, needed: Role) -> bool:
        """Whether the role covers what is asked."""
        return LADDER.index(role_of(needed)) <= LADDER.index(role_of(self.role))


class Access:
    """Knows who calls. Tokens of the settings are read once, when the app is made; keys and users
    of `credentials` as they are written."""

    def __init__(self, settings: Settings) -> None:
        self.credentials = Credentials(settings)
        self.people = People(settings)
        self._oidc = settings.api.oidc
        self.provider = None if self._oidc is None else Provider(self._oidc)
        own = token_of(settings)
        self._tokens = [(Caller("api", "admin", credential=_mark(own)), own)]
        for key in settings.api.keys:
            token = of_file(key.token_file, f"api.keys '{key.name}': token_file")
            # Two names for one token: the audit could not tell who asked.
            if any(same(token, known) for _, known in self._tokens):
                raise Fatal(f"api.keys '{key.name}': another key has the same token")
            caller = Caller(key.name, role_of(key.role), credential=_mark(token))
            self._tokens.append((caller, token))

    def caller(self, given: str) -> Caller | None:
        """Whose token it is; None for nobody's. All are compared, whichever it is."""
        callers = [caller for caller, token in self._tokens if same(given, token)]
        if callers:
            return callers[0]
        # Keys are read at each request, so that one that was ended is refused at once.
        key = self.credentials.key_of(given)
        return self._of_provider(given) if key is None else _of_key(key)

    def _of_provider(self, token: str) -> Caller | None:
        """Whose token of the identity provider it is."""
        person = self.provider.bearer(token) if self.provider is not None else None
        if person is None or self._oidc is None:
            return None
        known = known_person(self._oidc, person)
        return None if known is None else _of_person(known)

    def caller_of_header(self, authorization: str) -> Caller | None:
        """Whose `Authorization` header it is: a token, or a user with a password (RFC 7617)."""
        scheme, _, coded = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.caller(coded.strip())
        name, password = basic_of(authorization)
        return self.caller_of_password(name, password) if name else None

    def caller_of_password(self, name: str, password: str) -> Caller | None:
        """Who signs in with a name and a password; None for a wrong one, and while it is locked."""
        user = self.credentials.user_of(name, password)
        return None if user is None else _of_user(user)

    def still(self, name: str, credential: str) -> Caller | None:
        """Who signed in with that credential, as they are now; None once it was ended or changed.

        A session goes by this: a key that ends takes its sessions along, and a new role counts
        at once.
        """
        caller = self.named(name)
        if caller is None or not hmac.compare_digest(caller.credential, credential):
            return None
        return caller

    def named(self, name: str) -> Caller | None:
        """Who has that name now, by a key, a password or the settings; None for nobody."""
        person = self.people.named(name)
        if person is not None:
            return _of_person(person)
        content, now = self.credentials.read(), datetime.now(UTC)
        known = [
            BY_LINK,
            *(caller for caller, _ in self._tokens),
            *(_of_key(key) for key in content.keys if not key.is_over(now)),
            *map(_of_user, content.users),
        ]
        return next((caller for caller in known if caller.name == name), None)


BY_LINK = Caller("console", "admin", credential="link")
"""Who came by a link for one use, which only the owner of the home can make."""


def _of_key(key: StoredKey) -> Caller:
    limits = _limits(Limits(key.tables, key.sources, key.tenants))
    return Caller(key.name, key.role, key.requests_per_minute, limits, key.digest[:16])


def _of_user(user: StoredUser) -> Caller:
    limits = _limits(Limits(tenants=user.tenants))
    return Caller(user.name, user.role, limits=limits, credential=user.digest[:16])


def _of_person(person: KnownPerson) -> Caller:
    limits = _limits(Limits(tenants=person.tenants))
    return Caller(person.name, person.role, limits=limits, credential=person.credential)


def _limits(given: Limits) -> Limits | None:
    """As a caller has them: None where nothing is limited."""
    return None if given == Limits() else given


def _mark(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()[:16]


def basic_of(authorization: str) -> tuple[str, str]:
    """Name and password of a header `Basic`; two empty texts for any other."""
    scheme, _, coded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        # At the first colon: a name has none, a password may have some (RFC 7617).
        # Drivers of Flight SQL send it without its padding.
        padded = coded + "=" * (-len(coded) % 4)
        name, _, password = base64.b64decode(padded, validate=True).decode().partition(":")
    # Of what is no Base64 and of what is no UTF-8 alike.
    except ValueError:
        return "", ""
    return name, password


def same(given: str, wanted: str) -> bool:
    """Compare without telling by the time taken how much of it was right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8"))


def _make(file: Path) -> None:
    """Write a new token under another name and link it, so that two starters agree on one."""
    if file.exists():
        return
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as text:
        text.write(secrets.token_urlsafe(32) + "\n")
    try:
        # A link fails where the name is taken, a rename would put another token in its place.
        os.link(temporary, file)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
