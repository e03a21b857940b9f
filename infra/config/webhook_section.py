"""Settings of webhooks: where alerts go by HTTP, in which form, and which of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from infra.config.sections import AlertLevel, Section

WebhookForm = Literal["headgate", "slack", "teams", "pagerduty", "jira", "thehive", "iris", "mail"]
EntityType = Literal["device", "ip", "host", "user", "rule", "event"]

ADDRESS_IS_SECRET = ("slack", "teams")
"""Forms of which who knows the address may post to it."""
_OF_MAIL = ("to", "sender", "batch_seconds", "batch_most")
_TEMPLATES = ("subject", "template_file")


class WebhookSettings(Section):
    """An address that gets alerts by HTTP, besides the topic."""

    name: str = Field(min_length=1, description="what it is called in lists and messages")
    form: WebhookForm = Field(
        "headgate",
        description="whose body it gets: headgate (the alert, signed), slack, teams, pagerduty, "
        "jira, thehive, iris; mail: some together by the server of reports.mail",
    )
    url: str = Field(
        "",
        description="https://HOST/PATH, http only with allow_private; slack and teams: none, it is "
        "the secret; pagerduty: none is https://events.pagerduty.com/v2/enqueue",
    )
    secret: SecretStr | None = Field(
        None,
        description="headgate: signs each delivery (HMAC-SHA256); slack, teams: the whole address; "
        "pagerduty: the routing key; jira, thehive, iris: the API token; mail: none",
    )
    secret_env: str | None = Field(
        None, description="environment variable that holds the secret, instead of secret"
    )
    secret_file: Path | None = Field(
        None, description="file that holds the secret in one line, its owner's alone (0600)"
    )
    user: str = Field("", description="jira: account that the API token is of")
    project: str = Field("", description="jira: key of the project that gets the issues")
    issue_type: str = Field("Task", min_length=1, description="jira: type of the issues")
    customer: int = Field(1, ge=1, description="iris: id of the customer whose alerts they are")
    to: tuple[str, ...] = Field((), description="mail: addresses that get it")
    sender: str | None = Field(
        None, description="mail: address that it comes from; none: reports.mail.sender"
    )
    subject: str | None = Field(
        None,
        max_length=200,
        description="template of the title (mail: of the subject, by the first alert); names as in "
        "template_file; not of form headgate",
    )
    template_file: Path | None = Field(
        None,
        description="file with the template of an alert's text: $title, $level, $state, "
        "$summary, $entity, $rule, $time, $count, $text (all of these), $links; not of form "
        "headgate",
    )
    batch_seconds: float = Field(
        30.0, ge=0, description="mail: so long is waited for further alerts of the same mail"
    )
    batch_most: int = Field(50, ge=1, le=500, description="mail: most alerts of one mail")
    levels: tuple[AlertLevel, ...] = Field(
        ("medium", "high", "critical"), description="levels of alerts that it gets"
    )
    rules: tuple[str, ...] = Field((), description="ids of rules whose alerts it gets; none: all")
    entities: tuple[EntityType, ...] = Field(
        (), description="it gets alerts that name an entity of these types; none: all"
    )
    tenant: str | None = Field(
        None,
        description="tenant whose it is: it gets that one's alerts and reports alone; none: all",
    )
    allow_private: bool = Field(
        False, description="it may be in a private network, on loopback, or without TLS"
    )
    timeout_seconds: float = Field(10.0, gt=0, description="longest wait for its answer")

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        given = (self.secret, self.secret_env, self.secret_file)
        if self.form == "mail":
            if any(secret is not None for secret in given):
                raise ValueError("form mail: the password is that of reports.mail; leave it out")
        elif sum(secret is not None for secret in given) != 1:
            raise ValueError("give secret, secret_env or secret_file, one of them")
        return self

    @model_validator(mode="after")
    def _of_the_form(self) -> Self:
        if self.form in ADDRESS_IS_SECRET and self.url:
            raise ValueError(f"form {self.form}: its address is the secret; leave out url")
        if self.form == "mail" and self.url:
            raise ValueError("form mail: its server is that of reports.mail; leave out url")
        if self.form not in (*ADDRESS_IS_SECRET, "pagerduty", "mail") and not self.url:
            raise ValueError(f"form {self.form}: it needs a url")
        is_jira = self.form == "jira"
        if is_jira and not (self.user and self.project):
            raise ValueError("form jira: it needs user and project")
        if not is_jira and (self.user or self.project or "issue_type" in self.model_fields_set):
            raise ValueError(f"form {self.form}: user, project and issue_type are jira's alone")
        if self.form != "iris" and "customer" in self.model_fields_set:
            raise ValueError(f"form {self.form}: customer is iris's alone")
        given = [name for name in _OF_MAIL if name in self.model_fields_set]
        if self.form == "mail" and not self.to:
            raise ValueError("form mail: say whom, to = [...]")
        if self.form != "mail" and given:
            raise ValueError(f"form {self.form}: {given[0]} is of mail alone")
        written = [name for name in _TEMPLATES if name in self.model_fields_set]
        if self.form == "headgate" and written:
            raise ValueError(f"form headgate: it gets the alert itself; leave out {written[0]}")
        return self
