"""How dnsmasq's lines are worded, for reading those alike at once."""

from __future__ import annotations

from ingest.sources.shared.alike_lines import IPV4, MAC, PORT, alike_reader

_IP, _MAC = rf"(?P<ip>{IPV4})", rf"(?P<mac>{MAC})"
_NUMBER = r"(?P<number>[1-9]\d{0,9})"
_DNS_NAME = r"(?P<name>[A-Za-z0-9_][\w-]*(?:\.[\w-]+)*)"
_DHCP = rf"{_IP}( ){_MAC}"
_NAMED = rf"DHCP(?:ACK|DECLINE)\([^)\s]+\) ){_DHCP}( )(?P<name>[A-Za-z0-9][\w.-]*)"
_EXTRA = rf"(){_NUMBER}( ){_IP}(/)(?P<port>{PORT})"
# Of what a question or an answer is about: all but the name is one of few words.
_ASKED = r"(?:query|auth|dnssec-query)\[[^\]\s]+\] )"
_ANSWERED = r"(?:reply|cached|cached-stale|config|local|DHCP|/\S*|gravity blocked) )"

read_dnsmasq = alike_reader(
    "dnsmasq",
    rf"({_ASKED}{_DNS_NAME}( (?:from|to) ){_IP}",
    rf"(forwarded ){_DNS_NAME}( to ){_IP}((?:#\d+)?)",
    rf"({_ANSWERED}{_DNS_NAME}( is ){_IP}",
    rf"({_ANSWERED}{_DNS_NAME}( is .*)",
    rf"{_EXTRA}( {_ASKED}{_DNS_NAME}( (?:from|to) )(?P<ip2>{IPV4})",
    rf"{_EXTRA}( forwarded ){_DNS_NAME}( to )(?P<ip2>{IPV4})((?:#\d+)?)",
    rf"{_EXTRA}( {_ANSWERED}{_DNS_NAME}( is )(?P<ip2>{IPV4})",
    rf"{_EXTRA}( {_ANSWERED}{_DNS_NAME}( is .*)",
    rf"({_NAMED}",
    rf"(DHCP[A-Z]+\([^)\s]+\) ){_DHCP}((?: .*)?)",
    rf"(DHCP[A-Z]+\([^)\s]+\) ){_MAC}((?: .*)?)",
    rf"(){_NUMBER}( {_NAMED}",
    rf"(){_NUMBER}( DHCP[A-Z]+\([^)\s]+\) ){_DHCP}((?: .*)?)",
    rf"(){_NUMBER}( DHCP[A-Z]+\([^)\s]+\) ){_MAC}((?: .*)?)",
    rf"(){_NUMBER}( client provides name: )(?P<name>[A-Za-z0-9][\w.-]*)",
    rf"(){_NUMBER}( [^0-9].*? ){_IP}((?:[^\w.].*)?)",
    rf"(){_NUMBER}( .+)",
)
"""The events of those of `records` that are worded as others, as in `Source.columns`."""
