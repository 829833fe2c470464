"""What asyncio's loops can do and a simulated world cannot: each call is refused by name, with an
alternative.

A world has no network, no other programs and no pipes: their input could not be replayed, and takes real
time.
"""

from asyncio import base_events
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, NoReturn

from makegood.errors import ConfigError

_MOST_KEPT: Final = 50
_LACKED: Final = MappingProxyType(
    {
        "network": (
            "create_connection", "create_datagram_endpoint", "create_server", "create_unix_connection", "create_unix_server",
            "connect_accepted_socket", "start_tls", "sendfile", "getaddrinfo", "getnameinfo", "sock_recv", "sock_recv_into",
            "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto", "sock_connect", "sock_accept", "sock_sendfile",
        ),
        "subprocesses": ("subprocess_exec", "subprocess_shell"),
        "sockets and pipes to wait for": ("add_reader", "add_writer", "connect_read_pipe", "connect_write_pipe"),
    }
)  # fmt: skip


class NotSimulatedError(ConfigError, NotImplementedError):
    """The loop was asked for something that a simulated world does not have."""


class LackingLoop(base_events.BaseEventLoop):
    """Asyncio's loop without these features. ``refused``: the errors that were raised for them, at least the
    first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[NotSimulatedError] = []

    def remove_reader(self, *_: Any) -> bool:  # Accepts any arguments.
        """There are no readers."""
        return False

    def remove_writer(self, *_: Any) -> bool:  # Accepts any arguments.
        """There are no writers."""
        return False


def _refusal(name: str, what: str) -> Callable[..., NoReturn]:
    def refuse(self: LackingLoop, *_: Any, **__: Any) -> NoReturn:
        refused = NotSimulatedError(
            f"loop.{name}() was called, and a simulated world has no {what}: let your code call a fake in its place, "
            "such as world.service(...) returns"
        )
        if len(self.refused) < _MOST_KEPT:
            self.refused.append(refused)
        raise refused

    refuse.__name__, refuse.__doc__ = name, f"A world has no {what}: raises ``NotSimulatedError``."
    return refuse


for _what, _names in _LACKED.items():
    for _name in _names:
        setattr(LackingLoop, _name, _refusal(_name, _what))
