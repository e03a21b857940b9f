"""Running suites with Great Expectations; nothing is kept and nothing goes to a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ingest.quality.measurements import Written
from ingest.quality.outcome import Outcome
from ingest.quality.suites import NEVER_SO_SILENT, Suite, compares, suites

_EXAMPLES = 3


def check(written: Written, *, expect_some: bool = True) -> list[Outcome]:
    """Run all suites. `expect_some`: that nothing was written at all is a failure too."""
    if not written.total and expect_some:
        return [
            Outcome("ingest wrote something", False, 0, 0, since=written.since, until=written.until)
        ]
    if is_quiet(written):
        judged = sum(silence.allowed is not None for silence in written.silences)
        return [Outcome(NEVER_SO_SILENT, True, judged, 0, suite="freshness", until=written.until)]
    made = list(suites(written))
    return list(validate(made)) if made else []


def is_quiet(written: Written) -> bool:
    """Whether nothing was written and no source is silent for too long: then all that there is to
    say takes no library, whose import alone takes seconds of each quiet hour."""
    broken = any(silence.broken for silence in written.silences)
    return not written.total and bool(written.silences) and not broken and not compares(written)


def validate(made: Sequence[Suite]) -> Iterator[Outcome]:
    """Run suites; their outcomes in their order."""
    # Imported here: it takes seconds, and most commands check nothing.
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    # In memory only: a context on disk would leave a project folder behind.
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("written")
    for suite in made:
        # A part of a frame keeps its old index, by which examples could not be found again.
        frame = suite.frame.reset_index(drop=True)
        definition = source.add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe(
            "all"
        )
        batch = definition.get_batch({"dataframe": frame})
        gx_suite = gx.ExpectationSuite(name=suite.name, expectations=list(suite.expectations))
        form = {"result_format": "SUMMARY", "partial_unexpected_count": _EXAMPLES * 10}
        if suite.key is not None:
            form["unexpected_index_column_names"] = [suite.key]
        for result in batch.validate(gx_suite, result_format=form).results:
            yield _outcome(result.to_json_dict(), suite)


def _outcome(result: dict[str, Any], suite: Suite) -> Outcome:
    config, numbers = result["expectation_config"], result["result"]
    failure = result["exception_info"].get("exception_message")
    return Outcome(
        expectation=config["notes"],
        passed=bool(result["success"]),
        checked=int(numbers.get("element_count", 0)) - int(numbers.get("missing_count") or 0),
        unexpected=int(numbers.get("unexpected_count", 0)),
        examples=failure or ", ".join(list(dict.fromkeys(_examples(numbers, suite)))[:_EXAMPLES]),
        suite=suite.name,
        since=suite.since,
        until=suite.until,
    )


def _examples(numbers: dict[str, Any], suite: Suite) -> Iterator[str]:
    """What is unexpected: the values, or the rows that have them by their key."""
    if suite.key is None:
        yield from map(str, numbers.get("partial_unexpected_list", ()))
        return
    for place in numbers.get("partial_unexpected_index_list") or ():
        key = str(place[suite.key])
        yield suite.says.get(key, key)
