"""What went wrong in a user's test, in plain words: which effect is in place twice, or still in place after
its undo, why, and how to fix it.

The services' books show what is wrong. The requests that each service received show why.
"""

import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

from makegood.base.ids import show
from makegood.testing.checker import timeline
from makegood.testing.history import History
from makegood.testing.kit.limits import piled
from makegood.testing.kit.services import FakeService, Heard
from makegood.testing.kit.stage import Stage
from makegood.testing.simulator.world import Outcome

_HEADERS = "pass headers=mg.current_call().headers with every call"
_GUARANTEES = 'see docs/build/write-actions-and-undos.md, "Your service: what to write"'
_MAKEGOOD = Path(__file__).resolve().parents[2]
_PYTHON = Path(sysconfig.get_path("stdlib"))
_DULL = frozenset({"lease", "answered", "told"})
_MOST_LINES = 80
_MOST_RAW = 6
_TWICE = re.compile(r"in place (?!0 |1 )\d+ times")


def what_is_wrong(stage: Stage, outcome: Outcome) -> list[str]:
    """Return what is wrong with a world, the plainest finding first; empty if nothing is."""
    if stage.piled is not None:
        return [piled(stage, stage.piled)]  # The world was stopped midway: no other finding means anything.
    told = [finding for service in stage.services.values() for finding in _of_service(service, outcome)]
    found_out = bool(told)
    for task, found in outcome.at_rest.items():
        if stage.raised is not None and found.state == "error":
            told.append(
                f"task {show(task)} ended in error and waits for an operator: {found.cause}; its steps: "
                + ", ".join(f"{name} {state}" for name, state, _, kind in found.steps if kind == "action")
            )
    if stage.raised is not None:
        told.append(_of_test(stage.raised))
    raw = list(dict.fromkeys(finding.partition("\n")[0] for finding in outcome.findings))
    if found_out:
        broken = [f"{name} ({outcome.report.invariants[name]})" for name in outcome.report.broken()]
        told += [f"broken: {'; '.join(broken)}"] if broken else []
        return told
    told += [f"the checker: {finding}" for finding in raw[:_MOST_RAW]]
    if len(raw) > _MOST_RAW:
        told.append(f"the checker: {len(raw) - _MOST_RAW} more")
    return told


def _of_test(raised: BaseException) -> str:
    """Return the test's own error, and the last line of the user's code that led to it (not makegood's, not
    Python's).
    """
    frames = traceback.extract_tb(raised.__traceback__)
    theirs = [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(_MAKEGOOD)]
    theirs = [frame for frame in theirs if not Path(frame.filename).is_relative_to(_PYTHON)] or theirs
    where = f", {Path(theirs[-1].filename).name}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""
    name = type(raised).__name__
    text = (str(raised).strip() or "no word").replace("\n", "\n    ")
    return f"your test said: {name}: {text}{where}"


def _of_service(service: FakeService, outcome: Outcome) -> Iterable[str]:
    heard: dict[str, list[Heard]] = {}
    for each in service.heard:
        heard.setdefault(each.truth, []).append(each)
    last = {(all_of_it[0].task, all_of_it[0].step): truth for truth, all_of_it in heard.items()}
    for truth, all_of_it in heard.items():
        if all("probe" in each.doing for each in all_of_it):
            continue  # It was only asked about a step whose effect is elsewhere.
        task = all_of_it[0].task
        name = all_of_it[0].step
        step = name if len(outcome.at_rest) < 2 else f"{name} of task {show(task)}"
        done = [each for each in all_of_it if each.doing == "do" and each.changed]
        undone = [each for each in all_of_it if each.doing == "undo"]
        state = _state(outcome, task, name) if last[task, name] == truth else "of an earlier round"
        net = service.standing(truth)
        if len(done) > 1:
            times = " and again at ".join(f"{each.at:.3f} s" for each in done)
            left = f"{net} of them are still in place" if net else "none of them is in place now"
            yield f"DOUBLE EFFECT: step {step} was done {len(done)} times at {service.name}, at {times}; {left}.\n    Why: {_why_twice(service, done)}"
        elif net and state in ("undone", "failed", "skipped"):
            yield (
                f"LEFT IN PLACE: step {step} is {state}, yet what it did at {service.name} at {done[0].at:.3f} s is still in place.\n"
                f"    Why: {_why_left(service, done[0], undone)}"
            )
        elif not net and state == "done":
            yield (
                f"NOTHING IN PLACE: step {step} is done, yet at {service.name} nothing of it is in place.\n"
                f"    Why: {_why_gone(task, done, undone)}"
            )


def _state(outcome: Outcome, task: int, step: str) -> str:
    """Return the state in which a step ended."""
    found = outcome.at_rest.get(task)
    states = [state for name, state, _, _ in found.steps if name == step] if found is not None else []
    return states[-1] if states else "unknown"


def _why_twice(service: FakeService, done: list[Heard]) -> str:
    first, second = done[0], done[1]
    if not service.keys:
        return _why_twice_without_keys(service, first, second)
    if second.told is None or first.told is None:
        return f"{service.name} honours keys, but received none, so it could not know that it was asked before: {_HEADERS}."
    return (
        f"{service.name} received another key each time ({first.told!r}, then {second.told!r}): mg.current_call().key is the same for "
        f"every attempt, use that one ({_HEADERS})."
    )


def _why_twice_without_keys(service: FakeService, first: Heard, second: Heard) -> str:
    """Return why a service that does not honour keys did it twice: it was asked twice, or its probe received
    too little.
    """
    asked = [
        each
        for each in service.heard
        if each.truth == first.truth and "probe" in each.doing and each.at <= second.at
    ]
    fenced = [each for each in asked if each.doing == "fencing probe"]
    one_attempt = first.token is not None and first.token == second.token
    if any(each.at >= first.at and each.outcome == "not happened" for each in asked):
        return (
            f"the probe did not find what {service.name} had done at {first.at:.3f} s: where no keys are honoured it looks for the arguments that "
            "`do` was asked with. Give the probe the same."
        )
    if asked and not fenced and not one_attempt:
        return (
            f'{service.name} was asked whether that had happened, and a request that had been sent before came after all: "not happened" was too '
            f"early. If {service.name} can refuse what is older from then on, ask it to: fences=True where the probe is declared and in its call. "
            f"If it cannot, declare a plain probe, and the action with retry=mg.NEVER ({_GUARANTEES})."
        )
    if fenced and (second.token is None or all(each.token is None for each in fenced)):
        return (
            f"{service.name} was asked to refuse what is older, but did not receive a token each time, so it could not know what is: {_HEADERS}, of the "
            "action and of its probe."
        )
    return (
        f"{service.name} honours no keys: whoever asks twice is served twice, and after a crash or a lost answer nobody can "
        f"know whether to ask again. Declare the action with retry=mg.NEVER, and with a probe if {service.name} can be asked "
        f"({_GUARANTEES})."
    )


def _why_left(service: FakeService, done: Heard, undone: list[Heard]) -> str:
    if not undone:
        return (
            f"its undo never asked {service.name}. The step was in doubt: no answer had come, so result was None, and it had been done "
            f"all the same. An undo must ask {service.name} also when result is None: {_HEADERS}, which says what to take back."
        )
    if done.at > undone[-1].at:
        if service.tokens:
            return (
                f"the request arrived after its undo, and {service.name} did not receive its token, so it could not refuse what is older: "
                f"{_HEADERS}."
            )
        mend = (
            "remembers=True: it is then driven to a definite answer before it is undone"
            if service.keys
            else "retry=mg.NEVER: it is then undone only when it is known whether it happened"
        )
        return f"the request arrived after its undo, and {service.name} compares no tokens. Declare the action with {mend} ({_GUARANTEES})."
    if not service.keys:
        return (
            f"its undo asked {service.name}, but could not say what to take back: result was None, as no answer had come, and {service.name} "
            f"honours no keys. Declare the action with retry=mg.NEVER: it is then undone only when it is known whether it happened ({_GUARANTEES})."
        )
    if undone[-1].told is None:
        return (
            f"its undo asked {service.name}, but did not say what to take back: result was None, as no answer had come, and no key was "
            f"passed on ({_HEADERS})."
        )
    return f"its undo named {undone[-1].told!r}, under which {service.name} had done nothing: mg.current_call().undoes is the key to name."


def _why_gone(task: int, done: list[Heard], undone: list[Heard]) -> str:
    if not done:
        return "the action returned without having it done: it asked the service only in part of the cases, or kept an answer of its own."
    if undone:
        by = undone[-1]
        whose = f" of another task, {show(by.task)}, which named its answer: are the answers unique?"
        if by.task == task:
            whose = ""
        return f"it was taken back at {by.at:.3f} s by the undo of step {by.step}{whose}"
    return "it was taken back by something that is not an undo of this step."


def shown(stage: Stage) -> str:
    """Return the timeline for people: without the engine's housekeeping, with double effects marked."""
    events = [
        event
        for event in stage.history.events
        if event.kind not in _DULL and not (event.kind == "store" and event["outcome"] == "committed")
    ]
    lines = timeline(History(events=events)).splitlines()
    if len(lines) > _MOST_LINES:
        half = _MOST_LINES // 2
        lines[half:-half] = [f"... {len(lines) - _MOST_LINES} lines"]
    return "\n".join(f"{'>>' if _TWICE.search(line) else '  '} {line}" for line in lines)
