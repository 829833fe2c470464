"""Fits an action, its undo and its probe together by their annotations, with decoders of arguments and
results.

Done once per action, as early as its annotations can be evaluated: at the decorator if possible, else at
first use. Functions that do not fit are refused with what to write instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from makegood.declare.outcomes import Happened, NotHappened
from makegood.declare.parameters import EMPTY, Parameters, signature
from makegood.errors import DefinitionError
from makegood.model.task import Doing
from makegood.payload.annotations import certain, constrained, hints, may_fit, members, takes
from makegood.payload.codec import decoder, shown
from makegood.payload.pydantic_models import refuse_hidden

Function = Callable[..., Any]
Arguments = Callable[[bytes], dict[str, Any]]
"""Decodes a step's arguments to those that a function takes, by name; raises ``msgspec.MsgspecError``."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Everything an action needs to run."""

    annotations: Mapping[str, Any]
    """All annotations, by parameter and "return"."""
    returns: Any
    """The result's annotation; ``Any`` without one."""
    result: Callable[[bytes], Any]
    args: Arguments
    undo: Arguments | None
    probe: Arguments | None
    wants: Mapping[Doing, Mapping[str, bool]]
    """The action's parameters that it, its undo and its probe take, and whether each is required."""
    _sure: dict[tuple[str, type], bool] = field(default_factory=dict)
    _certain: dict[tuple[str, type], bool] = field(default_factory=dict)
    _promised: dict[tuple[str, Any], bool] = field(default_factory=dict)

    def surely(self, name: str, given: type) -> bool:
        """Return whether every value of this type fits a parameter; False: only decoding shows it."""
        known = self._sure.get((name, given))
        if known is None:
            annotation = self.annotations.get(name, Any)
            known = self._sure[name, given] = takes(annotation, given) and not constrained(annotation)
        return known

    def always(self, name: str, given: type) -> bool:
        """Return whether all values of this type fit a parameter ("return": the result), whatever they
        hold.
        """
        known = self._certain.get((name, given))
        if known is None:
            known = self._certain[name, given] = certain(self.annotations.get(name, Any), given)
        return known

    def may_take(self, name: str, promised: Any) -> bool:
        """Return whether a result annotated so may be passed to a parameter; False: no value of it ever
        fits.
        """
        annotation = self.annotations.get(name, Any)
        if promised is annotation or Any in (promised, annotation):
            return True
        try:
            known = self._promised.get((name, promised))
        except TypeError:  # an unhashable annotation
            return may_fit(annotation, promised)
        if known is None:
            known = self._promised[name, promised] = may_fit(annotation, promised)
        return known


class Fitting:
    """The functions of one action: ``where`` and ``name`` name it in messages."""

    def __init__(self, fn: Function, parameters: Parameters, *, where: str, name: str) -> None:
        self.fn = fn
        self.undo: Function | None = None
        self.probe: Function | None = None
        self._parameters = parameters
        self._where = where
        self._name = name

    def evaluates(self, names: Mapping[str, Any] | None) -> bool:
        """Return whether all annotations can be evaluated by now; ``names``: see ``annotations.hints``."""
        try:
            for fn in (self.fn, self.undo, self.probe):
                if fn is not None:
                    hints(fn, names, self._where)
        except DefinitionError:
            return False
        return True

    def fit(self, names: Mapping[str, Any] | None = None) -> Fitted:
        """Compare the annotations and prepare the decoders.

        Raises ``DefinitionError`` for annotations that cannot be evaluated, cannot be decoded to, or do not
        fit together.
        """
        own = hints(self.fn, names, self._where)
        returns = own.get("return", Any)
        undo = probe = None
        parameters = self._parameters
        wants: dict[Doing, Mapping[str, bool]] = {
            "do": {name: name not in parameters.defaults for name in parameters.names}
        }
        if self.undo is not None:
            where = f"the undo of {self._where}"
            found = hints(self.undo, names, where)
            self._compare(found, own, where)
            self._compare_result(found.get("result", Any), returns, where)
            wants["undo"], undo = self._wanted_arguments(own, self.undo, where)
        if self.probe is not None:
            where = f"the probe of {self._where}"
            found = hints(self.probe, names, where)
            self._compare(found, own, where)
            _compare_answer(found.get("return", Any), returns, where)
            wants["probe"], probe = self._wanted_arguments(own, self.probe, where)
        for name, annotation in own.items():
            what = "result" if name == "return" else f"parameter {name}"
            refuse_hidden(annotation, f"the {what} of {self._where}")
        result = decoder(returns, f"the result of {self._where}")
        args = self._arguments(own, wants["do"])
        return Fitted(own, returns, result, args, undo, probe, wants)

    def _arguments(self, own: Mapping[str, Any], wanted: Mapping[str, bool]) -> Arguments:
        """Return the decoder of the wanted arguments; required ones must be there, unwanted ones are
        ignored.
        """
        fields: dict[str, Any] = {}
        for name, needed in wanted.items():
            annotation = own.get(name, Any)
            # called for its error, which names the parameter
            decoder(annotation, f"the parameter {name} of {self._where}")
            fields[name] = annotation if needed else NotRequired[annotation]
        make: Any = TypedDict
        return decoder(make(self._name, fields), self._where)

    def _wanted_arguments(
        self, own: Mapping[str, Any], fn: Function, where: str
    ) -> tuple[Mapping[str, bool], Arguments]:
        """Return the action's parameters that its undo or probe takes, and their decoder.

        A step that was submitted before the action had a parameter does not name it: then the function's own
        default applies, or else the action's.
        """
        taken, defaults = signature(fn, where).parameters, self._parameters.defaults
        bare = [name for name in self._parameters.names if name in taken and taken[name].default is EMPTY]
        left = {name: defaults[name] for name in bare if name in defaults}
        wanted = {name: name in bare and name not in left for name in self._parameters.names if name in taken}
        read = self._arguments(own, wanted)
        return wanted, (lambda data: {**left, **read(data)}) if left else read

    def _compare(self, wanted: Mapping[str, Any], given: Mapping[str, Any], where: str) -> None:
        for name, annotation in wanted.items():
            if name in given and name != "return" and not takes(annotation, given[name]):
                raise DefinitionError(
                    f"{where} takes {name}: {shown(annotation)}, but {self._name} takes {name}: {shown(given[name])}: "
                    f"annotate both alike"
                )

    def _compare_result(self, wanted: Any, returns: Any, where: str) -> None:
        if not takes(wanted, returns) or not takes(wanted, None):
            always = "" if None in (returns, wanted) else " | None"
            raise DefinitionError(
                f"{where} takes result: {shown(wanted)}, but {self._name} returns {shown(returns)}, and None is passed when it is in "
                f"doubt: annotate `result: {shown(returns)}{always}`"
            )


def _compare_answer(answer: Any, returns: Any, where: str) -> None:
    """Raise ``DefinitionError`` if a probe's return annotation is not ``Happened[R] | NotHappened``."""
    for member in members(answer):
        if member in (Any, NotHappened, Happened):
            continue
        if getattr(member, "__origin__", None) is not Happened or not takes(returns, member.__args__[0]):
            raise DefinitionError(
                f"{where} returns {shown(answer)}: it answers mg.Happened(result) or mg.NOT_HAPPENED, so annotate "
                f"`-> mg.Happened[{shown(returns)}] | mg.NotHappened`"
            )
