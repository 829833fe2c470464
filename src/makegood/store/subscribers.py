"""Subscribers to topics: the store calls them when a topic may have something new."""

from collections.abc import Callable

from makegood.model.messages import FreshMessage

Receive = Callable[[FreshMessage], bool]
"""Takes a message; returns whether it did."""


class Subscribers(dict[str, list[Callable[[], None]]]):
    """The calls to make, by topic."""

    def __init__(self) -> None:
        super().__init__()
        self.receivers: list[Receive] = []
        """The callbacks that are offered the messages this process puts into inboxes."""

    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when something may have arrived for ``topic``; returns a function that ends the
        subscription.
        """
        self.setdefault(topic, []).append(wake)

        def end() -> None:
            wakes = self.get(topic, [])
            if wake in wakes:
                wakes.remove(wake)
            if not wakes:
                self.pop(topic, None)

        return end

    def receive(self, take: Receive) -> Callable[[], None]:
        """Offer ``take`` each fresh message; returns a function that ends this."""
        self.receivers.append(take)
        return lambda: self.receivers.remove(take)

    def deliver(self, message: FreshMessage) -> None:
        """Offer a message to the receivers; if nobody takes it, call the subscribers of "inbox"."""
        if not any(take(message) for take in self.receivers):
            self.announce({"inbox"})

    def announce(self, topics: set[str] | None) -> None:
        """Call the subscribers of these topics; None: of all."""
        for topic in sorted(self if topics is None else topics):  # in an order that a seed can replay
            for wake in tuple(self.get(topic, ())):
                wake()
