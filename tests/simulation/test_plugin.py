"""pytest itself, with makegood's plugin: what a user sees of ``@crash_everywhere`` and ``@simulate``, good and bad.

Each test writes a user's files into a folder and starts pytest there in a process of its own.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from makegood import testing
from makegood.errors import ConfigError
from makegood.testing import crash_everywhere
from makegood.testing.kit import crashing
from tests.simulation.test_plugin_reports import ALONE

pytest_plugins = ["pytester"]

SHOP = Path(__file__).with_name("shop_for_plugin.py")
HEAD = """
import pytest
import shop
from makegood.testing import World, crash_everywhere, simulate

def services(world, **how):
    shop.Remote.warehouse = world.service("stock")
    shop.Remote.bank = world.service("payments", **how)
    return shop.Remote.bank
"""
ORDER = """
async def test_order(world):
    bank = services(world{how})
    task = await world.submit(shop.{workflow}, "o7")
    await world.run_to_rest()
    task.assert_processed_or_undone()
    assert bank.standing() == (task.state == "processed")
"""
CANCELLED = """
async def test_order(world):
    services(world{how})
    task = await world.submit(shop.{workflow}, "o7")
    await world.until(lambda: task.steps[{step!r}] != "waiting")
    try:
        await world.operator.cancel(task)
    except mg.ActRefusedError:
        pass
    await world.run_to_rest()
    task.assert_processed_or_undone()
"""


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with the shop in it."""
    pytester.makepyfile(shop=SHOP.read_text(encoding="utf-8"))
    return pytester


def run(folder: pytest.Pytester, text: str, *options: str, name: str = "test_it") -> pytest.RunResult:
    """Run pytest over a user's test file."""
    folder.makepyfile(**{name: HEAD + text})
    return folder.runpytest_subprocess(*ALONE, *options)


def test_a_good_workflow_passes_at_every_point(folder: pytest.Pytester) -> None:
    run(folder, "@crash_everywhere" + ORDER.format(how="", workflow="place_order")).assert_outcomes(passed=1)


def test_a_key_that_is_not_passed_on_is_found_and_replayed(folder: pytest.Pytester) -> None:
    """The command to see it again comes first, then the seed, what is wrong and why, the timeline; the command fails alike."""
    result = run(folder, "@crash_everywhere" + ORDER.format(how="", workflow="naive_order"))
    result.assert_outcomes(failed=1)
    lines = failure(result)
    assert lines[0].startswith("see it again with: pytest 'test_it.py::test_order' --makegood-seed=0/")
    assert re.match(r"seed 0, fault \d+ of \d+: '.*' strikes the \w+ at ", lines[2])
    text = "\n".join(lines)
    assert re.search(
        r"DOUBLE EFFECT: step charge_without_key was done 2 times at payments, at \d+\.\d+ s and again", text
    )
    assert "Why: payments honours keys, but received none" in text
    assert re.search(
        r"^>> .* payments: do charge_without_key/1/do -> ok, is in place 2 times", text, re.MULTILINE
    )
    command = shlex.split(lines[0].partition("pytest ")[2])
    again = folder.runpytest_subprocess("-p", "no:cacheprovider", *command)
    again.assert_outcomes(failed=1)
    assert story(failure(again)) == story(lines)


def failure(result: pytest.RunResult) -> list[str]:
    """Return what pytest printed of the one failed test."""
    lines = result.outlines
    start = next(n for n, line in enumerate(lines) if line.startswith("see it again with"))
    end = next(n for n, line in enumerate(lines) if n > start and line.startswith("===="))
    return lines[start:end]


def story(lines: list[str]) -> list[str]:
    """Return what was wrong and what happened."""
    return lines[lines.index("What is wrong:") :]


def test_a_service_that_honours_neither_fails_and_says_why(folder: pytest.Pytester) -> None:
    """A key was sent, but the service does not look at it; the test says what to declare."""
    result = run(
        folder,
        "@crash_everywhere" + ORDER.format(how=", keys=False, token=False", workflow="place_order"),
    )
    result.assert_outcomes(failed=1)
    text = "\n".join(failure(result))
    assert "DOUBLE EFFECT: step charge was done 2 times at payments" in text
    assert "Why: payments honours no keys: whoever asks twice is served twice" in text
    assert "retry=mg.NEVER" in text
    assert re.search(r"^>> .* is in place 2 times", text, re.MULTILINE)


def test_what_may_never_be_repeated_ends_whole_at_a_service_without_keys(folder: pytest.Pytester) -> None:
    """With NEVER and a probe the same kind of service passes: done, undone, or in an operator's hands."""
    text = """
@crash_everywhere
async def test_letter(world):
    shop.Remote.letters = world.service("letters", keys=False, token=False)
    task = await world.submit(shop.letter, "o7")
    await world.run_to_rest()
    task.assert_whole()
"""
    run(folder, text).assert_outcomes(passed=1)


def test_a_late_request_after_its_undo_wants_a_token_or_a_memory(folder: pytest.Pytester) -> None:
    """Keys alone do not stop a request that arrives after its undo; the output names the remedy, and the remedy helps."""
    late = "import makegood as mg\n@crash_everywhere(kinds=['late'])" + CANCELLED
    result = run(folder, late.format(how=", token=False", workflow="place_order", step="charge"))
    result.assert_outcomes(failed=1)
    text = "\n".join(failure(result))
    assert "LEFT IN PLACE: step charge is undone, yet what it did at payments" in text
    assert "the request arrived after its undo, and payments compares no tokens" in text
    assert "remembers=True" in text
    without_token = late.format(how=", token=False", workflow="settled_order", step="charge_settled")
    run(folder, without_token).assert_outcomes(passed=1)
    with_token = late.format(how="", workflow="place_order", step="charge")
    run(folder, with_token).assert_outcomes(passed=1)


def test_actions_in_threads_are_crashed_too(folder: pytest.Pytester) -> None:
    text = "@crash_everywhere(at_most=40)" + ORDER.format(how="", workflow="threaded_order")
    run(folder, text).assert_outcomes(passed=1)


def test_a_storm_finds_what_is_naive_and_its_seed_replays(folder: pytest.Pytester) -> None:
    """The printed seed alone fails alike; the faults of the command line are part of what is printed."""
    text = "@simulate(seeds=40)" + ORDER.format(how="", workflow="naive_order").replace(
        'task.assert_processed_or_undone()\n    assert bank.standing() == (task.state == "processed")',
        "task.assert_whole()",
    )
    result = run(folder, text, "--makegood-faults=kill,late")
    result.assert_outcomes(failed=1)
    lines = failure(result)
    assert re.search(r"--makegood-seed=\d+ --makegood-faults=kill,late$", lines[0])
    assert "DOUBLE EFFECT: step charge_without_key was done" in "\n".join(lines)
    again = folder.runpytest_subprocess(
        "-p", "no:cacheprovider", *shlex.split(lines[0].partition("pytest ")[2])
    )
    again.assert_outcomes(failed=1)
    assert story(failure(again)) == story(lines)


def test_a_good_workflow_weathers_storms(folder: pytest.Pytester) -> None:
    text = """
@simulate(seeds=100)
async def test_order(world):
    services(world)
    task = await world.submit(shop.place_order, "o7")
    await world.run_to_rest()
    task.assert_whole()
"""
    run(folder, text, "--makegood-seeds=15").assert_outcomes(passed=1)


# -- the plugin leaves others alone ----------------------------------------------------------------------------------------


def test_the_plugin_does_not_even_import_makegood(pytester: pytest.Pytester) -> None:
    """It is found without being asked for, and a run that does not use it pays nothing."""
    pytester.makepyfile("import sys\ndef test_x(pytestconfig):\n    assert 'makegood' not in sys.modules\n"
                        "    assert pytestconfig.pluginmanager.hasplugin('makegood')")  # fmt: skip
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.runpytest_subprocess("--help").stdout.fnmatch_lines(["*--makegood-seed=SEED*"])


def test_without_the_plugin_all_works_with_its_own_settings(folder: pytest.Pytester) -> None:
    """`-p no:makegood`: other tests pass, decorated ones still prove, and its options are unknown."""
    text = "def test_other(): pass\n@crash_everywhere(at_most=10)" + ORDER.format(
        how="", workflow="place_order"
    )
    run(folder, text, "-p", "no:makegood").assert_outcomes(passed=2)
    result = run(folder, text, "-p", "no:makegood", "--makegood-seed=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_fixtures_parameters_classes_and_skips_are_as_usual(folder: pytest.Pytester) -> None:
    text = """
@pytest.fixture
def order():
    return "o7"

class TestShop:
    @pytest.mark.parametrize("workflow", [shop.place_order, shop.settled_order])
    @crash_everywhere(at_most=5, kinds=["kill"])
    async def test_order(self, workflow, world, order, request, tmp_path):
        assert request.node.name.startswith("test_order")
        services(world)
        task = await world.submit(workflow, order)
        await world.run_to_rest()
        task.assert_processed()

@crash_everywhere
async def test_skipped(world):
    pytest.skip("not today")

@crash_everywhere
async def test_failed(world):
    pytest.fail("on purpose")
"""
    result = run(folder, text)
    result.assert_outcomes(passed=2, skipped=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*a calm world, in which nothing ever fails*", "*your test said: Failed: on purpose*"]
    )


def test_a_test_that_is_not_the_same_twice_is_told_so(folder: pytest.Pytester) -> None:
    text = """
runs = []

@crash_everywhere(kinds=["kill"])
async def test_order(world):
    runs.append(1)
    services(world)
    workflow = shop.place_order if len(runs) % 2 else shop.letter
    shop.Remote.letters = world.service("letters")
    task = await world.submit(workflow, "o7")
    await world.run_to_rest()
"""
    result = run(folder, text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*does not run the same way twice*random.Random(world.seed)*"])


def test_what_cannot_be_meant_in_a_world_is_refused_with_what_to_write(folder: pytest.Pytester) -> None:
    """One test each; all of them fail, and each says what to write instead."""
    lines = {
        "pass": "submitted no task",
        "await world.run_to_rest()": "there is nothing to wait for",
        "world.kill('agent')": "the processes start with the first world.submit",
        "world.kill('janitor')": "its roles are agent, scheduler, supervisor",
        "world.service('x', keys=False)": "add token=False",
        "world.service('x'), world.service('x')": "give each its own name",
        "await world.submit(shop, 1)": "a workflow first",
        "await world.submit(shop.place_order)": "order",
        "await world.operator.cancel(None)": "world.submit(...) comes first",
        "await world.submit(shop.letter, 'o7'); await world.until(lambda: False, within='1m')": "within 60 virtual seconds",
    }
    text = "".join(
        f"@crash_everywhere\nasync def test_{n}(world):\n    {line}\n\n" for n, line in enumerate(lines)
    )
    result = run(folder, text)
    result.assert_outcomes(failed=len(lines))
    for n, hint in enumerate(lines.values()):
        section = "\n".join(result.outlines).split(f"_ test_{n} _")[1].split("\n____")[0]
        assert hint in section


@pytest.mark.parametrize(
    "option",
    [
        "--makegood-seed=0/7",
        "--makegood-seed=0/x/kill",
        "--makegood-faults=rain",
        "--makegood-faults=",
        "--makegood-seeds=0",
    ],
)
def test_options_name_themselves_when_refused(pytester: pytest.Pytester, option: str) -> None:
    config = pytester.parseconfig(option)
    with pytest.raises(ConfigError, match=option):
        crashing.settings_of(config)


def test_a_decorator_that_cannot_be_meant_is_refused() -> None:
    """Above a plain function, without `world`, with unknown words or numbers below one: at import, saying what to write."""

    async def without(other: object) -> None: ...
    def plain(world: object) -> None: ...

    wrong_tests: list[Any] = [without, plain]
    for test in wrong_tests:
        with pytest.raises(ConfigError, match="an `async def` test with a parameter `world`"):
            crash_everywhere(test)
        with pytest.raises(ConfigError, match="an `async def` test with a parameter `world`"):
            crashing.simulate(test)
    for wrong in (["rain"], [], "rain"):
        with pytest.raises(ConfigError, match="of kill, stop, ambiguous"):
            crash_everywhere(kinds=wrong)
        with pytest.raises(ConfigError, match="of kill, stop, ambiguous"):
            crashing.simulate(faults=wrong)
    with pytest.raises(ConfigError, match="at least 1"):
        crash_everywhere(at_most=0)
    with pytest.raises(ConfigError, match="'rain' is not one of kill"):
        crash_everywhere(kinds=("kill", "rain"))
    wrong_numbers: list[Any] = [0, "50", 1.5]
    for number in wrong_numbers:
        with pytest.raises(ConfigError, match="at least 1"):
            crash_everywhere(at_most=number)
        with pytest.raises(ConfigError, match="at least 1"):
            crashing.simulate(seeds=number)


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """A submodule of the same name would overwrite the decorator as soon as somebody imports it."""
    modules = {path.stem for path in Path(testing.__file__).parent.iterdir()}
    assert not modules & set(testing.__all__)
