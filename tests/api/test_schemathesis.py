"""The whole description, tried by Schemathesis: operation by operation, and one after another as
answers lead to further questions. A lake without Spark answers."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis import GenerationMode, checks

from api.app import create_app
from infra.config.settings import load
from tests.api.plain_desk import PlainDesk

checks.load_all_checks()
KEPT = {
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "missing_required_header",
    "unsupported_method",
    "use_after_free",
    "ensure_resource_availability",
    "ignored_auth",
}
"""Not kept: that whatever fits the description is taken (a rule that does not compile, an instant
that is none are refused in words, not by a pattern), nor that all else is refused: `"5"` is 5."""
CHECKS = [check for check in checks.CHECKS.get_all() if check.__name__ in KEPT]
ENDLESS = "/stream$"
"""Streams, which have tests of their own."""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    desk = PlainDesk(tmp_path_factory.mktemp("desk"), requests_per_minute=1_000_000)
    desk.all_tables()
    app = create_app(load(home=desk.settings.home, api={"token": "t" * 32}))
    schema = schemathesis.openapi.from_dict(app.openapi())

    async def served(scope: Any, receive: Any, send: Any) -> None:
        # Schemathesis begins and ends the app with each case; ours lives once.
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    schema.app = served
    # Else half of the requests have an invented token: `ignored_auth` asks without one anyway.
    schema.config.generation.with_security_parameters = False
    # Ten seconds by default: on a busy machine the first statement that Spark answers takes longer.
    schema.config.request_timeout = 120
    yield schema.exclude(path_regex=ENDLESS), desk.settings.home
    app.state.services.close()


def drawn(examples: int, steps: int = 10) -> hypothesis.settings:
    """Without shrinking: each request says by itself what was wrong."""
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


def no_fault(ctx: Any, response: Any, case: Any) -> None:
    """503 says what is away and when to come again; any other 5xx is a fault of ours."""
    assert response.status_code < 500 or response.status_code == 503, response.text


def try_all(schema: Any, examples: int, each: int = 1) -> int:
    """Ask every `each`-th operation so often; how many there are."""
    operations = [result.ok() for result in schema.get_all_operations()][::each]
    for operation in operations:
        cases = operation.as_strategy()
        # What takes nothing cannot be asked wrongly.
        if operation.body or operation.query:
            cases |= operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

        @drawn(examples)
        @hypothesis.given(case=cases)
        def ask(case: Any) -> None:
            answered = case.call(headers={"Authorization": f"Bearer {'t' * 32}"})
            case.validate_response(answered, checks=CHECKS, additional_checks=[no_fault])

        ask()
    return len(operations)


def follow(schema: Any, home: Path, least: int, steps: int) -> None:
    """Ask what answers lead to, at least so often: the alert of a list, the job that was begun."""
    asked = 0

    class Machine(schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            # Each way begins with the same content: what Hypothesis draws goes by answers.
            for kept in ("api", "spool"):
                shutil.rmtree(home / kept, ignore_errors=True)

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": {"Authorization": f"Bearer {'t' * 32}"}}

        def validate_response(self, response: Any, case: Any, *_: Any, **__: Any) -> None:
            nonlocal asked
            asked += 1
            case.validate_response(response, checks=CHECKS, additional_checks=[no_fault])

    while asked < least:
        before = asked
        # A job may be done at once or not: where a way goes on in another manner than before,
        # Hypothesis ends its run, and another one begins.
        with suppress(FlakyStrategyDefinition):
            Machine.run(settings=drawn(max(least // steps, 2), steps))
        assert asked > before, "nothing was asked"


def test_some_operations_answer_as_described(described: Any) -> None:
    assert try_all(described[0], 1, each=10) > 8


@pytest.mark.full
def test_what_answers_lead_to_answers_as_described(described: Any) -> None:
    follow(*described, 5, 5)


@pytest.mark.full
def test_each_operation_answers_as_described(described: Any) -> None:
    assert try_all(described[0], 5) > 90


@pytest.mark.full
def test_what_long_ways_lead_to_answers_as_described(described: Any) -> None:
    follow(*described, 300, 20)
