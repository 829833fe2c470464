"""What a user of the proof kit is told who would wait in the dark, prove nothing, or look at makegood's lines instead of his own.

Most tests write a user's files into a folder and start pytest there in a process of its own.
"""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import makegood as mg
from makegood.testing import World, crash_everywhere, simulate
from makegood.testing.kit import crashing, limits
from makegood.testing.kit import progress as users_progress
from makegood.testing.kit.progress import Progress
from makegood.testing.kit.proof import Proof, UnprovedError
from tests.clocks import HandClock
from tests.simulation import shop_for_plugin as shop

pytest_plugins = ["pytester"]

SHOP = Path(__file__).with_name("shop_for_plugin.py")
ALONE = [
    f"-pno:{plugin}" for plugin in ("cacheprovider", "randomly", "hypothesispytest", "schemathesis", "anyio")
]
"""Without plugins that leave traces, change the order, or take as long to be imported as pytest itself."""
HEAD = """
import makegood as mg
import pytest
import shop
from makegood.testing import World, crash_everywhere, simulate

def services(world):
    shop.Remote.warehouse = world.service("stock")
    shop.Remote.bank = world.service("payments")
"""
ORDER = """
async def {name}(world):
    services(world)
    {first}
    task = await world.submit({workflow}, "o7")
    await world.run_to_rest()
    task.assert_whole()
"""
HOTEL = """
hotels = shop.shop.agent("hotels")

@hotels.action(complete_within="30s", undo=mg.NOTHING, recover=mg.Recover(threshold=100_000))
async def book(order: str) -> str:
    raise RuntimeError("503 no rooms")

@hotels.action(complete_within="30s", undo=mg.NOTHING)
async def book_later(order: str) -> str:
    raise mg.Later("1s", "not yet")

@shop.shop.workflow
def trip(order: str) -> str:
    return book(order)

@shop.shop.workflow(complete_within="1m")
def trip_of_a_minute(order: str) -> str:
    return book_later(order)

def services(world):
    pass
"""


def order(name: str = "test_order", workflow: str = "shop.place_order", first: str = "") -> str:
    """Return a user's test that submits one order."""
    return ORDER.format(name=name, workflow=workflow, first=first)


def run(pytester: pytest.Pytester, text: str, *options: str) -> str:
    """Run pytest over a user's test file and return what it printed."""
    pytester.makepyfile(shop=SHOP.read_text(encoding="utf-8"), test_it=HEAD + text)
    result = pytester.runpytest_subprocess(*ALONE, *options)
    return "\n".join(result.outlines)


# -- what never ends, and what takes hours ---------------------------------------------------------------------------------


def test_a_step_that_never_succeeds_stops_the_calm_world_and_is_named(pytester: pytest.Pytester) -> None:
    """Under both decorators: which step, how often it was asked, what it said last, and what to do."""
    text = HOTEL + "".join(
        f"@{decorator}(attempts=40)" + order(f"test_{decorator}", "trip")
        for decorator in ("crash_everywhere", "simulate")
    )
    output = run(pytester, text)
    assert "2 failed" in output
    for decorator in ("crash_everywhere", "simulate"):
        section = output.split(f"_ test_{decorator} _")[1].split("\n____")[0]
        assert "a calm world, in which nothing ever fails; 1 world was played" in section
        assert re.search(
            r"^- ENDLESS: step book of task \w+ was asked 40 times within [\d,]+ virtual seconds and has not come to an end "
            r"\(\w+, and last said 'RuntimeError: 503 no rooms'\)",
            section,
            re.MULTILINE,
        )
        for remedy in ("mg.Permanent", "recover=mg.Recover(threshold=...)", "complete_within=", "attempts="):
            assert remedy in section
        assert "the checker:" not in section


def test_a_step_that_waits_long_for_its_end_is_let(pytester: pytest.Pytester) -> None:
    """Sixty attempts that end by the workflow's complete-by are what the workflow says."""
    text = HOTEL + "@crash_everywhere(at_most=2, fails=True)" + order(workflow="trip_of_a_minute")
    assert "1 passed" in run(pytester, text)


def test_a_proof_of_many_hours_is_not_begun_and_says_why(pytester: pytest.Pytester) -> None:
    """Worlds times their length, both of which are counted: at_most= is the way to mean it all the same."""
    pytester.makeconftest("from makegood.testing.kit import limits\nlimits.MOST_STEPS = 1_000_000")
    text = HOTEL + "".join(
        f"@crash_everywhere({how}fails=True)" + order(f"test_{n}", "trip_of_a_minute")
        for n, how in enumerate(("", "at_most=2, "))
    )
    output = run(pytester, text)
    assert "1 failed, 1 passed" in output or "1 passed, 1 failed" in output
    assert re.search(r"test_0 was not begun: its calm world has [\d,]+ fault points", output)
    assert re.search(r"Step book_later was asked \d\d times there, and last said 'not yet'", output)
    assert "@crash_everywhere(at_most=500)" in output


def test_a_long_proof_of_a_large_workflow_is_told_without_a_culprit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no step was asked again and again, it is the size."""
    monkeypatch.setattr(limits, "MOST_STEPS", 1000)

    @crash_everywhere
    async def test_order(world: World) -> None:
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        await world.submit(shop.place_order, "o7")
        await world.run_to_rest()

    with pytest.raises(UnprovedError, match="Test a smaller case"):
        test_order()


@pytest.mark.parametrize("wrong", [0, "50", 1.5, True])
def test_attempts_are_a_number(wrong: Any) -> None:
    for decorator in (crash_everywhere, simulate):
        with pytest.raises(mg.ConfigError, match=r"attempts=.*a whole number, at least 1"):
            decorator(attempts=wrong)


def test_progress_is_told_late_and_ever_more_seldom_in_a_file() -> None:
    """After half a minute, then each time after as long again; how much is left; nothing when it is over."""
    lines: list[str] = []
    clock = HandClock(0.0)
    progress = Progress(lines.append, lines.append, clock=clock)
    progress.begin()
    for second in range(300):
        clock.seconds = float(second)
        progress.tell(second, 300, "; why")
    progress.end()
    assert lines == [
        "30 of 300 worlds, about 4 min to go; why",
        "60 of 300 worlds, about 4 min to go; why",
        "120 of 300 worlds, about 3 min to go; why",
        "240 of 300 worlds, about 60 s to go; why",
    ]


class Reporter:
    """Pytest's, as far as it is asked."""

    def __init__(self, *, isatty: bool, showfspath: bool) -> None:
        self.isatty = isatty
        self.showfspath = showfspath
        self.out: list[str] = []

    def ensure_newline(self) -> None:
        self.out.append("newline")

    def write_line(self, text: str) -> None:
        self.out.append(f"line {text}".rstrip())

    def rewrite(self, text: str, *, erase: bool = False) -> None:
        self.out.append(f"{'erase' if erase else 'again'} {text}".rstrip())


def told_by(reporter: Reporter | None) -> Progress:
    """Return what tells on a terminal."""
    plugins = {"terminalreporter": reporter}
    return users_progress.on_terminal(
        SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=plugins.get)), "test_it"
    )


def test_on_a_terminal_one_line_is_written_again_and_taken_away_at_the_end() -> None:
    reporter = Reporter(isatty=True, showfspath=True)
    progress = told_by(reporter)
    clock = progress.clock = HandClock(0.0)
    progress.begin()
    progress.tell(0, 10)
    clock.seconds = 2.0
    progress.tell(1, 10)
    progress.end()
    assert [text for text in reporter.out if text != "newline"] == [
        "erase test_it: 1 of 10 worlds, about 18 s to go",
        "erase",
        "again",
    ]


def test_beside_the_dots_a_line_of_its_own_is_begun() -> None:
    reporter = Reporter(isatty=False, showfspath=False)
    progress = told_by(reporter)
    assert progress.say is not None
    progress.say("it held")
    progress.say("again")
    assert reporter.out == ["line", "newline", "line test_it: it held", "newline", "line test_it: again"]
    assert told_by(None).say is None


# -- what proves nothing ---------------------------------------------------------------------------------------------------


def test_a_service_that_nothing_calls_fails_the_test(pytester: pytest.Pytester) -> None:
    """Which, those that were called, and which was probably meant; not when less is played than the test asks for."""
    decorators = {"test_crash": "crash_everywhere(at_most=2)", "test_storm": "simulate(seeds=2)"}
    text = "".join(
        f"@{decorator}" + order(name, first='world.service("paymants")')
        for name, decorator in decorators.items()
    )
    output = run(pytester, text)
    assert "2 failed" in output
    for name in decorators:
        section = output.split(f"_ {name} _")[1].split("\n____")[0]
        assert "- service 'paymants' was never called: did you mean 'payments'?" in section
        assert "Services that were called: payments, stock" in section
        assert "needed=False" in section
    assert "2 passed" in run(pytester, text, "--makegood-faults=kill")


@pytest.mark.parametrize("option", ["--makegood-seeds=3", "--makegood-seed=0"])
def test_more_worlds_excuse_no_service_that_is_never_called(pytester: pytest.Pytester, option: str) -> None:
    """@crash_everywhere plays all its worlds under either option, and @simulate more than it asks for under the first."""
    idle = 'world.service("paymants")'
    text = "@crash_everywhere(at_most=2)" + order("test_crash", first=idle)
    if option == "--makegood-seeds=3":
        text += "@simulate(seeds=2)" + order("test_storm", first=idle)
    output = run(pytester, text, option)
    assert "passed" not in output
    assert "never called" in output


def test_a_service_that_need_not_be_called_is_let() -> None:
    @crash_everywhere(at_most=2)
    async def test_order(world: World) -> None:
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        world.service("letters", needed=False)
        await world.submit(shop.place_order, "o7")
        await world.run_to_rest()

    test_order()


def test_a_service_named_like_nothing_else_is_told_without_a_question() -> None:
    text = limits.never_called("test_x", ["post"], {"bank"}, {"stock"}, "there is no task")
    assert "- service 'post' was never called\n" in text


def test_a_misspelt_step_is_told_with_those_that_there_are() -> None:
    """In the family of makegood's errors; the rest of the dict is as usual."""

    async def script(world: World) -> None:
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        task = await world.submit(shop.place_order, "o7")
        with pytest.raises(
            mg.TaskNotFoundError, match=r"no step 'chrage'; it has reserve, charge: did you mean 'charge'\?"
        ):
            task.steps["chrage"]
        with pytest.raises(mg.TaskNotFoundError, match="it has reserve, charge: name one of them"):
            task.steps["x"]
        assert "x" not in task.steps
        assert task.steps.get("x") is None
        await world.run_to_rest()
        assert task.steps == {"reserve": "done", "charge": "done"}

    Proof(lambda stage: script(World(stage))).calm(0)


# -- decorators and options ------------------------------------------------------------------------------------------------


def test_both_decorators_on_one_test_are_refused_for_what_they_are() -> None:
    async def test_order(world: World) -> None: ...

    pairs: list[tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = [
        (crash_everywhere, simulate, "@crash_everywhere above @simulate on 'test_order'"),
        (simulate, crash_everywhere, "@simulate above @crash_everywhere on 'test_order'"),
        (simulate(seeds=3), simulate, "@simulate above @simulate on 'test_order'"),
    ]
    for above, below, pattern in pairs:
        with pytest.raises(mg.ConfigError, match=f"{pattern}: .* two tests"):
            above(below(test_order))


@pytest.mark.parametrize("seed", ["kill", "-1", "0/x/kill", "0/1/", "7.5", "0/1"])
def test_a_seed_that_is_none_is_refused(pytester: pytest.Pytester, seed: str) -> None:
    config = pytester.parseconfig(f"--makegood-seed={seed}")
    with pytest.raises(
        mg.ConfigError, match=f"--makegood-seed={seed}: a seed, a whole number from 0 such as 7, or"
    ):
        crashing.settings_of(config)


def test_a_seed_and_a_number_of_seeds_contradict_each_other(pytester: pytest.Pytester) -> None:
    config = pytester.parseconfig("--makegood-seed=3", "--makegood-seeds=5")
    with pytest.raises(
        mg.ConfigError, match="--makegood-seed=3 plays one seed, --makegood-seeds=5 the first 5"
    ):
        crashing.settings_of(config)


def test_a_fault_point_means_nothing_in_a_storm(pytester: pytest.Pytester) -> None:
    output = run(pytester, "@simulate(seeds=2)" + order(), "--makegood-seed=4/118/kill")
    assert "1 failed" in output
    assert "this names a fault in a test under @crash_everywhere" in output
    assert "such as --makegood-seed=4" in output


def test_what_one_seed_has_shown_is_said(pytester: pytest.Pytester) -> None:
    """A green test that played one world of many says so."""
    text = "@simulate" + order("test_storm") + "@crash_everywhere(kinds=['kill'])" + order()
    output = run(pytester, text, "--makegood-seed=9999")
    assert "2 passed" in output
    assert "test_storm: it held in a calm world and in the storm of seed 9999; no other was played" in output
    assert re.search(r"test_order: it held at every point under seed 9999, with \d+ worlds", output)


# -- the user's own line ---------------------------------------------------------------------------------------------------


def test_wrong_inputs_are_shown_at_the_line_that_submits(pytester: pytest.Pytester) -> None:
    """In a world, and where pytest shows a traceback: no line of makegood's, and where the workflow is declared."""
    text = """
@crash_everywhere
async def test_world(world):
    await world.submit(shop.place_order, "o7", 4)

def test_plan():
    shop.place_order.plan(4)
"""
    output = run(pytester, text)
    assert "2 failed" in output
    assert re.search(
        r"DefinitionError: shop\.place_order\(.*it takes 1 parameter by position.*, test_it\.py:\d+: await world\.submit",
        output,
    )
    section = output.split("_ test_plan _")[1]
    assert "\ntest_it.py:" in section
    assert "workflow.py" not in section
    assert "codec.py" not in section
    assert re.search(
        r"shop\.place_order is declared in \S*shop\.py, line \d+; it was called in \S*test_it\.py, line \d+",
        section,
    )
