"""Declarations: what does not fit is refused where it is written, with what to write instead; what fits is ready to run."""

import inspect
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from makegood import keys
from makegood.declare.action import Action, Agent, AsyncAction, Shared
from makegood.declare.outcomes import NOT_HAPPENED, NOTHING, Happened, NotHappened
from makegood.declare.terms import Declared
from makegood.errors import ConfigError, DefinitionError, DuplicateNameError
from makegood.model.messages import Request
from makegood.model.policy import NEVER, Policy, Recover, Retry


@dataclass
class Order:
    id: str
    cents: int = 1


@dataclass
class Refund:
    id: str


def agent(name: str = "payments", **limits: Any) -> Agent:
    return Agent(name, Shared("shop", **limits))


def request(doing: Any = "do", args: bytes = b'{"order":{"id":"o"},"hold":"h"}', **more: Any) -> Request:
    return Request(
        task=1, idx=0, doing=doing, attempt=1, app="shop", agent="payments", action="charge", step="charge", round=1,
        within=30.0, args=args, **more,
    )  # fmt: skip


def charge(order: Order, hold: str) -> str:
    return f"{order.id} {hold}"


def refund(order: Order, *, result: str | None) -> None: ...


def find(order: Order, hold: str) -> Happened[str] | NotHappened:
    return NOT_HAPPENED


def declared(fn: Any = charge, **options: Any) -> Action[..., Any]:
    """Declare a function afresh."""
    action: Action[..., Any] = agent().action(**{"complete_within": "30s", **options})(fn)
    return action


# -- what is declared ------------------------------------------------------------------------------------------------------


def test_an_action_keeps_its_function_and_knows_where_it_belongs() -> None:
    action = declared(name="take", formerly=("charge", "bill"))
    assert action.fn is charge
    assert (action.name, action.formerly, action.address) == (
        "take",
        ("charge", "bill"),
        "shop/payments/take",
    )
    assert action.agent.actions == {"take": action}
    assert action.agent._find("bill") is action
    assert action.agent._find("take") is action
    assert action.agent._find("other") is None
    assert action.__doc__ == charge.__doc__
    assert inspect.signature(action) == inspect.signature(charge)
    assert "shop/payments/take" in repr(action)


def test_def_and_async_def_are_told_apart() -> None:
    async def slow() -> None: ...

    assert type(declared()) is Action
    assert isinstance(declared(slow), AsyncAction)


def test_the_policy_says_all_that_the_rules_need() -> None:
    action = declared(
        retry=Retry(tries=4),
        recover=Recover(threshold=2, wait="1s", extended="1m", then="hold"),
        remembers=True,
    )
    assert not action._is_made_good
    assert action._undo_fn is None
    action.undo(complete_within=timedelta(minutes=2), recover=Recover(threshold=7, wait="2s", extended="3s"))(
        refund
    )
    action.probe(fences=True)(find)
    assert action._is_made_good
    assert action._undo_fn is not None
    assert action.retry.tries == 4
    assert action._policy == Policy(
        within=30.0, threshold=2, wait=1.0, extended=60.0, then="hold", undoable=True, undo_within=120.0, undo_threshold=7,
        undo_wait=2.0, undo_extended=3.0, remembers=True, probe=True, fences=True, resumes=True,
    )  # fmt: skip


def test_an_undo_is_as_patient_as_its_action_unless_it_says_otherwise() -> None:
    action = declared(recover=Recover(threshold=1, wait="2s", extended="4s"))
    assert action.undo(refund) is refund
    policy = action._policy
    assert (policy.undo_within, policy.undo_threshold, policy.undo_wait, policy.undo_extended) == (
        30.0,
        1,
        2.0,
        4.0,
    )


def test_nothing_and_no_return_make_good_without_an_undo() -> None:
    harmless, final = declared(undo=NOTHING), declared(no_return=True)
    assert harmless._is_made_good
    assert final._is_made_good
    assert not harmless._policy.undoable
    assert (final._policy.undoable, final._policy.no_return) == (False, True)


def test_a_policy_looked_at_too_early_is_not_the_last_word() -> None:
    action = declared()
    assert action._policy.probe is False
    action.probe(find)
    assert action._policy.probe is True


def test_what_a_service_says_of_keys_is_in_the_policy_and_what_is_passed_comes_first() -> None:
    policy = declared(key=keys.STRIPE)._policy
    assert (policy.key_form, policy.key_limit, policy.keeps, policy.remembers) == ("", 255, 86400.0, True)
    policy = declared(key=keys.AZURE, keeps="4m", key_limit=40)._policy
    assert (policy.key_form, policy.key_limit, policy.keeps, policy.remembers) == ("uuid", 40, 240.0, False)
    assert not declared(key=keys.STRIPE, remembers=False)._policy.remembers
    assert declared(key="length=28")._policy.key_form == "length=28"
    policy = declared(key="plain")._policy
    assert (policy.key_form, policy.key_limit, policy.keeps) == ("", 0, 0.0)


def test_the_longest_key_that_a_service_takes_is_taken_and_one_longer_is_refused() -> None:
    """The key of an undo is two characters longer than that of its action: 38 and the name."""
    declared(key_limit=42)
    with pytest.raises(
        DefinitionError, match=r'the idempotency key for step charge has 42 .* takes 41: pass key="uuid"'
    ):
        declared(key_limit=41)
    declared(key_limit=44).undo(refund)
    with pytest.raises(DefinitionError, match=r'the undo of .* has 44 .* takes 43: pass key="uuid"'):
        declared(key_limit=43).undo(refund)
    declared(key_limit=42, undo=NOTHING)
    declared(key="uuid", key_limit=36).undo(refund)


def test_an_attempt_may_be_extended_to_ten_times_its_length_or_as_its_action_says() -> None:
    assert declared(complete_within="3s").terms.longest(3.0) == 30.0
    terms = declared(complete_within="2s", extend_up_to="2h").terms
    assert terms.longest(2.0) == 7200.0
    assert terms.longest(10_000.0) == 10_000.0  # an undo whose own attempts are longer
    assert declared(complete_within="2s", extend_up_to="2s").terms.longest(2.0) == 2.0
    with pytest.raises(DefinitionError, match=r"extend_up_to='1s' is shorter than complete_within='2s'"):
        declared(complete_within="2s", extend_up_to="1s")
    with pytest.raises(DefinitionError, match=r"extend_up_to"):
        declared(complete_within="2s", extend_up_to="soon")


@pytest.mark.parametrize(
    ("options", "resumes"),
    [
        ({}, False),
        ({"keeps": "1d"}, False),
        ({"key": "uuid"}, True),
        ({"key": keys.STRIPE}, True),
        ({"remembers": True}, True),
        ({"recover": Recover(resume="dead")}, True),
        ({"key": "uuid", "recover": Recover(resume="deadline")}, False),
        ({"key": "uuid", "recover": Recover(threshold=1)}, True),
        ({"retry": NEVER}, False),
    ],
)
def test_an_action_is_resumed_when_its_process_is_dead_if_its_service_honours_keys(
    options: dict[str, Any], resumes: bool
) -> None:
    assert declared(**options)._policy.resumes is resumes


# -- misuse ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (
            {"complete_within": None},
            r'shop/payments/charge has no deadline: pass complete_within="30s"',
        ),
        ({"complete_within": 0}, r"shop/payments/charge: complete_within=0 must be .* at least 0.001 s"),
        ({"complete_within": -3}, "complete_within=-3"),
        (
            {"complete_within": "20 parsecs"},
            r'complete_within=.20 parsecs. is not a duration: write seconds.*"200ms"',
        ),
        ({"complete_within": float("inf")}, "finite"),
        ({"complete_within": True}, "is not a duration"),
        ({"retry": 3}, r"retry=3: pass mg\.Retry\(\.\.\.\) or mg\.NEVER"),
        ({"retry": Retry(tries=2, never=True)}, r"one try at most: pass mg\.NEVER"),
        ({"recover": "undo"}, r"pass mg\.Recover"),
        ({"retry": NEVER, "remembers": True}, r"remembers=True .*retry=mg\.NEVER .*drop one"),
        (
            {"retry": NEVER, "recover": Recover(resume="dead")},
            r'resume="dead"\) .*retry=mg\.NEVER .*drop one',
        ),
        ({"undo": NOTHING, "no_return": True}, r"undo=mg\.NOTHING .*no_return=True .*drop one"),
        (
            {"undo": refund},
            r"only mg\.NOTHING goes here; a function is declared below the action, with @charge\.undo",
        ),
        ({"name": "9 lives"}, r"action name '9 lives' is not allowed"),
        ({"formerly": "bill"}, r"pass a tuple of names, formerly=\('bill',\)"),
        ({"formerly": ("b ill",)}, "former action name 'b ill'"),
        ({"key": 28}, r'key=28: pass a form, such as "uuid", or .* mg\.keys\.SQUARE'),
        ({"key": "uuid5"}, "'uuid5' is not the form of a key"),
        ({"key": "length=19"}, "length=19: at least 20; with fewer characters two steps would share a key"),
        ({"key": "uuid", "key_limit": 35}, "36 characters, more than the limit of 35"),
        ({"key_limit": 0}, "limit=0: a whole number of characters"),
        ({"key_limit": True}, "limit=True: a whole number of characters"),
        ({"keeps": "a day"}, "keeps='a day' is not a duration"),
        ({"keeps": 0}, "keeps=0 must be"),
        ({"key": "uuid", "retry": NEVER}, r"key='uuid' .*retry=mg\.NEVER .*drop one"),
        (
            {"timeout": 3},
            "there is no option 'timeout'; there are complete_within, extend_up_to, cancellable, undo, no_return, retry",
        ),
    ],
)
def test_terms_that_cannot_be_meant_are_refused(options: dict[str, Any], pattern: str) -> None:
    with pytest.raises(DefinitionError, match=pattern):
        declared(**options)


def test_what_was_passed_is_read_once() -> None:
    terms = Declared(complete_within="1m", undo=NOTHING).terms("here")
    assert (terms.within, terms.nothing, terms.retry, terms.recover) == (60.0, True, Retry(), Recover())


def test_retry_and_recover_refuse_by_themselves() -> None:
    with pytest.raises(ConfigError, match=r"mg\.NEVER or tries=1"):
        Retry(tries=0)
    with pytest.raises(ConfigError, match=r"Recover\(resume='soon'\): \"dead\" or \"deadline\""):
        Recover(resume="soon")  # type: ignore[arg-type]  # what a misspelling looks like
    with pytest.raises(DefinitionError, match=r"an undo always waits for the deadline"):
        declared().undo(recover=Recover(resume="dead"))


def generator(order: Order) -> Any:
    yield order


async def async_generator(order: Order) -> Any:
    yield order


def many(*orders: Order) -> None: ...


def named(**orders: Order) -> None: ...


def by_position(order: Order, /) -> None: ...


def with_result(order: Order, result: str) -> None: ...


@pytest.mark.parametrize(
    ("fn", "pattern"),
    [
        (generator, "has a yield in it: return the result"),
        (async_generator, "has a yield in it"),
        (many, r"takes \*orders: arguments are kept by name.*take one list"),
        (named, r"takes \*\*orders: arguments are kept by name"),
        (by_position, r"order can be passed by position only.*remove the '/'"),
        (with_result, "has a parameter named result"),
        (Order, "decorate a function"),
        ("charge", "name '' is not allowed|decorate a function"),
        (lambda order: order, "name '<lambda>' is not allowed"),
    ],
)
def test_functions_that_cannot_be_actions_are_refused(fn: Any, pattern: str) -> None:
    with pytest.raises(DefinitionError, match=pattern):
        declared(fn)


def test_action_without_its_options_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r'write @payments\.action\(complete_within="30s", \.\.\.\)'):
        agent().action(charge)  # type: ignore[call-overload]


def test_one_function_is_one_action() -> None:
    with pytest.raises(DefinitionError, match="shop/payments/charge is declared already"):
        declared(declared())


def test_two_actions_of_one_name_are_refused_and_both_places_named() -> None:
    bank = agent()
    bank.action(complete_within=1)(charge)
    with pytest.raises(
        DuplicateNameError, match=r"two actions named 'charge': .*test_declaration\.py:\d+ and .*name="
    ) as error:
        bank.action(complete_within=1, name="charge")(refund_all)
    assert str(charge.__code__.co_firstlineno) in str(error.value)
    with pytest.raises(DuplicateNameError, match="two actions named 'charge'"):
        bank.action(complete_within=1, formerly=["charge"])(refund_all)


def refund_all(order: Order) -> None: ...


@pytest.mark.parametrize("concurrency", [0, -1, "3", True, 1.5])
def test_an_agent_has_a_whole_number_of_slots(concurrency: Any) -> None:
    with pytest.raises(DefinitionError, match="whole number, at least 1"):
        Agent("payments", Shared("shop"), concurrency=concurrency)


def test_called_outside_a_workflow_nothing_happens_but_an_error_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match=r"called outside a workflow.*charge\.fn\(\.\.\.\)"):
        declared()(Order("o"), "h")


def test_answers_are_one_of_a_kind_and_look_like_what_is_written() -> None:
    assert repr(NOT_HAPPENED) == "mg.NOT_HAPPENED"
    assert repr(NOTHING) == "mg.NOTHING"
    assert Happened(3) == Happened(3)
    assert msgspec.json.encode(Happened(3)) == b'{"result":3}'
