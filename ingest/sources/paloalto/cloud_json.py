"""PAN-OS's logs as JSON, as Cortex Data Lake and Strata Logging Service forward them.

https://docs.paloaltonetworks.com/strata-logging-service/log-reference : fields have names such as
`SourceAddress`; exports of the same service write `source_ip`, and codes as `{"value": "tcp"}`.
Each becomes the column of the same meaning in the lines of the firewall itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.field_lookup import read_moment
from ingest.parsing.source import Context, Unreadable
from ingest.parsing.strict_json import encode, integral
from ingest.parsing.timestamps import Stamp
from ingest.sources.shared.firewall import Fields

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        name: column
        for column, names in {
            "subtype": "subtype logsubtype subtypevalue",
            "device_name": "devicename logsourcename",
            "serial": "devicesn logsourceid serial",
            "src": "sourceaddress sourceip",
            "dst": "destinationaddress destip destinationip",
            "natsrc": "natsource sourceipnat",
            "natdst": "natdestination destipnat",
            "sport": "sourceport",
            "dport": "destinationport destport",
            "natsport": "natsourceport",
            "natdport": "natdestinationport destportnat",
            "rule": "rule rulematched",
            "rule_uuid": "ruleuuid rulematcheduuid",
            "srcuser": "sourceuser username",
            "dstuser": "destinationuser destuser",
            "app": "application app",
            "vsys": "virtuallocation vsys",
            "from": "fromzone",
            "to": "tozone",
            "inbound_if": "inboundinterface inboundif",
            "outbound_if": "outboundinterface outboundif",
            "sessionid": "sessionid",
            "proto": "protocol",
            "action": "action",
            "bytes": "bytes bytestotal",
            "bytes_sent": "bytessent",
            "bytes_received": "bytesreceived",
            "packets": "packetstotal",
            "pkts_sent": "packetssent",
            "pkts_received": "packetsreceived",
            "elapsed": "sessionduration totaltimeelapsed",
            "session_end_reason": "sessionendreason",
            "category": "urlcategory",
            "seqno": "sequenceno",
            "srcloc": "sourcelocation",
            "dstloc": "destinationlocation destlocation",
            "src_mac": "sourcedevicemac",
            "dst_mac": "destinationdevicemac destdevicemac",
            "src_host": "sourcedevicehost",
            "dst_host": "destinationdevicehost destdevicehost",
            "misc": "url filename uri",
            "threatid": "threatid threatname",
            "thr_category": "threatcategory",
            "severity": "severity vendorseverity",
            "direction": "directionofattack direction",
            "filedigest": "filehash filesha256 filesha",
            "user_agent": "useragent",
            "http_method": "httpmethod",
            "referer": "referer httpreferer",
            "xff": "xforwardedfor xff",
            "eventid": "eventname eventid eventidvalue",
            "stage": "stage",
            "auth_method": "authmethod",
            "tunnel_type": "tunneltype tunnel",
            "public_ip": "publicipv4 publicip",
            "public_ipv6": "publicipv6",
            "private_ip": "privateipv4 privateip",
            "machinename": "endpointdevicename",
            "client_os": "endpointostype",
            "status": "eventstatus status",
            "error": "connectionerror error",
            "reason": "quarantinereason reason",
            "opaque": "eventdescription opaque",
            "ip": "userip authip",
            "user": "user authuser mappeduser",
            "normalize_user": "normalizeuser",
            "authpolicy": "authenticationpolicy",
            "authproto": "authenticationprotocol",
            "serverprofile": "authserverprofile",
            "desc": "authenticationdescription",
            "srcregion": "sourceregion",
            "tls_version": "tlsversion",
            "tls_enc": "tlsencryptionalgorithm",
            "fingerprint": "fingerprint",
            "cert_serial": "certificateserial",
            "datasourcename": "mappingdatasourcename",
            "event": "authevent event",
            "host": "managementhost host",
            "cmd": "eventcommand cmd",
            "admin": "admin administrator",
            "client": "eventclienttype client",
            "result": "eventresult result",
            "path": "configurationpath path",
        }.items()
        for name in names.split()
    }
)
_OF_TYPE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "GLOBALPROTECT": {"sourceusername": "srcuser", "description": "opaque"},
        "CONFIG": {
            "adminusername": "admin",
            "eventname": "cmd",
            "eventpath": "path",
            "ipaddress": "host",
        },
        "AUTH": {"sourceip": "ip"},
        "USERID": {"sourceip": "ip"},
        "DECRYPTION": {"commonname": "cn", "errormessage": "error"},
    }
)
"""Names that mean another column in logs of one type than elsewhere."""
# `SourceAddress`, `source_address` and `Source Address` are one name, so all else is left out.
_SPELLING = re.compile(r"[^a-z0-9]")
_TIMES = ("timegenerated", "eventtime", "logtime", "timereceived")


def _word(value: Any) -> str | None:
    """A field's value as the firewall writes it; None for objects and lists."""
    if type(value) is dict:
        value = value.get("value", value.get("string_value"))
    value = integral(value)
    if type(value) is bool or type(value) in (dict, list):
        return None
    return None if value is None else str(value)


def columns_of(fields: Mapping[str, Any], context: Context) -> tuple[str, Fields, Stamp]:
    """The type of a log, its columns and its time. Raises `Unreadable`."""
    # Two names may have one spelling: a config log has `AdminUsername` and `AdminUserName`.
    spellings = {key: _SPELLING.sub("", key.lower()) for key in fields}
    named = {spelled: key for key, spelled in reversed(spellings.items())}
    kind = next((_word(fields[named[key]]) for key in ("logtype", "type") if key in named), None)
    if not kind:
        raise Unreadable("no 'LogType' in the object")
    received_at = context.record.received_at
    stamp = None
    kind = kind.upper()
    names = {**_NAMES, **_OF_TYPE.get(kind, {})}
    columns = Fields()
    for key, spelled in spellings.items():
        value = _word(fields[key])
        if spelled in _TIMES or spelled in ("logtype", "type"):
            continue
        column = names.get(spelled)
        if column is None or value is None:
            rest = fields[key]
            columns[key] = rest if type(rest) is str else encode(rest)
        elif value and column not in columns:
            columns[column] = value
        elif value:
            columns[key] = value
    for spelled in _TIMES:
        if stamp is None and spelled in named:
            stamp = read_moment(fields[named[spelled]], context.zone(None), received_at)
    return kind, columns, stamp or Stamp.missing(received_at, None)
