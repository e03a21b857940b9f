"""What OCSF 1.8.0 requires of each class, beyond what all classes require.

Source: the schema's classes, attributes of requirement `required` without a profile, and
the constraints `at_least_one` (https://schema.ocsf.io/1.8.0/classes). tests/ingest compares
this table with the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_HOST = ("actor", "device")
_ENDPOINTS = (("dst_endpoint", "src_endpoint"),)

REQUIRED: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        1001: (*_HOST, "file"),
        1002: (*_HOST, "driver"),
        1003: (*_HOST, "kernel"),
        1004: (*_HOST, "process"),
        1005: (*_HOST, "module"),
        1006: ("device", "job"),
        1007: (*_HOST, "process"),
        1009: (*_HOST, "script"),
        1010: (*_HOST, "peripheral_device"),
        2002: ("finding_info", "vulnerabilities"),
        2003: ("compliance", "finding_info"),
        2004: ("finding_info",),
        2005: ("finding_info_list", "status_id"),
        2006: ("finding_info",),
        2007: ("finding_info",),
        2008: ("finding_info",),
        3001: ("user",),
        3002: ("user",),
        3003: ("user",),
        3004: ("entity",),
        3005: ("privileges", "user"),
        3006: ("group",),
        4009: ("direction_id", "email"),
        4013: ("version",),
        5001: ("device",),
        5003: ("user",),
        5004: ("device",),
        5019: ("device",),
        5020: ("device",),
        5040: ("device", "query_evidence", "query_result_id"),
        6001: ("web_resources",),
        6002: ("app",),
        6003: ("actor", "api", "src_endpoint"),
        6005: ("actor", "src_endpoint"),
        6006: ("actor", "file", "src_endpoint"),
        6007: ("scan",),
        201001: (*_HOST, "reg_key"),
        201002: (*_HOST, "reg_value"),
        201003: (*_HOST, "win_resource"),
        201004: (*_HOST, "win_service"),
    }
)
"""Attributes that every event of the class has. A class that is not here requires no more."""

ONE_OF: Mapping[int, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        1008: (("log_file", "log_name", "log_provider", "log_type", "log_type_id"),),
        2005: (("assignee", "assignee_group"),),
        2007: (("application", "compliance", "remediation", "vulnerabilities"),),
        2008: (
            (
                "access_analysis_result",
                "applications",
                "identity_activity_metrics",
                "permission_analysis_results",
            ),
        ),
        3002: (("dst_endpoint", "service"),),
        4001: _ENDPOINTS,
        4002: (("http_request", "http_response"),),
        4003: _ENDPOINTS,
        4004: _ENDPOINTS,
        4005: _ENDPOINTS,
        4006: _ENDPOINTS,
        4007: _ENDPOINTS,
        4008: _ENDPOINTS,
        4013: _ENDPOINTS,
        4014: (
            (
                "connection_info",
                "session",
                "src_endpoint",
                "traffic",
                "tunnel_interface",
                "tunnel_type_id",
            ),
        ),
        5023: (("cloud", "container", "database", "databucket", "idp", "resources", "table"),),
        6005: (("databucket", "database", "table"),),
    }
)
"""Groups of attributes of which every event of the class has at least one."""
