"""``keeps``: a default ``Recover`` is shortened to the time for which a service keeps a key, a written one must fit."""

from typing import Any

import pytest

import makegood as mg
from makegood.cli.commands.check import warnings_of
from makegood.errors import DefinitionError
from makegood.model.policy import Policy, Recover, span


def charge(order: str) -> str:
    """Charge."""
    return order


def policy(**options: Any) -> Policy:
    """Return the policy of an action that is undone."""
    action = mg.App("shop").agent("bank").action(**{"complete_within": "20s", **options})(charge)

    @action.undo
    def refund(order: str, *, result: str | None) -> None: ...

    return action._policy


@pytest.mark.parametrize("within", ["1s", "10s", "20s", "1m", "3m"])
@pytest.mark.parametrize("keeps", ["1m", "5m", "10m", "24h"])
def test_the_default_ends_before_the_key_is_forgotten(within: str, keeps: str) -> None:
    terms = policy(complete_within=within, keeps=keeps)
    lasts = span(Recover(threshold=terms.threshold, wait=terms.wait, extended=terms.extended), terms.within)
    assert lasts <= terms.keeps or terms.threshold == terms.extended == 0


def test_the_default_stays_as_it_is_where_it_fits() -> None:
    assert policy(keeps="24h").extended == 300.0
    assert policy(keeps="24h").threshold == 3
    assert policy().extended == 300.0


def test_the_longer_wait_is_shortened_first_and_then_the_attempts_are_fewer() -> None:
    shorter, fewer = policy(keeps="5m"), policy(keeps="1m")
    assert (shorter.threshold, shorter.wait, shorter.extended) == (3, 5.0, 300.0 - 15.0 - 5 * 20.0)
    assert (fewer.threshold, fewer.extended) == (0, 20.0)


def test_the_policy_of_the_undo_fits_too() -> None:
    terms = policy(keeps="5m")
    assert (terms.undo_threshold, terms.undo_extended) == (3, 185.0)


def test_a_written_one_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(DefinitionError) as error:
        policy(keeps="5m", recover=mg.Recover(threshold=3, wait="5s", extended="5m"))
    text = str(error.value)
    assert "shop/bank/charge" in text
    assert "5 attempts of 20s" in text
    assert "waits 5m15s between them, 6m55s in all" in text
    assert "keeps a key for 5m" in text


def test_a_written_one_that_fits_is_taken_as_it_is() -> None:
    terms = policy(keeps="5m", recover=mg.Recover(threshold=1, wait="10s", extended="30s"))
    assert (terms.threshold, terms.wait, terms.extended) == (1, 10.0, 30.0)


@pytest.mark.parametrize("preset", [mg.keys.AZURE, mg.keys.DYNAMODB, mg.keys.SQS])
def test_a_preset_says_how_long_too(preset: Any) -> None:
    assert policy(key=preset, complete_within="30s").extended < 300.0 or preset is mg.keys.DYNAMODB
    with pytest.raises(DefinitionError, match="keeps a key for"):
        policy(key=preset, recover=mg.Recover(extended="10m"))
    assert policy(key=preset, keeps="24h", recover=mg.Recover(extended="10m")).extended == 600.0


def test_the_recover_of_an_undo_must_fit() -> None:
    action = mg.App("shop").agent("bank").action(complete_within="20s", keeps="5m")(charge)
    with pytest.raises(DefinitionError, match="the undo of shop/bank/charge: recover="):

        @action.undo(recover=mg.Recover(extended="1h"))
        def refund(order: str, *, result: str | None) -> None: ...


def test_the_recover_of_an_action_must_fit_the_deadline_of_its_undo() -> None:
    action = (
        mg.App("shop")
        .agent("bank")
        .action(complete_within="10s", keeps="5m", recover=mg.Recover(extended="1m"))(charge)
    )
    with pytest.raises(DefinitionError, match="the undo of shop/bank/charge: recover="):

        @action.undo(complete_within="2m")
        def refund(order: str, *, result: str | None) -> None: ...


def test_a_service_that_knows_no_keys_keeps_none() -> None:
    with pytest.raises(DefinitionError, match=r"both keeps='24h' .* and retry=mg.NEVER"):
        policy(keeps="24h", retry=mg.NEVER)


@pytest.mark.parametrize("keeps", [0, "0s", "-1s", "soon", True, object()])
def test_a_time_that_makes_no_sense_is_refused(keeps: object) -> None:
    with pytest.raises(DefinitionError, match="keeps"):
        policy(keeps=keeps)


# -- makegood check ----------------------------------------------------------------------------------------------------


def shop(within: Any, keeps: Any = "24h") -> mg.App:
    """Return an app whose workflow uses an action by a helper, in a branch, and in another workflow."""
    app = mg.App("shop")
    bank = app.agent("bank")

    @bank.action(complete_within="30s", keeps=keeps, undo=mg.NOTHING)
    def pay(order: str) -> str:
        return order

    def paid(order: str) -> str:
        return pay(order)

    @app.workflow(complete_within="1h")
    def inner(order: str) -> str:
        return paid(order)

    @app.workflow(complete_within=within)
    def buy(order: str) -> None:
        mg.branches(lambda: inner(order), lambda: None)

    return app


@pytest.mark.parametrize(
    ("within", "pattern"), [(None, "has no complete_within"), ("2d", "has 2d to complete")]
)
def test_check_warns_of_a_workflow_that_may_take_longer(within: Any, pattern: str) -> None:
    (warning,) = warnings_of(shop(within))
    assert warning.startswith(f"workflow buy {pattern}, and the service of bank.pay keeps a key for 1d:")


@pytest.mark.parametrize(("within", "keeps"), [("24h", "24h"), ("1h", "24h"), (None, None)])
def test_check_warns_of_no_other(within: Any, keeps: Any) -> None:
    assert not list(warnings_of(shop(within, keeps)))
