"""Which internet addresses are public, by our own list: the answer must not depend on the version of Python.

The lists are all of IANA's registries of special-purpose addresses. Even the entries that are "globally
reachable" there (anycast of relays, AS112) never receive webhooks. Of IPv6, only 2000::/3 is allocated at
all.
"""

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_V4: Final = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",
)  # fmt: skip
_SPECIAL_V4: Final = tuple(map(ipaddress.IPv4Network, _V4))
_GIVEN_OUT: Final = ipaddress.IPv6Network("2000::/3")
_V6: Final = (
    "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking, ...
    "2001:db8::/32",
    "2002::/16",  # 6to4: the packet goes to the IPv4 address within
    "2620:4f:8000::/48",
    "3fff::/20",
)
_SPECIAL_V6: Final = tuple(map(ipaddress.IPv6Network, _V6))
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP: Final = 0x5EFE
_LOCAL_BIT: Final = 0x0200_0000
_LOW: Final = 0xFFFF_FFFF


def address_of(host: str) -> Address | None:
    """Return the address that a text is; None for any other text.

    >>> address_of("::1"), address_of("localhost")
    (IPv6Address('::1'), None)
    """
    if ":" not in host and not host[-1:].isdecimal():
        return None  # nearly always; this runs for every host that something is sent to
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def inner(address: Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that packets for an IPv6 address go to; None if they go to that address itself.

    >>> inner(ipaddress.ip_address("64:ff9b::808:808")), inner(ipaddress.ip_address("8.8.8.8"))
    (IPv4Address('8.8.8.8'), None)
    """
    if isinstance(address, ipaddress.IPv4Address):
        return None
    return ipaddress.IPv4Address(int(address) & _LOW) if address in _NAT64 else address.ipv4_mapped


def public(address: Address) -> bool:
    """Return whether an address belongs to the public internet. One that contains another is public if that
    one is.

    >>> public(ipaddress.ip_address("93.184.215.14")), public(ipaddress.ip_address("64:ff9b::a00:1"))
    (True, False)
    """
    address = inner(address) or address
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    if address not in _GIVEN_OUT or any(address in network for network in _SPECIAL_V6):
        return False
    is_tunnel = (int(address) >> 32 & _LOW) & ~_LOCAL_BIT == _ISATAP
    return not is_tunnel or public(ipaddress.IPv4Address(int(address) & _LOW))
