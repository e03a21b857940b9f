"""What numbers in Windows events mean.

Status codes: [MS-ERREF] 2.3; Kerberos errors: RFC 4120 7.5.9; logon types: event 4624 in
https://learn.microsoft.com/windows/security/threat-protection/auditing/ .
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LOGON_TYPES: Mapping[int, tuple[int, str, bool | None]] = MappingProxyType(
    {
        0: (1, "System", False),
        2: (2, "Interactive", False),
        3: (3, "Network", True),
        4: (4, "Batch", False),
        5: (5, "OS Service", False),
        7: (7, "Unlock", False),
        8: (8, "Network Cleartext", True),
        9: (9, "New Credentials", False),
        10: (10, "Remote Interactive", True),
        11: (11, "Cached Interactive", False),
        12: (12, "Cached Remote Interactive", True),
        13: (13, "Cached Unlock", False),
    }
)
"""Windows logon type: OCSF's id and name, and whether the user sits elsewhere."""

NTSTATUS: Mapping[int, str] = MappingProxyType(
    {
        0xC0000001: "unsuccessful",
        0xC0000005: "access violation",
        0xC0000022: "access denied",
        0xC000005E: "no logon servers available",
        0xC0000062: "the account name is not valid",
        # Event 4625 mostly has 0xC000006D as its status, and as its sub status which of these it
        # was.
        0xC0000064: "user name does not exist",
        0xC000006A: "user name is correct but the password is wrong",
        0xC000006C: "password policy not met",
        0xC000006D: "bad user name or password",
        0xC000006E: "account restriction",
        0xC000006F: "logon outside of allowed hours",
        0xC0000070: "logon from an unauthorised workstation",
        0xC0000071: "expired password",
        0xC0000072: "account disabled by an administrator",
        0xC00000BB: "not supported",
        0xC00000DC: "the server was in the wrong state",
        0xC0000133: "clocks of server and client too far apart",
        0xC000015B: "logon type not granted on this machine",
        0xC000018B: "no trust account for this workstation",
        0xC000018C: "the trust between the domains failed",
        0xC000018D: "the trust with the workstation failed",
        0xC0000190: "a trust account cannot be used here",
        0xC0000192: "the Netlogon service was not started",
        0xC0000193: "account expired",
        0xC0000224: "the password must be changed at next logon",
        0xC0000225: "not found",
        0xC0000234: "account locked out",
        0xC00002EE: "an error during logon",
        0xC0000371: "the local account store has no secret for the account",
        0xC0000388: "downgrade attack detected",
        0xC0000413: "authentication firewall: not allowed to authenticate to this machine",
        0xC0000418: "NTLM is blocked",
    }
)

KERBEROS: Mapping[int, str] = MappingProxyType(
    {
        0x1: "client's entry in the database has expired",
        0x2: "server's entry in the database has expired",
        0x3: "protocol version not supported",
        0x6: "client not found in the Kerberos database",
        0x7: "server not found in the Kerberos database",
        0x8: "several entries for the principal",
        0x9: "the client or server has a null key",
        0xA: "ticket not eligible for postdating",
        0xB: "requested start time is later than end time",
        0xC: "policy rejects the request",
        0xD: "option cannot be granted",
        0xE: "encryption type not supported",
        0xF: "checksum type not supported",
        0x10: "pre-authentication type not supported",
        0x11: "transited type not supported",
        0x12: "client's credentials have been revoked (disabled, expired or locked out)",
        0x13: "server's credentials have been revoked",
        0x14: "ticket revoked",
        0x15: "client not yet valid",
        0x16: "server not yet valid",
        0x17: "password has expired",
        0x18: "pre-authentication failed: wrong password",
        0x19: "additional pre-authentication required",
        0x1A: "requested server and ticket do not match",
        0x1B: "server valid for user-to-user only",
        0x1D: "a service is not available",
        0x1F: "integrity check on decrypted field failed",
        0x20: "ticket expired",
        0x21: "ticket not yet valid",
        0x22: "request is a replay",
        0x23: "the ticket is not for us",
        0x25: "clock skew too great",
        0x26: "incorrect net address",
        0x29: "message stream modified",
        0x2A: "message out of order",
        0x2C: "specified version of key not available",
        0x2D: "service key not available",
        0x3C: "generic error",
        0x3D: "field too long",
        0x3E: "client not trusted",
        0x3F: "KDC not trusted",
        0x40: "invalid signature",
        0x41: "key too weak",
        0x42: "certificate mismatch",
        0x44: "wrong realm",
        0x45: "user-to-user required",
    }
)


def status_code(value: int) -> str:
    """A status as Windows documents it: `0xC000006A`, `0x18`."""
    return f"0x{value:X}"


DNS_STATUS: Mapping[int, tuple[int, str]] = MappingProxyType(
    {
        0: (0, "NOERROR"),
        9001: (1, "FORMERR"),
        9002: (2, "SERVFAIL"),
        9003: (3, "NXDOMAIN"),
        9004: (4, "NOTIMP"),
        9005: (5, "REFUSED"),
        9006: (6, "YXDOMAIN"),
        9007: (7, "YXRRSET"),
        9008: (8, "NXRRSET"),
        9009: (9, "NOTAUTH"),
        9010: (10, "NOTZONE"),
        9501: (0, "NOERROR"),
        9701: (3, "NXDOMAIN"),
    }
)
"""Windows' DNS errors as response codes; 9501 is an answer without records."""

DNS_TYPES: Mapping[int, str] = MappingProxyType(
    {
        1: "A",
        2: "NS",
        5: "CNAME",
        6: "SOA",
        12: "PTR",
        15: "MX",
        16: "TXT",
        28: "AAAA",
        33: "SRV",
        35: "NAPTR",
        41: "OPT",
        43: "DS",
        46: "RRSIG",
        48: "DNSKEY",
        65: "HTTPS",
        252: "AXFR",
        255: "ANY",
    }
)

# IANA's protocol numbers, with the keywords that it gives them.
PROTOCOLS: Mapping[int, str] = MappingProxyType(
    {
        0: "hopopt",
        1: "icmp",
        2: "igmp",
        4: "ipv4",
        6: "tcp",
        17: "udp",
        41: "ipv6",
        47: "gre",
        50: "esp",
        51: "ah",
        58: "ipv6-icmp",
        132: "sctp",
    }
)

START_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "0": "boot start",
        "1": "system start",
        "2": "auto start",
        "3": "demand start",
        "4": "disabled",
    }
)
SERVICE_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "0x1": "kernel mode driver",
        "0x2": "file system driver",
        "0x8": "recognizer driver",
        "0x10": "user mode service",
        "0x20": "user mode shared service",
        # 0x100 is the bit of services that may show windows.
        "0x110": "interactive user mode service",
        "0x120": "interactive shared service",
    }
)
# Mandatory labels, [MS-DTYP] 2.4.2.4.
INTEGRITY: Mapping[str, str] = MappingProxyType(
    {
        "S-1-16-0": "Untrusted",
        "S-1-16-4096": "Low",
        "S-1-16-8192": "Medium",
        "S-1-16-8448": "Medium Plus",
        "S-1-16-12288": "High",
        "S-1-16-16384": "System",
        "S-1-16-20480": "Protected",
    }
)
