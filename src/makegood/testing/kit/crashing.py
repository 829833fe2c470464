"""The decorators ``@crash_everywhere`` and ``@simulate``: plain tests for pytest, with or without makegood's
plugin.

Every world gets a new value for the test's parameter ``world``. All other parameters are fixtures as usual,
and stay the same through all worlds. The plugin only adds the options ``--makegood-seed``,
``--makegood-seeds`` and ``--makegood-faults``.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar, overload

from makegood.base.arguments import judge_calls
from makegood.base.did_you_mean import did_you_mean
from makegood.errors import ConfigError
from makegood.testing.kit.progress import on_terminal
from makegood.testing.kit.proof import KINDS, USUAL, Proof, UnprovedError
from makegood.testing.kit.stage import ATTEMPTS, Stage
from makegood.testing.kit.storms import FAULTS
from makegood.testing.kit.world import World
from makegood.testing.simulator.ctrl_c import hold_ctrl_c

Test = TypeVar("Test", bound=Callable[..., Awaitable[object]])
Decorated = Callable[..., None]

_WORLD: Final = "world"
_PROOF: Final = "__makegood_proof__"
_REQUEST: Final = "request"


class PluginOptions(NamedTuple):
    """What pytest's command line asks for."""

    seed: int | None = None
    point: int | None = None
    """The fault point of the one world to replay; None: all worlds."""
    what: str = ""
    """The fault that strikes at ``point``."""
    seeds: int | None = None
    faults: tuple[str, ...] = ()
    """Only these faults; empty: those that the decorator names."""
    text: str = ""
    """The options as the user wrote them, for messages."""

    def of(self, choices: Iterable[str]) -> tuple[str, ...]:
        """Return the requested faults that a decorator knows."""
        words = set(choices)
        return tuple(name for name in self.faults if name in words)


@overload
def crash_everywhere(test: Test, /) -> Decorated: ...
@overload
def crash_everywhere(
    *,
    kinds: Sequence[str] = ...,
    at_most: int | None = ...,
    seed: int = ...,
    attempts: int = ...,
    fails: bool = ...,
) -> Callable[[Test], Decorated]: ...
@judge_calls(ConfigError)
def crash_everywhere(
    test: Any = None,
    /,
    *,
    kinds: Sequence[str] = USUAL,
    at_most: int | None = None,
    seed: int = 0,
    attempts: int = ATTEMPTS,
    fails: bool = False,
) -> Any:
    """Play an ``async def`` test once calm, then once per fault point and kind of fault, each time in a new
    world::

        @crash_everywhere
        async def test_order(world):
            bank = world.service("payments", do=fake.charge, undo=fake.refund)
            task = await world.submit(place_order, Order("7", 990))
            await world.run_to_rest()
            task.assert_processed_or_undone()

    - ``kinds``: of "kill", "stop", "ambiguous" (a commit whose answer is lost), "duplicate" (a message or a
      call arrives twice), "late" (a reply or a call arrives late); also "lost", "outage", "fails", "refuses".
    - ``at_most``: play at most this many worlds, spread evenly over all. None: all of them, unless that takes
      hours.
    - ``seed``: decides the remaining chance, such as which process comes first.
    - ``attempts``: the limit for one step in one world. A step that reaches it is taken to be endless, and
      the test fails.
    - ``fails``: allow a task to fail in the calm world, except for good (``mg.Permanent``). By default that
      fails the test, because it would prove nothing about how the workflow succeeds.

    Raises ``ConfigError`` for arguments that make no sense. The test fails with ``UnprovedError``.
    """
    defaults = _words(kinds, KINDS, "kinds")
    if at_most is not None:
        _check_count(at_most, "crash_everywhere(at_most", ", or None for every point")
    _check_count(attempts, "crash_everywhere(attempts")

    def prove(proof: Proof, settings: PluginOptions) -> None:
        start = seed if settings.seed is None else settings.seed
        proof.attempts, proof.fails = attempts, fails
        if settings.point is not None:
            proof.again(start, settings.point, settings.what)
            proof.say(f"it held in the one world of --makegood-seed={settings.text}; no other was played")
            return
        selection = settings.of(KINDS)
        proof.everywhere(start, selection or defaults, at_most)
        text = f"it held at every point under seed {start}, with {proof.world_count:,} worlds"
        _report_pass(proof, settings, text, selection, defaults, fewer=bool(settings.faults))

    decorate = functools.partial(_decorate, prove=prove, name="crash_everywhere")
    return decorate if test is None else decorate(test)


@overload
def simulate(test: Test, /) -> Decorated: ...
@overload
def simulate(
    *, seeds: int = ..., faults: str | Sequence[str] = ..., attempts: int = ..., fails: bool = ...
) -> Callable[[Test], Decorated]: ...
@judge_calls(ConfigError)
def simulate(
    test: Any = None,
    /,
    *,
    seeds: int = 100,
    faults: str | Sequence[str] = "all",
    attempts: int = ATTEMPTS,
    fails: bool = False,
) -> Any:
    """Play an ``async def`` test once per seed, each time in a storm that the seed draws::

        @simulate(seeds=500, faults=("kill", "late"))
        async def test_order_in_a_storm(world):
            ...
            await world.run_to_rest()       # the storm passes, and all work ends
            task.assert_whole()

    - ``seeds``: how many, starting at 0.
    - ``faults``: "all", or of "kill", "stop", "ambiguous", "duplicate", "late", "lost", "outage", "fails",
      "refuses", "clock".
    - ``attempts``, ``fails``: see ``crash_everywhere``.

    In a storm many things fail at once, so even a good workflow may end with an operator:
    ``task.assert_whole()`` allows it. Raises ``ConfigError`` for arguments that make no sense. The test fails
    with ``UnprovedError``.
    """
    words = tuple(FAULTS) if faults == "all" else (faults,) if isinstance(faults, str) else tuple(faults)
    defaults = _words(words, FAULTS, "faults")
    _check_count(seeds, "simulate(seeds")
    _check_count(attempts, "simulate(attempts")

    def prove(proof: Proof, settings: PluginOptions) -> None:
        if settings.point is not None:
            raise ConfigError(
                f"--makegood-seed={settings.text}: this names a fault in a test under @crash_everywhere; {proof.name} is under @simulate, "
                f"where a seed is a whole number, such as --makegood-seed={settings.seed}"
            )
        selection = tuple(FAULTS) if "all" in settings.faults else settings.of(FAULTS)
        if settings.faults:
            proof.options = f" --makegood-faults={','.join(settings.faults)}"
        proof.attempts, proof.fails = attempts, fails
        numbers = range(settings.seeds or seeds) if settings.seed is None else (settings.seed,)
        proof.storms(numbers, selection or defaults)
        text = f"it held in a calm world and in the storm of seed {settings.seed}; no other was played"
        fewer = settings.seed is not None or bool(settings.faults) or len(numbers) < seeds
        _report_pass(proof, settings, text, selection, defaults, fewer=fewer)

    decorate = functools.partial(_decorate, prove=prove, name="simulate")
    return decorate if test is None else decorate(test)


def _report_pass(
    proof: Proof,
    settings: PluginOptions,
    text: str,
    selection: Sequence[str],
    defaults: Sequence[str],
    *,
    fewer: bool,
) -> None:
    """For a test that passed: report what it held under, ``text``, if that was one seed, and which of
    --makegood-faults it ran under, if they differ from its decorator's.

    ``selection``: the faults of the option that the decorator knows; ``defaults``: the decorator's own.
    ``fewer``: less was played than the test asks for; if not, raises ``UnprovedError`` for a service that no
    world called.
    """
    if not fewer:
        proof.all_were_called()
    if settings.seed is not None:
        proof.say(text)
    strange = [name for name in settings.faults if name not in (*selection, "all")]
    without = [name for name in defaults if name not in selection]
    notes: list[str] = []
    if settings.faults and not selection:
        notes.append(f"it held under {', '.join(defaults)}, as its decorator says")
    elif settings.faults and without:
        were = "were" if len(without) > 1 else "was"
        notes.append(f"it held under {', '.join(selection)} alone; {', '.join(without)} {were} not played")
    if strange:
        notes.append(f"@crash_everywhere has no fault {', '.join(strange)}: @simulate has")
    elif "all" in settings.faults and not selection:
        notes.append("`all` is for @simulate: name the faults that @crash_everywhere shall play")
    if notes:
        proof.say(f"{'; '.join(notes)} (--makegood-faults={','.join(settings.faults)})")


def _check_count(number: Any, argument: str, alternative: str = "") -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(f"{argument}={number!r}): a whole number, at least 1{alternative}")


def _words(values: Sequence[str], choices: Any, name: str) -> tuple[str, ...]:
    words = (values,) if isinstance(values, str) else tuple(values)
    unknown = [word for word in words if word not in choices]
    if unknown or not words:
        raise _unknown(f"{name}={values!r}", unknown, choices)
    return words


def _unknown(argument: str, words: Sequence[str], choices: Collection[str]) -> ConfigError:
    """Return the error for unknown words, or for no words at all."""
    complaint = f"{', '.join(map(repr, words))} is not one" if words else "name at least one"
    question = did_you_mean(words[0], choices) if words else ""
    return ConfigError(f"{argument}: {complaint} of {', '.join(choices)}{question and ': '}{question}")


def _decorate(
    test: Callable[..., Awaitable[object]], prove: Callable[[Proof, PluginOptions], None], name: str
) -> Decorated:
    """Return a plain test function without the parameter ``world``. It asks pytest for ``request``, to read
    its options.
    """
    mark = getattr(test, _PROOF, None)
    if mark is not None:
        raise ConfigError(
            f"@{name} above @{mark} on {test.__name__!r}: each plays the test in worlds of its own, so one test has one of them. Write what "
            f"both share as an `async def play(world)`, and two tests that `await play(world)`"
        )
    signature = inspect.signature(test)
    if not inspect.iscoroutinefunction(test) or _WORLD not in signature.parameters:
        raise ConfigError(
            f"@{name} above {getattr(test, '__name__', test)!r}: it takes an `async def` test with a parameter `world`"
        )
    asks = _REQUEST in signature.parameters
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != _WORLD]
    if not asks:
        parameters.append(inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(test)
    def plain_test(*args: Any, **kwargs: Any) -> None:
        request = kwargs.get(_REQUEST) if asks else kwargs.pop(_REQUEST, None)
        script = functools.partial(_script, test, signature, args, kwargs)
        if request is None:
            with hold_ctrl_c():
                prove(Proof(script, test.__qualname__), PluginOptions())
            return
        progress = on_terminal(request.config, request.node.name)
        proof = Proof(script, request.node.nodeid, progress=progress)
        try:
            with hold_ctrl_c():
                progress.begin()
                prove(proof, settings_of(request.config))
            return
        except UnprovedError as error:
            text = str(error)
        except ConfigError as error:
            text = f"ConfigError: {error}"
        finally:
            progress.end()
            _remember(request.config, proof)
        import_module("pytest").fail(text, pytrace=False)

    setattr(plain_test, _PROOF, name)
    plain_test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # pytest reads it
    return plain_test


def _remember(config: Any, proof: Proof) -> None:
    """Hand the plugin how far the undos and probes came in this test's worlds. At its end it reports those
    that answered in no world of any test.
    """
    plugin = config.pluginmanager.get_plugin("makegood")
    if plugin is not None:
        plugin.remember(config, proof.coverage)


def _script(
    test: Callable[..., Awaitable[object]],
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    stage: Stage,
) -> Awaitable[object]:
    """Start the test in the world of a stage."""
    world = World(stage)
    arguments = list(args)
    places = list(signature.parameters)
    if len(arguments) > places.index(_WORLD):
        arguments.insert(places.index(_WORLD), world)
        return test(*arguments, **kwargs)
    return test(*arguments, **kwargs, world=world)


def settings_of(config: Any) -> PluginOptions:
    """Return what pytest's command line asks for; without the plugin, nothing. Raises ``ConfigError`` for bad
    options.
    """
    option = config.getoption("makegood_seed", None)
    seeds = config.getoption("makegood_seeds", None)
    faults = config.getoption("makegood_faults", None)
    if seeds is not None and seeds < 1:
        raise ConfigError(f"--makegood-seeds={seeds}: at least 1")
    names = tuple(word.strip() for word in faults.split(",")) if faults is not None else ()
    unknown = [word for word in names if word not in ("all", *KINDS, *FAULTS)]
    if unknown:
        raise _unknown(f"--makegood-faults={faults}", unknown, ("all", *FAULTS))
    if option is None:
        return PluginOptions(seeds=seeds, faults=names)
    if seeds is not None:
        raise ConfigError(
            f"--makegood-seed={option} plays one seed, --makegood-seeds={seeds} the first {seeds}: give one of them"
        )
    seed, *strike = str(option).split("/")
    if not seed.isdecimal() or (strike and not (len(strike) == 2 and strike[0].isdecimal() and strike[1])):
        raise ConfigError(
            f"--makegood-seed={option}: a seed, a whole number from 0 such as 7, or what a failure printed, such as 0/118/kill"
        )
    if not strike:
        return PluginOptions(int(seed), faults=names, text=option)
    return PluginOptions(int(seed), int(strike[0]), strike[1].replace("-", " "), faults=names, text=option)
