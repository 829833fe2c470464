"""A schedule as an app declares it: its times, and the workflow that is planned once for all of them."""

from contextlib import suppress
from functools import cached_property
from typing import Any

from makegood.errors import MissingUndoError
from makegood.model.schedule import ScheduleDraft, ScheduleSpec
from makegood.workflow.workflow import Workflow


class Schedule:
    """A declared schedule. ``inputs``: of its workflow, ``mg.MOMENT`` among them.

    Raises ``PromiseError`` for a workflow that branches on its moment.
    """

    def __init__(self, spec: ScheduleSpec, workflow: Workflow[..., Any], inputs: tuple[Any, ...]) -> None:
        self.spec = spec
        self.workflow = workflow
        self.inputs = inputs
        # Perhaps the function calls what is declared further down: the draft is made when a process starts.
        with suppress(NameError, MissingUndoError):
            self.draft  # noqa: B018 - it is kept

    def __repr__(self) -> str:
        return f"<schedule {self.spec.app}/{self.spec.name} of {self.workflow.address}>"

    @cached_property
    def draft(self) -> ScheduleDraft:
        """The schedule as the store keeps it."""
        workflow = self.workflow
        return ScheduleDraft(self.spec, workflow._sketch(*self.inputs), workflow._sealing)  # noqa: SLF001 - of this room
