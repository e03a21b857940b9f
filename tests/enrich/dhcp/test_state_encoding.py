"""Blobs of the session state: the same rows as a state held whole, and few chunks are unpacked."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrich.dhcp import state_encoding
from enrich.dhcp.lease_rules import LeaseEvent, Segment
from enrich.dhcp.state_encoding import VERSION, WHOLE, StoredBucket, decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits
from infra.errors import Fatal
from tests.enrich.dhcp.test_tracker_state import IPS, LIMITS, cut, line, lines_with_delays, us

HEAD = b"headgate.sessions"


class Bucket:
    """A bucket whose blob is read and written with each batch; `loaded`: of which addresses."""

    def __init__(self, blob: bytes | None = None) -> None:
        self.blob = blob
        self.loaded: set[str] = set()

    def advance(
        self, lines: list[LeaseEvent], finished: list[int], limits: TrackerLimits = LIMITS
    ) -> list[Segment]:
        stored = StoredBucket(limits, self.blob)
        state = stored.load(lines, finished)
        self.loaded = {ip for _, ip in state.addresses}
        segments = state.advance(lines, finished)
        self.blob = stored.save()
        return segments

    @property
    def held(self) -> TrackerBucket:
        assert self.blob is not None
        return decode_bucket(self.blob, LIMITS)


@pytest.fixture
def many() -> Bucket:
    """Two hundred addresses, given at 0 for an hour."""
    bucket = Bucket()
    bucket.advance([line(0, ip=f"10.0.1.{n}", lease=3600, uid=str(n)) for n in range(200)], [us(1)])
    return bucket


@given(lines_with_delays, st.lists(st.integers(0, 6), max_size=8), st.booleans())
def test_blobs_give_the_rows_of_a_state_held_whole(lines, sizes, beats) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_encoding, "CHUNK", 1)  # so that few addresses are several chunks
        whole, stored = TrackerBucket(LIMITS), Bucket()
        for batch in cut(lines, sizes):
            finished = [max(e.received_us for e in batch)] if beats and batch else []
            assert stored.advance(batch, finished) == whole.advance(batch, finished)
        for finished_us in (us(second) for second in range(200, 6000, 90)):
            assert stored.advance([], [finished_us]) == whole.advance([], [finished_us])
        assert stored.held.addresses.keys() == whole.addresses.keys()


def test_a_batch_unpacks_the_chunks_of_its_lines_and_no_others(many: Bucket) -> None:
    for second in (2, 5, 6):
        many.advance([line(second, ip="10.0.1.7", lease=3600)], [us(second)])
        assert "10.0.1.7" in many.loaded
        assert len(many.loaded) < 2 * state_encoding.CHUNK
    many.advance([], [us(20)])
    assert many.loaded == set()


def test_chunks_grow_and_shrink_with_the_addresses(many: Bucket) -> None:
    assert many.blob is not None
    assert len(StoredBucket(LIMITS, many.blob)._chunks) == 8
    many.advance([line(30, ip="10.0.2.1", lease=9000)], [us(30)])
    many.advance([], [us(5000)])
    assert len(StoredBucket(LIMITS, many.blob)._chunks) == 1
    assert [ip for _, ip in many.held.addresses] == ["10.0.2.1"]


def test_what_is_over_leaves_nothing_behind() -> None:
    bucket = Bucket()
    bucket.advance([line(0, lease=10), line(0, ip=IPS[1], lease=3000)], [us(1)])
    bucket.advance([], [us(500)])
    assert list(bucket.held.addresses) == [("site", IPS[1])]
    bucket.advance([], [us(4000)])
    assert bucket.held.addresses == {}


def test_a_lease_longer_than_a_segment_is_painted_on_from_blobs_too() -> None:
    week = 7 * 86400
    bucket = Bucket()
    said = bucket.advance([line(0, lease=week)], [us(1)])
    for minute in range(0, week // 60 + 1, 7):
        said += bucket.advance([], [us(minute * 60)])
        assert max(s.seg_end for s in said) >= min(
            us(week), us(minute * 60) + LIMITS.max_lease_us // 2
        )
    spans = sorted((s.seg_start, s.seg_end) for s in said)
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    assert spans[-1][1] == us(week)


def test_other_limits_ask_anew_what_is_due(many: Bucket) -> None:
    # Slots are an eighth of the lateness: those of the limits before are of other times.
    other = TrackerLimits(late_us=LIMITS.late_us * 4, max_lease_us=LIMITS.max_lease_us * 4)
    many.advance([], [us(2)], other)
    assert len(many.loaded) == 200
    many.advance([], [us(3600 + 2 * other.late_us // 1_000_000 + 200)], other)
    assert many.held.addresses == {}


# -- versions ------------------------------------------------------------------------------------

OLD = base64.b85decode(
    "Xk}q!XJK?@E^}pbb7^mGa{-ml00v;dQCMlf&j1Esz)@Ifz|Q~%V8BruV8G7+24KKZ8(_ebm85fNbY-Y9FfK4IFf"
    "K8dxMg85VKy}|GcYhRIX7iAH8f)|Ib>lmF|jZ*IxsLgFfckWFgh?WIxu0SVQg?{Vb1^tV8BM|AOOz*24KKg%fkSX"
    "tT8YyFfK4IF)uJLHK%2GaA|U7WRaP!F)%JLE-)@JFEKSRFEyldX>?_%F)%JLE-)@Ju`n_^FfckWFgh?WIxsLgFk!"
    "$2&j1Esz)#xofX@I1V8Bo6Gr-LOEYAQ2V8JR8Uci;4b7^#Cs4*}uFfK4IGMBh!G&wP2F)}qXIAJwqV`VitIX5(9W"
    "nyKqFfuwYFgh?WIxsLgFfckWV!+P;24KKO>L38m00v;e^bu$Pk*qN=E-)@IE;27LFEyuScyMWQWn_@g00v;eAs~%"
    "Fm85fNbY-Y9FfK4IFfKE|l9{eCFfK4IFfKDMF*YzSHKcQCbY-Y9FfK4IFfKE(FfuwYFgh?WIxsLgFfckWV!#E@00"
    "v;dP;-a?&j1Esz)*t9KpvT{F)%JLE-)@LFEKYTFE^xfX>?_%F)%JLE-)@Lu`n_^FfckWFgh?WIxsLgFk-+5&j1Esz"
    ")=hyfX@I1V8BruV89;F00v;eD?*FF"
)
"""State that the release before this one wrote at 175 s, of three addresses: .1 has a lease of
300 s since 0 and a renewal at 150, .2 one of two hours since 0, .3 was given at 160 for 30 s and
released at 170."""


def test_a_state_of_the_release_before_is_read_and_goes_on() -> None:
    state = decode_bucket(OLD, LIMITS)
    assert (state.known_at_us, state.finished_us) == (us(175), us(175))
    held = {ip: a.timeline().sessions for (_, ip), a in state.addresses.items()}
    assert {ip: [(s.mac[-1], s.end_us, s.ended) for s in found] for ip, found in held.items()} == {
        "10.0.0.1": [("a", us(450), "expired")],
        "10.0.0.2": [("b", us(7200), "expired")],
        "10.0.0.3": [("b", us(170), "released")],
    }
    bucket = Bucket(OLD)
    late = [line(160, ip=IPS[0], activity=7, late=17), line(180, ip=IPS[2])]
    assert bucket.advance(late, [us(181)]) == state.advance(late, [us(181)])
    assert OLD[: len(HEAD) + 1] == HEAD + bytes([WHOLE])
    assert bucket.blob is not None
    assert bucket.blob[: len(HEAD) + 1] == HEAD + bytes([VERSION])
    assert [s.kind for s in bucket.advance([], [us(2000)])] == ["extend"]


@pytest.mark.parametrize("version", [2, 9])
def test_another_version_is_refused_with_its_remedy(many: Bucket, version: int) -> None:
    assert many.blob is not None
    many.blob = HEAD + bytes([version]) + many.blob[len(HEAD) + 1 :]
    with pytest.raises(
        Fatal, match=f"version {version}, this release reads 1 and 3; 'headgate rebuild sessions'"
    ):
        many.advance([], [us(2)])


def _cut(blob: bytes) -> bytes:
    return blob[:-1]


def _bit(blob: bytes) -> bytes:
    # In the middle of what is compressed.
    place = len(blob) // 2
    return blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]


@pytest.mark.parametrize("hurt", [_cut, _bit])
def test_a_damaged_blob_is_refused_by_name(many: Bucket, hurt: Any) -> None:
    assert many.blob is not None
    with pytest.raises(Fatal, match="job sessions: its state cannot be read"):
        decode_bucket(hurt(many.blob), LIMITS)


def test_what_is_made_anew_is_told_when_it_is_due(many: Bucket) -> None:
    state = many.held
    for address in state.addresses.values():
        address.due = 0
    state.wheel.clear()
    again = Bucket(encode_bucket(state))
    assert again.held.addresses == many.held.addresses
    assert again.advance([], [us(4000)]) == many.advance([], [us(4000)])
    assert again.held.addresses == {}
