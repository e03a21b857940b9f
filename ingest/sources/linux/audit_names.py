"""Names behind the numbers of the Linux audit system.

System calls are those of the kernel's headers (`syscalls.json`, by the audit system's number
of the architecture); record types of linux/audit.h; errors of errno(3).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import NamedTuple

import msgspec

# linux/audit.h: the machine's number in elf.h, with a bit for 64 bits (0x80000000) and one for
# little-endian (0x40000000).
ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "c000003e": "x86_64",
        "40000003": "i386",
        "c00000b7": "aarch64",
        "40000028": "arm",
        "c0000015": "ppc64le",
        "80000015": "ppc64",
        "80000016": "s390x",
        "c00000f3": "riscv64",
    }
)
_NAMED_ARCH = {name: code for code, name in ARCHITECTURES.items()}
_GENERIC = frozenset({"c00000b7", "c00000f3"})
"""Architectures that number their system calls alike."""

# linux/audit.h keeps a range for each kind: 1100 programs that the kernel trusts, 1200 the daemon
# itself, 1300 the kernel's events, 1400 SELinux, 1500 AppArmor, 1700 anomalies, 1800 integrity.
TYPES: Mapping[str, str] = MappingProxyType(
    {
        "1005": "USER",
        "1006": "LOGIN",
        "1100": "USER_AUTH",
        "1101": "USER_ACCT",
        "1102": "USER_MGMT",
        "1103": "CRED_ACQ",
        "1104": "CRED_DISP",
        "1105": "USER_START",
        "1106": "USER_END",
        "1107": "USER_AVC",
        "1108": "USER_CHAUTHTOK",
        "1109": "USER_ERR",
        "1110": "CRED_REFR",
        "1111": "USYS_CONFIG",
        "1112": "USER_LOGIN",
        "1113": "USER_LOGOUT",
        "1114": "ADD_USER",
        "1115": "DEL_USER",
        "1116": "ADD_GROUP",
        "1117": "DEL_GROUP",
        "1119": "CHGRP_ID",
        "1123": "USER_CMD",
        "1124": "USER_TTY",
        "1126": "GRP_AUTH",
        "1127": "SYSTEM_BOOT",
        "1128": "SYSTEM_SHUTDOWN",
        "1129": "SYSTEM_RUNLEVEL",
        "1130": "SERVICE_START",
        "1131": "SERVICE_STOP",
        "1132": "GRP_MGMT",
        "1133": "GRP_CHAUTHTOK",
        "1135": "ACCT_LOCK",
        "1136": "ACCT_UNLOCK",
        "1138": "SOFTWARE_UPDATE",
        "1200": "DAEMON_START",
        "1201": "DAEMON_END",
        "1202": "DAEMON_ABORT",
        "1203": "DAEMON_CONFIG",
        "1300": "SYSCALL",
        "1302": "PATH",
        "1303": "IPC",
        "1304": "SOCKETCALL",
        "1305": "CONFIG_CHANGE",
        "1306": "SOCKADDR",
        "1307": "CWD",
        "1309": "EXECVE",
        "1318": "OBJ_PID",
        "1319": "TTY",
        "1321": "BPRM_FCAPS",
        "1322": "CAPSET",
        "1323": "MMAP",
        "1325": "NETFILTER_CFG",
        "1326": "SECCOMP",
        "1327": "PROCTITLE",
        "1328": "FEATURE_CHANGE",
        "1330": "KERN_MODULE",
        "1331": "FANOTIFY",
        "1332": "TIME_INJOFFSET",
        "1333": "TIME_ADJNTPVAL",
        "1334": "BPF",
        "1400": "AVC",
        "1401": "SELINUX_ERR",
        "1403": "MAC_POLICY_LOAD",
        "1404": "MAC_STATUS",
        "1405": "MAC_CONFIG_CHANGE",
        "1501": "APPARMOR_AUDIT",
        "1502": "APPARMOR_ALLOWED",
        "1503": "APPARMOR_DENIED",
        "1504": "APPARMOR_HINT",
        "1505": "APPARMOR_STATUS",
        "1700": "ANOM_PROMISCUOUS",
        "1701": "ANOM_ABEND",
        "1702": "ANOM_LINK",
        "1703": "ANOM_CREAT",
        "1800": "INTEGRITY_DATA",
        "2000": "KERNEL",
        "2100": "ANOM_LOGIN_FAILURES",
    }
)


@cache
def _syscalls() -> Mapping[str, Mapping[str, str]]:
    stored = files("ingest.sources.linux").joinpath("syscalls.json").read_bytes()
    decoded: dict[str, dict[str, str]] = msgspec.json.decode(stored)
    return decoded


def architecture(code: str | None) -> str | None:
    """The name of an architecture, as `arch=` has it or as `ausearch -i` writes it."""
    return None if code is None else ARCHITECTURES.get(code.lower(), code)


def syscall(arch: str | None, number: str | None) -> str | None:
    """The name of a system call; a name as it is, a number that is unknown too."""
    if number is None or not number.isdecimal():
        return number
    code = _NAMED_ARCH.get(arch or "", (arch or "c000003e").lower())
    table = _syscalls().get("c00000b7" if code in _GENERIC else code, {})
    return table.get(number, number)


def error_of(value: str | None) -> tuple[str | None, str | None]:
    """The code and the words of the error that `exit=` names: `EACCES`, `Permission denied`."""
    digits = (value or "").partition("(")[0].removeprefix("-")
    if value and value[:1] == "-" and digits.isdecimal() and len(digits) < 5:
        number = int(digits)
        return errno.errorcode.get(number, value), os.strerror(number)
    if value and value[:1] == "E" and value.partition("(")[0].isupper():
        code, _, words = value.partition("(")
        return code, words.rstrip(")") or None
    return None, None


class Address(NamedTuple):
    """What a socket's address says."""

    family: str
    ip: str | None
    port: int | None
    path: str | None


_FAMILIES = {0: "unspec", 1: "unix", 2: "inet", 10: "inet6", 16: "netlink", 17: "packet"}


def socket_address(text: str | None) -> Address | None:
    """`saddr=`, a sockaddr in hexadecimal; None where it is none."""
    try:
        data = bytes.fromhex(text or "")
    except ValueError:
        return None
    if len(data) < 2:
        return None
    # In the machine's own order, which is another one on ppc64 and s390x: a family of theirs stays
    # a number. The port is in the network's order everywhere.
    number = int.from_bytes(data[:2], "little")
    family = _FAMILIES.get(number, str(number))
    if number == 2 and len(data) >= 8:
        return Address(family, str(IPv4Address(data[4:8])), int.from_bytes(data[2:4], "big"), None)
    if number == 10 and len(data) >= 24:
        inner = IPv6Address(data[8:24])
        # A socket that serves both families shows IPv4 as ::ffff:10.0.0.5.
        ip = str(inner.ipv4_mapped or inner)
        return Address(family, ip, int.from_bytes(data[2:4], "big"), None)
    if number == 1:
        path = data[2:]
        # An abstract name begins with NUL, which tools show as an at sign.
        name = b"@" + path[1:].split(b"\0", 1)[0] if path[:1] == b"\0" else path.split(b"\0", 1)[0]
        unix_path = name.decode("utf-8", "replace")
        return Address(family, None, None, unix_path if unix_path not in ("", "@") else None)
    return Address(family, None, None, None)
