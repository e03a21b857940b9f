"""What every route shares: the services of the app, and who may call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from api.auth import Access, Caller, Role
from api.observability.metrics import Meters
from api.services.reader import Reader
from api.services.suppressions import Suppressions
from api.services.triage import Triage
from api.sql.runner import Statements
from infra.config.settings import Settings

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="The API token (api.token of the settings, or the content of <home>/api.token), or "
    "a key of api.keys, whose role may allow less.",
)


@dataclass(frozen=True)
class Services:
    """What the routes work with."""

    settings: Settings
    reader: Reader
    statements: Statements
    meters: Meters
    access: Access
    triage: Triage
    suppressions: Suppressions

    def close(self) -> None:
        """End the engines and their processes."""
        self.statements.close()
        self.reader.close()


def services_of(request: Request) -> Services:
    """The services of the app that answers."""
    services: Services = request.app.state.services
    return services


def caller_of(
    services: Annotated[Services, Depends(services_of)],
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Caller:
    """Whose token the request carries; raises 401 when it carries none that is known."""
    caller = None if given is None else services.access.caller(given.credentials)
    if caller is None:
        raise HTTPException(
            401,
            "send the API token: Authorization: Bearer <token>",
            headers={"WWW-Authenticate": 'Bearer realm="headgate"'},
        )
    return caller


Who = Annotated[Caller, Depends(caller_of)]


def wants(role: Role) -> Callable[[Caller], None]:
    """A dependency that raises 403 unless the caller's role covers `role`."""

    def check(caller: Who) -> None:
        if not caller.may(role):
            raise HTTPException(
                403, f"key '{caller.name}' has role '{caller.role}'; this needs '{role}'"
            )

    return check


Here = Annotated[Services, Depends(services_of)]
