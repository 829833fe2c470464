"""Ports for servers of tests.

Not from the range of which the system takes ports for whoever connects, or listens on any port: while a server is stopped, its port
would be taken by somebody else now and then, and who looks for the server would find him.
"""

import random
import socket

_FROM, _TO = 10_000, 32_000
_TRIES = 200


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens. Raises ``OSError`` when none was found."""
    draw = random.SystemRandom()  # processes of tests that were started alike must not draw alike
    for _ in range(_TRIES):
        port = draw.randrange(_FROM, _TO)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"no free port was found from {_FROM} to {_TO} in {_TRIES} tries")
