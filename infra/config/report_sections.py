"""Settings of reports: which are made by themselves, where they go, how long they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field, SecretStr, field_validator, model_validator

from infra.config.sections import Section

ReportFormat = Literal["html", "pdf", "json", "csv"]


class MailSettings(Section):
    """The mail server that reports are sent by."""

    host: str | None = Field(None, description="mail server; none: reports are not sent by mail")
    port: int = Field(587, gt=0, le=65535, description="its port")
    security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="starttls, tls from the first byte, or none (on loopback)"
    )
    ca_file: Path | None = Field(None, description="who signs its certificate, where not a public")
    user: str | None = Field(None, description="account to sign in with; none: without")
    password: SecretStr | None = Field(None, description="its password")
    password_file: Path | None = Field(None, description="file with the password in one line")
    sender: str = Field("headgate@localhost", description="address that the mails come from")

    @model_validator(mode="after")
    def _whole(self) -> MailSettings:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password or password_file, not both")
        if self.user and self.security == "none" and self.host not in ("127.0.0.1", "localhost"):
            raise ValueError("a password must not cross a network without TLS; set security")
        return self


class ScheduledReportSettings(Section):
    """A report that is made by itself when its interval is over."""

    report: str = Field(description="which: daily, weekly, monthly, ... (`headgate report list`)")
    subject: str = Field(
        "", description="of a dossier the device or incident; of `query` the saved query's name"
    )
    tenant: str | None = Field(
        None, description="tenant over whose rows alone it is made; none: over all"
    )
    every: Literal["day", "week", "month"] = Field(description="how long its interval is")
    after_hours: float = Field(
        3.0, ge=0, description="how long after its end it is made: late logs are then there"
    )
    formats: tuple[ReportFormat, ...] = Field(
        (), description="what is made of it besides JSON; none: reports.formats"
    )
    mail: tuple[str, ...] = Field((), description="addresses that get it by mail")
    webhook: str | None = Field(
        None, description="name of a [[webhooks]] entry that is notified, signed alike"
    )


class ReportSettings(Section):
    """Reports."""

    zone: str = Field("UTC", description="zone whose days, weeks and months they are of")
    formats: tuple[ReportFormat, ...] = Field(
        ("html",), description="what is made of each besides JSON: html, pdf, csv"
    )
    keep_days: float = Field(
        800, ge=0, description="files of a report in <home>/reports go after so long; 0: never"
    )
    check_minutes: float = Field(
        15, ge=0, description="how often it is looked whether one is due; 0: never"
    )
    scheduled: tuple[ScheduledReportSettings, ...] = Field(
        (), description="reports that are made by themselves beside job ingest"
    )
    mail: MailSettings = MailSettings()

    @field_validator("zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("no such zone; write one such as Europe/Berlin") from None
        return value
