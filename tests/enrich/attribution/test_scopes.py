"""Which addresses lie in a site's networks."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from enrich.attribution.scopes import in_networks, in_scope
from infra.config.settings import ScopeSettings
from tests.enrich.rows import SCOPE

SITES = (
    ScopeSettings(name=SCOPE, networks=("10.0.0.0/24", "192.168.1.4/30", "fd00::/8")),
    ScopeSettings(name="other", networks=("172.16.0.0/12",)),
)


def test_addresses_in_a_log_may_be_anything(spark: SparkSession) -> None:
    spelled = {
        "10.0.0.0": True,
        "10.0.0.255": True,
        "10.0.1.0": False,
        "192.168.1.3": False,
        "192.168.1.4": True,
        "10.0.0": False,
        "10.0.0.1.2": False,
        "10.0.0.256": False,
        "10.0.0.99999999999999999999": False,
        "10.0.0.-1": False,
        "ec2.amazonaws.com": False,
        "": False,
    }
    frame = spark.createDataFrame([(SCOPE, text) for text in spelled], "scope string, ip string")
    answer = frame.select("ip", in_networks(frame.scope, frame.ip, SITES).alias("inside"))
    assert {row.ip: bool(row.inside) for row in answer.collect()} == spelled
    assert {text: in_scope(SCOPE, text, SITES) for text in spelled} == spelled
    assert not in_scope("other", "10.0.0.1", SITES)


@pytest.mark.full
def test_networks_of_any_size_hold_what_they_hold(spark: SparkSession) -> None:
    chance = Random(20261122)
    sizes = [(32, bits) for bits in range(33)] + [(128, bits) for bits in range(0, 129, 7)]
    networks = [
        ip_network((chance.getrandbits(width) >> (width - bits) << (width - bits), bits))
        if width == 128
        else IPv4Network((chance.getrandbits(32) >> (32 - bits) << (32 - bits), bits))
        for width, bits in sizes
    ]
    addresses = {str(ip) for network in networks for ip in _around(network)}
    frame = spark.createDataFrame(
        [(SCOPE, ip) for ip in sorted(addresses)], "scope string, ip string"
    )
    asked = [in_networks(F.col("scope"), F.col("ip"), [_site(n)]) for n in networks]
    for row in frame.select("ip", F.array(*asked).alias("inside")).collect():
        held = [ip_address(row.ip) in network for network in networks]
        assert [bool(one) for one in row.inside] == held, row.ip
        plain = [in_scope(SCOPE, row.ip, [_site(network)]) for network in networks]
        assert plain == held, row.ip
    both = [ScopeSettings(name=SCOPE, networks=tuple(str(n) for n in networks if n.prefixlen > 9))]
    for row in frame.select("ip", in_networks(frame.scope, frame.ip, both).alias("in")).collect():
        held = any(ip_address(row.ip) in n for n in networks if n.prefixlen > 9)
        assert bool(row["in"]) is held, row.ip


def _site(network: IPv4Network | IPv6Network) -> ScopeSettings:
    return ScopeSettings(name=SCOPE, networks=(str(network),))


def _around(network: IPv4Network | IPv6Network) -> list[IPv4Address | IPv6Address]:
    """Both ends of a network, what lies beyond them, and the middle."""
    low, high = int(network.network_address), int(network.broadcast_address)
    kind, most = type(network.network_address), 2**network.max_prefixlen
    numbers = (low - 1, low, low + 1, (low + high) // 2, high - 1, high, high + 1)
    return [kind(number) for number in numbers if 0 <= number < most]
