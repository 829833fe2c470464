"""Where a console listens and who may use it: what the command line and a Node are told."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from makegood.base.arguments import judge_calls
from makegood.base.host_port import host_and_port
from makegood.console.users import Role, User
from makegood.errors import ConfigError
from makegood.payload.envelopes import Codec

DEFAULT: Final = "127.0.0.1:8640"


@judge_calls(ConfigError)
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """A console that a process serves itself. Raises ``ConfigError`` for what contradicts itself."""

    listen: str = DEFAULT
    """HOST:PORT; port 0 takes any that is free."""
    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    """Who may log in, or what those may do whom a proxy names."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose headers are believed."""
    user_header: str | None = None
    """The header in which such a proxy names the user."""
    role: Role | None = None
    """The role of those who have none otherwise."""
    base: str = ""
    """The path under which a proxy serves the console."""
    secret: str | None = field(default=None, repr=False)
    """Signs logins; None draws one, and logins end with the process."""
    token: str | None = field(default=None, repr=False)
    """What opens a console without users; None: what this user's private file holds."""
    insecure: bool = False
    """Whether everybody may use it without a login."""
    trace_url: str | None = None
    """The address of a trace where traces are kept; ``{trace}`` in it becomes the trace's id."""
    codec: Codec | None = field(default=None, repr=False)
    """Decodes inputs and results for the pages; None: they are shown encoded."""

    def __post_init__(self) -> None:
        """Refuse to listen for others than this machine where nobody has to log in."""
        refuse_bad_trace_url(self.trace_url)
        host, _ = host_and_port(self.listen, "console")
        if not (self.authenticates or self.insecure or _is_loopback(host)):
            raise ConfigError(
                f"console={self.listen!r}: other machines would reach it, and nobody has to log in: add console_users, or listen on "
                f"127.0.0.1, where its token is enough. With console_insecure=on (MAKEGOOD_CONSOLE_INSECURE, insecure= in Python), "
                f"whoever reaches it may do everything"
            )

    @property
    def authenticates(self) -> bool:
        """Whether visitors must say who they are."""
        return bool(self.users) or self.user_header is not None


def refuse_bad_trace_url(address: str | None) -> None:
    """Raise ``ConfigError`` unless it is None, or an HTTP address in which a trace's id has a place."""
    if address is not None and (
        not address.startswith(("http://", "https://"))
        or "{trace}" not in address
        or not address.isprintable()
    ):
        raise ConfigError(
            f"console_trace_url={address!r}: write an address with {{trace}} in the place of the trace's id, such as "
            "https://jaeger.example/trace/{trace}"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
