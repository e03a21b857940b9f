"""Keys and numbers of Windows' registry in the form that Sysmon writes, and rules ask."""

from __future__ import annotations

import re

_HIVES = (
    # Below it the user stands by SID, as only HKEY_USERS has it.
    ("HKEY_CURRENT_USER\\S-1-", "HKU\\S-1-"),
    ("HKEY_LOCAL_MACHINE", "HKLM"),
    ("HKEY_CURRENT_USER", "HKCU"),
    ("HKEY_CLASSES_ROOT", "HKCR"),
    ("HKEY_USERS", "HKU"),
    # The kernel's names of the same.
    ("\\REGISTRY\\MACHINE", "HKLM"),
    ("\\REGISTRY\\USER", "HKU"),
)
# The first set is the current one but where the last start failed.
_CONTROL_SET = re.compile(r"(?i)^(HKLM\\SYSTEM)\\ControlSet001(?=\\|$)")


def key_path(written: str | None) -> str | None:
    """The path of a key as Sysmon writes it."""
    path = written or ""
    for whole, short in _HIVES:
        if path.upper().startswith(whole):
            path = short + path[len(whole) :]
            break
    return _CONTROL_SET.sub(r"\1\\CurrentControlSet", path) or None


def number_text(written: str, bits: int) -> str | None:
    """Digits as Sysmon writes a number of 32 or 64 bits; None where they are none of that size."""
    if not written.isascii() or not written.isdecimal():
        return None
    number = int(written) if len(written) < 21 else 2**64
    if number >= 2**bits:
        return None
    if bits == 32:
        return f"DWORD (0x{number:08x})"
    return f"QWORD (0x{number >> 32:08x}-0x{number & 0xFFFFFFFF:08x})"
