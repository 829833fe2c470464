"""``makegood task follow``: a batch to its end, whatever becomes of its tasks and of the processes that run them."""

import json
import signal

import pytest

from tests.doors.conftest import Shop


def order(name: str, card: str = "good") -> str:
    return json.dumps({"id": name, "card": card})


def submit(shop: Shop, night: str, *cards: str) -> None:
    """Submit an order for each card, under keys and a correlation id of one night."""
    for n, card in enumerate(cards):
        options = (
            "--key",
            f"{night}/{n}",
            "--correlation-id",
            night,
            "--attribute",
            f"card={card}",
            "--attribute",
            "night=yes",
        )
        shop.done("task", "submit", "kiosk:buy", order(f"{night}-{n}", card), *options)


@pytest.mark.parametrize(
    ("cards", "code", "text"),
    [
        (("good", "good"), 0, "2 tasks: 2 processed"),
        (("good", "declined", "good"), 5, "3 tasks: 2 processed, 1 undone"),
        (("stuck", "declined", "good"), 6, "3 tasks: 1 processed, 1 stuck, 1 undone"),
    ],
)
def test_the_worst_end_is_the_exit_code(
    open_shop: Shop, cards: tuple[str, ...], code: int, text: str
) -> None:
    night = f"n{code}"
    submit(open_shop, night, *cards)
    for words in (f"correlation:{night}", f"key:{night}/*"):
        result = open_shop.call("task", "follow", words, "--expect", str(len(cards)), "--timeout", "2m")
        assert (result.exit_code, result.stdout) == (code, f"{text}\n"), result.output
    document = open_shop.json("task", "follow", f"correlation:{night}", code=code)
    assert document == {
        "tasks": len(cards), "expected": None, "processed": cards.count("good"), "undone": cards.count("declined"),
        "error": cards.count("stuck"), "to_go": 0, "ended": True,
    }  # fmt: skip


def test_a_terminal_shows_a_bar(open_shop: Shop) -> None:
    submit(open_shop, "bar", "good")
    result = open_shop.call("task", "follow", "correlation:bar", "--color", "always", "--timeout", "2m")
    assert result.exit_code == 0
    assert "[" in result.stdout
    assert f"{'█' * 30}" in result.stdout


def test_what_no_task_matches_is_not_found_and_what_is_not_understood_is_named(shop: Shop) -> None:
    for words, code, text in (
        (
            ("correlation:day",),
            3,
            "no task matches correlation:day; for tasks that are still to be submitted, give their number with --expect",
        ),
        (("attribute:expect=3",), 3, "no task matches attribute:expect=3; "),
        (("workflow:bay",), 3, "no task in this store is of the workflow 'bay'"),
        (
            ("correlation:day", "--expect", "1", "--timeout", "50ms"),
            7,
            "0 of 1 submitted; 0 processed, 0 to go, 0 stuck",
        ),
        (("night=yes",), 2, "'night=yes' is not understood"),
        (
            ("workflow:b*",),
            2,
            "workflow:b* is not understood: write a * only at the end of a value of key, correlation, lane, attribute",
        ),
        (("state:error",), 2, "state is true of a task only for some time"),
    ):
        result = shop.call("task", "follow", *words)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        assert text in result.stderr
    waiting = shop.json("task", "follow", "correlation:day", "--expect", "1", "--timeout", "50ms", code=7)
    assert (waiting["tasks"], waiting["expected"], waiting["ended"]) == (0, 1, False)


def test_lists_and_acts_name_a_batch_as_well(shop: Shop) -> None:
    submit(shop, "list", "good", "declined", "good")
    submit(shop, "list*", "good")
    filters: tuple[tuple[tuple[str, ...], int], ...] = (
        (("--filter", "key:list/*"), 3),
        (("--key", "list/*"), 3),
        (("--filter", "key:'list*/0'"), 1),
        (("--filter", "correlation:'list*'"), 1),
        (("--correlation-id", "list"), 3),
        (("--correlation-id", "li*"), 4),
        (("--filter", "attribute:card=good correlation:list"), 2),
        (("--attribute", "card=good", "--attribute", "night=y*", "--correlation-id", "list"), 2),
    )
    for words, count in filters:
        assert len(shop.json("task", "list", *words)) == count, words
        assert shop.json("task", "cancel", *words, "--dry-run")["count"] == count
        if words[0] == "--filter":  # words that are split as a shell splits them, or one text
            assert len(shop.json("task", "list", *words[1].split())) == count, words
            assert len(shop.json("task", "list", words[1])) == count, words
    mistakes: tuple[tuple[tuple[str, ...], str], ...] = (
        (("--key", "*/0"), """key:*/0 is not understood: write a * only at the end"""),
        (("--attribute", "card"), "attribute:card is not understood; write attribute:customer=ada"),
        (("--key", "a", "--filter", "key:b"), "key is given twice: in the filter and as --key"),
        (("--key", "a", "key:b"), "key is given twice: in the filter and as --key"),
        (("key:a", "--filter", "state:error"), "the filter is given twice: in words and as --filter"),
        (("card=good",), "An attribute of a task is attribute:card=good"),
    )
    for words, text in mistakes:
        result = shop.call("task", "list", *words)
        assert result.exit_code == 2
        assert text in result.stderr


def test_a_task_shows_its_attributes(shop: Shop) -> None:
    submit(shop, "show", "good")
    assert "attributes    card=good, night=yes\n" in shop.done("task", "show", "show/0")
    assert shop.json("task", "show", "show/0")["attributes"] == {"card": "good", "night": "yes"}
    for text, message in (
        ("card", "--attribute 'card': write NAME=VALUE, such as customer=ada"),
        ("=x", "write NAME=VALUE"),
        ("makegood.x=1", "names that begin with makegood. are makegood's own"),
    ):
        result = shop.call("task", "submit", "kiosk:buy", order("x"), "--attribute", text)
        assert result.exit_code == 2
        assert message in result.stderr
    twice = shop.call("task", "submit", "kiosk:buy", order("x"), "--attribute", "a=1", "--attribute", "a=2")
    assert (twice.exit_code, "--attribute: a is given twice" in twice.stderr) == (2, True)


def test_a_batch_is_followed_through_a_kill(shop: Shop) -> None:
    """The process that runs every role is killed while a batch is submitted and followed, and another one comes."""
    first = shop.serve("run", "kiosk:kiosk", MAKEGOOD_HEARTBEAT="200ms", MAKEGOOD_DEAD_AFTER="1s")
    following = shop.start("task", "follow", "correlation:kill", "--expect", "6", "--timeout", "2m")
    submit(shop, "kill", "good", "good")
    shop.done("task", "follow", "correlation:kill", "--expect", "2", "--timeout", "2m")
    first.send_signal(signal.SIGKILL)
    submit(shop, "kill", "good", "good", "declined", "good", "good", "good")
    assert following.poll() is None
    shop.serve("run", "kiosk:kiosk")
    out, err = following.communicate(timeout=150)
    assert (following.returncode, out) == (5, "6 tasks: 5 processed, 1 undone\n"), err
