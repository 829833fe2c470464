"""Brokers as operators see them: what waits at each source, and what waits for each receiver.

Sources are read from what the living processes publish of themselves; receivers from the notices that the
store has to send.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from makegood.store.notice_records import ReceiverBacklog
from makegood.store.views import NodeView, SenderInfo, SourceInfo


class SourceView(msgspec.Struct, frozen=True):
    """A place at a broker that orders are taken from, by however many processes."""

    address: str
    queue: str
    """The store's queue for what is taken."""
    readers: tuple[str, ...]
    """The names of the processes that take from it."""
    waiting: int | None
    """Messages at the broker that nobody has acknowledged; None: it does not say."""
    oldest: float | None
    """Age of the oldest of them in seconds; None: unknown."""
    taken: int
    """Messages that the living processes have put into the queue since they started."""
    refused: int
    redelivered: int
    away: float | None
    """Seconds for which the broker has answered none of them; None: it answers."""
    error: str


class ReceiverView(msgspec.Struct, frozen=True):
    """A broker that notices are sent to."""

    broker: str
    waiting: int
    """Tasks with notices to send, up to ``COUNTED`` and one more."""
    oldest: float | None
    """Seconds for which the first of them has been due; None: none is."""
    dead: int
    """Tasks whose notices were given up, up to ``COUNTED`` and one more."""
    sent: int
    """Notices that the living processes have sent since they started."""
    failed: int
    """Sends that failed; the notices are sent again."""
    away: float | None
    """Seconds for which it has taken nothing, as the process knows that tried it last; None: it does."""
    error: str


class BrokersView(msgspec.Struct, frozen=True):
    """All sources and receivers, by address."""

    sources: tuple[SourceView, ...]
    receivers: tuple[ReceiverView, ...]


def brokers_of(nodes: Iterable[NodeView], backlogs: Iterable[ReceiverBacklog]) -> BrokersView:
    """Return the brokers that the living processes use, and those that notices wait for."""
    living = [node for node in nodes if node.state == "alive"]
    sources: dict[str, list[tuple[str, SourceInfo]]] = {}
    senders: dict[str, list[tuple[float, SenderInfo]]] = {}
    for node in living:
        for source in node.info.sources:
            sources.setdefault(source.address, []).append((node.info.name, source))
        for sender in node.info.senders:
            last_try = sender.last_try + node.silent  # it was published with the latest heartbeat
            senders.setdefault(sender.broker, []).append((last_try, sender))
    by_broker = {backlog.host: backlog for backlog in backlogs if ":" in backlog.host}
    return BrokersView(
        tuple(_source(address, sources[address]) for address in sorted(sources)),
        tuple(
            _receiver(broker, by_broker.get(broker), senders.get(broker, ()))
            for broker in sorted({*senders, *by_broker})
        ),
    )


def _source(address: str, readers: Sequence[tuple[str, SourceInfo]]) -> SourceView:
    infos = [info for _, info in readers]
    away = [info.away for info in infos if info.away is not None]
    return SourceView(
        address=address,
        queue=infos[0].queue,
        readers=tuple(sorted(name for name, _ in readers)),
        waiting=max((info.waiting for info in infos if info.waiting is not None), default=None),
        oldest=max((info.oldest for info in infos if info.oldest is not None), default=None),
        taken=sum(info.taken for info in infos),
        refused=sum(info.refused for info in infos),
        redelivered=sum(info.redelivered for info in infos),
        away=min(away) if len(away) == len(infos) else None,
        error=next((info.error for info in infos if info.error), ""),
    )


def _receiver(
    broker: str, backlog: ReceiverBacklog | None, by_last_try: Sequence[tuple[float, SenderInfo]]
) -> ReceiverView:
    senders = [sender for _, sender in sorted(by_last_try, key=itemgetter(0))]
    error = next((sender.error for sender in senders if sender.error), "")
    return ReceiverView(
        broker=broker,
        waiting=0 if backlog is None else backlog.waiting,
        oldest=None if backlog is None or backlog.overdue is None or backlog.overdue < 0 else backlog.overdue,
        dead=0 if backlog is None else backlog.dead,
        sent=sum(sender.sent for sender in senders),
        failed=sum(sender.failed for sender in senders),
        away=senders[0].away if senders else None,
        error=error or ("" if backlog is None else backlog.error),
    )
