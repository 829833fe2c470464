"""Which addresses are public: our own list, the same on every Python, where an address that holds another is judged by both."""

import ipaddress
from typing import Any

import pytest

from makegood.base.public_networks import inner, public

INSIDE = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "10.0.0.1",  # noqa: S104 - nothing is bound to it
    "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.170",
    "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8",
    "::127.0.0.1", "::10.0.0.1", "::8.8.8.8", "::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::a00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "64:ff9b:1::808:808", "64:ff9b:1:ffff::10.0.0.1",
    "2002:7f00:1::", "2002:a00:1::", "2002:808:808::", "2001::1", "2001:0:7f00:1:0:0:80ff:fffe",
    "2001:db8::1", "2001:20::1", "2001:1::1", "2001:2::1", "2001:30::1", "fc00::1", "fd00:ec2::254",
    "fe80::1", "fec0::1", "fec0::a00:1", "ff02::1", "ff05::1", "ff0e::1", "100::1", "5f00::1", "3fff::1",
    "3fff:fff::1", "2001:4:112::1", "2620:4f:8000::1", "fe80::5efe:7f00:1", "2606:4700::5efe:a00:1",
    "2606:4700:0:0:0:5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1", "4000::1", "1000::1", "fe80::1%lo",
]  # fmt: skip

OUTSIDE = [
    "8.8.8.8", "1.1.1.1", "93.184.215.14", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.0.1.1",
    "198.17.255.255", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::200e",
    "2001:4860:4860::8888", "2001:200::1", "2400:cb00::1", "3ffe::1", "2606:4700::5efe:808:808",
    "::ffff:8.8.8.8", "64:ff9b::808:808",
]  # fmt: skip


@pytest.mark.parametrize("text", INSIDE)
def test_an_address_of_a_special_registry_is_not_public(text: str) -> None:
    assert not public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", OUTSIDE)
def test_any_other_is_public(text: str) -> None:
    assert public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    ("text", "inner_address"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("64:ff9b::a00:1", "10.0.0.1"),
        ("2002:a00:1::", None),  # a tunnel: the packet goes elsewhere
        ("10.0.0.1", None),
        ("2606:4700::1", None),
    ],
)
def test_only_forms_that_lead_to_an_ipv4_address_hold_it(text: str, inner_address: str | None) -> None:
    assert inner(ipaddress.ip_address(text)) == (
        None if inner_address is None else ipaddress.ip_address(inner_address)
    )


def test_every_special_network_of_python_is_special_here() -> None:
    """Of each network that the standard library calls private the first and the last address are not public."""
    versions: list[Any] = [ipaddress.IPv4Address, ipaddress.IPv6Address]
    for version in versions:
        for network in version._constants._private_networks:  # the registries that it knows
            assert not public(network[0]), network
            assert not public(network[-1]), network
