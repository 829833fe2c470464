"""Limits of a proof, reported before it takes hours: attempts that pile up, and worlds that are too long for
their number.

Both are counted, not timed: a proof that is too large here is too large on every machine.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from makegood.base.did_you_mean import did_you_mean
from makegood.base.ids import show
from makegood.testing.kit.stage import Stage
from makegood.testing.simulator.quiescence import Failed, StepCalls

MOST_STEPS: Final = 200_000_000
"""Steps of the loop in all worlds of a proof together, estimated from its calm world: about an hour."""
_SECOND: Final = 50_000
"""Steps of the loop that a machine makes in about a second."""
_SLOW: Final = 2.0
"""Seconds of wall time after which a world counts as slow, if its steps do not account for them."""
_SEVERAL: Final = 3
_REMEDY: Final = (
    "Let its fake succeed or refuse for good (raise mg.Permanent) at some point; or let the workflow give up earlier: "
    "recover=mg.Recover(threshold=...) says after how many failures, complete_within=... after how long, and a longer mg.Later(...) "
    "asks less often"
)


def endless_message(stage: Stage, calls: StepCalls) -> str:
    """Return the message for a world that was stopped because the attempts of a step piled up."""
    return (
        f"ENDLESS: step {calls.step} of task {show(calls.task)} was asked {calls.attempts:,} times within {stage.loop.now:,.0f} virtual seconds and "
        f"has not come to an end ({calls.state}{_last(calls)}); this world was stopped there.\n"
        f"    What to do: {_REMEDY}. If it is meant to be asked so often, say attempts=... in the decorator."
    )


def too_long(name: str, worlds: int, calm: Stage) -> str | None:
    """Return why a proof of this many worlds like the calm one does not start; None if it may."""
    steps = calm.loop.steps
    if worlds * steps <= MOST_STEPS:
        return None
    hours = worlds * steps / _SECOND / 3600
    calls = calm.busiest_step
    reason = (
        f" Step {calls.step} was asked {calls.attempts:,} times there{_last(calls)}; each attempt brings some thirty fault points. {_REMEDY}."
        if calls is not None and calls.attempts > _SEVERAL
        else " Test a smaller case: fewer steps, fewer tasks."
    )
    return (
        f"{name} was not begun: its calm world has {calm.faults.number:,} fault points and takes {steps:,} steps of the event loop. To play "
        f"{worlds:,} worlds like it takes about {hours:,.0f} hours.{reason} Or say how many are enough: @crash_everywhere(at_most=500) spreads "
        f"500 evenly over all, at_most={worlds} plays them all"
    )


def failure_message(task: Failed) -> str:
    """Return the message for a task that did not succeed in a calm world."""
    return (
        f"task {show(task.task)} is {task.state} although nothing struck: {task.cause}\n"
        f"    Why that is wrong: a workflow that fails by itself proves nothing about how it succeeds.\n"
        f"    What to do: fix the action, or its fake. An action, or a fake, that fails for good raises mg.Permanent. If this "
        f"test is about a step that keeps failing, or a task that runs out of time, write fails=True in the decorator."
    )


def not_proved(coverage: Mapping[str, int]) -> list[str]:
    """Return the lines about undos and probes that answered in no world of any test.

    ``coverage``: how far each came: 0 did not run, 1 ran, 2 answered.
    """
    lines: list[str] = []
    idle = sorted(name for name, level in coverage.items() if level == 0)
    if idle:
        lines += [f"{name} ran in no world of these tests: nothing shows that it works." for name in idle]
        lines.append(
            "Let them run: an undo by await world.operator.cancel(task), or kinds=(..., 'refuses'), or a storm; a probe by an action that "
            "is in doubt and not asked again, or a storm."
        )
    mute = sorted(name for name, level in coverage.items() if level == 1)
    if mute:
        lines += [
            f"{name} answered in no world of these tests: nothing shows that it works." for name in mute
        ]
        lines.append("Whenever it ran, it raised or was silent: look at its fake.")
    return lines


def never_called(
    name: str, idle: Sequence[str], active: Collection[str], agents: Collection[str], ends: str
) -> str:
    """Return the message for services that no world called.

    ``agents``: the app's agents, after which services are often named; ``ends``: how the tasks of the calm
    world ended.
    """
    lines: list[str] = []
    for service in idle:
        question = did_you_mean(service, {*active, *agents} - {service})
        lines.append(
            f"- service {service!r} was never called{f': {question}' if question else ''}"
            f"\n    Why: no action, undo or probe called it in any world. If your code calls another object, put this one where it looks "
            f"(monkeypatch.setattr). If this test does not get as far as the call, such as an undo's, let it: world.operator.cancel(task), or "
            f"kinds=(..., 'refuses'). If it need not be called here, leave the service out, or say needed=False"
        )
    services = ", ".join(sorted(active)) or "none"
    text = "\n".join(lines)
    return (
        f"{name} held, but proves nothing about what it never met.\n\nWhat is wrong:\n{text}\n\n"
        f"Services that were called: {services}\nIn the calm world: {ends}"
    )


def often(stage: Stage, took: float) -> str:
    """Return why each world takes long, for the people who wait; "" if nothing is unusual.

    ``took``: seconds of wall time.
    """
    calls = stage.busiest_step
    if took > _SLOW + 2 * stage.loop.steps / _SECOND:
        return (
            f"; the calm one took {took:.1f} s of real time: time.sleep and real services do not belong here"
        )
    if calls is None or calls.attempts <= _SEVERAL:
        return ""
    return f"; in the calm one step {calls.step} was asked {calls.attempts:,} times{_last(calls)}"


def _last(calls: StepCalls) -> str:
    return f", and last said {calls.answer!r}" if calls.answer else ""
