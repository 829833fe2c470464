"""What submitters are told: which states, numbered how, in which words, and where to."""

import json

import pytest

from makegood import saga
from makegood.errors import ConfigError
from makegood.model import notices
from makegood.model.messages import Alert, TaskMessage
from makegood.model.notices import Notice
from makegood.model.task import ReplyTo
from tests.unit.saga_case import ADA, Case, action

HOOK = ReplyTo("https://shop.example/hook", "cart-7")


def telling(*plans: object, **task: object) -> Case:
    """Return a task that tells, as it was submitted: *received* was told with it."""
    return Case(
        *plans,  # type: ignore[arg-type]
        claim=False,
        **{"reply": HOOK, "told": "received", "notified": 1, **task},
    )


def said(case: Case) -> list[tuple[int, str]]:
    return [(n.sequence, n.state) for n in case.last.notices]


def test_each_state_that_is_come_to_is_told_once_in_order() -> None:
    case = telling(action(0), action(1, 0))
    case.say(TaskMessage("claim"))
    assert said(case) == [(2, "processing")]
    case.done(0)
    assert said(case) == []
    case.done(1)
    assert said(case) == [(3, "processed")]
    (notice,) = case.last.notices
    assert (notice.result, notice.cause, notice.standing) == (b"null", "", ())
    assert (case.task.told, case.task.notified) == ("processed", 3)


def test_who_asked_for_nothing_is_told_nothing() -> None:
    case = Case(action(0))
    case.done(0)
    assert not case.last.notices
    assert (case.task.told, case.task.notified) == ("", 0)


def test_an_undone_task_says_why_and_what_was_undone_and_what_stands() -> None:
    case = telling(action(0), action(1, 0, undoable=False), action(2, 1))
    case.say(TaskMessage("claim"))
    case.done(0, 1)
    case.answer(2, "permanent", error="card refused")
    assert said(case) == [(3, "undoing")]
    case.answer(0)
    assert said(case) == [(4, "undone")]
    (notice,) = case.last.notices
    assert notice.undone_steps == ("s0",)
    assert notice.standing == (("s1", "kept"),)
    assert "card refused" in notice.cause
    assert notice.result is None


def test_a_held_task_says_what_may_stand() -> None:
    case = telling(action(0), action(1, 0), on_failure="hold")
    case.say(TaskMessage("claim"))
    case.done(0)
    case.answer(1, "permanent", error="no")
    assert said(case) == [(3, "error")]
    assert case.last.notices[0].standing == (("s0", "done"),)


def test_several_states_in_one_decision_are_told_one_by_one_as_they_were_then() -> None:
    case = telling(action(0))
    case.say(TaskMessage("claim"), TaskMessage("cancel", act=ADA))
    assert said(case) == [(2, "undone")]
    case = telling(action(0))
    case.say(TaskMessage("claim"))
    case.say(case.reply(0, "done", value=b"1"), TaskMessage("undo", act=ADA))
    assert said(case) == [(3, "processed"), (4, "undoing")]
    assert case.last.notices[0].result == b"null"


def test_from_one_scheduler_to_the_next_nothing_is_told_anew() -> None:
    case = telling(action(0))
    case.say(TaskMessage("claim"))
    case.say(TaskMessage("dead"))
    assert (case.task.state, said(case)) == ("pending", [])
    case.say(TaskMessage("claim"))
    assert (case.task.state, said(case)) == ("processing", [])


def test_a_resubmission_counts_on() -> None:
    case = telling(action(0), action(1, 0))
    case.say(TaskMessage("claim"))
    case.done(0)
    case.answer(1, "permanent", error="no")
    case.answer(0)
    assert said(case) == [(4, "undone")]
    case.act("resubmit")
    assert said(case) == []
    case.say(TaskMessage("claim"))
    assert said(case) == [(5, "processing")]
    assert case.last.notices[0].submission == 2


def test_a_task_that_cannot_be_decided_tells_so() -> None:
    case = telling(action(0))
    decision = saga.put_to_error(
        case.held, [TaskMessage("claim")], Alert("unreadable", 7, "", "no such value")
    )
    assert [(n.sequence, n.state) for n in decision.notices] == [(2, "processing"), (3, "error")]
    assert decision.notices[-1].cause == "no such value"


def test_an_event_says_no_more_than_belongs_to_its_state() -> None:
    notice = Notice(7, 2, "processing", ReplyTo("queue:web"), "shop", "place_order", "o-1")
    event = json.loads(notices.head("5e", 1, notice, "2026-01-01T00:00:00Z") + notices.event(notice))
    assert event == {
        "specversion": "1.0", "id": "5e-1-0000000000007-2", "generation": 1, "time": "2026-01-01T00:00:00Z",
        "type": "dev.makegood.task.processing.v1", "source": "/makegood/shop/place_order", "subject": "0000000000007",
        "sequence": "0000000002", "datacontenttype": "application/json",
        "data": {
            "task": "0000000000007", "state": "processing", "sequence": 2, "submission": 1, "app": "shop",
            "workflow": "place_order", "key": "o-1", "correlation_id": None,
        },
    }  # fmt: skip


def test_texts_that_json_must_escape_come_through() -> None:
    reply = ReplyTo("https://shop.example/", 'quo"te')
    notice = Notice(
        7, 3, "undone", reply, "shop", "place", "k\\é\n", cause='no "card"\x00', standing=(("a", "done"),)
    )
    event = json.loads(notices.head("5e", 1, notice, "now") + notices.event(notice))
    assert (event["correlationid"], event["data"]["key"]) == ('quo"te', "k\\é\n")
    assert event["data"]["cause"] == 'no "card"\x00'


@pytest.mark.parametrize(
    "to",
    [
        "queue:web-7", "https://shop.example/hook?x=1", "https://shop.example:8443", "https://[2001:db8::1]/x",
        "http://localhost:9000/hook", "http://127.0.0.1:9000/", "https://xn--bcher-kva.example/",
    ],
)  # fmt: skip
def test_addresses_that_can_be_told(to: str) -> None:
    assert notices.reply(to, "c") == ReplyTo(to, "c")


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("", "queue:NAME"), ("web-7", "queue:NAME"), ("queue:", "not allowed"), ("queue:a b", "not allowed"),
        ("http://shop.example/", "only https"), ("ftp://shop.example/", "queue:NAME"), ("https:///x", "queue:NAME"),
        ("https://me:secret@shop.example/", "remove the user"), ("https://shop.example/#top", "after #"),
        ("https://bücher.example/", "ASCII"), ("https://shop.example/a b", "ASCII"), ("https://shop.example:x/", "cannot be read"),
        ("https://2130706433/", "host"), ("https://0x7f.1/", "host"), ("https://[::1/", "cannot be read"),
        ("https://shop..example/", "host"), ("https://shop.example/" + "x" * 3000, "too long"),
    ],
)  # fmt: skip
def test_addresses_that_cannot_are_refused_with_the_reason(to: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        notices.reply(to, None)
    with pytest.raises(ConfigError, match="a text"):
        notices.reply(7, None)  # type: ignore[arg-type]


def test_a_correlation_id_must_fit_into_a_header() -> None:
    with pytest.raises(ConfigError, match="printable"):
        notices.reply("queue:a", "a\nb")
    with pytest.raises(ConfigError, match="500"):
        notices.reply("queue:a", "a" * 501)


def test_what_may_be_secret_in_an_address_is_not_shown() -> None:
    assert notices.safe_address("https://shop.example:8443/hook?token=x") == "https://shop.example:8443"
    assert notices.safe_address("queue:web-7") == "queue:web-7"
