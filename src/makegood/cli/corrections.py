"""What a resubmission corrects: checked before it is sent, where the app's code is at hand, and shown afterwards."""

import typing
from typing import Any

import msgspec

from makegood.codec import decode, encode
from makegood.store.records import TaskDetail
from makegood.workflow import App


def check(app: App, found: TaskDetail, step: str | None, inputs: Any) -> None:
    """Check corrected inputs against the annotations of the action, or of the workflow when ``step`` is None.

    Raises ``PayloadError`` for what does not fit, ``UnknownActionError`` when the app has not that action. What else is wrong is left to
    the act itself.
    """
    if step is None:
        workflow = app.find_workflow(found.task.workflow)
        hints = {} if workflow is None else typing.get_type_hints(workflow.fn, include_extras=True)
        known = [hint for name, hint in hints.items() if name != "return"]
        given = zip(hints, known, inputs, strict=False) if isinstance(inputs, list) else ()
        for name, hint, value in given:
            decode(encode(value, what=name), hint, f"the input {name}")
        return
    view = next((view for view in found.steps if view.name == step), None)
    if view is not None and view.kind == "action" and isinstance(inputs, dict):
        annotations = app.find_action(view.agent, view.action).fitted().annotations
        for name in inputs.keys() & annotations.keys():
            what = f"the argument {name} of {step}"
            decode(encode(inputs[name], what=what), annotations[name], what)


def told(change: bytes | None) -> str:
    """Say what a correction replaced, of an object only the members that differ.

    >>> told(b'{"step":"charge","was":{"card":5,"order":1},"now":{"card":"a","order":1}}')
    'charge: {"card":"a"} instead of {"card":5}'
    """
    if change is None:
        return ""
    made = msgspec.json.decode(change)
    was, now = made["was"], made["now"]
    if isinstance(was, dict) and isinstance(now, dict):
        differ = [name for name in now if was.get(name, ...) != now[name]]
        was, now = ({name: one[name] for name in differ if name in one} for one in (was, now))
    return f"{made['step'] or 'inputs'}: {_json(now)} instead of {_json(was)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
