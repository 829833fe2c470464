"""Ports for servers of tests.

They are outside the range from which the system takes ports for outgoing connections and for listeners on any
port. Otherwise another program would sometimes take the port of a stopped server, and clients of the server
would reach that program.
"""

import random
import socket

_FROM, _TO = 10_000, 32_000
_TRIES = 200


def free_port() -> int:
    """Return a port of 127.0.0.1 without a listener. Raises ``OSError`` if none was found."""
    draw = random.SystemRandom()  # Test processes that start alike must not draw alike.
    for _ in range(_TRIES):
        port = draw.randrange(_FROM, _TO)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"no free port was found from {_FROM} to {_TO} in {_TRIES} tries")
