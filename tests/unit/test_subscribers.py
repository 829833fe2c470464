"""Subscribers to topics: who is called, in which order, and until when."""

from collections.abc import Callable
from functools import partial

from makegood.store.subscribers import Subscribers


def test_subscribers_of_a_topic_are_called_until_they_end() -> None:
    """Each topic has its own; a topic without subscribers is forgotten, and ending twice does nothing."""
    calls: list[str] = []
    subscribers = Subscribers()
    first = subscribers.subscribe("inbox", lambda: calls.append("first"))
    second = subscribers.subscribe("inbox", lambda: calls.append("second"))
    subscribers.announce({"inbox", "pending"})
    assert calls == ["first", "second"]
    first()
    first()
    subscribers.announce({"inbox"})
    assert calls == ["first", "second", "second"]
    second()
    assert not subscribers
    subscribers.announce({"inbox"})
    assert calls == ["first", "second", "second"]


def test_all_topics_are_announced_in_their_order_even_if_a_call_ends_a_subscription() -> None:
    """None stands for every topic; who is called may end its own subscription meanwhile."""
    calls: list[str] = []
    ends: list[Callable[[], None]] = []
    subscribers = Subscribers()

    def once() -> None:
        calls.append("once")
        ends.pop()()

    for topic in ("pending", "inbox"):
        subscribers.subscribe(topic, partial(calls.append, topic))
    ends.append(subscribers.subscribe("ended", once))
    subscribers.announce(None)
    subscribers.announce(None)
    assert calls == ["once", "inbox", "pending", "inbox", "pending"]
