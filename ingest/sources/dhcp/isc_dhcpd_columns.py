"""How ISC dhcpd's lines are worded, for reading those alike at once."""

from __future__ import annotations

from ingest.sources.shared.alike_lines import IPV4, MAC, alike_reader

_IP, _IP2, _MAC = rf"(?P<ip>{IPV4})", rf"(?P<ip2>{IPV4})", rf"(?P<mac>{MAC})"
_NAMED = rf"{_MAC}( \()(?P<name>[A-Za-z0-9][\w.-]*)"
_LEASED = r" via .* lease-duration )(?P<number>[1-9]\d{0,8})((?:\D.*)?)"
_ABOUT = rf"(DHCP[A-Z]+ (?:on|for|of) ){_IP}( (?:to|from) )"
_ASKED = rf"(DHCPREQUEST for ){_IP}( \(){_IP2}(\) from )"

read_dhcpd = alike_reader(
    "isc_dhcpd",
    rf"{_ABOUT}{_NAMED}(\){_LEASED}",
    rf"{_ABOUT}{_MAC}({_LEASED}",
    rf"{_ABOUT}{_NAMED}(\) via .*)",
    rf"{_ABOUT}{_MAC}( via .*)",
    rf"(DHCPDISCOVER from ){_NAMED}(\) via .*)",
    rf"(DHCPDISCOVER from ){_MAC}( via .*)",
    rf"{_ASKED}{_NAMED}(\) via .*)",
    rf"{_ASKED}{_MAC}( via .*)",
    rf"(DHCPINFORM from ){_IP}( via .*)",
    rf"(DHCPACK to ){_IP}( \(){_MAC}(\) via .*)",
)
"""The events of those of `records` that are worded as others, as in `Source.columns`."""
