"""What ends a proof before it has proved anything: Ctrl-C, the true world outside, code that goes round, options that mean nothing.

And what a green test says that played less than it could.
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.testing import World, crash_everywhere
from makegood.testing.kit.proof import Proof, UnprovedError
from makegood.testing.kit.stage import Script, app_of
from makegood.testing.simulator.ctrl_c import give_in, hold_ctrl_c
from makegood.testing.simulator.loop import WorldLoop
from tests.simulation import shop_for_plugin as shop
from tests.simulation.test_plugin_reports import ALONE, order, run

pytest_plugins = ["pytester"]

ACTION = """
import asyncio
import sys

hotels = shop.shop.agent("hotels")

@hotels.action(complete_within="30s", undo=mg.NOTHING)
async def book(order: str) -> str:
    {body}

@shop.shop.workflow
def trip(order: str) -> str:
    return book(order)

def services(world):
    pass

@{decorator}
async def test_trip(world):
    await world.submit(trip, "o7")
    {then}
    await world.run_to_rest()
"""


def trip(body: str, *, decorator: str = "crash_everywhere(at_most=2)", then: str = "pass") -> str:
    """Return a user's file with an action of this body, and a test that submits it and asserts nothing."""
    return ACTION.format(body=body, decorator=decorator, then=then)


def section(output: str, test: str) -> str:
    """Return what pytest printed of a test that failed."""
    return output.split(f"_ {test} _")[1].split("\n____", maxsplit=1)[0]


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------------


def in_a_while(seconds: float) -> threading.Timer:
    """Send this process Ctrl-C."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("after", [0.02 + 0.013 * n for n in range(24)])
def test_ctrl_c_ends_a_proof_whatever_it_is_at(after: float) -> None:
    """Also within a simulated transaction, and in an action that catches everything: nobody but the caller sees it."""
    errors: list[BaseException] = []

    @crash_everywhere
    async def test_order(world: World) -> None:
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        try:
            for _ in range(8):
                await world.submit(shop.place_order, "o7")
            await world.run_to_rest()
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                errors.append(error)
            raise

    before = signal.getsignal(signal.SIGINT)
    timer = in_a_while(after)
    with pytest.raises(KeyboardInterrupt):
        test_order()
    timer.join()
    assert errors == []
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_is_raised_between_two_callbacks() -> None:
    """What runs comes to its next await, and nobody is heard after that."""
    steps: list[str] = []
    loop = WorldLoop(random.Random(1))

    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            steps.append("went on")
            await asyncio.sleep(0)
        finally:
            steps.append("was thrown away")

    async def other() -> None:
        steps.append("too late")

    async def main() -> None:
        await asyncio.gather(work(), other())

    with pytest.raises(KeyboardInterrupt) as info, hold_ctrl_c():
        loop.run_until_complete(main())
    assert steps == ["went on"]
    assert info.traceback[-1].name in ("raise_signal", "work")
    loop.dispose()
    assert steps == ["went on", "was thrown away"]


def started(pytester: pytest.Pytester, text: str) -> "subprocess.Popen[bytes]":
    """Start pytest over a user's file, and return when a world of its test is played."""
    pytester.makepyfile(shop=Path(shop.__file__).read_text(encoding="utf-8"), test_it=HEAD + text)
    command = (sys.executable, "-m", "pytest", *ALONE, "test_it.py")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=pytester.path, start_new_session=True
    )
    mark = pytester.path / "begun"
    while not mark.exists():
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.01)
    return process


HEAD = """
import pathlib
import makegood as mg
import shop
from makegood.testing import World, crash_everywhere, simulate

def begun():
    pathlib.Path("begun").touch()

def services(world):
    begun()
    shop.Remote.warehouse = world.service("stock")
    shop.Remote.bank = world.service("payments")
"""
NEXT = """
def test_next():
    print("the next test was run")
    assert False
"""


@pytest.mark.parametrize(
    ("decorator", "after"), [("crash_everywhere", 0.0), ("crash_everywhere", 0.21), ("simulate", 0.1)]
)
def test_ctrl_c_ends_pytest(pytester: pytest.Pytester, decorator: str, after: float) -> None:
    """As everywhere else: the code of an interrupt, no finding, no further test."""
    process = started(pytester, f"@{decorator}" + order() + NEXT)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    output = out.decode()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "! KeyboardInterrupt !" in output
    assert "see it again with" not in output
    assert "next test" not in output


def test_code_that_never_comes_back_is_ended_by_the_second_ctrl_c(pytester: pytest.Pytester) -> None:
    """Where it was is shown; the first cannot end it, and a second at once counts as the first."""
    process = started(pytester, trip("begun()\n    while True: pass  # for ever") + NEXT)
    process.send_signal(signal.SIGINT)
    time.sleep(1.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:  # a busy machine may have brought it both at once
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    output = out.decode()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert re.search(r"test_it\.py:\d+: KeyboardInterrupt", output)
    assert "next test" not in output


def test_what_is_held_back_is_what_the_former_handler_raises() -> None:
    """Also beside something else that was raised meanwhile; a second signal at once counts as the first."""

    class HaltedError(Exception):
        pass

    def halt(*_: object) -> None:
        raise HaltedError

    before = signal.signal(signal.SIGINT, halt)
    try:
        with pytest.raises(HaltedError), hold_ctrl_c():  # noqa: PT012 - what is raised in it is raised at its end
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(HaltedError):
                give_in()
            raise LookupError
        assert signal.getsignal(signal.SIGINT) is halt
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with hold_ctrl_c():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            give_in()
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_second_ctrl_c_shows_where_it_arrived_and_not_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is the code that never comes back; the first may have arrived in what ran before it."""
    monkeypatch.setattr("makegood.testing.simulator.ctrl_c.SAME", -1.0)  # No two are taken for one.

    def before() -> None:
        signal.raise_signal(signal.SIGINT)

    def stuck() -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as info, hold_ctrl_c():  # noqa: PT012 - the end of the block raises
        before()
        stuck()
    assert info.traceback[-1].name == "stuck"


def test_outside_the_main_thread_ctrl_c_is_left_alone() -> None:
    handlers: list[object] = []

    def other() -> None:
        with hold_ctrl_c():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


# -- the world outside -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "method", "lacks"),
    [
        ("await asyncio.open_connection('127.0.0.1', 9)", "create_connection", "network"),
        ("await asyncio.start_server(print, '127.0.0.1', 0)", "create_server", "network"),
        ("await asyncio.get_running_loop().getaddrinfo('localhost', 80)", "getaddrinfo", "network"),
        ("await asyncio.create_subprocess_exec(sys.executable)", "subprocess_exec", "subprocesses"),
        ("asyncio.get_running_loop().add_reader(0, print)", "add_reader", "sockets and pipes to wait for"),
    ],
    ids=["connection", "server", "name", "subprocess", "reader"],
)
def test_what_a_simulated_world_has_not_is_named_with_what_to_do(
    pytester: pytest.Pytester, call: str, method: str, lacks: str
) -> None:
    """And the test fails, although its workflow is undone as it should be: nothing was proved."""
    output = run(pytester, trip(f"{call}\n    return order"))
    assert "1 failed" in output
    assert re.search(
        rf"^- your test said: NotSimulatedError: loop\.{method}\(\) was called, and a simulated world has no {lacks}: let your code call "
        rf"a fake in its place, such as world\.service\(\.\.\.\) returns, test_it\.py:\d+: {re.escape(call)} \(step book\)$",
        output,
        re.MULTILINE,
    )


def test_what_the_users_code_catches_is_let() -> None:
    """In makegood's family; and who asks whether a loop can do something hears that it cannot, as of any loop."""

    async def script(world: World) -> None:
        loop = asyncio.get_running_loop()
        for family in (mg.ConfigError, NotImplementedError):
            with pytest.raises(family, match=r"loop\.create_connection\(\) was called"):
                await loop.create_connection(asyncio.Protocol, "127.0.0.1", 9)
        assert not loop.remove_reader(0)
        assert not loop.remove_writer(0)
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        await world.submit(shop.place_order, "o7")
        await world.run_to_rest()

    Proof(lambda stage: script(World(stage))).calm(0)


# -- code that goes round --------------------------------------------------------------------------------------------------


def test_what_goes_round_is_named_with_its_step_and_its_line(pytester: pytest.Pytester) -> None:
    spin = "while True: await asyncio.sleep(0)"
    output = run(pytester, trip(spin) + "\n@simulate\nasync def test_spins(world):\n    " + spin)
    assert "2 failed" in output
    assert re.search(
        r"; step book of task \w{13} \(attempt 1\), in book \(test_it\.py:\d+\) goes round without waiting: does it poll",
        section(output, "test_trip"),
    )
    assert re.search(
        r"; test_spins \(test_it\.py:\d+\) goes round without waiting", section(output, "test_spins")
    )
    assert "object at 0x" not in output


# -- options ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (["--makegood-seed=abc"], "a seed, a whole number from 0"),
        (["--makegood-seed=0/62/"], "a seed, a whole number from 0"),
        (["--makegood-seeds=0"], "at least 1"),
        (["--makegood-faults=kil"], "'kil' is not one of all, kill, .*: did you mean 'kill'?"),
        (["--makegood-seed=3", "--makegood-seeds=5"], "plays one seed"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_once_before_any_test(
    pytester: pytest.Pytester, options: list[str], pattern: str
) -> None:
    pytester.makepyfile(test_it="def test_one(): pass\ndef test_two(): pass")
    result = pytester.runpytest_subprocess(*ALONE, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line]
    assert re.match(rf"ERROR: {re.escape(options[0])}.*{pattern}", line)
    assert not any("test_it" in line for line in result.outlines)


def test_options_that_mean_something_begin_the_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_one(): pass")
    for option in ("--makegood-seed=0/62/kill", "--makegood-seeds=3", "--makegood-faults=kill, late"):
        pytester.runpytest_inprocess("-p", "no:cacheprovider", option).assert_outcomes(passed=1)


def test_an_option_that_one_test_cannot_mean_is_told_without_makegoods_lines(
    pytester: pytest.Pytester,
) -> None:
    output = section(run(pytester, "@simulate" + order(), "--makegood-seed=4/118/kill"), "test_order")
    lines = [line for line in output.splitlines()[1:] if line and not line.startswith("=")]
    assert lines[0].startswith("ConfigError: --makegood-seed=4/118/kill: this names a fault in a test under")
    assert "crashing.py" not in output


# -- what a green test has not played --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "crash", "storm"),
    [
        (
            "late",
            "it held under late alone; kill was not played",
            "it held under late alone; kill, stop were not played",
        ),
        (
            "clock",
            "it held under kill, late, as its decorator says; @crash_everywhere has no fault clock: @simulate has",
            "it held under clock alone; kill, stop, late were not played",
        ),
        (
            "kill,clock",
            "it held under kill alone; late was not played; @crash_everywhere has no fault clock: @simulate has",
            "it held under kill, clock alone; stop, late were not played",
        ),
        (
            "all",
            "it held under kill, late, as its decorator says; `all` is for @simulate: name the faults",
            "",
        ),
        ("kill,stop,late", "", ""),
    ],
)
def test_a_test_that_held_under_fewer_faults_says_so(
    pytester: pytest.Pytester, faults: str, crash: str, storm: str
) -> None:
    text = "@crash_everywhere(kinds=('kill', 'late'), at_most=2)" + order("test_crash")
    text += "@simulate(seeds=1, faults=('kill', 'stop', 'late'))" + order("test_storm")
    output = run(pytester, text, f"--makegood-faults={faults}")
    assert "2 passed" in output
    for name, claim in (("test_crash", crash), ("test_storm", storm)):
        lines = [line for line in output.splitlines() if line.startswith(f"{name}: ")]
        assert [line[: len(f"{name}: {claim}")] for line in lines] == ([f"{name}: {claim}"] if claim else [])
        assert all(line.endswith(f"(--makegood-faults={faults})") for line in lines)


def test_a_misspelt_role_is_told_with_the_one_that_was_meant() -> None:
    async def script(world: World) -> None:
        world.kill("agnet")

    play: Script = lambda stage: script(World(stage))  # noqa: E731 - as a decorator makes it
    with pytest.raises(
        UnprovedError, match=r"its roles are agent, scheduler, supervisor: did you mean 'agent'\?"
    ):
        Proof(play).calm(0)


def test_looking_for_a_workflows_app_wakes_no_lazy_object() -> None:
    """Such as Django's settings, which raise as long as they are not configured."""
    lookups: list[object] = []

    class Lazy:
        @property  # type: ignore[misc]  # what a lazy object is
        def __class__(self) -> Any:
            lookups.append(self)
            raise LookupError

    lazy = [Lazy()]
    assert app_of(shop.place_order) is shop.shop
    assert lookups == []
    del lazy
