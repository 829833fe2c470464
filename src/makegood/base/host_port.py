"""Hosts and ports as people write them.

Where a process listens ("HOST:PORT"), and which texts can be a host.
"""

from typing import Final

from makegood.base.public_networks import address_of
from makegood.errors import ConfigError

HIGHEST_PORT: Final = 65_535


def host_and_port(listen: str, name: str = "listen") -> tuple[str, int]:
    """Return the parts of "HOST:PORT"; an IPv6 host is in brackets. Port 0: any free one. Raises
    ``ConfigError``.

    >>> host_and_port("127.0.0.1:9464"), host_and_port("[::1]:0")
    (('127.0.0.1', 9464), ('::1', 0))
    """
    usual = 8640 if name.endswith("console") else 9464
    hint = f"write HOST:PORT, such as 127.0.0.1:{usual}, 0.0.0.0:{usual} (every address of this machine) or [::1]:{usual}"
    if not isinstance(listen, str):
        raise ConfigError(f"{name}={listen!r}: {hint}")
    host, colon, digits = listen.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{name}={listen!r}: write an IPv6 address in brackets; {hint}")
    if not colon or not host or any(letter.isspace() or letter == "/" for letter in host):
        raise ConfigError(f"{name}={listen!r}: {hint}")
    port = port_in(digits)
    if port is None:
        raise ConfigError(f"{name}={listen!r}: the port is a number from 0 to {HIGHEST_PORT}; {hint}")
    return host, port


def port_in(digits: str) -> int | None:
    """Return the port that digits say; None for any other text, and for a number that is no port.

    >>> port_in("8640"), port_in("0"), port_in("65536"), port_in("+1")
    (8640, 0, None, None)
    """
    readable = digits.isascii() and digits.isdecimal() and len(digits) < 20
    return int(digits) if readable and int(digits) <= HIGHEST_PORT else None


def is_host(host: str) -> bool:
    """Return whether a text can be a host of a URL: an IP address, or a name that no program takes for one.

    >>> is_host("hooks.example.com"), is_host("10.1.2.3"), is_host("0x7f.1"), is_host("a b")
    (True, True, False, False)
    """
    if address_of(host) is not None:
        return True
    labels = host.removesuffix(".").split(".")
    valid = all(
        part and len(part) < 64 and part.replace("-", "").replace("_", "").isalnum() for part in labels
    )
    return valid and not labels[-1].isdecimal()  # 0x7f.1 and the like are addresses in disguise
