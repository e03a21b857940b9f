"""Trained models: immutable folders under the hash of their content, beside the rule packs.

`<lake>/_rules/models/<hash>/` holds `model.json` (what it was trained on and for, the peers'
tails, and the SHA-256 of the next), `baselines.arrow` (a row for each device) and, where devices
were grouped, `peers/`, MLlib's own saved pipeline. Only the first two are needed to judge, and
neither needs Spark. `models/current.json` says which model each rule runs with.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from alerts.anomaly.baseline import SLOTS, Profile, Tail, slot_of, stray
from alerts.anomaly.steps import USUAL_STRAY, Rarity, SeenStep, StepCounts
from alerts.domain.step import STEPS
from alerts.rulepack.locations import MODELS
from infra.errors import Fatal, Usage
from infra.storage.atomic_files import write_whole
from infra.storage.state_file import JsonLayout, StateFile

_FORMAT = 1
BASELINES, _HEADER = "baselines.arrow", "model.json"

_LISTS = ("centre", "spread", "low", "high")


class Peers(msgspec.Struct, frozen=True):
    """Devices that behave alike: how many, their hours in the history, and each feature's tail."""

    devices: int
    hours: int
    tails: dict[str, Tail]


class ModelHeader(msgspec.Struct, frozen=True, kw_only=True):
    """`model.json`: what a model was trained for, on what, and what all devices share.

    `since` and `until` bound the history; hours from `until` on are judged. `unjudged` devices
    had too little history. `versions` are those of the tables that were read, `deciles` the nine
    inner bounds of each feature's values in hours of devices (`alerts.anomaly.drift`).
    """

    format: int = _FORMAT
    rule_id: str
    rule_version: str
    features: tuple[str, ...]
    least: dict[str, int]
    since: datetime
    until: datetime
    trained_at: datetime
    history_days: int
    devices: int
    unjudged: int
    device_hours: int
    peers: tuple[Peers, ...]
    silhouette: float | None = None
    spark: str = ""
    versions: dict[str, int] = {}
    deciles: dict[str, tuple[float, ...]] = {}
    baselines: str = ""


class Judged(msgspec.Struct, frozen=True):
    """An hour's score, from the feature in which it is most unusual."""

    score: float
    feature: str
    value: int
    low: float
    high: float
    largest: float
    days: int
    peers: int
    what: str = ""
    """Of a feature that is no quantity: what was unusual, in words."""


class Model:
    """A trained model, ready to judge hours of the devices it knows."""

    def __init__(self, folder: Path, header: ModelHeader) -> None:
        self.hash = folder.name
        self.header = header
        self._table = _mapped(folder / BASELINES)
        names = self._table.column("entity").to_pylist()
        self._rows = {name: row for row, name in enumerate(names)}

    def evidence(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Of a row of `alerts.anomaly.device_hours.hours` the events that show it best."""
        return list(row["top"] or ())

    def knows(self, entity: str) -> bool:
        """Whether the device had history enough to be judged; `entity` as `entity_of` keys it."""
        return entity in self._rows

    def judge(self, entity: str, hour: int, values: Mapping[str, Any]) -> Judged:
        """The score of a device's hour (its start, seconds since 1970), of what is in it so far."""
        row = self._rows[entity]
        group = self._table.column("peers")[row].as_py()
        peers = self.header.peers[group]
        best: Judged | None = None
        for place, feature in enumerate(self.header.features):
            usual, value = self._profile(row, place), values[feature]
            far = stray(hour, value, usual, self.header.least.get(feature, 0))
            score = peers.tails[feature].score(far)
            # The most unusual feature alone counts: a sum would hide one under many that are usual.
            if best is None or score > best.score:
                best = self._judgement(row, hour, usual, score, feature, value, peers)
        if best is None:
            raise Fatal(f"model {self.hash} has no features; train it again")
        return best

    def _judgement(
        self,
        row: int,
        hour: int,
        usual: Profile,
        score: float,
        feature: str,
        value: float,
        peers: Peers,
    ) -> Judged:
        slot = slot_of(hour)
        days = int(self._table.column("days")[row].as_py())
        low, high = float(usual.low[slot]), float(usual.high[slot])
        return Judged(
            round(score, 2), feature, round(value), low, high, usual.largest, days, peers.devices
        )

    def _profile(self, row: int, place: int) -> Profile:
        to_numpys = [
            self._table.column(name)[row].values.to_numpy()[place * SLOTS : (place + 1) * SLOTS]
            for name in _LISTS
        ]
        largest = self._table.column("largest")[row].values.to_numpy()[place]
        centre, spread, low, high = (to_numpy.astype(np.float64) for to_numpy in to_numpys)
        return Profile(centre, spread, low, high, float(largest))


class StepModel:
    """A trained model of steps, ready to judge hours of any device."""

    def __init__(self, folder: Path, header: ModelHeader) -> None:
        self.hash = folder.name
        self.header = header
        rows = _mapped(folder / BASELINES).select(list(SeenStep._fields)).to_pydict()
        self.counts = StepCounts(map(SeenStep._make, zip(*rows.values(), strict=True)))

    def knows(self, entity: str) -> bool:
        """Of every device: one without history is compared with all others."""
        return bool(entity)

    def judge(self, entity: str, hour: int, values: Mapping[str, Any]) -> Judged:
        """The score of a device's hour, of the steps in it so far (`values["steps"]`: texts, or
        as `alerts.anomaly.device_hours.hours` names them)."""
        far, rarest = self.counts.judge(entity, texts_of(values[STEPS]))
        group = self.counts.devices.get(entity, 0)
        peers = self.header.peers[group]
        score = round(peers.tails[STEPS].score(far), 2)
        days = rarest[0][1].fleet_of if rarest else 0
        devices = peers.devices if entity in self.counts.devices else self.header.devices
        return Judged(score, STEPS, len(rarest), 0, 0, 0, days, devices, self._words(rarest))

    def _words(self, rarest: list[tuple[str, Rarity]]) -> str:
        odd = [pair for pair in rarest if pair[1].stray > USUAL_STRAY]
        if not odd:
            return "nothing that is rare"
        step, first = odd[0]
        words = f"{step}, seen on {first.fleet_days:,} of {first.fleet_of:,} days of devices"
        if first.peer_of != first.fleet_of:
            words += f" ({first.peer_days:,} of {first.peer_of:,} of those like it)"
        if usually := self.counts.usually(step):
            words += f"; usual is {', '.join(usually)}"
        if len(odd) > 1:
            words += f"; in the same hour {'; '.join(step for step, _ in odd[1:4])}"
        return words + (f" and {len(odd) - 4} more" if len(odd) > 4 else "")

    def evidence(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The hour's rarest steps, each as its first event."""
        firsts = {step["step"]: step["first"] for step in row[STEPS]}
        _, rarest = self.counts.judge(row["entity"], firsts)
        return [{"bytes": 0, "snippet": step, **firsts[step]} for step, _ in rarest]


AnyModel = Model | StepModel


def texts_of(steps: Iterable[Any]) -> list[str]:
    """Steps as texts, of those that are, and of rows that have one."""
    return [step if isinstance(step, str) else step["step"] for step in steps]


def steps_schema() -> pa.Schema:
    """Arrow schema of `baselines.arrow` of a model of steps: a row for each device and step."""
    counts = ("peers", "device_days", "days")
    return pa.schema(
        [(name, pa.int32() if name in counts else pa.string()) for name in SeenStep._fields]
    )


def baselines_schema() -> pa.Schema:
    """Arrow schema of `baselines.arrow`: lists are by feature, then by slot of the week."""
    return pa.schema(
        [
            pa.field("entity", pa.string()),
            pa.field("days", pa.int32()),
            pa.field("peers", pa.int32()),
            pa.field("largest", pa.list_(pa.float64())),
            # Half the bytes: what is usual is known far less exactly than that.
            *(pa.field(name, pa.list_(pa.float32())) for name in _LISTS),
        ]
    )


class ModelStore:
    """The models beside the packs of a store."""

    def __init__(self, store: Path) -> None:
        self.folder = store / MODELS
        self._names = StateFile(
            self.folder / "current.json",
            dict[str, str],
            "put it back from a backup, or remove it and name the models anew: headgate models use",
            layout=JsonLayout.COMPACT_SORTED,
        )

    def current(self) -> dict[str, str]:
        """Hash of the model that each rule runs with, by the rule's id."""
        return self._names.read() or {}

    def use(self, rule_id: str, model_hash: str) -> None:
        """Let a rule run with a model that is kept; it takes effect with the next rule pack."""
        header = self.header(model_hash)
        if header.rule_id != rule_id:
            raise Usage(f"model {model_hash} was trained for rule {header.rule_id}")
        with self._alone():
            self._names.write(self.current() | {rule_id: model_hash})

    def put(self, header: ModelHeader, baselines: pa.Table, peers: Path | None = None) -> str:
        """Keep a model and return its hash; `peers`: a folder with MLlib's pipeline, moved in."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Made beside and renamed when whole; the dot keeps it out of listings.
        made = self.folder / f".{uuid.uuid4().hex}"
        made.mkdir()
        try:
            schema = steps_schema() if STEPS in header.features else baselines_schema()
            _write(made / BASELINES, baselines.cast(schema))
            # In the header, so that the header's hash vouches for both files.
            digest = hashlib.sha256((made / BASELINES).read_bytes()).hexdigest()
            data = msgspec.json.encode(
                msgspec.structs.replace(header, baselines=digest), order="sorted"
            )
            write_whole(made / _HEADER, data.decode())
            if peers is not None:
                shutil.move(str(peers), made / "peers")
            name = hashlib.sha256(data).hexdigest()[:32]
            # A folder of that hash has the same content, so it is never written over.
            if not (self.folder / name).exists():
                os.rename(made, self.folder / name)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return name

    def header(self, model_hash: str) -> ModelHeader:
        """What a model says of itself; raises `Fatal` when there is none, or it was changed."""
        if not re.fullmatch(r"[0-9a-f]{32}", model_hash):
            raise Fatal(f"'{model_hash}' is not a model's hash (32 hex digits)")
        path = self.folder / model_hash / _HEADER
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise Fatal(
                f"{path}: no such model; train it, or restore _rules from a backup"
            ) from None
        if hashlib.sha256(data).hexdigest()[:32] != model_hash:
            raise Fatal(f"{path}: content does not have that hash; restore it, or train anew")
        try:
            header = msgspec.json.decode(data, type=ModelHeader)
        except msgspec.MsgspecError as error:
            raise Fatal(f"{path}: not a model: {error}; train anew") from error
        if header.format > _FORMAT:
            raise Fatal(
                f"{path} has format {header.format}, this version reads {_FORMAT}; upgrade headgate"
            )
        return header

    def get(self, model_hash: str) -> AnyModel:
        """The model with that hash, read once per process; raises `Fatal` like `header`."""
        return _opened(str(self.folder), model_hash)

    def all(self) -> Iterator[tuple[str, ModelHeader]]:
        """Every model that is kept, the newest first."""
        paths = [
            (path.name, self.header(path.name))
            for path in self.folder.glob("*")
            if re.fullmatch(r"[0-9a-f]{32}", path.name)
        ]
        yield from sorted(paths, key=lambda one: one[1].trained_at, reverse=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer of the names at a time; it waits for the other."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            # Two commands that each read, change and write the names would lose one change.
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@lru_cache(maxsize=16)
def _opened(folder: str, model_hash: str) -> AnyModel:
    store = ModelStore(Path(folder).parent)
    header = store.header(model_hash)
    path = store.folder / model_hash / BASELINES
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != header.baselines:
        raise Fatal(f"{path}: missing or changed; restore it, or train anew")
    kind = StepModel if STEPS in header.features else Model
    return kind(store.folder / model_hash, header)


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        # Mapped: workers of one machine share the pages and need no copy each.
        return pa.ipc.open_file(file).read_all().combine_chunks()


def _write(path: Path, rows: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
