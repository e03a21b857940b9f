"""Settings of the REST API and the console: where they listen, who may, how much they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from infra.config.sections import Section


class ApiKeySettings(Section):
    """A key of somebody who may do less than who has the API's token."""

    name: str = Field(min_length=1, description="who it is, as ops.audit names them")
    role: Literal["metrics", "read", "viewer", "query", "analyst", "engineer"] = Field(
        description="metrics: only /metrics; read: all that is looked up; viewer (before: query): "
        "statements too; analyst: changes alerts and suppresses; engineer: rules"
    )
    token_file: Path = Field(
        description="file with the bearer token in one line, its owner's alone (0600)"
    )


class OidcSettings(Section):
    """An identity provider (OpenID Connect) whose people sign in to the console."""

    issuer: str = Field(description="address of the provider, just as it writes itself")
    client_id: str = Field(min_length=1, description="what the console is called there")
    secret_env: str | None = Field(None, description="environment variable with the client secret")
    secret_file: Path | None = Field(
        None, description="file with it in one line, its owner's alone (0600); neither: PKCE alone"
    )
    label: str = Field("single sign-on", min_length=1, description="what the sign-in page calls it")
    scopes: tuple[str, ...] = Field(
        ("openid", "profile", "email"), description="what the provider is asked for"
    )
    user_claim: str = Field(
        "preferred_username", description="claim that names people in ops.audit, after `oidc:`"
    )
    roles_claim: str = Field(
        "groups", description="claim that roles go by; dots lead into it: realm_access.roles"
    )
    roles: dict[str, Literal["read", "viewer", "analyst", "engineer", "admin"]] = Field(
        default_factory=dict,
        description="role by a value of that claim; of several the highest; none: refused",
    )
    tenants: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="tenants by a value of that claim; who has one sees rows of these alone, "
        "whatever else they have",
    )
    audience: str | None = Field(
        None, description="takes its JWT access tokens for this audience at the REST API as well"
    )
    ca_file: Path | None = Field(None, description="who signs its certificate, where not a public")

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        parts = urlsplit(self.issuer)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or parts.scheme not in (("https", "http") if local else ("https",)):
            raise ValueError("issuer: write https://HOST (http on loopback only)")
        if self.secret_env is not None and self.secret_file is not None:
            raise ValueError("secret_env or secret_file, not both")
        if not self.roles:
            raise ValueError("roles: name at least one, such as roles.analysts = 'analyst'")
        return self


class ApiSettings(Section):
    """The REST API."""

    host: str = Field("127.0.0.1", description="address to listen on; loopback unless set")
    port: int = Field(8765, ge=0, le=65535, description="port; 0 picks a free one")
    flight_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="port of Arrow Flight SQL (ADBC, JDBC), at the same address and with the same "
        "certificate; 0 picks a free one; none: it is not served",
    )
    certificate_file: Path | None = Field(
        None,
        description="PEM file with the certificate and those between it and an authority: "
        "https then; read anew when it changes; none: http",
    )
    key_file: Path | None = Field(
        None, description="PEM file with its key, where certificate_file does not hold it"
    )
    token: SecretStr | None = Field(
        None, description="bearer token; none: one is made and kept in <home>/api.token"
    )
    token_file: Path | None = Field(
        None, description="file with the bearer token in one line, instead of token"
    )
    keys: tuple[ApiKeySettings, ...] = Field(
        (), description="further bearer tokens, each with a name and a role"
    )
    oidc: OidcSettings | None = Field(
        None, description="an identity provider to sign in with ([api.oidc]); none: keys and users"
    )
    console: bool = Field(True, description="whether the web console is served at /")
    console_url: str | None = Field(
        None,
        pattern=r"^https?://[!-~]+$",
        description="where people reach the console; alerts by webhook then link to it",
    )
    nice: int = Field(
        10,
        ge=0,
        le=19,
        description="how far the API, its engines and `headgate sql` stand back for the CPU behind "
        "the jobs of the same machine; 0: not at all",
    )
    searches_at_once: int | None = Field(
        None,
        gt=0,
        description="searches of events and timelines that run at a time, of all callers; none: "
        "one for each four cores",
    )
    wait_seconds: float = Field(
        60.0, ge=0, description="longest wait of a search or a statement for its turn; then 503"
    )
    statement_seconds: float = Field(
        30.0, gt=0, description="longest statement, and longest search of events"
    )
    statement_rows: int = Field(10_000, gt=0, description="most rows of a statement's answer")
    statement_bytes: int = Field(
        16 * 1024 * 1024, gt=0, description="largest answer of a statement"
    )
    statement_memory: str = Field("1GB", description="memory of one statement")
    requests_per_minute: int = Field(
        1200,
        gt=0,
        description="requests a minute of who has no number of his own; admins have no bound",
    )
    statements_at_once: int = Field(
        1, gt=0, description="statements of one key at a time; two of all keys together run"
    )
    statement_seconds_per_hour: float = Field(
        1800.0, gt=0, description="seconds in an hour that the statements of one key may run"
    )
    spark_engine: bool = Field(
        True, description="whether Spark answers statements that DuckDB does not know"
    )
    spark_engine_memory: str = Field("1g", description="heap of the Spark that answers statements")
    spark_engine_idle_seconds: float = Field(
        300.0, gt=0, description="that Spark ends when nobody asked it for so long"
    )
    job_seconds: float = Field(600.0, gt=0, description="longest search job")
    job_rows: int = Field(5_000_000, gt=0, description="most rows of a search job's result")

    @model_validator(mode="after")
    def _tokens(self) -> ApiSettings:
        if self.token is not None and self.token_file is not None:
            raise ValueError("token or token_file, not both")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file goes with certificate_file, which is not set")
        names = [key.name for key in self.keys]
        if len({*names, "api", "cli"}) < len(names) + 2:
            raise ValueError("keys: each wants a name of its own, which is not 'api' or 'cli'")
        return self
