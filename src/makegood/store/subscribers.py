"""Subscribers to topics: the store calls them when a topic may have something new."""

from collections.abc import Callable


class Subscribers(dict[str, list[Callable[[], None]]]):
    """The calls to make, by topic."""

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

    def announce(self, topics: set[str] | None) -> None:
        """Call the subscribers of these topics; None: of all."""
        for topic in sorted(self if topics is None else topics):  # in an order that a seed can replay
            for wake in tuple(self.get(topic, ())):
                wake()
