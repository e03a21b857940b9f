"""What every route shares: the services of the app, and who may call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from api.auth import same, token_of
from api.metrics import Meters
from api.queries import Reader
from api.statements import Statements
from infra.settings import Settings

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="The API token: api.token of the settings, or the content of <home>/api.token.",
)


class Access:
    """Knows the token; read once, when the app is made."""

    def __init__(self, settings: Settings) -> None:
        self._token = token_of(settings)

    def allows(self, given: str) -> bool:
        """Whether `given` is the token."""
        return same(given, self._token)


@dataclass(frozen=True)
class Services:
    """What the routes work with."""

    settings: Settings
    reader: Reader
    statements: Statements
    meters: Meters
    access: Access

    def close(self) -> None:
        """End the engines and their processes."""
        self.statements.close()
        self.reader.close()


def services_of(request: Request) -> Services:
    """The services of the app that answers."""
    found: Services = request.app.state.services
    return found


def require_token(
    services: Annotated[Services, Depends(services_of)],
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> None:
    """Raises 401 unless the request carries the token."""
    if given is None or not services.access.allows(given.credentials):
        raise HTTPException(
            401,
            "send the API token: Authorization: Bearer <token>",
            headers={"WWW-Authenticate": 'Bearer realm="headgate"'},
        )


Here = Annotated[Services, Depends(services_of)]
