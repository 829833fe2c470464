"""What asyncio's loops can do and a simulated world cannot: each call is refused by name, with an
alternative.

A world has no network, no other programs and no pipes: their input could not be replayed, and takes real
time. What a simulated process asks for is recorded where it is refused, since the error may be wrapped or
caught on its way.
"""

import sys
import traceback
from asyncio import base_events
from collections.abc import Callable
from itertools import takewhile
from types import FrameType, MappingProxyType
from typing import Any, Final, NoReturn

from makegood.declare.call import known_call
from makegood.errors import ConfigError

_MOST_KEPT: Final = 50
_FAKE: Final = "let your code call a fake in its place, such as world.service(...) returns"
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
    """A call asked for something that a simulated world does not have.

    ``stack``: the frames of the call; ``step``: the step whose function it belongs to, "" for none.
    """

    stack: traceback.StackSummary = traceback.StackSummary()
    step: str = ""


class LackingLoop(base_events.BaseEventLoop):
    """Asyncio's loop without these features. ``refusals``: the errors that were raised for them in simulated
    processes, at least the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[NotSimulatedError] = []

    def in_process(self) -> bool:
        """Whether the running code belongs to a simulated process, and not to the test itself."""
        return True

    def refuse(self, call: str, what: str, instead: str = _FAKE, *, inside: bool = False) -> NoReturn:
        """Raise ``NotSimulatedError`` for a call, and record it if a simulated process made it.

        ``inside``: one did, in a thread of its own, which does not know it.
        """
        error = NotSimulatedError(f"{call}() was called, and a simulated world has no {what}: {instead}")
        # CPython's documented way to a stack; its outer part is the test's, not the call's
        frames = takewhile(_is_of_call, traceback.walk_stack(sys._getframe(1)))  # noqa: SLF001
        error.stack = traceback.StackSummary.extract(frames, lookup_lines=False)
        error.stack.reverse()
        if (running := known_call()) is not None:
            error.step = running.step
        if (inside or self.in_process()) and len(self.refusals) < _MOST_KEPT:
            self.refusals.append(error)
        raise error

    def remove_reader(self, *_: Any) -> bool:  # Accepts any arguments.
        """There are no readers."""
        return False

    def remove_writer(self, *_: Any) -> bool:  # Accepts any arguments.
        """There are no writers."""
        return False


def _is_of_call(frame: tuple[FrameType, int]) -> bool:
    """Whether a frame belongs to what the loop runs, and is not the loop itself."""
    return frame[0].f_code.co_name != "_step" or not isinstance(frame[0].f_locals.get("self"), LackingLoop)


def _refusal(name: str, feature: str) -> Callable[..., NoReturn]:
    def refuse(self: LackingLoop, *_: Any, **__: Any) -> NoReturn:
        self.refuse(f"loop.{name}", feature)

    refuse.__name__, refuse.__doc__ = name, f"A world has no {feature}: raises ``NotSimulatedError``."
    return refuse


for _feature, _names in _LACKED.items():
    for _name in _names:
        setattr(LackingLoop, _name, _refusal(_name, _feature))
