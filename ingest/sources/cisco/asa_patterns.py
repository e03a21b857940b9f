"""Pieces of the words of Cisco's firewalls, as patterns."""

from __future__ import annotations


def end(at: str, *, named: bool, plain: str = "") -> str:
    """An address and port, with its interface where `named`, and a user in parentheses."""
    interface = rf"(?P<{at}if>[^\s:/]+):" if named else ""
    user = rf"(?: ?\((?P<{at}user>[^()]*{plain})\))?"
    return rf"{interface}(?P<{at}>[^\s/,;()<>]+)(?:/(?P<{at}port>[\w-]+))?{user}"


def mapped(at: str) -> str:
    """An address with its interface, the address it is translated to, and its user."""
    return (
        rf"(?P<{at}if>[^\s:/]+):(?P<{at}>[^\s/,;()]+)(?:/(?P<{at}port>\d+))?"
        rf" \((?P<{at}map>[^\s/()]+)(?:[/(](?P<{at}mapport>\d+))?\)(?: ?\((?P<{at}user>[^()]*)\))?"
    )


FROM, TO = end("src", named=True), end("dst", named=True)
SRC, DST = end("src", named=False), end("dst", named=False)
MAPPED_S, MAPPED_D = mapped("src"), mapped("dst")
PROTO = r"(?P<proto>protocol \d+|[\w-]+)"
ON = r" on interface (?P<on>\S+)"
FLAGS = r" flags (?P<flags>[A-Z ]+?) *"
HITS = r"hit-cnt (?P<hits>\d+) (?P<interval>first hit|\d+-second interval)(?: (?P<hashes>\[.*\]))?"
HASH = r"(?: (?P<hashes>\[[^\]]*\]\"?))?"
TYPE = r"(?: ?\(?type (?P<icmp_type>\d+), ?code (?P<icmp_code>\d+)\)?,?)?"
SPAN = r" duration (?P<span>\d+:\d\d:\d\d)"
TAIL = r"(?: (?P<reason>[^()]*?))?(?: \((?P<user>[^()]*)\))?"
# A VPN user's group and name stand before the address; see `ambiguous`.
GROUP = r"Group <?(?P<group>[^<>]*?)>? User <?(?P<user>.*?)>? IP <?(?P<src>[0-9a-fA-F:.]+)>?,? ?"
IKE = r"(?:Group = (?P<group>[^,]*), )?(?:Username = (?P<user>.*?), )?IP = (?P<src>[\w.:-]+), "
AAA = r"AAA user (?P<what>authentication|authorization|accounting)"
