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
from makegood.declare.setup import setups_in
from makegood.errors import DefinitionError
from makegood.model.task import Doing
from makegood.payload.annotations import certain, has_constraint, hints, may_fit, members, takes
from makegood.payload.codec import annotation_text, decoder
from makegood.payload.unchecked_rules import limits_in, refuse_unkept

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
    setups: Mapping[Doing, tuple[str, ...]]
    """The setups that they take."""
    _sure: dict[tuple[str, type], bool] = field(default_factory=dict)
    _certain: dict[tuple[str, type], bool] = field(default_factory=dict)
    _possible: dict[tuple[str, Any], bool] = field(default_factory=dict)

    def surely(self, name: str, kind: type) -> bool:
        """Return whether every value of this type fits a parameter; False: only decoding shows it."""
        verdict = self._sure.get((name, kind))
        if verdict is None:
            annotation = self.annotations.get(name, Any)
            verdict = self._sure[name, kind] = takes(annotation, kind) and not has_constraint(annotation)
        return verdict

    def always(self, name: str, kind: type) -> bool:
        """Return whether all values of this type fit a parameter ("return": the result), whatever they
        hold.
        """
        verdict = self._certain.get((name, kind))
        if verdict is None:
            verdict = self._certain[name, kind] = certain(self.annotations.get(name, Any), kind)
        return verdict

    def may_take(self, name: str, result: Any) -> bool:
        """Return whether a result annotated so may be passed to a parameter; False: no value of it ever
        fits.
        """
        annotation = self.annotations.get(name, Any)
        if result is annotation or Any in (result, annotation):
            return True
        try:
            verdict = self._possible.get((name, result))
        except TypeError:  # an unhashable annotation
            return may_fit(annotation, result)
        if verdict is None:
            verdict = self._possible[name, result] = may_fit(annotation, result)
        return verdict


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
        own = self._hints(self.fn, names, self._where)
        returns = own.get("return", Any)
        undo = probe = None
        parameters = self._parameters
        wants: dict[Doing, Mapping[str, bool]] = {
            "do": {name: name not in parameters.defaults for name in parameters.names}
        }
        if self.undo is not None:
            where = f"the undo of {self._where}"
            annotations = self._hints(self.undo, names, where)
            self._compare(annotations, own, where)
            self._compare_result(annotations.get("result", Any), returns, where)
            wants["undo"], undo = self._arguments_of(own, self.undo, where)
        if self.probe is not None:
            where = f"the probe of {self._where}"
            annotations = self._hints(self.probe, names, where)
            self._compare(annotations, own, where)
            _compare_answer(annotations.get("return", Any), returns, where)
            wants["probe"], probe = self._arguments_of(own, self.probe, where)
        result = decoder(returns, f"the result of {self._where}")
        args = self._arguments(own, wants["do"])
        return Fitted(own, returns, result, args, undo, probe, wants, self._setups())

    def _setups(self) -> dict[Doing, tuple[str, ...]]:
        functions: dict[Doing, Function | None] = {"do": self.fn, "undo": self.undo, "probe": self.probe}
        return {
            doing: setups_in(signature(fn, self._where).parameters.values(), self._where)
            for doing, fn in functions.items()
            if fn is not None
        }

    def _hints(self, fn: Function, names: Mapping[str, Any] | None, where: str) -> dict[str, Any]:
        """Return a function's annotations. Raises ``DefinitionError`` for those that promise too much."""
        setups = setups_in(signature(fn, where).parameters.values(), where)
        annotations = {
            name: annotation for name, annotation in hints(fn, names, where).items() if name not in setups
        }
        for name, annotation in annotations.items():
            refuse_unkept(
                annotation, f"the {'result' if name == 'return' else f'parameter {name}'} of {where}"
            )
        return annotations

    def _arguments(self, own: Mapping[str, Any], choices: Mapping[str, bool]) -> Arguments:
        """Return the decoder of the wanted arguments; required ones must be there, unwanted ones are
        ignored.
        """
        fields: dict[str, Any] = {}
        for name, is_required in choices.items():
            annotation = own.get(name, Any)
            # called for its error, which names the parameter
            decoder(annotation, f"the parameter {name} of {self._where}")
            fields[name] = annotation if is_required else NotRequired[annotation]
        make: Any = TypedDict
        try:
            whole = make(self._name, fields)
        except TypeError as wrong:  # such as Final, which msgspec skips
            raise DefinitionError(f"{self._where}: an annotation of a parameter: {wrong}") from None
        return decoder(whole, self._where)

    def _arguments_of(
        self, own: Mapping[str, Any], fn: Function, where: str
    ) -> tuple[Mapping[str, bool], Arguments]:
        """Return the action's parameters that its undo or probe takes, and their decoder.

        A step that was submitted before the action had a parameter does not name it: then the function's own
        default applies, or else the action's.
        """
        parameters, defaults = signature(fn, where).parameters, self._parameters.defaults
        bare = [
            name
            for name in self._parameters.names
            if name in parameters and parameters[name].default is EMPTY
        ]
        left = {name: defaults[name] for name in bare if name in defaults}
        choices = {
            name: name in bare and name not in left for name in self._parameters.names if name in parameters
        }
        read = self._arguments(own, choices)
        return choices, (lambda data: {**left, **read(data)}) if left else read

    def _compare(self, ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> None:
        for name, annotation in ours.items():
            if name in theirs and name != "return" and not takes(annotation, theirs[name]):
                raise DefinitionError(
                    f"{where} takes {name}: {annotation_text(annotation)}, but {self._name} takes {name}: {annotation_text(theirs[name])}: "
                    f"annotate both alike"
                )
            if name in theirs and name != "return":
                _compare_limits(annotation, theirs[name], f"{where} takes {name}")

    def _compare_result(self, ours: Any, returns: Any, where: str) -> None:
        if not takes(ours, returns) or not takes(ours, None):
            always = "" if None in (returns, ours) else " | None"
            raise DefinitionError(
                f"{where} takes result: {annotation_text(ours)}, but {self._name} returns {annotation_text(returns)}, and None is passed when it is in "
                f"doubt: annotate `result: {annotation_text(returns)}{always}`"
            )
        _compare_limits(ours, returns, f"{where} takes result")


def _compare_answer(answer: Any, returns: Any, where: str) -> None:
    """Raise ``DefinitionError`` if a probe's return annotation is not ``Happened[R] | NotHappened``."""
    for member in members(answer):
        if member in (Any, NotHappened, Happened):
            continue
        if getattr(member, "__origin__", None) is not Happened or not takes(returns, member.__args__[0]):
            raise DefinitionError(
                f"{where} returns {annotation_text(answer)}: it answers mg.Happened(result) or mg.NOT_HAPPENED, so annotate "
                f"`-> mg.Happened[{annotation_text(returns)}] | mg.NotHappened`"
            )
        _compare_limits(member.__args__[0], returns, f"{where} answers mg.Happened")


def _compare_limits(ours: Any, theirs: Any, subject: str) -> None:
    """Raise ``DefinitionError`` for limits other than those of the annotation that values are checked by."""
    limits = limits_in(theirs)
    if any(limit not in limits for limit in limits_in(ours)):
        raise DefinitionError(
            f"{subject}: {annotation_text(ours)}, but the action says {annotation_text(theirs)}, and only that is checked: annotate both alike"
        )
