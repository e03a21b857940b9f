"""No batch begins once its job is being stopped."""

from __future__ import annotations

import threading

import pytest

from infra.errors import Retryable
from infra.streaming.batch_runner import BatchGate


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> BatchGate:
    monkeypatch.setattr("infra.streaming.batch_runner.time.sleep", lambda seconds: None)
    return BatchGate()


def test_a_batch_that_waits_for_the_last_one_is_refused_after_a_stop(gate: BatchGate) -> None:
    asks, ends = threading.Event(), []

    def next_batch() -> None:
        asks.set()
        try:
            with gate.inside():
                ends.append("came in")
        except Retryable as error:
            ends.append(str(error))

    thread = threading.Thread(target=next_batch)
    with gate.inside():
        thread.start()
        assert asks.wait(10)
        thread.join(0.05)
        gate.shut(0)
        assert not gate.left(0)
    thread.join(10)
    assert ends == ["the job is being stopped"]
    assert gate.left(0)


def test_a_batch_that_fails_leaves(gate: BatchGate) -> None:
    with pytest.raises(ValueError, match="odd"), gate.inside():
        raise ValueError("odd")
    assert gate.left(0)
    with gate.inside():
        assert not gate.left(0)
