"""State in cells: the same rows as a bucket held whole, and only what a batch touches is read."""

from __future__ import annotations

import base64
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrich.dhcp.lease_rules import SECOND_US, LeaseEvent, Segment
from enrich.dhcp.state_cells import VERSION, Kept, address_cell, read_address, read_header
from enrich.dhcp.state_encoding import WHOLE, decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits
from infra.errors import Fatal
from tests.enrich.dhcp.test_tracker_state import IPS, LIMITS, cut, line, lines_with_delays, us


class Cells(dict[str, bytes]):
    """Cells in memory, which count what is asked of them."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    def get(self, name: str) -> bytes | None:  # type: ignore[override]  # no default here
        self.touched.append(name)
        return super().get(name)

    def put(self, name: str, blob: bytes) -> None:
        self.touched.append(name)
        self[name] = blob

    def drop(self, name: str) -> None:
        del self[name]


class Bucket:
    """One bucket's cells, each batch read and written anew."""

    def __init__(self, limits: TrackerLimits = LIMITS) -> None:
        self.limits = limits
        self.header, self.addresses, self.wheel = Cells(), Cells(), Cells()

    def advance(self, lines: list[LeaseEvent], finished: list[int]) -> list[Segment]:
        kept = Kept(self.limits, self.header, self.addresses, self.wheel)
        said = kept.load(lines, finished).advance(lines, finished)
        kept.save()
        return said


@given(lines_with_delays, st.lists(st.integers(0, 6), max_size=8), st.booleans())
def test_cells_give_the_rows_of_a_bucket_held_whole(lines, sizes, beats) -> None:
    whole, cells = TrackerBucket(LIMITS), Bucket()
    for batch in cut(lines, sizes):
        finished = [max(e.received_us for e in batch)] if beats and batch else []
        assert cells.advance(batch, finished) == whole.advance(batch, finished)
    later = [us(second) for second in range(200, 6000, 90)]
    for finished_us in later:
        assert cells.advance([], [finished_us]) == whole.advance([], [finished_us])
    assert {read_address(blob).ip for blob in cells.addresses.values()} == {
        ip for _, ip in whole.addresses
    }


def test_a_batch_touches_the_addresses_of_its_lines_and_no_others() -> None:
    cells = Bucket()
    many = [line(0, ip=f"10.0.1.{n}", lease=3600, uid=str(n)) for n in range(200)]
    cells.advance(many, [us(1)])
    for second in (2, 5, 6):
        cells.addresses.touched.clear()
        cells.advance([line(second, ip="10.0.1.7", lease=3600)], [us(second)])
        assert set(cells.addresses.touched) == {address_cell("site", "10.0.1.7")}
    cells.addresses.touched.clear()
    cells.advance([], [us(20)])
    assert cells.addresses.touched == []


def test_what_is_over_leaves_no_cell_behind() -> None:
    cells = Bucket()
    cells.advance([line(0, lease=10), line(0, ip=IPS[1], lease=3000)], [us(1)])
    cells.advance([], [us(500)])
    assert list(cells.addresses) == [address_cell("site", IPS[1])]
    cells.advance([], [us(4000)])
    assert (dict(cells.addresses), dict(cells.wheel)) == ({}, {})
    assert read_header(cells.header["header"]).chunks == {}


def test_a_lease_longer_than_a_segment_is_painted_on_from_cells_too() -> None:
    week = 7 * 86400
    cells = Bucket()
    said = cells.advance([line(0, lease=week)], [us(1)])
    for minute in range(0, week // 60 + 1, 7):
        said += cells.advance([], [us(minute * 60)])
        assert max(s.seg_end for s in said) >= min(
            us(week), us(minute * 60) + LIMITS.max_lease_us // 2
        )
    spans = sorted((s.seg_start, s.seg_end) for s in said)
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    assert spans[-1][1] == us(week)


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
    cells = Bucket()
    Kept(LIMITS, cells.header, cells.addresses, cells.wheel).sow(decode_bucket(OLD, LIMITS))
    late = [line(160, ip=IPS[0], activity=7, late=17), line(180, ip=IPS[2])]
    assert cells.advance(late, [us(181)]) == state.advance(late, [us(181)])
    assert [s.kind for s in cells.advance([], [us(2000)])] == ["extend"]


class OldLine(msgspec.Struct, array_like=True):
    event_uid: str
    scope: str
    ip: str
    mac: str | None
    hostname: str | None
    activity: int
    time_us: int
    received_us: int
    lease_seconds: int


class OldSession(msgspec.Struct, array_like=True):
    session_id: str
    mac: str
    hostname: str | None
    start_us: int
    end_us: int
    evidence: tuple[str, ...]
    ended: str = "expired"


class OldAddress(msgspec.Struct, array_like=True):
    scope: str
    ip: str
    base: OldSession | None = None
    lines: list[OldLine] = []
    painted_us: int = 0


class OldState(msgspec.Struct, array_like=True):
    """What the release before this one decodes its blob into."""

    known_at_us: int | None
    finished_us: int | None
    swept_us: int
    last_rev: int
    addresses: list[OldAddress]


def test_the_release_before_reads_what_is_written_for_it() -> None:
    head = len(b"headgate.sessions") + 1
    blob = encode_bucket(decode_bucket(OLD, LIMITS))
    assert blob[:head] == OLD[:head] == b"headgate.sessions" + bytes([WHOLE])
    again, before = (msgspec.msgpack.decode(b[head:], type=OldState) for b in (blob, OLD))
    assert again == before
    assert [len(a.lines) for a in before.addresses] == [1, 0, 2]


def test_a_header_of_another_version_is_refused_by_name() -> None:
    cells = Bucket()
    cells.advance([line(0)], [us(1)])
    blob = bytearray(cells.header["header"])
    blob[len(b"headgate.sessions")] = 9
    cells.header["header"] = bytes(blob)
    with pytest.raises(Fatal, match=f"version 9, this release reads {VERSION}"):
        cells.advance([], [us(2)])
    cells.header["header"] = OLD
    with pytest.raises(Fatal, match=f"version 1, this release reads {VERSION}"):
        cells.advance([], [us(2)])


@pytest.mark.parametrize("name", ["header", "address"])
def test_a_damaged_cell_is_refused_by_name(name: str) -> None:
    cells = Bucket()
    cells.advance([line(0)], [us(SECOND_US // SECOND_US)])
    held = cells.header if name == "header" else cells.addresses
    for key, blob in list(held.items()):
        held[key] = blob[:-1]
    with pytest.raises(Fatal, match="job sessions: its state"):
        cells.advance([line(5)], [us(6)])
