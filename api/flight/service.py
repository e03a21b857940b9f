"""The Flight SQL server: commands of the protocol, answered by the workers of `api.sql`.

It keeps nothing between calls: tickets and prepared statements carry their statement, which is
checked anew by whoever brings them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from api.auth import Access, Caller
from api.auth_roles import Role
from api.flight import catalog_answers
from api.flight.errors import as_flight_errors
from api.flight.messages import packed_message, unpacked_message
from api.flight.sign_in import MIDDLEWARE, FlightSignIn, NoFurtherHandshake
from api.key_limits import readable_tables, row_limits
from api.observability.audit_log import audit_request
from api.observability.metrics import Meters
from api.observability.noted_statements import noted_statement
from api.services.quotas import Quotas, StillRunning
from api.sql.runner import ArrowAnswer, Limit, Refused, Statements
from api.sql.worker_line import LOOK_SECONDS, Busy, HungUp
from infra.config.settings import Settings
from infra.errors import HeadgateError, Usage

_CALLS = 32
"""Calls with a statement at once, at work or in line; each holds a thread."""
_PREPARE, _CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Desk:
    """What the server works with: the same as the REST API's."""

    settings: Settings
    access: Access
    quotas: Quotas
    statements: Statements
    meters: Meters


class FlightService(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves from the moment it is made, until `close`."""

    def __init__(
        self, desk: Desk, location: str, folder: TemporaryDirectory[str] | None = None
    ) -> None:
        """`folder`: that of the location's socket file, which goes with us."""
        self._desk = desk
        self._folder = folder
        self._closing = threading.Event()
        self._room = threading.BoundedSemaphore(_CALLS)
        self._pool = ThreadPoolExecutor(_CALLS, thread_name_prefix="flight")
        super().__init__(
            location,
            auth_handler=NoFurtherHandshake(),
            middleware={
                MIDDLEWARE: FlightSignIn(desk.settings, desk.access, desk.quotas, desk.meters)
            },
        )

    def close(self) -> None:
        """Cancel what runs, and take no more calls."""
        self._closing.set()
        self.shutdown()
        self._pool.shutdown()
        if self._folder is not None:
            self._folder.cleanup()

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Where the answer to a command is had, and its columns. A statement that is refused is
        refused here."""
        with as_flight_errors():
            name, command = unpacked_message(descriptor.command or b"")
            if (sql := _statement_of(name, command)) is not None:
                schema = self._shape(context, sql)
                ticket = packed_message("TicketStatementQuery", statement_handle=sql.encode())
            else:
                # The question is its own ticket: what it answers is not worth keeping.
                schema, ticket = self._listing(context, name, command).schema, descriptor.command
            # No location: the answer is had where the question was asked.
            endpoint = flight.FlightEndpoint(ticket, [])
            return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The columns of a command's answer."""
        with as_flight_errors():
            name, command = unpacked_message(descriptor.command or b"")
            sql = _statement_of(name, command)
            if sql is not None:
                return flight.SchemaResult(self._shape(context, sql))
            return flight.SchemaResult(self._listing(context, name, command).schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """The answer, whole or an error: nothing is cut in silence."""
        with as_flight_errors():
            name, command = unpacked_message(ticket.ticket)
            if name == "TicketStatementQuery":
                sql = _text(command.statement_handle)
                return flight.RecordBatchStream(self._rows(context, sql))
            return flight.RecordBatchStream(self._listing(context, name, command))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Prepare a statement, or close it."""
        with as_flight_errors():
            if action.type not in (_PREPARE, _CLOSE):
                raise Usage(f"{action.type} is not taken; the lake is read only here, with "
                               f"{_PREPARE} and {_CLOSE}")  # fmt: skip
            _caller(context, "viewer")
            _, request = unpacked_message(action.body.to_pybytes())
            if action.type == _PREPARE:
                yield self._prepared(context, request)

    def list_actions(self, context: Any) -> list[Any]:
        """The two actions there are."""
        return [
            flight.ActionType(_PREPARE, "prepare one SELECT without parameters"),
            flight.ActionType(_CLOSE, "close it"),
        ]

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Nothing is written through this server; the refusal says what was asked."""
        with as_flight_errors():
            _caller(context, "viewer")
            name, _ = unpacked_message(descriptor.command or b"")
            if name == "CommandPreparedStatementQuery":
                raise Usage("parameters are not taken here; write the values into the statement")
            raise Usage(f"{name} is not taken; the lake is read only here")

    def _listing(self, context: Any, name: str, command: Any) -> pa.Table:
        asked = catalog_answers.CatalogQuestion(
            self._desk.settings, _caller(context, "read"), command
        )
        answer = None if command is None else catalog_answers.catalog_answer(name, asked)
        if answer is None:
            raise Usage(f"{name} is not taken; the lake is read only here")
        return answer

    def _prepared(self, context: Any, request: Any) -> Any:
        _no_transaction(request)
        schema = self._shape(context, request.query)
        return flight.Result(
            packed_message(
                "ActionCreatePreparedStatementResult",
                prepared_statement_handle=request.query.encode(),
                dataset_schema=schema.serialize().to_pybytes(),
                parameter_schema=pa.schema([]).serialize().to_pybytes(),
            )
        )

    def _shape(self, context: Any, sql: str) -> pa.Schema:
        """The columns of a statement; noted where it is refused, else by `_rows`."""
        caller, desk = _caller(context, "viewer"), self._desk

        def ask(cancelled: threading.Event) -> ArrowAnswer:
            with self._turn(caller, cancelled):
                return desk.statements.arrow(
                    sql, shape=True, engine="auto", **_scope(caller, cancelled)
                )

        try:
            return pa.ipc.open_stream(self._watched(context, ask).stream).schema
        except HeadgateError as error:
            outcome = "refused" if isinstance(error, Refused) else "failed"
            detail = _detail(sql) | {"said": str(error)}
            audit_request(desk.settings, "statement", outcome, who=caller.name, detail=detail)
            raise

    def _rows(self, context: Any, sql: str) -> pa.Table:
        caller, desk = _caller(context, "viewer"), self._desk

        def ask(cancelled: threading.Event) -> ArrowAnswer:
            with (
                self._turn(caller, cancelled),
                noted_statement(desk.settings, _detail(sql), caller.name) as act,
            ):
                answer = desk.statements.arrow(sql, engine="auto", **_scope(caller, cancelled))
                _require_whole(answer, desk.settings)
                act.outcome, act.detail["rows"] = "ok", answer.rows
                return answer

        answer = self._watched(context, ask)
        table = pa.ipc.open_stream(answer.stream).read_all()
        # Beside the columns, as the protocol has no other place for it.
        return table.replace_schema_metadata(
            {"headgate.engine": answer.engine, "headgate.elapsed_ms": str(answer.elapsed_ms)}
        )

    @contextmanager
    def _turn(self, caller: Caller, cancelled: threading.Event) -> Iterator[None]:
        """The caller's turn by the quotas: over REST a further statement is refused, here it waits
        a while, as drivers ask for the next one before they have read the last."""
        limits = self._desk.settings.api
        until = time.monotonic() + limits.wait_seconds
        with ExitStack() as turn:
            while True:
                quota = self._desk.quotas.statement(
                    caller.name, limits.statements_at_once, limits.statement_seconds_per_hour
                )
                try:
                    turn.enter_context(quota)
                    break
                except StillRunning:
                    if time.monotonic() > until:
                        raise
                if cancelled.wait(LOOK_SECONDS / 4):
                    raise HungUp
            yield

    def _watched(self, context: Any, work: Callable[[threading.Event], _T]) -> _T:
        """What a piece of work gives; it is cancelled once the caller has left, or the API ends."""
        if not self._room.acquire(blocking=False):
            raise Busy(f"{_CALLS} statements are asked over Flight SQL already; try again shortly")
        try:
            cancelled = threading.Event()
            running = self._pool.submit(work, cancelled)
            while not wait([running], LOOK_SECONDS).done:
                if context.is_cancelled() or self._closing.is_set():
                    cancelled.set()
            return running.result()
        finally:
            self._room.release()


def _statement_of(name: str, command: Any) -> str | None:
    if name == "CommandStatementQuery":
        _no_transaction(command)
        return str(command.query)
    if name == "CommandPreparedStatementQuery":
        return _text(command.prepared_statement_handle)
    return None


def _no_transaction(request: Any) -> None:
    if request.transaction_id:
        raise Usage("transactions are not taken; each statement reads the tables as they are")


def _text(handle: bytes) -> str:
    try:
        return handle.decode()
    except UnicodeDecodeError:
        raise Usage("this handle is none of this server's; prepare the statement anew") from None


def _caller(context: Any, needed: Role) -> Caller:
    """Who calls; raises what Flight tells whose role is too low."""
    caller: Caller = context.get_middleware(MIDDLEWARE).caller
    if not caller.may(needed):
        raise flight.FlightUnauthorizedError(
            f"key '{caller.name}' has role '{caller.role}'; this needs '{needed}'"
        )
    return caller


def _scope(caller: Caller, cancelled: threading.Event) -> dict[str, Any]:
    return {
        "cancelled": cancelled,
        "tables": readable_tables(caller),
        "rows": row_limits(caller),
        "who": caller.name,
    }


def _detail(sql: str) -> dict[str, Any]:
    return {"sql": sql, "over": "flight"}


def _require_whole(answer: ArrowAnswer, settings: Settings) -> None:
    """Raises `Limit` for an answer that was cut: a program would take it for the whole."""
    if answer.truncated_by == "rows":
        raise Limit(
            f"the answer has more than {settings.api.statement_rows:,} rows "
            "(api.statement_rows); narrow it, or write LIMIT"
        )
    if answer.truncated_by == "bytes":
        raise Limit(
            f"the answer has more than {settings.api.statement_bytes:,} bytes "
            "(api.statement_bytes); narrow it, or choose fewer columns"
        )
