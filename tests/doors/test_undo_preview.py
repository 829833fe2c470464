"""The preview of an undo says what the undo then does: asked of the rules' own order, compared with a real undo."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import makegood as mg
from makegood.model.plan import StepPlan
from makegood.model.policy import Policy
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.views import StepView, TaskDetail, TaskView
from makegood.story.undo_preview import Preview, fate, undo_order
from tests.actors.conftest import QUIET


def view(name: str = "s", state: Any = "done", *after: int, idx: int = 0, **changes: Any) -> StepView:
    """Return a step; what is no field of a view is its policy's."""
    policy = {k: changes.pop(k) for k in list(changes) if k in Policy.__struct_fields__ and k != "undoable"}
    plan = StepPlan(idx, name=name, after=after, policy=Policy(30.0, **policy))
    step = StepView(idx, "action", name, "a", name, state, 1, 1, 0, doubt=False, undoable=True, plan=plan)
    return msgspec.structs.replace(step, **changes)


def of(*steps: StepView) -> list[Preview]:
    """Return the preview of a task with these steps."""
    task = TaskView(1, "shop", "w", None, "error", "hold", 1, 0, "", 0, None, 1, None, 0.0, None, None)
    return undo_order(TaskDetail(task, list(steps)))


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (view(), "undone"),
        (view(state="undoing"), "its undo is under way"),
        (view(state="undo_failed"), "its undo is tried again"),
        (view(undoable=False), "nothing to undo: stays"),
        (view(no_return=True), "no way back: stays"),
        (view(state="running", doing="do", taken_by=3), "makegood waits for its answer or deadline, then undoes it"),
        (view(state="running", doing="do"), "no process has claimed it: withdrawn, nothing to undo"),
        (view(state="ready", doubt=True), "makegood waits for its answer or deadline, then undoes it"),
        (view(state="in_doubt"), "in doubt: undone as if it were done"),
        (view(state="in_doubt", probe=True), "in doubt: makegood asks its probe, then undone as if it were done"),
        (view(state="in_doubt", probe=True, fences=True), "in doubt: makegood asks its probe, then undone if it happened"),
        (view(state="in_doubt", remembers=True), "in doubt: driven to a definite answer under its key, and undone if it happened"),
        (view(state="in_doubt", never=True), "in doubt, and must not be repeated: stuck until it is settled by hand"),
        (view(state="in_doubt", never=True, probe=True, fences=True), "in doubt: makegood asks its probe, then undone if it happened"),
    ],
)  # fmt: skip
def test_what_happens_to_a_step(step: StepView, text: str) -> None:
    assert fate(step).text == text


def test_independent_steps_have_one_turn_and_what_stays_holds_nobody_up() -> None:
    steps = of(
        view("a", idx=0), view("b", "done", 0, idx=1), view("c", "done", 0, idx=2),
        view("d", "done", 1, 2, idx=3, undoable=False), view("e", "in_doubt", 3, idx=4), view("f", "waiting", 4, idx=5),
    )  # fmt: skip
    assert [(preview.turn, preview.step.name) for preview in steps] == [
        (1, "e"), (2, "d"), (2, "c"), (2, "b"), (3, "a"),
    ]  # fmt: skip


def test_what_was_kept_or_undone_is_not_listed() -> None:
    steps = of(view("a", idx=0), view("b", "kept", 0, idx=1, undoable=False), view("c", "undone", 1, idx=2))
    assert [(preview.turn, preview.step.name) for preview in steps] == [(1, "a")]


def test_what_comes_before_a_stuck_step_waits_for_it() -> None:
    steps = of(view("a", idx=0), view("b", "in_doubt", 0, idx=1, never=True), view("c", "done", idx=2))
    fates = {preview.step.name: preview.happens for preview in steps}
    assert fates["a"] == "undone, once b is settled"
    assert fates["c"] == "undone"


def shop() -> tuple[mg.App, "Callable[[], mg.Plan[None]]"]:
    """Return an app whose task is held with two steps at once done, a harmless one, and one in doubt."""
    app = mg.App("shop")
    desk = app.agent("desk")
    once = mg.Recover(threshold=0, wait="1ms", extended="1ms")

    def made(name: str, **options: Any) -> Any:
        def do(order: str) -> None:
            if name == "e":
                raise OSError("the line is dead")

        def back(order: str, *, result: None) -> None:
            """Take it back."""

        do.__name__ = do.__qualname__ = name
        action = desk.action(complete_within="1m", retry=mg.Retry(tries=1), recover=once, **options)(do)
        if "undo" not in options:
            action.undo(back)
        return action

    a, b, c, d, e = (made(name, **({"undo": mg.NOTHING} if name == "d" else {})) for name in "abcde")

    @app.workflow(on_failure="hold")
    def flow(order: str) -> None:
        a(order)
        mg.parallel(b(order), c(order))
        d(order)
        e(order)

    return app, lambda: flow.plan("o")


async def test_a_real_undo_goes_as_previewed(store: Store) -> None:
    app, plan = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(plan())
        assert (await task.wait("60s")).state == "error"
        before = max([event.seq async for event in task.events(follow=False)])
        order = undo_order(await task.status())
        assert [(preview.turn, preview.step.name) for preview in order] == [
            (1, "e"), (2, "d"), (2, "c"), (2, "b"), (3, "a"),
        ]  # fmt: skip
        await task.undo()
        assert (await task.wait("60s")).state == "undone"
        moves = [
            (n, who, after)
            for n, event in enumerate([e async for e in task.events(follow=False) if e.seq > before])
            for who, _, after, _ in event.moves
        ]
    began = {who: n for n, who, after in moves if after in ("undoing", "kept") and who != "task"}
    ends = {who: n for n, who, after in moves if after in ("undone", "kept") and who != "task"}
    assert began["b"] == began["c"] == began["d"] == ends["e"], "one turn begins at once"
    assert began["a"] == max(ends["b"], ends["c"])
    assert set(began) == {preview.step.name for preview in order}
