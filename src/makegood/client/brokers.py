"""What a client shows of users' brokers."""

from makegood.client.opened_store import OpenedStore
from makegood.story.brokers import BrokersView, brokers_of


class ClientBrokers:
    """The part of a ``Client`` that shows brokers."""

    _opened_store: OpenedStore

    async def brokers(self) -> BrokersView:
        """Return the places at brokers that orders are taken from, and the brokers that notices go to.

        Of each: what waits, how old the oldest is, what the running processes took, refused or sent, and the
        last error. It is what living processes and the store say; no broker is asked.

        >>> async def away(client):
        ...     return [source.address for source in (await client.brokers()).sources if source.away]
        """
        store = self._opened_store.ready()
        return brokers_of(await store.nodes.views(), await store.notices.backlogs())
