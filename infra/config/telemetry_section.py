"""Settings of what the driver tells an OpenTelemetry collector of its batches."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from infra.config.sections import Section

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TelemetrySettings(Section):
    """Metrics and traces of batches by OTLP over HTTP; off where no endpoint is named."""

    otlp_endpoint: str | None = Field(
        None,
        description="collector: https://HOST:4318, to which /v1/traces and /v1/metrics are added; "
        "none: nothing is sent",
    )
    otlp_token: SecretStr | None = Field(
        None, description="bearer token for it; better by otlp_token_file"
    )
    otlp_token_file: Path | None = Field(
        None, description="file with the bearer token in one line, its owner's alone (0600)"
    )
    ca_file: Path | None = Field(None, description="who signs its certificate, where not a public")
    metrics: bool = Field(True, description="whether counts and durations are sent")
    traces: bool = Field(True, description="whether a span a batch and commit is sent")
    interval_seconds: float = Field(15.0, gt=0, le=3600, description="pause between two sendings")
    attributes: dict[str, str] = Field(
        default_factory=dict, description="further attributes of the resource: deployment.name, ..."
    )

    @model_validator(mode="after")
    def _can_be_called(self) -> Self:
        if self.otlp_endpoint is None:
            return self
        parts = urlsplit(self.otlp_endpoint)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError("otlp_endpoint: write https://HOST:4318")
        if parts.username is not None or parts.password is not None:
            raise ValueError("otlp_endpoint: no user and password in it; give otlp_token_file")
        token = self.otlp_token is not None or self.otlp_token_file is not None
        if token and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError("otlp_endpoint: a token goes over https, or to loopback")
        return self
