"""The messages of Flight SQL, as its protocol names and numbers them.

Source: FlightSql.proto of Apache Arrow, package `arrow.flight.protocol.sql`. Declared here, as no
Python library brings them for a server.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from infra.errors import Usage

PACKAGE = "arrow.flight.protocol.sql"
_URL = "type.googleapis.com/"

_KEYS = "catalog:string db_schema:string table:string"
_HANDLE = "prepared_statement_handle:bytes"
FLIGHT_MESSAGES = {
    "CommandGetSqlInfo": "info:uint32*",
    "CommandGetXdbcTypeInfo": "data_type:int32",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog:string db_schema_filter_pattern:string",
    "CommandGetTables": "catalog:string db_schema_filter_pattern:string "
    "table_name_filter_pattern:string table_types:string* include_schema:bool",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": "pk_catalog:string pk_db_schema:string pk_table:string "
    "fk_catalog:string fk_db_schema:string fk_table:string",
    "CommandStatementQuery": "query:string transaction_id:bytes",
    "CommandPreparedStatementQuery": _HANDLE,
    "TicketStatementQuery": "statement_handle:bytes",
    "ActionCreatePreparedStatementRequest": "query:string transaction_id:bytes",
    "ActionCreatePreparedStatementResult": f"{_HANDLE} dataset_schema:bytes parameter_schema:bytes",
    "ActionClosePreparedStatementRequest": _HANDLE,
}
"""Fields of each message as `name:type`, numbered from 1; `*`: repeated."""


@cache
def _classes() -> dict[str, type[Message]]:
    # Syntax 2, where every field tells whether it was sent: "" and nothing filter differently.
    file = descriptor_pb2.FileDescriptorProto(
        name="headgate/flight_sql.proto", package=PACKAGE, syntax="proto2"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in FLIGHT_MESSAGES.items():
        declared = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(), 1):
            title, _, kind = field.partition(":")
            repeated = kind.endswith("*")
            declared.field.add(
                name=title,
                number=number,
                type=getattr(kinds, f"TYPE_{kind.rstrip('*').upper()}"),
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
            )
    # A pool of our own: a client library in the same process declares the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in FLIGHT_MESSAGES
    }


def packed_message(name: str, **fields: Any) -> bytes:
    """A message within an `Any`, as commands, tickets and results are sent."""
    content = _classes()[name](**fields).SerializeToString()
    whole = any_pb2.Any(type_url=f"{_URL}{PACKAGE}.{name}", value=content)
    return bytes(whole.SerializeToString())


def unpacked_message(sent: bytes) -> tuple[str, Any]:
    """The name and the message in an `Any`; None for a message that is not declared here.

    Raises `Usage` for what is no message of Flight SQL.
    """
    whole = any_pb2.Any()
    try:
        whole.ParseFromString(sent)
        package, _, name = whole.type_url.rpartition("/")[2].rpartition(".")
        if package != PACKAGE:
            raise Usage("this is no command of Flight SQL; ask with a driver for it (ADBC, JDBC)")
        if name not in FLIGHT_MESSAGES:
            return name, None
        message = _classes()[name]()
        message.ParseFromString(whole.value)
    except DecodeError:
        raise Usage("a command of Flight SQL cannot be decoded; update the driver") from None
    return name, message
