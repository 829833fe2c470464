"""How requests reach agents and replies come back: one small protocol, the store's own rows by default."""

from makegood.channels.protocol import Channel
from makegood.channels.store import StoreChannel

__all__ = ["Channel", "StoreChannel"]
