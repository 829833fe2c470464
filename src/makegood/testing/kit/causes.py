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
from makegood.testing.kit.limits import endless_message
from makegood.testing.kit.services import FakeService, Heard
from makegood.testing.kit.stage import Stage
from makegood.testing.simulator.refused_calls import NotSimulatedError
from makegood.testing.simulator.world import Outcome

_HEADERS = "pass headers=mg.current_call().headers with every call"
_GUARANTEES = 'see docs/build/write-actions-and-undos.md, "Your service: what to write"'
_MAKEGOOD = Path(__file__).resolve().parents[2]
_PYTHON = Path(sysconfig.get_path("stdlib"))
_INSTALLED = Path(sysconfig.get_path("purelib"))
_DULL = frozenset({"lease", "answered", "told"})
_MOST_LINES = 80
_MOST_RAW = 6
_TWICE = re.compile(r"in place (?!0 |1 )\d+ times")


def what_is_wrong(stage: Stage, outcome: Outcome) -> list[str]:
    """Return what is wrong with a world, the plainest finding first; empty if nothing is."""
    if stage.pile_up is not None:
        return [
            endless_message(stage, stage.pile_up)
        ]  # The world was stopped midway: no other finding means anything.
    findings = [finding for service in stage.services.values() for finding in _of_service(service, outcome)]
    found_out = bool(findings)
    for task, task_at_rest in outcome.at_rest.items():
        if stage.error is not None and task_at_rest.state == "error":
            findings.append(
                f"task {show(task)} ended in error and waits for an operator: {task_at_rest.cause}; its steps: "
                + ", ".join(
                    f"{name} {state}" for name, state, _, kind in task_at_rest.steps if kind == "action"
                )
            )
    if stage.error is not None:
        findings.append(_of_test(stage.error))
    raw = list(dict.fromkeys(finding.partition("\n")[0] for finding in outcome.findings))
    if found_out:
        invariants = [
            f"{name} ({outcome.report.invariants[name]})" for name in outcome.report.violated_invariants()
        ]
        findings += [f"broken: {'; '.join(invariants)}"] if invariants else []
        return findings
    findings += [f"the checker: {finding}" for finding in raw[:_MOST_RAW]]
    if len(raw) > _MOST_RAW:
        findings.append(f"the checker: {len(raw) - _MOST_RAW} more")
    return findings


def _of_test(error: BaseException) -> str:
    """Return the test's own error, and the last line of the user's code that led to it (not makegood's, not
    Python's).
    """
    frames = (
        error.stack if isinstance(error, NotSimulatedError) else traceback.extract_tb(error.__traceback__)
    )
    theirs = [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(_MAKEGOOD)]
    theirs = [frame for frame in theirs if not Path(frame.filename).is_relative_to(_PYTHON)] or theirs
    theirs = [frame for frame in theirs if not Path(frame.filename).is_relative_to(_INSTALLED)] or theirs
    place = f", {Path(theirs[-1].filename).name}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""
    if isinstance(error, NotSimulatedError) and error.step:
        place += f" (step {error.step})"
    name = type(error).__name__
    text = (str(error).strip() or "no word").replace("\n", "\n    ")
    return f"your test said: {name}: {text}{place}"


def _of_service(service: FakeService, outcome: Outcome) -> Iterable[str]:
    requests_by_key: dict[str, list[Heard]] = {}
    for request in service.heard:
        requests_by_key.setdefault(request.truth, []).append(request)
    last = {(requests[0].task, requests[0].step): truth for truth, requests in requests_by_key.items()}
    for truth, requests in requests_by_key.items():
        if all("probe" in request.doing for request in requests):
            continue  # It was only asked about a step whose effect is elsewhere.
        task = requests[0].task
        name = requests[0].step
        step = name if len(outcome.at_rest) < 2 else f"{name} of task {show(task)}"
        effects = [request for request in requests if request.doing == "do" and request.changed]
        undos = [request for request in requests if request.doing == "undo"]
        state = _state(outcome, task, name) if last[task, name] == truth else "of an earlier round"
        net = service.standing(truth)
        if len(effects) > 1:
            times = " and again at ".join(f"{request.at:.3f} s" for request in effects)
            left = f"{net} of them are still in place" if net else "none of them is in place now"
            yield f"DOUBLE EFFECT: step {step} was done {len(effects)} times at {service.name}, at {times}; {left}.\n    Why: {_why_twice(service, effects)}"
        elif net and state in ("undone", "failed", "skipped"):
            yield (
                f"LEFT IN PLACE: step {step} is {state}, yet what it did at {service.name} at {effects[0].at:.3f} s is still in place.\n"
                f"    Why: {_why_left(service, effects[0], undos)}"
            )
        elif not net and state == "done":
            yield (
                f"NOTHING IN PLACE: step {step} is done, yet at {service.name} nothing of it is in place.\n"
                f"    Why: {_why_gone(task, effects, undos)}"
            )


def _state(outcome: Outcome, task: int, step: str) -> str:
    """Return the state in which a step ended."""
    task_at_rest = outcome.at_rest.get(task)
    states = (
        [state for name, state, _, _ in task_at_rest.steps if name == step]
        if task_at_rest is not None
        else []
    )
    return states[-1] if states else "unknown"


def _why_twice(service: FakeService, effects: list[Heard]) -> str:
    first, second = effects[0], effects[1]
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
    probes = [
        request
        for request in service.heard
        if request.truth == first.truth and "probe" in request.doing and request.at <= second.at
    ]
    fences = [request for request in probes if request.doing == "fencing probe"]
    one_attempt = first.token is not None and first.token == second.token
    if any(request.at >= first.at and request.outcome == "not happened" for request in probes):
        return (
            f"the probe did not find what {service.name} had done at {first.at:.3f} s: where no keys are honoured it looks for the arguments that "
            "`do` was asked with. Give the probe the same."
        )
    if probes and not fences and not one_attempt:
        return (
            f'{service.name} was asked whether that had happened, and a request that had been sent before came after all: "not happened" was too '
            f"early. If {service.name} can refuse what is older from then on, ask it to: fences=True where the probe is declared and in its call. "
            f"If it cannot, declare a plain probe, and the action with retry=mg.NEVER ({_GUARANTEES})."
        )
    if fences and (second.token is None or all(request.token is None for request in fences)):
        return (
            f"{service.name} was asked to refuse what is older, but did not receive a token each time, so it could not know what is: {_HEADERS}, of the "
            "action and of its probe."
        )
    return (
        f"{service.name} honours no keys: whoever asks twice is served twice, and after a crash or a lost answer nobody can "
        f"know whether to ask again. Declare the action with retry=mg.NEVER, and with a probe if {service.name} can be asked "
        f"({_GUARANTEES})."
    )


def _why_left(service: FakeService, effect: Heard, undos: list[Heard]) -> str:
    if not undos:
        return (
            f"its undo never asked {service.name}. The step was in doubt: no answer had come, so result was None, and it had been done "
            f"all the same. An undo must ask {service.name} also when result is None: {_HEADERS}, which says what to take back."
        )
    if effect.at > undos[-1].at:
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
    if undos[-1].told is None:
        return (
            f"its undo asked {service.name}, but did not say what to take back: result was None, as no answer had come, and no key was "
            f"passed on ({_HEADERS})."
        )
    return f"its undo named {undos[-1].told!r}, under which {service.name} had done nothing: mg.current_call().undoes is the key to name."


def _why_gone(task: int, effects: list[Heard], undos: list[Heard]) -> str:
    if not effects:
        return "the action returned without having it done: it asked the service only in part of the cases, or kept an answer of its own."
    if undos:
        by = undos[-1]
        origin = f" of another task, {show(by.task)}, which named its answer: are the answers unique?"
        if by.task == task:
            origin = ""
        return f"it was taken back at {by.at:.3f} s by the undo of step {by.step}{origin}"
    return "it was taken back by something that is not an undo of this step."


def timeline_text(stage: Stage) -> str:
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
