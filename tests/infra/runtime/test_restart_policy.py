"""A failed job comes back with growing pauses; a batch that is poison stops its job, by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.runtime.restart_policy import (
    PAUSES,
    STEADY_SECONDS,
    FailureRecord,
    GiveUp,
    Retry,
    reason,
)

OWN = "pyspark.errors.PythonException: KeyError: 'x'"
BROKER = "org.apache.kafka.common.errors.TimeoutException: no answer"


def test_pauses_grow_up_to_the_longest() -> None:
    record = FailureRecord()
    pauses = [record.failed(BROKER, 7, 1.0, 3) for _ in range(8)]
    assert pauses == [Retry(seconds) for seconds in (*PAUSES, PAUSES[-1], PAUSES[-1])]


def test_a_job_that_ran_long_begins_again_with_the_first_pause() -> None:
    record = FailureRecord(failures=4)
    assert record.failed(BROKER, None, STEADY_SECONDS + 1, 3) == Retry(PAUSES[0])


def test_a_batch_that_fails_again_and_again_is_named() -> None:
    record = FailureRecord()
    for _ in range(2):
        assert isinstance(record.failed(OWN, 41, 1.0, 3), Retry)
    verdict = record.failed(OWN, 41, 1.0, 3)
    assert isinstance(verdict, GiveUp)
    assert verdict.poison
    assert "batch 41 failed 3 times in a row" in verdict.why
    assert "KeyError: 'x'" in verdict.why


@given(st.lists(st.sampled_from([(OWN, None), (BROKER, 41), (OWN, 40)]), max_size=30))
def test_faults_outside_and_of_changing_batches_are_no_poison(faults) -> None:
    record = FailureRecord()
    last = None
    for why, batch in faults:
        if (why, batch) == (OWN, 40) and last == (OWN, 40):
            continue  # two in a row would be one batch failing again
        last = (why, batch)
        assert isinstance(record.failed(why, batch, 1.0, 2), Retry)


STORE = (
    "org.apache.hadoop.fs.s3a.AWSClientIOException: open x: Unable to execute HTTP request",
    "org.apache.hadoop.fs.s3a.impl.AWSUnsupportedFeatureException: 503",
    "Caused by: software.amazon.awssdk.core.exception.SdkClientException: Connect timed out",
    'botocore.exceptions.EndpointConnectionError: Could not connect to "http://127.0.0.1:1"',
    "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
)


@given(st.lists(st.sampled_from(STORE), max_size=12))
def test_a_store_that_does_not_answer_makes_no_batch_poison(said) -> None:
    record = FailureRecord()
    assert all(isinstance(record.failed(why, 41, 1.0, 2), Retry) for why in said)


KILLED = "SparkException: Python worker exited unexpectedly (crashed)\nCaused by: EOFException"
NO_MEMORY = "PythonException: Traceback (most recent call last):\nMemoryError\n"


@pytest.mark.parametrize("said", [KILLED, NO_MEMORY])
def test_a_machine_without_memory_for_minutes_makes_no_batch_poison(said: str) -> None:
    record = FailureRecord()
    waited = 0.0
    while isinstance(follows := record.failed(said, 41, 1.0, 6), Retry):
        waited += follows.seconds
    assert record.on_batch == 30
    assert waited > 20 * 60
    assert follows.poison
    assert "batch 41 failed 30 times in a row: " in follows.why


def test_what_a_batch_itself_does_counts_in_full_beside_ended_workers() -> None:
    record = FailureRecord()
    for said in (KILLED, OWN, KILLED, NO_MEMORY):
        assert isinstance(record.failed(said, 41, 1.0, 2), Retry)
    assert isinstance(record.failed(OWN, 41, 1.0, 2), GiveUp)


def test_an_error_that_a_store_s_client_only_passed_on_is_the_batch_s_own() -> None:
    record = FailureRecord()
    frames = (
        "\n  at org.apache.hadoop.fs.s3a.S3AInputStream.read(S3AInputStream.java:1)"
        '\n  File "botocore/client.py", line 1, in _api_call'
        "\n  at software.amazon.awssdk.core.internal.Call.execute(Call.java:1)"
    )
    record.failed(OWN + frames, 41, 1.0, 2)
    assert isinstance(record.failed(OWN + frames, 41, 1.0, 2), GiveUp)


def test_what_no_retry_can_help_is_given_up_at_once() -> None:
    text = "PythonException: infra.errors.Fatal: topic x is gone; make it\n  at java.lang.Thread"
    assert FailureRecord().failed(text, 3, 1.0, 6) == GiveUp("topic x is gone; make it")


def test_the_reason_is_the_line_that_says_it() -> None:
    assert reason("infra.errors.Retryable: the disk is full") == "the disk is full"
    assert reason("first\nCaused by: java.io.IOException: short\n  at x") == (
        "Caused by: java.io.IOException: short"
    )
    python = "[STREAM_FAILED] x\nTraceback:\nValueError: 13 is bad\n\nCaused by: java.x\n+- plan"
    assert reason(python) == "ValueError: 13 is bad"
    starved = (
        "PythonException: An exception was thrown:\nTraceback (most recent call):\nMemoryError\n"
    )
    assert reason(starved) == "MemoryError: a Python worker got no memory"
    killed = (
        "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n"
        "\tat x\nCaused by: java.io.EOFException\n\tat y"
    )
    assert reason(killed).startswith("a Python worker ended: it was killed")
    assert reason("") == "unknown"


def test_state_of_another_release_is_given_up_at_once() -> None:
    text = "StreamingQueryException: [STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value ..."
    verdict = FailureRecord().failed(text, 7, 1.0, 6)
    assert isinstance(verdict, GiveUp)
    assert "its checkpoint holds state of another release" in verdict.why
