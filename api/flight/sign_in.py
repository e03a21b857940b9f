"""Who calls over Flight: a token or key in each call, or a name and a password once."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import flight

from api.auth import Access, Caller, basic_of
from api.flight.errors import as_flight_errors, call_status
from api.observability.metrics import Meters
from api.services.quotas import Quotas
from infra.config.settings import Settings

MIDDLEWARE = "caller"
KEY_USER = "token"
"""The user name to whose password a token or key is given, in programs that ask for both."""
PASSWORD_SESSION_SECONDS = 12 * 3600.0
_MOST_SESSIONS = 1000


@dataclass(frozen=True)
class _Session:
    name: str
    credential: str
    until: float


class PasswordSessions:
    """Tokens for who signed in with a password: a driver sends one with each later call.

    A session ends with the password or role it was begun with, after twelve hours, and with the
    process.
    """

    def __init__(self, access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._lock = threading.Lock()

    def begin(self, caller: Caller) -> str:
        """A token for a caller."""
        token, until = secrets.token_urlsafe(32), self._clock() + PASSWORD_SESSION_SECONDS
        with self._lock:
            now = self._clock()
            kept = {name: each for name, each in self._sessions.items() if each.until > now}
            # The oldest go first: a program that signs in with every call must not fill memory.
            for name in list(kept)[: max(0, len(kept) + 1 - _MOST_SESSIONS)]:
                del kept[name]
            self._sessions = kept | {token: _Session(caller.name, caller.credential, until)}
        return token

    def caller(self, token: str) -> Caller | None:
        """Whose session it is, as they are now."""
        with self._lock:
            session = self._sessions.get(token)
        if session is None or session.until <= self._clock():
            return None
        return self._access.still(session.name, session.credential)


class KnownCaller(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The caller of one call; `answer`: the token that a driver is to send from now on.

    `ended` hears what the call ended with, None for nothing amiss.
    """

    def __init__(
        self, caller: Caller, answer: str | None, ended: Callable[[Exception | None], None]
    ) -> None:
        self.caller = caller
        self._answer = answer
        self._ended = ended

    def sending_headers(self) -> dict[str, str]:
        """The token goes back with the first answer, as drivers look for it there."""
        return {} if self._answer is None else {"authorization": f"Bearer {self._answer}"}

    def call_completed(self, exception: Exception | None) -> None:
        """Once the last of the answer went out, or none did."""
        self._ended(exception)


class FlightSignIn(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Looks at the header `authorization` of each call, and counts the call."""

    def __init__(self, settings: Settings, access: Access, quotas: Quotas, meters: Meters) -> None:
        self._meters = meters
        self._usual = settings.api.requests_per_minute
        self._access = access
        self._quotas = quotas
        self._sessions = PasswordSessions(access)

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> KnownCaller:
        """Who calls; raises what Flight tells a stranger, or who calls too often."""
        given = next((str(value) for value in headers.get("authorization", [])), "")
        began, method = time.monotonic(), str(info.method.name).lower()

        def ended(error: Exception | None) -> None:
            self._meters.flight_call(method, call_status(error), time.monotonic() - began)

        try:
            with as_flight_errors():
                caller, answer = self._known(given)
                usual = None if caller.role == "admin" else self._usual
                self._quotas.take(caller.name, caller.requests_per_minute or usual)
        except flight.FlightError as error:
            # Nobody hears how a call ends that was not let in.
            ended(error)
            raise
        return KnownCaller(caller, answer, ended)

    def _known(self, authorization: str) -> tuple[Caller, str | None]:
        scheme, _, token = authorization.partition(" ")
        name, password = basic_of(authorization)
        if scheme.lower() == "bearer":
            caller = self._access.caller(token.strip()) or self._sessions.caller(token.strip())
            if caller is not None:
                return caller, None
        elif name == KEY_USER:
            caller = self._access.caller(password)
            if caller is not None:
                return caller, password
        elif name:
            caller = self._access.caller_of_password(name, password)
            if caller is not None:
                return caller, self._sessions.begin(caller)
        locked = self._access.credentials.locked_seconds(name) if name else 0.0
        wait = f"; after wrong passwords that user is locked for {locked:.0f} s" if locked else ""
        raise flight.FlightUnauthenticatedError(
            "send a token or key as Authorization: Bearer <token>, or as the password of user "
            f"'{KEY_USER}'{wait}"
        )


class NoFurtherHandshake(flight.ServerAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    """Lets the handshake end: its header says who calls, as that of any other call."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing more is asked."""

    def is_valid(self, token: bytes) -> bytes:
        """No identity of Flight's own."""
        return b""
