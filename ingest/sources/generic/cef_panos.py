"""What Palo Alto Networks names in its own way in CEF: GlobalProtect's and authentication logs.

https://docs.paloaltonetworks.com/strata-logging-service/log-reference/network-logs : the pages of
the fields in CEF. Each becomes the key of CEF's dictionary with the same meaning.
"""

from __future__ import annotations

import re

from ingest.sources.shared.firewall import Fields

_VENDOR = "Palo Alto Networks"
_KEYS = (
    ("PanOSSourceUserName", "suser"),
    ("PanOSEndpointDeviceName", "shost"),
    ("PanOSDeviceSN", "deviceExternalId"),
)
_ASKED = re.compile(r"(?:gateway|portal)-auth")


def _event(fields: Fields, signature: str) -> str:
    """`gateway-auth` and the like, which firewalls write into the header."""
    for name in ("PanOSEventIDValue", "PanOSEventID"):
        value = fields.get(name)
        if type(value) is str and value:
            return value
    return signature


def is_login(vendor: str, signature: str, fields: Fields) -> bool:
    """Whether the log says who logged in to GlobalProtect, or by a policy of authentication."""
    if vendor != _VENDOR:
        return False
    return signature in ("AUTH", "AUTHENTICATION") or bool(
        _ASKED.fullmatch(_event(fields, signature))
    )


def usual_keys(vendor: str, signature: str, fields: Fields) -> None:
    """Give what stands under names of PAN-OS alone the keys of CEF, where those are free."""
    if vendor != _VENDOR:
        return
    for name, key in _KEYS:
        value = fields.get(name)
        if type(value) is str and value and not fields.get(key):
            del fields[name]
            # The backslash of `DOMAIN\\name` comes escaped twice.
            fields[key] = value.replace("\\\\", "\\")
    # What became of it: an authentication log has the event itself as its message.
    if is_login(vendor, signature, fields):
        ended = fields.get("PanOSEventStatus", fields.get("msg"))
        if type(ended) is str and ended and not fields.get("outcome"):
            fields["outcome"] = ended
