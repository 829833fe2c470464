"""Plans of an app with a codec: what a Scheduler would have to read is refused, with the remedy; the rest is sealed."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest

import makegood as mg
from makegood.declare.sealed_values import Opener, base_and_items, has_readable_result, is_sealed
from makegood.model.plan import Plan

CODEC = mg.codecs.Encrypted({"k1": b"1" * 32})
app = mg.App("shop", codec=CODEC)
stock = app.agent("stock")
approval = app.signal("approval", bool)
open_approval = app.signal("open", bool, readable=True)


class Kind(Enum):
    """Kinds of orders."""

    DEAR = "dear"


def act(name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    def declare(fn: Any) -> Any:
        fn.__name__ = name
        return stock.action(complete_within="10s", undo=mg.NOTHING, name=name, **options)(fn)

    return declare


@act("status")
def status(order: str) -> str:
    return order


@act("open_status", readable=True)
def open_status(order: str) -> str:
    return order


@act("parts")
def parts(order: str) -> list[str]:
    return [order]


@act("open_parts", readable=True)
def open_parts(order: str) -> list[str]:
    return [order]


@act("rest")
def rest(order: str) -> float:
    return 1.0


def plan_of(fn: Any, *inputs: Any) -> Plan[Any]:
    fn.__name__ = "trial"
    workflow = app.workflow(name=f"trial{len(app.workflows)}")(fn)
    return workflow.plan(*inputs)


READABLE = r"declare that action readable, @agent.action\(..., readable=True\)"


def when_status(order: str) -> Any:
    return mg.when(status(order) == "paid", then=lambda: status("x"))


def each_part(order: str) -> Any:
    return mg.each(parts(order), status)


def sleep_rest(order: str) -> Any:
    mg.sleep(rest(order))
    return status(order)


def when_signal(order: str) -> Any:
    return mg.when(mg.wait_for(approval), then=lambda: status(order))


def when_merge(order: str) -> Any:
    choice = mg.when(
        open_status(order) == "paid", then=lambda: open_status("a"), otherwise=lambda: open_status("b")
    )
    return mg.when(choice == "a", then=lambda: status("x"))


def in_a_body(order: str) -> Any:
    return mg.each(open_parts(order), lambda part: mg.when(status(part) == "paid", then=lambda: status("x")))


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (when_status, f"mg.when compares the result of status in when, .*{READABLE}"),
        (each_part, f"mg.each goes through the result of parts in each, .*{READABLE}"),
        (sleep_rest, f"mg.sleep waits for the result of rest in sleep, .*{READABLE}"),
        (when_signal, "mg.when compares the approval in when, .*declare that signal readable"),
        (when_merge, "mg.when compares the value of when in when-2|mg.when compares the value of"),
        (in_a_body, f"mg.when compares the result of status in when, .*{READABLE}"),
    ],
)
def test_what_a_scheduler_would_have_to_read_is_refused_with_the_remedy(fn: Any, text: str) -> None:
    with pytest.raises(mg.DefinitionError, match=text):
        plan_of(fn, "o-1")


def test_readable_results_and_signals_are_compared_and_unfolded() -> None:
    def flow(order: str) -> Any:
        answer = mg.wait_for(open_approval, timeout="1d", otherwise=False)
        kind = mg.when(
            open_status(order) == "paid", then=lambda: status("x"), otherwise=lambda: status(order)
        )
        mg.when(answer, then=lambda: status(kind))
        mg.when(open_status(order) == Kind.DEAR, then=lambda: status(kind))
        return mg.each(open_parts(order), status)

    assert plan_of(flow, "o-1").steps


def test_a_comparison_with_what_the_function_was_given_is_refused() -> None:
    def flow(order: str) -> Any:
        return mg.when(open_status(order) == order, then=lambda: status(order))

    with pytest.raises(mg.PromiseError, match="compare with a constant written in the function"):
        plan_of(flow, "o-" + "1" * 5)


async def test_a_plan_is_sealed_and_its_texts_come_back_in_their_places_only() -> None:
    secret = "canary-" + "x" * 5

    def flow(order: str) -> Any:
        return {
            "first": status(order + "!"),
            "all": mg.each(open_parts(order), lambda part: [status(f"{order}?"), part]),
        }

    plan = plan_of(flow, secret)
    assert plan.sealing is not None
    stored_plan = await plan.sealing.seal(plan, "0000000000007")
    assert secret not in repr(stored_plan)
    assert secret in repr(plan)
    assert stored_plan == await plan.sealing.seal(plan, "0000000000007"), (
        "the same bytes, whenever it is sealed"
    )
    first, readable, *_ = stored_plan.steps
    assert is_sealed(first.args)
    assert is_sealed(stored_plan.returns)
    assert has_readable_result(readable.args)
    assert not has_readable_result(first.args)
    assert first.args is not None
    opener = Opener(CODEC, "shop", "0000000000007")
    data = first.args.parts[0].encode()
    assert await opener.template(data, "arguments of status") == b'{"order":"%b!"}' % secret.encode()
    for place, field in (
        ("0000000000008", "arguments of status"),
        ("0000000000007", "arguments of open_parts"),
    ):
        with pytest.raises(mg.CodecError):
            await Opener(CODEC, "shop", place).template(data, field)


def test_names_of_steps_in_bodies() -> None:
    assert base_and_items("a") == ("a", [])
    assert base_and_items("a[3][10]") == ("a", ["[3]", "[10]"])


def test_an_app_without_a_codec_plans_as_before() -> None:
    plain = mg.App("plain")

    @plain.workflow
    def flow(order: str) -> str:
        return order

    assert flow.plan("o").sealing is None
    assert plain.codec is None


def test_a_signal_is_declared_readable_once() -> None:
    assert app.signal("open", bool, readable=True) is open_approval
    with pytest.raises(mg.DuplicateNameError, match="readable=True, and here with readable=False"):
        app.signal("open", bool)
    with pytest.raises(mg.DefinitionError, match="readable='yes'"):
        act("strange", readable="yes")(lambda order: order)
