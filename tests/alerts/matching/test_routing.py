"""Which rows rules see is the same whether a batch is compared with earlier ones or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.matching import routing
from alerts.matching.event_rows import event_batch
from alerts.matching.routing import Router
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import Rule
from tests.examples import examples

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
RULES = [
    Rule(id=f"r{number}", title="t", classes=classes, sources=sources, predicate=predicate)
    for number, (classes, sources) in enumerate([((1,), ()), ((), ("s",)), ((2, 3), ("t",))])
    for predicate in [Test("message", "contains", "x")]
]


def _event(
    class_uid: int | None, source: str, mode: str = "live", duplicate: bool = False
) -> dict[str, Any]:
    return {
        "event_uid": "e",
        "time": NOON,
        "received_at": NOON,
        "class_uid": class_uid,
        "source": source,
        "mode": mode,
        "duplicate_of": "d" if duplicate else None,
    }


_EVENTS = st.builds(
    _event,
    st.sampled_from((1, 2, None)),
    st.sampled_from(("s", "t", "_heartbeat")),
    st.sampled_from(("live", "import")),
    st.booleans(),
)
# Most batches of one log source, as those of workers are.
_BATCHES = st.lists(_EVENTS, max_size=5) | st.builds(
    lambda event, duplicates: [event | {"duplicate_of": "d" if d else None} for d in duplicates],
    _EVENTS,
    st.lists(st.booleans(), min_size=1, max_size=5),
)


@pytest.mark.parametrize("most", [1, 64])
@examples(60)
@given(st.lists(_BATCHES, max_size=8))
def test_what_earlier_batches_were_changes_no_route(
    most: int, batches: list[list[dict[str, Any]]]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(routing, "_MOST_ALIKE", most)
        router = Router(RULES, ("live",))
        seen = np.zeros(len(RULES), np.int64)
        for events in [*batches, *batches]:
            routed = router.route(event_batch(events))
            pairs = {
                (row, rule)
                for row in routed.rows.tolist()
                for rule in np.flatnonzero(routed.rules[routed.groups[row]]).tolist()
            }
            wanted = {
                (row, number)
                for row, event in enumerate(events)
                if event["mode"] == "live" and not event["duplicate_of"]
                for number, rule in enumerate(RULES)
                if event["source"] != "_heartbeat"
                and (not rule.classes or event["class_uid"] in rule.classes)
                and (not rule.sources or event["source"] in rule.sources)
            }
            assert pairs == wanted
            assert {rule for _, rule in wanted} <= set(np.flatnonzero(routed.wanted).tolist())
            assert len(router._alike) <= most
            for _, rule in pairs:
                seen[rule] += 1
            assert router.events().tolist() == seen.tolist()


def test_a_batch_of_one_log_source_is_known_by_its_bytes() -> None:
    router = Router(RULES, ("live",))
    for _ in range(2):
        routed = router.route(event_batch([_event(1, "s")] * 4))
        assert routed.rows.tolist() == [0, 1, 2, 3]
    # One row of another class is enough to be read anew.
    routed = router.route(event_batch([*[_event(1, "s")] * 3, _event(2, "t")]))
    assert sorted(routed.pairs) == [(1, "s"), (2, "t")]
    assert router.events().tolist() == [11, 11, 1]
