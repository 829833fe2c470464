"""Where a process listens: "HOST:PORT" as people write it."""

from typing import Final

from makegood.errors import ConfigError

_HIGHEST_PORT: Final = 65_535


def host_and_port(listen: str, name: str = "listen") -> tuple[str, int]:
    """Return the parts of "HOST:PORT"; an IPv6 host stands in brackets. Port 0: any that is free. Raises ``ConfigError``.

    >>> host_and_port("127.0.0.1:9464"), host_and_port("[::1]:0")
    (('127.0.0.1', 9464), ('::1', 0))
    """
    hint = (
        "write HOST:PORT, such as 127.0.0.1:9464, 0.0.0.0:9464 (every address of this machine) or [::1]:9464"
    )
    if not isinstance(listen, str):
        raise ConfigError(f"{name}={listen!r}: {hint}")
    host, colon, port = listen.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{name}={listen!r}: an IPv6 address stands in brackets; {hint}")
    if not colon or not host or any(letter.isspace() or letter == "/" for letter in host):
        raise ConfigError(f"{name}={listen!r}: {hint}")
    if not (port.isascii() and port.isdecimal()) or int(port) > _HIGHEST_PORT:
        raise ConfigError(f"{name}={listen!r}: the port is a number from 0 to {_HIGHEST_PORT}; {hint}")
    return host, int(port)
