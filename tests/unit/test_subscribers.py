"""Subscribers to topics: who is called, in which order, and until when."""

from collections.abc import Callable
from functools import partial

from makegood.store.subscribers import Subscribers


def test_subscribers_of_a_topic_are_called_until_they_end() -> None:
    """Each topic has its own; a topic without subscribers is forgotten, and ending twice does nothing."""
    rung: list[str] = []
    subscribers = Subscribers()
    first = subscribers.subscribe("inbox", lambda: rung.append("first"))
    second = subscribers.subscribe("inbox", lambda: rung.append("second"))
    subscribers.announce({"inbox", "pending"})
    assert rung == ["first", "second"]
    first()
    first()
    subscribers.announce({"inbox"})
    assert rung == ["first", "second", "second"]
    second()
    assert not subscribers
    subscribers.announce({"inbox"})
    assert rung == ["first", "second", "second"]


def test_all_topics_are_announced_in_their_order_even_if_a_call_ends_a_subscription() -> None:
    """None stands for every topic; who is called may end its own subscription meanwhile."""
    rung: list[str] = []
    ends: list[Callable[[], None]] = []
    subscribers = Subscribers()

    def once() -> None:
        rung.append("once")
        ends.pop()()

    for topic in ("pending", "inbox"):
        subscribers.subscribe(topic, partial(rung.append, topic))
    ends.append(subscribers.subscribe("ended", once))
    subscribers.announce(None)
    subscribers.announce(None)
    assert rung == ["once", "inbox", "pending", "inbox", "pending"]
