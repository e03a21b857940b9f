"""Settings of threat intelligence: feeds that become indicator lists."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from infra.config.sections import Section

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class IntelligenceServer(Section):
    """A server of threat intelligence, and how to sign in there."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9_-]{1,64}$", description="what it is called: letters, digits, - and _"
    )
    url: str = Field(description="https://HOST/PATH; http only on loopback or with allow_http")
    secret: SecretStr | None = Field(
        None, description="password, token or key; better by secret_env or secret_file"
    )
    secret_env: str | None = Field(None, description="environment variable that holds the secret")
    secret_file: Path | None = Field(
        None, description="file that holds the secret in one line, its owner's alone (0600)"
    )
    ca_file: Path | None = Field(None, description="who signs its certificate, where not a public")
    allow_http: bool = Field(False, description="it may be asked without TLS")
    max_seconds: float = Field(600.0, gt=0, description="longest that one fetch may take")
    max_megabytes: float = Field(512.0, gt=0, description="most that is read from it in one go")

    @model_validator(mode="after")
    def _can_be_called(self) -> Self:
        if sum(given is not None for given in (self.secret, self.secret_env, self.secret_file)) > 1:
            raise ValueError("give secret, secret_env or secret_file, one of them")
        parts = urlsplit(self.url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError("url: write https://HOST/PATH")
        # A password in a URL ends up in logs and error messages.
        if parts.username is not None or parts.password is not None:
            raise ValueError("url: no user and password in it; there are settings for them")
        if parts.scheme == "http" and not self.allow_http and parts.hostname not in _LOOPBACK:
            raise ValueError("url: without TLS only on loopback, or with allow_http")
        return self


class FeedSettings(IntelligenceServer):
    """A server whose indicators become a list."""

    list: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="the indicator list that it keeps, as rules name it; none: name",
    )
    every_minutes: float = Field(60.0, gt=0, description="how often it is fetched beside the jobs")
    expire_days: float | None = Field(
        None,
        gt=0,
        description="an indicator without an end of its own ends so long after its last change; "
        "none: never",
    )
    scores: dict[str, int] = Field(
        default_factory=dict,
        description="score (0 to 100) by label, indicator type or tag, where the feed gives none; "
        "the highest counts",
    )
    default_score: int | None = Field(
        None, ge=0, le=100, description="score where neither the feed nor scores gives one"
    )
    min_score: int = Field(
        0, ge=0, le=100, description="indicators of a lower score, or of none, stay out; 0: all in"
    )
    max_indicators: int = Field(
        1_000_000, gt=0, le=5_000_000, description="a feed with more is refused; its list stays"
    )

    @field_validator("scores")
    @classmethod
    def _scores(cls, value: dict[str, int]) -> dict[str, int]:
        if any(not 0 <= score <= 100 for score in value.values()):
            raise ValueError("a score is 0 to 100")
        return value

    @property
    def list_name(self) -> str:
        """The indicator list that the feed keeps."""
        return self.list or self.name


class TaxiiFeedSettings(FeedSettings):
    """A TAXII 2.1 collection that is read."""

    url: str = Field(
        description="its API root: https://HOST/ROOT/; http only on loopback or with allow_http"
    )
    collection: str = Field(min_length=1, description="id or alias of the collection")
    user: str = Field("", description="account of the secret; none: the secret is a bearer token")


class MispFeedSettings(FeedSettings):
    """A MISP server or feed that is read."""

    url: str = Field(
        description="the server: https://HOST/, or the folder of a feed that has manifest.json; "
        "http only on loopback or with allow_http"
    )
    form: Literal["server", "feed"] = Field(
        "server", description="server: asked by REST with its key as secret; feed: files"
    )
    user: str = Field("", description="feed: account of the secret, where it asks for one")
    tags: tuple[str, ...] = Field(
        (), description="only attributes, of a feed only events, with one of these tags; none: all"
    )
    enforce_warninglists: bool = Field(
        True, description="server: without what its warning lists know as harmless"
    )


class StixSettings(Section):
    """How alerts are shared as STIX 2.1."""

    identity: str = Field("Headgate", min_length=1, description="who says it: your organisation")
    tlp: Literal["clear", "green", "amber", "red"] = Field(
        "amber", description="with whom it may be shared (Traffic Light Protocol)"
    )
    entities: bool = Field(
        True, description="whether devices, addresses, hosts and users of the site are named"
    )


class IntelligenceSettings(Section):
    """Threat intelligence that is read, and given."""

    stix: StixSettings = Field(StixSettings(), description="alerts as STIX 2.1")

    taxii: tuple[TaxiiFeedSettings, ...] = Field((), description="TAXII 2.1 collections to read")
    misp: tuple[MispFeedSettings, ...] = Field((), description="MISP servers and feeds to read")

    @property
    def feeds(self) -> tuple[TaxiiFeedSettings | MispFeedSettings, ...]:
        """All that is read."""
        return self.taxii + self.misp

    @model_validator(mode="after")
    def _apart(self) -> Self:
        for what, names in (
            ("feeds of one name", [feed.name for feed in self.feeds]),
            ("feeds that keep one list", [feed.list_name for feed in self.feeds]),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"two {what}: {', '.join(sorted(names))}")
        return self
