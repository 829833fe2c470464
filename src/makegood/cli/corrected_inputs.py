"""Corrections of a resubmission: checked before they are sent, if the app's code is available, and shown.

They are shown before the act and afterwards.
"""

from typing import Any

import msgspec

from makegood.cli.import_app import naming
from makegood.errors import ConfigError
from makegood.payload.codec import decode, encode
from makegood.store.views import TaskDetail
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow


def check(
    app: App, found: TaskDetail, step: str | None, inputs: Any
) -> tuple[Workflow[..., Any] | None, Any]:
    """Check corrected inputs against the annotations of the action, or of the workflow when ``step`` is None.

    Returns the workflow, if it has to plan, and the inputs: then as the plan that it makes of them, once.

    Raises ``PayloadError`` for inputs that do not fit, ``UnknownActionError`` when the app does not have that
    action, ``ConfigError`` when it does not have the workflow, and ``DefinitionError`` for whatever the
    workflow function raises. Other errors are left to the act itself.
    """
    task = found.task
    if step is None:
        workflow = app._find_workflow(task.workflow) if task.app == app.name else None
        if workflow is None:
            raise ConfigError(
                f"--check: app {app.name!r} declares no workflow {task.app}.{task.workflow}, which this task is one of"
            )
        with naming(workflow, "nothing was changed"):
            return workflow, workflow._plan_from(inputs) if isinstance(inputs, list) else inputs
    view = next((view for view in found.steps if view.name == step), None)
    if view is not None and view.kind == "action" and isinstance(inputs, dict):
        annotations = app._find_action(view.agent, view.action)._fitted().annotations
        for name in inputs.keys() & annotations.keys():
            what = f"the argument {name} of {step}"
            decode(encode(inputs[name], what=what), annotations[name], what)
    return None, inputs


def told(change: bytes | None) -> str:
    """Say what a correction replaced, of an object only the members that differ.

    >>> told(b'{"step":"charge","was":{"card":5,"order":1},"now":{"card":"a","order":1}}')
    'charge: {"card":"a"} instead of {"card":5}'
    """
    return "; ".join(lines(change))


def lines(change: bytes | None) -> list[str]:
    """Return what a correction replaces, a line for each: the inputs, the steps that run with other
    arguments, and those that are done.

    >>> kept = b'{"step":"a","was":{"x":1},"now":{"x":2}}'
    >>> lines(b'{"step":null,"was":[1],"now":[2],"steps":[],"kept":[%b]}' % kept)
    ['inputs: [2] instead of [1]', 'a: is done, and keeps {"x":1}; with these inputs it would be {"x":2}']
    """
    if change is None:
        return []
    made = msgspec.json.decode(change)
    found = [_line("value" if "message" in made else made["step"] or "inputs", made)]
    found += [_line(one["step"], one) for one in made.get("steps", ())]
    if "result" in made:
        found.append(_line("the result", made["result"]))
    for one in made.get("kept", ()):
        was, now = _differing(one)
        found.append(
            f"{one['step']}: is done, and keeps {_json(was)}; with these inputs it would be {_json(now)}"
        )
    return found


def _line(name: str, one: dict[str, Any]) -> str:
    was, now = _differing(one)
    return f"{name}: {_json(now)} instead of {_json(was)}"


def _differing(one: dict[str, Any]) -> tuple[Any, Any]:
    was, now = one["was"], one["now"]
    if isinstance(was, dict) and isinstance(now, dict):
        differ = [name for name in {**was, **now} if was.get(name, ...) != now.get(name, ...)]
        was, now = ({name: side[name] for name in differ if name in side} for side in (was, now))
    return was, now


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
