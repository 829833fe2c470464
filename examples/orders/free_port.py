"""Ports for servers of tests.

They are outside the range from which the system takes ports for outgoing connections and for listeners on any
port. Otherwise another program would sometimes take the port of a stopped server, and clients of the server
would reach that program. And a port is given out once: a server may listen on it much later than another program asks.
"""

import random
import socket
import sys

_FROM, _TO = 10_000, 32_000
_TRIES = 200


def free_port() -> int:
    """Return a port of 127.0.0.1 without a listener, which nobody else is given here until this program ends.

    Raises ``OSError`` if none was found.
    """
    draw = random.SystemRandom()  # Test processes that start alike must not draw alike.
    for _ in range(_TRIES):
        port = draw.randrange(_FROM, _TO)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _claimed(port):
            return port
    raise OSError(f"no free port was found from {_FROM} to {_TO} in {_TRIES} tries")


def _claimed(port: int) -> bool:
    """Claim a port; False if another program, or this one, has it. Only Linux has such names, which end with their program."""
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0makegood-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # open until this program ends
    return True
