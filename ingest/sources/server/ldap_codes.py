"""Numbers of LDAP as slapd logs them (RFC 4511)."""

from __future__ import annotations

from collections.abc import Mapping

TAGS: Mapping[str, str] = {
    "97": "BIND",
    "101": "SRCH",
    "103": "MOD",
    "105": "ADD",
    "107": "DEL",
    "109": "MODRDN",
    "111": "CMP",
    "120": "EXT",
}
METHODS: Mapping[str, str] = {"0": "none", "128": "simple", "163": "sasl"}
ERRORS: Mapping[str, str] = {
    "0": "success",
    "1": "operations error",
    "2": "protocol error",
    "3": "time limit exceeded",
    "4": "size limit exceeded",
    "5": "compare false",
    "6": "compare true",
    "7": "auth method not supported",
    "8": "strong auth required",
    "13": "confidentiality required",
    "14": "SASL bind in progress",
    "16": "no such attribute",
    "17": "undefined attribute type",
    "19": "constraint violation",
    "20": "attribute or value exists",
    "21": "invalid attribute syntax",
    "32": "no such object",
    "34": "invalid DN syntax",
    "48": "inappropriate authentication",
    "49": "invalid credentials",
    "50": "insufficient access rights",
    "51": "busy",
    "52": "unavailable",
    "53": "unwilling to perform",
    "65": "object class violation",
    "68": "entry already exists",
    "80": "other",
}
GOOD = frozenset({"0", "5", "6", "10", "14"})
"""Results that are no failures: compared, referred elsewhere, or not yet at the end."""
