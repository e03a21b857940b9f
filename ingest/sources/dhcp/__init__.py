"""DHCP servers: ISC dhcpd, Kea, dnsmasq, Windows DHCP; their logs and their lease files."""
