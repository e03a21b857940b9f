"""A webhook of the settings, tried with a made-up alert."""

from __future__ import annotations

import msgspec

from alerts.delivery.mail_route import check_mail, post_mail
from alerts.delivery.platform_alert import RULE
from alerts.delivery.webhook import Undelivered, check, post
from alerts.delivery.webhook_queue import WaitingWebhook, hook_named
from alerts.delivery.webhook_sample import sample
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings, WebhookSettings
from infra.errors import Retryable, Usage
from infra.process.clock import clock


def try_hook(settings: Settings, name: str) -> WebhookSettings:
    """Send a made-up alert to a webhook, in its form; returns when it took it.

    Raises `Usage` for one that cannot be called as it is set up, `Undelivered` when it, or a mail
    server for all it was to go to, did not take it.
    """
    hook = hook_named(settings, name)
    check_hook(settings, hook)
    if unknown := rules_problem(settings, hook):
        raise Usage(unknown)
    alert = sample(clock.now(), hook)
    key, body = f"{alert['alert_id']}:1", msgspec.json.encode(alert)
    if hook.form == "mail":
        _mail_sample(settings, hook, str(alert["alert_id"]), body)
    else:
        post(hook, key, body, int(clock.time()), settings.api.console_url)
    return hook


def check_hook(settings: Settings, hook: WebhookSettings) -> None:
    """Raises `Usage` for a hook that cannot be used as it is set up."""
    if hook.form == "mail":
        check_mail(hook, settings.reports.mail)
    else:
        check(hook)


def _mail_sample(settings: Settings, hook: WebhookSettings, alert_id: str, body: bytes) -> None:
    waiting = WaitingWebhook(hook.name, alert_id, 1, "", body, clock.time(), 0)
    try:
        problem = post_mail(hook, settings.reports.mail, [waiting], settings.api.console_url)
    except Retryable as error:
        # Nothing tries a sample again: a server that is away is an answer like one that refuses.
        raise Undelivered(str(error)) from None
    if problem:
        raise Undelivered(problem)


def rules_problem(settings: Settings, hook: WebhookSettings) -> str:
    """A sentence about rules of the hook's filter that neither are in force nor switched off."""
    if not hook.rules:
        return ""
    store = PackStore(store_folder(settings))
    pack, off = store.get(store.current()), store.disabled()
    known = {RULE, *off}
    unknown = [rule for rule in hook.rules if rule not in known and pack.described(rule) is None]
    named = ", ".join(map(repr, unknown))
    return f"webhook {hook.name}: no rule {named} in force" if unknown else ""
