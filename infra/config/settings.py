"""All settings: one frozen, typed object, read once by the command and passed down.

They come from a TOML file (`--config`, else `HEADGATE_CONFIG`, else
`headgate.toml` where the command runs, else the defaults) and from environment
variables such as `HEADGATE_KAFKA__BOOTSTRAP`, which win. Unknown keys are refused.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from infra.config.api_section import ApiKeySettings, ApiSettings, OidcSettings
from infra.config.bounded_files import toml_file
from infra.config.intelligence_section import IntelligenceSettings
from infra.config.job_sections import (
    JobSettings,
    MaintenanceSettings,
    RetentionSettings,
    TargetSettings,
)
from infra.config.listen_section import ListenSettings, OtlpListenerSettings
from infra.config.renamed_settings import RenamingEnvironment, with_new_names
from infra.config.report_sections import ReportSettings
from infra.config.secrets import is_secret
from infra.config.sections import (
    AlertSettings,
    FolderSettings,
    InventorySettings,
    KafkaSettings,
    ScopeSettings,
    SourceSettings,
    SparkSettings,
)
from infra.config.telemetry_section import TelemetrySettings
from infra.config.tenants import NAME
from infra.config.webhook_section import WebhookSettings
from infra.errors import Usage
from infra.storage.paths import SCHEME, Location, bucketed, location

__all__ = [
    "AlertSettings",
    "ApiKeySettings",
    "ApiSettings",
    "FolderSettings",
    "IntelligenceSettings",
    "InventorySettings",
    "JobSettings",
    "KafkaSettings",
    "ListenSettings",
    "MaintenanceSettings",
    "OidcSettings",
    "OtlpListenerSettings",
    "ReportSettings",
    "RetentionSettings",
    "ScopeSettings",
    "Settings",
    "SourceSettings",
    "SparkSettings",
    "TargetSettings",
    "TelemetrySettings",
    "WebhookSettings",
    "load",
]


def _lake(value: Any) -> Any:
    """A folder, or the address of a prefix in a bucket."""
    if not isinstance(value, str):
        return value
    if bucketed(value):
        if not value.removeprefix(SCHEME).strip("/"):
            raise ValueError(f"names no bucket; write {SCHEME}bucket/prefix")
        return value.rstrip("/")
    # `Path` would take `hdfs://host/lake` for a folder below this one.
    if "://" in value:
        raise ValueError(f"is no folder and no bucket; write a path, or {SCHEME}bucket/prefix")
    return Path(value)


class Settings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="HEADGATE_", env_nested_delimiter="__"
    )

    home: Path = Field(Path(".headgate"), description="folder for all that is kept")
    lake: Annotated[Path | str | None, BeforeValidator(_lake)] = Field(
        None,
        description="root of the tables, a folder or `s3://bucket/prefix`; none: <home>/lake",
    )
    checkpoints: Path | None = Field(None, description="job state; none: <home>/checkpoints")
    scratch: Path | None = Field(
        None,
        description="what a process needs only while it lives, on a disk of its own machine; "
        "none: <home>/scratch",
    )
    umask: str = Field(
        "077",
        pattern=r"^0?[0-7]{3}$",
        description="permissions kept from all that is made: 077 owner only, 027 a group may read",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="what the driver says on stderr: lines for a person, or JSON objects"
    )
    kafka: KafkaSettings = KafkaSettings()
    spark: SparkSettings = SparkSettings()
    jobs: JobSettings = JobSettings()
    targets: TargetSettings = TargetSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    retention: RetentionSettings = RetentionSettings()
    alerts: AlertSettings = AlertSettings()
    api: ApiSettings = ApiSettings()
    reports: ReportSettings = ReportSettings()
    listen: ListenSettings = ListenSettings()
    intelligence: IntelligenceSettings = IntelligenceSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    sources: dict[str, SourceSettings] = Field(
        default_factory=dict, description="by source name, or by family: 'zeek' serves zeek:conn"
    )
    assets: InventorySettings = InventorySettings()
    users: InventorySettings = InventorySettings()
    folders: dict[str, FolderSettings] = Field(
        default_factory=dict, description="files that land in folders, by a name of your choice"
    )
    scopes: tuple[ScopeSettings, ...] = Field(
        (
            ScopeSettings(
                name="default",
                networks=("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
                hosts=(),
            ),
        ),
        description="sites with DHCP; the first one without hosts is the default",
    )

    tenants: tuple[str, ...] = Field(
        (),
        description="whose logs are kept apart for keys that are limited to a tenant: topics "
        "`logs.tenant-NAME.SOURCE`, what ports, OTLP keys and folders name, and cloud accounts of "
        "`sources`",
    )
    webhooks: tuple[WebhookSettings, ...] = Field(
        (), description="addresses that get alerts by HTTP (docs/how-to/set-up-webhooks.md)"
    )

    @field_validator("webhooks")
    @classmethod
    def _webhooks(cls, value: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
        names = [hook.name for hook in value]
        if len(set(names)) < len(names):
            raise ValueError("two webhooks of one name; what waits for them is told apart by it")
        return value

    @field_validator("tenants")
    @classmethod
    def _tenants(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(NAME, name):
                raise ValueError(f"'{name}': small letters, digits and -, at most 63")
        return value

    @model_validator(mode="after")
    def _known_tenants(self) -> Self:
        of_folders = [(f"folders.{name}", folder.tenant) for name, folder in self.folders.items()]
        groups = self.api.oidc.tenants if self.api.oidc else {}
        of_groups = [(f"api.oidc.tenants.{name}", each) for name in groups for each in groups[name]]
        of_ports = [("listen", name) for name in self.listen.tenants]
        of_accounts = [
            (f"sources.{name}.accounts.{account}", tenant)
            for name, source in self.sources.items()
            for account, tenant in source.accounts.items()
        ]
        of_reports = [("reports.scheduled", report.tenant) for report in self.reports.scheduled]
        of_hooks = [(f"webhooks.{hook.name}", hook.tenant) for hook in self.webhooks]
        named = (*of_folders, *of_ports, *of_groups, *of_accounts, *of_reports, *of_hooks)
        for where, tenant in named:
            # A slip would keep logs from whom they belong to, without a word.
            if tenant is not None and tenant not in self.tenants:
                raise ValueError(f"{where}: no tenant '{tenant}'; list it in tenants")
        return self

    @model_validator(mode="after")
    def _reports_to_their_own(self) -> Self:
        whose = {hook.name: hook.tenant for hook in self.webhooks}
        for report in self.reports.scheduled:
            theirs = whose.get(report.webhook or "")
            # It would learn figures of others, and file names that say whose they are.
            if theirs is not None and theirs != report.tenant:
                of = "all tenants" if report.tenant is None else f"tenant '{report.tenant}'"
                raise ValueError(
                    f"reports.scheduled: report '{report.report}' of {of} would go to webhook "
                    f"'{report.webhook}' of tenant '{theirs}'; name one of its own, or one without "
                    "tenant, which is yours"
                )
        return self

    @model_validator(mode="after")
    def _preliminary_topic(self) -> Self:
        if self.alerts.preliminary_by == "lane" and not self.kafka.preliminary_topic:
            # Whoever set it waits for alerts that nobody sends.
            raise ValueError(
                "alerts.preliminary_by: 'lane' tells nothing without a topic; name one in "
                "kafka.preliminary_topic"
            )
        return self

    @property
    def lake_root(self) -> Location:
        """Root of the tables."""
        where = self.lake or self.home / "lake"
        return location(where) if isinstance(where, str) else where.absolute()

    @property
    def lake_side(self) -> Path:
        """Root folder of what lies beside the tables: rules, locks, the index of inventories."""
        # With the tables in a bucket these stay on a disk: locks need a file system.
        root = self.lake_root
        return root if isinstance(root, Path) else self.home.absolute() / "lake"

    @property
    def checkpoint_root(self) -> Path:
        """Root folder of the jobs' checkpoints."""
        return (self.checkpoints or self.home / "checkpoints").absolute()

    @property
    def scratch_root(self) -> Path:
        """Root folder of what processes need only while they live."""
        return (self.scratch or self.home / "scratch").absolute()

    @property
    def reports_folder(self) -> Path:
        """Where reports are kept."""
        return self.home.absolute() / "reports"

    @property
    def mask(self) -> int:
        """The umask as a number."""
        return int(self.umask, 8)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose values arrive as init settings."""
        # Neither `.env` nor a folder of secrets: a value comes from one file or the environment,
        # where somebody looks for it.
        return RenamingEnvironment(settings_cls), init_settings


def load(config: Path | None = None, /, **overrides: Any) -> Settings:
    """Read the settings. `overrides` are nested dictionaries: they win over the file, and the
    environment wins over both.

    Raises `Usage` that names the file, the key and what is wrong with it.
    """
    path = config or _default_file()
    values = {} if path is None else toml_file(path)
    try:
        # Renamed before they are merged: an old name in the file and the new one in an override are
        # the same key.
        return Settings(**_merge(with_new_names(values), with_new_names(overrides)))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise Usage(
                f"{path or 'settings'}: unknown key '{key}'; see docs/reference/settings.md"
            ) from None
        given = "" if _unsaid(key, first.get("input")) else f" = {first.get('input')!r}"
        raise Usage(f"{path or 'settings'}: {key}{given}: {first['msg']}") from None


def _unsaid(key: str, given: Any) -> bool:
    """Whether a value is not to be repeated: it may hold a secret, or be a section that does."""
    # An address may carry a password in front of its host.
    return is_secret(key) or not isinstance(given, (str, int, float)) or "://" in str(given)


def _default_file() -> Path | None:
    named = os.environ.get("HEADGATE_CONFIG")
    if named:
        return Path(named)
    here = Path("headgate.toml")
    return here if here.exists() else None


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        # Section by section: one override must not take a section's other values away.
        merged[key] = (
            _merge(merged[key], value)
            if isinstance(value, dict) and isinstance(merged.get(key), dict)
            else value
        )
    return merged
