"""A row of osquery's table of processes or files, made of Sigma's fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from alerts.rulepack.log_source import LogSource

_FILE = 1001
_OF_PROCESS: Mapping[str, str] = MappingProxyType(
    {
        "Image": "path",
        "CommandLine": "cmdline",
        "CurrentDirectory": "cwd",
        "ParentImage": "parent_path",
        "ParentCommandLine": "parent_cmdline",
        "User": "username",
        "ProcessId": "pid",
        "ParentProcessId": "parent",
    }
)
_OF_FILE: Mapping[str, str] = MappingProxyType(
    {"TargetFilename": "filename", "Image": "executable", "ProcessId": "pid"}
)


def osquery_row(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None
) -> bytes:
    """The row; fields that no column of the table has stand under Sigma's own name."""
    of_file = _FILE in source.classes
    names = _OF_FILE if of_file else _OF_PROCESS
    columns = {names.get(name, name): value for name, value in values.items()}
    usual = (
        {"filename": "/tmp/x", "event_type": "create", "executable": "/bin/zsh", "pid": "7"}
        if of_file
        else {"path": "/bin/zsh", "cmdline": "zsh", "pid": "7", "parent": "1", "username": "ann"}
    )
    record = {
        "name": "es_process_file_events" if of_file else "es_process_events",
        "hostIdentifier": "mac1",
        "unixTime": 1741176000,
        "counter": 1,
        "action": "added",
        "columns": usual | columns,
    }
    return json.dumps(record).encode()
