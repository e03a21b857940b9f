"""Messages on disk: what did not reach Kafka before the end, and what Kafka will never take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from infra.errors import Fatal
from infra.process.log import say
from infra.storage.atomic_files import write_whole
from ingest.listen.sink import TopicMessage

_UNSENT, _NEVER = "unsent.ndjson", "never.ndjson"
_NEVER_BYTES = 256 * 1024 * 1024


class _Row(msgspec.Struct):
    topic: str
    value: bytes
    headers: list[tuple[str, bytes]]
    why: str = ""


class Spool:
    """The folder of one listener."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def _unsent(self) -> Path:
        return self._folder / _UNSENT

    def leave(self, messages: Iterable[TopicMessage]) -> int:
        """Keep them for the next start; how many."""
        rows = [_line(message) for message in messages]
        if rows:
            write_whole(self._unsent, b"".join(rows))
        else:
            self._unsent.unlink(missing_ok=True)
        return len(rows)

    def left(self) -> Iterator[TopicMessage]:
        """What the last start left. It stays on disk until the next `leave`.

        Raises `Fatal` that names the file, where it is damaged.
        """
        if not self._unsent.exists():
            return
        for number, line in enumerate(self._unsent.read_bytes().splitlines(), 1):
            try:
                row = msgspec.json.decode(line, type=_Row)
            except msgspec.MsgspecError as error:
                raise Fatal(
                    f"{self._unsent}: line {number} is damaged ({error}); mend it or move it away"
                ) from None
            yield TopicMessage(row.topic, row.value, tuple(row.headers))

    def keep(self, message: TopicMessage, why: str) -> None:
        """Keep a message that Kafka refused for good, up to a bound, and say so."""
        file = self._folder / _NEVER
        line = _line(message, why)
        room = file.stat().st_size if file.exists() else 0
        place = f"kept in {file}" if room + len(line) <= _NEVER_BYTES else f"lost: {file} is full"
        if place.startswith("kept"):
            self._folder.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as out:
                out.write(line)
        say(f"listen: {message.topic} refused {len(message.value)} bytes for good ({why}); {place}")


def _line(message: TopicMessage, why: str = "") -> bytes:
    row = _Row(message.topic, message.value, list(message.headers), why)
    return msgspec.json.encode(row) + b"\n"
