"""What is too much for a proof, told before it takes hours: attempts that pile up, and worlds that are too long for their number.

Both are counted, not timed: what is too much here is too much on every machine.
"""

from collections.abc import Collection, Sequence
from typing import Final

from makegood.ids import show
from makegood.testing.near import meant
from makegood.testing.rest import Asked
from makegood.testing.users_stage import Stage

MOST_STEPS: Final = 1_000_000_000
"""Steps of the loop in all worlds of a proof together, as its calm world foretells them: some hours."""
_SECOND: Final = 100_000
"""Steps of the loop that a machine takes in about a second."""
_SEVERAL: Final = 3
_REMEDY: Final = (
    "Let its fake succeed or refuse for good (raise mg.Permanent) at some point; or let the workflow give up earlier: "
    "recover=mg.Recover(threshold=...) says after how many failures, complete_within=... after how long, and a longer mg.Later(...) "
    "asks more seldom"
)


def piled(stage: Stage, asked: Asked) -> str:
    """Return what is said of a world that was given up because the attempts of a step had piled up."""
    return (
        f"ENDLESS: step {asked.step} of task {show(asked.task)} was asked {asked.attempts:,} times within {stage.loop.now:,.0f} virtual seconds and "
        f"has not come to an end ({asked.state}{_last(asked)}); this world was stopped there.\n"
        f"    What to do: {_REMEDY}. If it is meant to be asked so often, say attempts=... in the decorator."
    )


def too_long(name: str, worlds: int, calm: Stage) -> str | None:
    """Return why a proof of so many worlds like the calm one is not begun, None when it can be."""
    steps = calm.loop.steps
    if worlds * steps <= MOST_STEPS:
        return None
    hours = worlds * steps / _SECOND / 3600
    asked = calm.asked
    why = (
        f" Step {asked.step} was asked {asked.attempts:,} times there{_last(asked)}; each attempt brings some thirty fault points. {_REMEDY}."
        if asked is not None and asked.attempts > _SEVERAL
        else " Test a smaller case: fewer steps, fewer tasks."
    )
    return (
        f"{name} was not begun: its calm world has {calm.faults.number:,} fault points and takes {steps:,} steps of the event loop. To play "
        f"{worlds:,} worlds like it takes about {hours:,.0f} hours.{why} Or say how many are enough: @crash_everywhere(at_most=500) spreads "
        f"500 evenly over all, at_most={worlds} plays them all"
    )


def never_called(name: str, idle: Sequence[str], called: Collection[str], agents: Collection[str]) -> str:
    """Return what is said of services that were called in no world. ``agents``: of the app, after which services are often named."""
    lines: list[str] = []
    for service in idle:
        question = meant(service, {*called, *agents} - {service})
        lines.append(
            f"- service {service!r} was never called{f': {question}' if question else ''}"
            f"\n    Why: no action, undo or probe called it in any world. If your code calls another object, put this one where it looks "
            f"(monkeypatch.setattr). If this test does not get as far as the call, such as an undo's, let it: world.operator.cancel(task), or "
            f"kinds=(..., 'refuses'). If it need not be called here, leave the service out, or say needed=False"
        )
    others = ", ".join(sorted(called)) or "none"
    told = "\n".join(lines)
    return f"{name} held, but proves nothing about what it never met.\n\nWhat is wrong:\n{told}\n\nServices that were called: {others}"


def often(stage: Stage) -> str:
    """Return what makes each world long, for people who wait; "" for nothing out of the ordinary."""
    asked = stage.asked
    if asked is None or asked.attempts <= _SEVERAL:
        return ""
    return f"; in the calm one step {asked.step} was asked {asked.attempts:,} times{_last(asked)}"


def _last(asked: Asked) -> str:
    return f", and last said {asked.said!r}" if asked.said else ""
