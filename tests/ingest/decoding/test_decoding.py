"""Messages in Avro and Protobuf reach their parsers as JSON; what is broken says why."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from infra.config.settings import load
from infra.errors import Fatal, Retryable, Usage
from ingest.decoding.avro import text_of
from ingest.decoding.decoding import decoded_record
from ingest.decoding.protobuf import message_indexes
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import Format, ParseSettings, Record, Unreadable

NOW = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)
DNS = {
    "ts": 1776500000.5,
    "uid": "CAvro1",
    "id_orig_h": "10.1.2.3",
    "id_orig_p": 40000,
    "id_resp_h": "10.9.9.9",
    "id_resp_p": 53,
    "query": "example.org",
}
AVSC = {
    "type": "record",
    "name": "Dns",
    "fields": [
        {"name": "ts", "type": "double"},
        *({"name": name, "type": "string"} for name in ("uid", "id_orig_h")),
        {"name": "id_orig_p", "type": "int"},
        {"name": "id_resp_h", "type": "string"},
        {"name": "id_resp_p", "type": "int"},
        {"name": "query", "type": ["null", "string"]},
    ],
}
KINDS = {str: 9, int: 5, float: 1}


def avro(value: dict[str, Any], schema: dict[str, Any] = AVSC) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """log.proto: message Outer { message Dns {...} }, message Line { ... }."""
    file = descriptor_pb2.FileDescriptorProto(name="log.proto", package="logs", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    outer = file.message_type.add(name="Outer")
    dns = outer.nested_type.add(name="Dns")
    for number, (name, value) in enumerate(DNS.items(), 1):
        dns.field.add(name=name, number=number, type=KINDS[type(value)], label=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="raw", number=1, type=12, label=1)
    line.field.add(name="big", number=2, type=3, label=1)
    line.field.add(name="kind", number=3, type=14, label=1, type_name=".logs.Kind")
    line.field.add(name="many", number=4, type=9, label=3)
    line.field.add(name="at", number=5, type=11, label=1, type_name=".google.protobuf.Timestamp")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="AUTH", number=1)
    return file


def proto_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    known = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(known)
    pool.Add(proto_file())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dns.avsc").write_text(json.dumps(AVSC))
    (tmp_path / "7.avsc").write_text(json.dumps(AVSC))
    files = descriptor_pb2.FileDescriptorSet(file=[proto_file()])
    (tmp_path / "log.desc").write_bytes(files.SerializeToString())
    (tmp_path / "8.desc").write_bytes(files.SerializeToString())
    return tmp_path


def rows(raw: bytes, packed: Format, source: str = "zeek:dns") -> list[dict[str, Any]]:
    record = Record("r0", source, "live", NOW, raw)
    return event_rows([record], ParseSettings(formats={source: packed}))


def reason(raw: bytes, packed: Format) -> str:
    (row,) = rows(raw, packed)
    return str(row["dead_letter_reason"])


def is_dns(found: list[dict[str, Any]]) -> None:
    (row,) = found
    assert row.get("dead_letter_reason") is None, row["dead_letter_reason"]
    assert row["class_uid"] == 4003
    assert row["src_ip"] == "10.1.2.3"
    assert row["src_endpoint"]["port"] == 40000
    assert row["query"]["hostname"] == "example.org"
    assert row["time"] == datetime.fromtimestamp(1776500000.5, UTC)


def test_avro_with_a_schema_by_file(folder: Path) -> None:
    is_dns(rows(avro(DNS), Format("avro", schema_file=str(folder / "dns.avsc"))))


def test_avro_bytes_written_by_hand(folder: Path) -> None:
    """As the specification says: doubles little-endian, lengths and ints zigzag."""
    schema = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "n", "type": "long"}, {"name": "message", "type": "string"}],
    }
    (folder / "p.avsc").write_text(json.dumps(schema))
    line = b"<86>Mar  2 09:00:00 b1 sshd[1]: hi"
    raw = b"\x03" + bytes([len(line) * 2]) + line
    packed = Format("avro", schema_file=str(folder / "p.avsc"))
    record = Record("r", "syslog", "live", NOW, raw)
    plain = decoded_record(record, ParseSettings(formats={"syslog": packed}))
    assert json.loads(plain.raw) == {"n": -2, "message": line.decode()}
    field = Format("avro", schema_file=str(folder / "p.avsc"), field="message")
    assert decoded_record(record, ParseSettings(formats={"syslog": field})).raw == line
    assert record.raw == raw


@given(st.lists(st.floats()))
def test_no_number_becomes_none(numbers: list[float]) -> None:
    """JSON has no word for infinities and what is no number; a null would be another statement."""
    named = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
    told = json.loads(text_of({"numbers": numbers, "deep": [{"a": numbers}]}, None))
    assert told["numbers"] == told["deep"][0]["a"]
    assert [named.get(str(number), number) for number in numbers] == told["numbers"]


def test_avro_framed_with_an_id_of_a_folder(folder: Path) -> None:
    packed = Format("avro", registry=str(folder))
    is_dns(rows(b"\0\0\0\0\x07" + avro(DNS), packed))
    assert reason(b"\0\0\0\0\x09" + avro(DNS), packed) == "no schema 9 in the registry"
    assert "not framed" in reason(b"\x01" + avro(DNS), packed)
    assert "not framed" in reason(b"", packed)


def test_an_avro_container_file_brings_its_schema() -> None:
    out = io.BytesIO()
    fastavro.writer(out, AVSC, [DNS, DNS | {"uid": "CAvro2"}], codec="deflate")
    found = rows(out.getvalue(), Format("avro"), "json")
    assert (
        decoded_record(
            Record("r", "json", "live", NOW, out.getvalue()),
            ParseSettings(formats={"json": Format("avro")}),
        ).raw.count(b"\n")
        == 1
    )
    assert found


def test_protobuf_with_a_descriptor_set_by_file(folder: Path) -> None:
    raw = proto_class("logs.Outer.Dns")(**DNS).SerializeToString()
    packed = Format("protobuf", schema_file=str(folder / "log.desc"), message="logs.Outer.Dns")
    is_dns(rows(raw, packed))


def test_protobuf_framed_with_an_id_and_message_indexes(folder: Path) -> None:
    raw = proto_class("logs.Outer.Dns")(**DNS).SerializeToString()
    # Two indexes, 0 and 0, zigzag: the first message of the first message of schema 8.
    is_dns(rows(b"\0\0\0\0\x08" + b"\x04\x00\x00" + raw, Format("protobuf", registry=str(folder))))
    assert message_indexes(b"\x00rest") == ((0,), b"rest")
    assert message_indexes(b"\x02\x04rest") == ((2,), b"rest")
    with pytest.raises(Unreadable, match="-1 as an index"):
        message_indexes(b"\x02\x01rest")


def test_protobuf_keeps_numbers_names_times_and_what_it_does_not_know(folder: Path) -> None:
    kind = proto_class("logs.Line")
    line = kind(raw=b"hi", big=2**60, kind=1, many=["a", "b"])
    line.at.FromDatetime(NOW.replace(tzinfo=None))
    packed = Format("protobuf", schema_file=str(folder / "log.desc"), message="logs.Line")
    settings = ParseSettings(formats={"json": packed})
    # Field 99, a varint 5, is in no schema.
    raw = line.SerializeToString() + b"\x98\x06\x05"
    found = json.loads(decoded_record(Record("r", "json", "live", NOW, raw), settings).raw)
    assert found == {
        "raw": base64.b64encode(b"hi").decode(),
        "big": 2**60,
        "kind": "AUTH",
        "many": ["a", "b"],
        "at": "2026-11-21T04:00:00Z",
        "_unknown_fields": {"99": [5]},
    }
    field = ParseSettings(
        formats={"json": Format("protobuf", packed.schema_file, None, "logs.Line", "raw")}
    )
    assert decoded_record(Record("r", "json", "live", NOW, raw), field).raw == b"hi"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not Avro of this schema"),
        (avro(DNS)[:-3], "not Avro of this schema"),
        (avro(DNS) + b"x", "trailing bytes after the Avro record"),
        (b"\xff" * 40, "not Avro of this schema"),
        (b"Obj\x01garbage", "not Avro of this schema"),
    ],
)
def test_broken_avro_is_a_dead_letter(folder: Path, raw: bytes, said: str) -> None:
    assert said in reason(raw, Format("avro", schema_file=str(folder / "dns.avsc")))


@pytest.mark.parametrize(
    ("raw", "said"),
    [(b"", "an empty message"), (b"\xff" * 20, "not Protobuf"), (b"\x0a\x7fab", "not Protobuf")],
)
def test_broken_protobuf_is_a_dead_letter(folder: Path, raw: bytes, said: str) -> None:
    packed = Format("protobuf", schema_file=str(folder / "log.desc"), message="logs.Line")
    assert said in reason(raw, packed)


@given(raw=st.binary(max_size=200))
def test_no_bytes_stop_a_decoder(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "schemas"
    if not folder.exists():
        folder.mkdir()
        (folder / "1.avsc").write_text(json.dumps(AVSC))
        files = descriptor_pb2.FileDescriptorSet(file=[proto_file()])
        (folder / "1.desc").write_bytes(files.SerializeToString())
    for packed in (
        Format("avro", schema_file=str(folder / "1.avsc")),
        Format("avro", registry=str(folder)),
        Format("protobuf", schema_file=str(folder / "1.desc"), message="logs.Line"),
        Format("protobuf", registry=str(folder)),
    ):
        for each in (raw, b"\0\0\0\0\x01" + raw):
            (row, *_) = event_rows(
                [Record("r", "json", "live", NOW, each)], ParseSettings(formats={"json": packed})
            )
            assert "parser json failed" not in (row.get("dead_letter_reason") or "")


PART = {"type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]}
WHOLE = {"type": "record", "name": "Whole", "fields": [{"name": "part", "type": "Part"}]}


class _Registry(BaseHTTPRequestHandler):
    """The parts of a schema registry that are asked."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        _Registry.asked.append(self.path)
        named = [{"name": "Part", "subject": "part/x", "version": 3}]
        proto = base64.b64encode(proto_file().SerializeToString()).decode()
        answers: dict[str, Any] = {
            "/base/schemas/ids/1": {"schema": json.dumps(AVSC)},
            "/base/schemas/ids/2": {"schema": json.dumps(WHOLE), "references": named},
            "/base/subjects/part%2Fx/versions/3": {"schema": json.dumps(PART)},
            "/base/schemas/ids/3?format=serialized": {"schema": proto},
        }
        known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
        status = 401 if not known else 200 if self.path in answers else 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answers.get(self.path, {})).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://me:p%40ss@127.0.0.1:{server.server_port}/base"
    server.shutdown()
    server.server_close()


def test_a_registry_is_asked_once_for_a_schema(registry: str) -> None:
    packed = Format("avro", registry=registry)
    for _ in range(3):
        is_dns(rows(b"\0\0\0\0\x01" + avro(DNS), packed))
    assert _Registry.asked.count("/base/schemas/ids/1") == 1
    assert reason(b"\0\0\0\0\x63" + avro(DNS), packed) == "no schema 99 in the registry"


def test_a_registry_resolves_references_and_serves_protobuf(registry: str) -> None:
    settings = ParseSettings(formats={"json": Format("avro", registry=registry)})
    record = Record("r", "json", "live", NOW, b"\0\0\0\0\x02\x0a")
    assert json.loads(decoded_record(record, settings).raw) == {"part": {"n": 5}}
    raw = proto_class("logs.Outer.Dns")(**DNS).SerializeToString()
    is_dns(rows(b"\0\0\0\0\x03" + b"\x04\x00\x00" + raw, Format("protobuf", registry=registry)))


def test_a_registry_that_is_away_makes_no_dead_letters() -> None:
    with pytest.raises(Retryable, match="does not answer"):
        rows(b"\0\0\0\0\x01x", Format("avro", registry="http://127.0.0.1:1/"))


def test_a_schema_file_that_is_none_stops_by_name(tmp_path: Path) -> None:
    (tmp_path / "no.avsc").write_text("{")
    with pytest.raises(Fatal, match="no Avro schema"):
        rows(b"x", Format("avro", schema_file=str(tmp_path / "no.avsc")))
    (tmp_path / "no.desc").write_bytes(b"{")
    with pytest.raises(Fatal, match="no descriptor set"):
        rows(b"x", Format("protobuf", schema_file=str(tmp_path / "no.desc")))


def test_settings_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="needs schema_file or registry"):
        load(sources={"zeek:dns": {"format": "protobuf"}})
    one = {"format": "avro", "schema_file": str(tmp_path / "a.avsc"), "field": "message"}
    settings = ParseSettings.of(load(sources={"zeek": one, "sshd": {}}))
    packed = settings.format("zeek:dns")
    assert packed is not None
    assert (packed.kind, packed.field) == ("avro", "message")
    assert settings.format("sshd") is None
