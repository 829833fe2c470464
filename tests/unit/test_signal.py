"""A signal as an app declares it: a name, a type, and a value for the task that has a key."""

import msgspec
import pytest

import makegood as mg
from makegood.declare.signal import Signal, SignalByKey
from makegood.errors import DefinitionError, PayloadError

shop = mg.App("shop")


class Approval(msgspec.Struct):
    """What the boss says."""

    yes: bool


@shop.workflow
def travel(place: str) -> str:
    return place


@mg.App("other").workflow
def elsewhere(place: str) -> str:
    return place


approval: Signal[Approval] = Signal("approval", Approval, "shop")


def test_a_signal_is_addressed_by_the_key_of_a_task() -> None:
    assert approval.of(travel, key="t-1", value=Approval(True), id="click-1") == SignalByKey(
        "shop", "travel", "t-1", "approval", b'{"yes":true}', "click-1"
    )
    assert repr(approval) == "<signal shop.approval>"


def test_a_value_of_another_type_is_refused_before_it_is_sent() -> None:
    with pytest.raises(PayloadError, match="the value of signal approval is str, its annotation says"):
        approval.of(travel, key="t-1", value="yes")  # type: ignore[arg-type]


def test_a_signal_is_for_workflows_of_its_own_app() -> None:
    with pytest.raises(
        DefinitionError, match="signal approval is one of app shop, and elsewhere is a workflow of other"
    ):
        approval.of(elsewhere, key="t-1", value=Approval(True))


@pytest.mark.parametrize(("name", "type_"), [("", str), ("7", str), ("a b", str), ("fine", object())])
def test_a_name_or_type_that_is_none_is_refused(name: str, type_: object) -> None:
    with pytest.raises(DefinitionError):
        Signal(name, type_, "shop")
