"""OpenTelemetry logs come in over HTTP and gRPC, as senders of the protocol send them."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import psutil
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from ingest.listen import otlp_records
from ingest.listen.otlp_records import Bounds, TooMuch, Unusable, of_json, of_protobuf, unzip
from ingest.sources.generic.otlp import records_of
from tests.event_loop import run_apart
from tests.ingest.listen.memory_sink import MemorySink
from tests.ingest.listen.running import listening

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
BOUNDS = Bounds(1000, 1 << 20, "json", {"shop": "json:shop"})
DETAILS = "grpc-status-details-bin"
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


def refusal(answer: bytes) -> str:
    return ExportLogsServiceResponse.FromString(answer).partial_success.error_message


def request(records: int = 2) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    resource = made.resource_logs.add()
    name = resource.resource.attributes.add(key="service.name")
    name.value.string_value = "shop"
    scope = resource.scope_logs.add()
    for i in range(records):
        record = scope.log_records.add(
            time_unix_nano=1_770_000_000_000_000_000 + i,
            severity_number=9,
            trace_id=bytes(range(16)),
            span_id=bytes(range(8)),
        )
        record.body.string_value = f"message {i}"
        values: dict[str, Any] = {"int": 2**40, "double": 0.5, "bool": False, "bytes": b"\x00\xff"}
        for kind, value in values.items():
            setattr(record.attributes.add(key=kind).value, f"{kind}_value", value)
    return made


def test_types_of_attributes_and_ids_of_traces_are_kept_as_the_json_source_reads_them() -> None:
    packed = of_protobuf(request().SerializeToString(), BOUNDS)
    [(source, value, count)] = packed.messages
    assert (source, count, packed.rejected) == ("json:shop", 2, 0)
    record = (records_of(json.loads(value)) or [])[0]
    assert record["traceId"] == "000102030405060708090a0b0c0d0e0f"
    assert record["spanId"] == "0001020304050607"
    assert record["message"] == "message 0"
    assert (record["int"], record["double"], record["bool"]) == (2**40, 0.5, False)
    assert record["service.name"] == "shop"
    assert record["timestamp"] == "1770000000000000000"


def test_json_goes_on_as_it_came_and_what_is_no_record_is_rejected() -> None:
    record = '{"body":{"stringValue":"a"},"traceId":"5B8E","new":{"x":1.0e2}}'
    body = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + record + ",7]}]}]}"
    packed = of_json(body.encode(), BOUNDS)
    assert packed.messages[0][1].decode() == body.replace(",7", "")
    assert (packed.records, packed.rejected) == (1, 1)
    for broken in (
        b"[]",
        b"{",
        b'{"resourceLogs":7}',
        b'{"resourceLogs":[{"scopeLogs":["\xff"]}]}',
    ):
        with pytest.raises(Unusable):
            of_json(broken, BOUNDS)
    with pytest.raises(Unusable):
        of_protobuf(b"\xff\xff", BOUNDS)


def test_what_is_too_much_is_told_and_messages_are_bounded() -> None:
    packed = of_protobuf(request(1700).SerializeToString(), BOUNDS)
    assert (packed.records, packed.rejected) == (1000, 700)
    assert "1000 records" in packed.why
    assert all(count <= 500 for _, _, count in packed.messages)
    small = of_protobuf(request(3).SerializeToString(), Bounds(1000, 300, "json", {}))
    assert (small.records, small.rejected) == (0, 3)
    with pytest.raises(TooMuch):
        unzip(gzip.compress(b"0" * 10_000_000), 1000)
    assert unzip(gzip.compress(b"a") + gzip.compress(b"b"), 2) == b"ab"


def test_http_answers_when_kafka_has_it_and_keys_are_asked(tmp_path: Path) -> None:
    sink = MemorySink(lambda message: None)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    keys = [{"name": "shop", "token_file": token, "tenant": "acme"}]

    async def run() -> None:
        otlp = {"http_port": 0, "answer_seconds": 0.3, "keys": keys, "request_bytes": 100_000}
        async with listening(tmp_path, sink, otlp=otlp) as listener:
            url = f"http://127.0.0.1:{listener.http_port}/v1/logs"
            async with httpx.AsyncClient(trust_env=False) as client:
                body = gzip.compress(request().SerializeToString())
                packed = PROTOBUF | {"content-encoding": "gzip"}
                assert (await client.post(url, content=body, headers=packed)).status_code == 401
                packed |= {"authorization": "Bearer secret"}
                late = await client.post(url, content=body, headers=packed)
                assert (late.status_code, late.headers["retry-after"]) == (503, "2")
                again = await client.post(url, content=body, headers=packed)
                assert (again.status_code, len(sink.waiting)) == (503, 1)
                sink.outcome = MemorySink().outcome
                sink.answer()
                done = await client.post(url, content=body, headers=packed)
                assert done.status_code == 200
                assert not refusal(done.content)
                plain = JSON | {"authorization": "Bearer secret"}
                assert (await client.post(url, json={}, headers=plain)).json() == {}
                bad = await client.post(url, content=b"{", headers=plain)
                assert (bad.status_code, bad.json()["code"]) == (400, 3)
                large = await client.post(url, content=b"x" * 200_000, headers=plain)
                assert large.status_code == 413

    run_apart(run())
    assert len(sink.kept) == 2
    headers = dict(sink.kept[0].headers)
    assert (headers["key"], headers["host"]) == (b"shop", b"127.0.0.1")
    assert sink.kept[0].topic == "logs.tenant-acme.json"


def test_grpc_answers_when_kafka_has_it_and_says_when_to_come_again(tmp_path: Path) -> None:
    sink = MemorySink(lambda message: None)

    async def run() -> None:
        otlp = {"grpc_port": 0, "answer_seconds": 0.3}
        async with listening(tmp_path, sink, otlp=otlp) as listener:
            assert listener.grpc is not None
            async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.grpc.port}") as channel:
                export: Callable[..., Any] = channel.unary_unary(EXPORT)
                body = request().SerializeToString()
                with pytest.raises(grpc.aio.AioRpcError) as late:
                    await export(body)
                assert late.value.code() is grpc.StatusCode.UNAVAILABLE
                assert b"RetryInfo" in dict(late.value.trailing_metadata())[DETAILS]  # type: ignore[operator]
                sink.outcome = MemorySink().outcome
                sink.answer()
                answer = await export(body, compression=grpc.Compression.Gzip)
                assert not refusal(answer)
                with pytest.raises(grpc.aio.AioRpcError) as broken:
                    await export(b"\xff\xff")
                assert broken.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run_apart(run())
    assert len(sink.kept) == 2
    assert otlp_records.of_json(sink.kept[0].value, BOUNDS).records == 2


def test_grpc_unpacks_no_more_than_a_request_may_be_and_serves_the_next(tmp_path: Path) -> None:
    sink = MemorySink()

    async def run() -> None:
        async with listening(tmp_path, sink, otlp={"grpc_port": 0}) as listener:
            assert listener.grpc is not None
            async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.grpc.port}") as channel:
                export: Callable[..., Any] = channel.unary_unary(EXPORT)
                # 16 kB on the wire.
                with pytest.raises(grpc.aio.AioRpcError) as bomb:
                    await export(b"\0" * (16 << 20), compression=grpc.Compression.Gzip)
                assert bomb.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                body = request().SerializeToString()
                assert not refusal(await export(body, compression=grpc.Compression.Gzip))

    run_apart(run())
    assert len(sink.kept) == 1


BOMBS = """
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1], options=(("grpc.max_send_message_length", -1),))
export = channel.unary_unary(sys.argv[2])
for _ in range(3):
    try:
        export(bytes(200 << 20), compression=grpc.Compression.Gzip, timeout=60)
    except grpc.RpcError as error:
        print(error.code().name)
"""


@pytest.mark.full
def test_a_bomb_of_gzip_over_grpc_takes_no_memory(tmp_path: Path) -> None:
    most = 0

    async def run() -> str:
        nonlocal most
        async with listening(tmp_path, MemorySink(), otlp={"grpc_port": 0}) as listener:
            assert listener.grpc is not None
            address = f"127.0.0.1:{listener.grpc.port}"
            # In a process of its own: the sender has all of it in memory.
            sender = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", BOMBS, address, EXPORT), stdout=asyncio.subprocess.PIPE
            )
            said = asyncio.create_task(sender.communicate())
            before = psutil.Process().memory_info().rss
            while not said.done():
                most = max(most, psutil.Process().memory_info().rss - before)
                await asyncio.sleep(0.02)
            return (await said)[0].decode()

    assert run_apart(run()).split() == ["RESOURCE_EXHAUSTED"] * 3
    assert most < 50 << 20
