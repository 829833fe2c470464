"""Each row of the table "Your service: what to write": a workflow that is right for such a service is proved, a wrong one is caught.

The rows are those of docs/build/write-actions-and-undos.md; each has a fake that honours what its row says, and no more.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

import pytest

import makegood as mg
from makegood.testing import FakeService, World, crash_everywhere, simulate
from makegood.testing.kit.proof import Proof, UnprovedError

PAGE = Path(__file__).resolve().parents[2] / "docs/build/write-actions-and-undos.md"
ALL: Final = ("kill", "duplicate", "late", "fails")
PROMPT: Final = ("kill", "duplicate")
"""Without "late": no request outlives whoever sent it."""


class Honours(TypedDict):
    """What a service honours, as ``world.service`` is told."""

    keys: bool
    token: bool


BOTH: Final[Honours] = {"keys": True, "token": True}
KEYS: Final[Honours] = {"keys": True, "token": False}
NEITHER: Final[Honours] = {"keys": False, "token": False}

Said = mg.Happened[str] | mg.NotHappened

app = mg.App("table")
outside = app.agent("outside")


class Remote:
    """Where the service is; each world puts its own here."""

    it: FakeService
    mirror: FakeService


def headers() -> Mapping[str, str]:
    return mg.current_call().headers


# -- what a user writes ----------------------------------------------------------------------------------------------------


async def do(order: str) -> str:
    return str(await Remote.it.do(order, headers=headers()))


async def do_without_headers(order: str) -> str:
    return str(await Remote.it.do(order))


async def do_and_fail_at_first(order: str) -> str:
    answer = await do(order)
    if mg.current_call().attempt == 1:
        raise RuntimeError("no word of it")
    return answer


def do_in_a_thread(order: str) -> str:
    return str(Remote.it.blocking.do(order, headers=headers()))


async def undo(order: str, *, result: str | None) -> None:
    await Remote.it.undo(result, headers=headers())


async def undo_what_is_known(order: str, *, result: str | None) -> None:
    if result is not None:
        await Remote.it.undo(result)


def undo_in_a_thread(order: str, *, result: str | None) -> None:
    Remote.it.blocking.undo(result, headers=headers())


async def ask(order: str) -> Said:
    return await Remote.it.probe(order, headers=headers())


async def ask_another(order: str) -> Said:
    return await Remote.mirror.probe(order, headers=headers())


async def ask_and_fence(order: str) -> Said:
    return await Remote.it.probe(order, headers=headers(), fences=True)


async def fence_without_a_token(order: str) -> Said:
    return await Remote.it.probe(order, fences=True)


async def fence_and_ask_for_another(order: str) -> Said:
    return await Remote.it.probe("o8", headers=headers(), fences=True)


def ask_in_a_thread(order: str) -> Said:
    return Remote.it.blocking.probe(order, headers=headers())


def ask_and_fence_in_a_thread(order: str) -> Said:
    return Remote.it.blocking.probe(order, headers=headers(), fences=True)


def written(
    name: str,
    does: Callable[..., Any] = do,
    undoes: Callable[..., Any] | None = undo,
    probes: Callable[..., Any] | None = None,
    *,
    fences: bool = False,
    **terms: Any,
) -> Any:
    """Return a workflow of one action that asks the service."""
    action: Any = outside.action(complete_within="20s", name=name, **terms)(does)
    if undoes is not None:
        action.undo(undoes)
    if probes is not None:
        action.probe(fences=fences)(probes)

    def one(order: str) -> str:
        return action(order)  # type: ignore[no-any-return]  # a promise of what it returns

    return app.workflow(name=name, complete_within="2h")(one)


# -- the table -------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A workflow at a service. ``row``: of the table; ``said``: the words that say what is wrong, and the mend; "": it is proved.
    ``held``: a task of it may end with an operator; ``kinds``: of faults; ``cancelled``: nothing but that is tried.
    """

    row: tuple[str, str, str, str]
    workflow: Any
    honours: Honours
    said: str = ""
    held: bool = False
    kinds: Sequence[str] = ALL
    cancelled: bool = False


ONCE = mg.Retry(tries=1)
FULL = ("yes", "yes", "–", "yes")
SETTLES = ("yes", "no", "–", "yes")
KEYS_ASKED = ("yes", "no", "yes", "yes")
KEYS_ONLY = ("yes", "no", "no", "yes")
FENCES = ("no", "–", "yes, and from then on it rejects what is older", "yes")
ASKED = ("no", "–", "yes", "yes")
BARE = ("no", "–", "no", "yes")
HARMLESS = ("any", "any", "any", "not needed")
FOR_GOOD = ("any", "any", "any", "impossible")

keys_asked, keys_only = written("keys_asked", probes=ask), written("keys_only")

mirrored = written("mirrored", do_and_fail_at_first, probes=ask_another, retry=ONCE)

RIGHT = [
    Case(FULL, written("full"), BOTH),
    Case(SETTLES, written("settles", remembers=True), KEYS),
    Case(KEYS_ASKED, keys_asked, KEYS, kinds=PROMPT),
    Case(KEYS_ONLY, keys_only, KEYS, kinds=PROMPT),
    Case(FENCES, written("fences", probes=ask_and_fence, fences=True, retry=mg.NEVER), NEITHER),
    Case(
        FENCES,
        written(
            "fences_in_a_thread",
            do_in_a_thread,
            undo_in_a_thread,
            ask_and_fence_in_a_thread,
            fences=True,
            retry=mg.NEVER,
        ),
        NEITHER,
    ),
    Case(ASKED, written("asked", probes=ask, retry=mg.NEVER), NEITHER, held=True),
    Case(BARE, written("bare", undoes=undo_what_is_known, retry=mg.NEVER), NEITHER, held=True),
    Case(HARMLESS, written("harmless", undoes=None, undo=mg.NOTHING), BOTH),
    Case(FOR_GOOD, written("for_good", undoes=None, no_return=True), BOTH, held=True),
]

NOT_TOLD = r"DOUBLE EFFECT[^\n]*\n *Why: it honours keys, but received none"
TWICE = r"DOUBLE EFFECT[^\n]*\n *Why: it honours no keys: whoever asks twice is served twice.*retry=mg\.NEVER"
OUTLIVED = r"LEFT IN PLACE[^\n]*\n *Why: the request arrived after its undo.*remembers=True"
NOT_NAMED = r"LEFT IN PLACE[^\n]*\n *Why: its undo never asked it"
NO_NAME = (
    r"LEFT IN PLACE[^\n]*\n *Why: its undo asked it, but could not say what to take back.*retry=mg\.NEVER"
)
LATE = r"LEFT IN PLACE[^\n]*\n *Why: the request arrived after its undo.*retry=mg\.NEVER"
NOT_FENCED = r"DOUBLE EFFECT[^\n]*\n *Why: it was asked whether that had happened.*fences=True"
NO_TOKEN = (
    r"DOUBLE EFFECT[^\n]*\n *Why: it was asked to refuse what is older, but did not receive a token.*headers"
)
NOT_FOUND = r"DOUBLE EFFECT[^\n]*\n *Why: the probe did not find what it had done.*arguments"

WRONG = [
    Case(FULL, written("full_silent", do_without_headers), BOTH, NOT_TOLD),
    Case(FULL, written("full_forgetful", undoes=undo_what_is_known), BOTH, NOT_NAMED),
    Case(SETTLES, keys_only, KEYS, OUTLIVED),
    Case(SETTLES, written("settles_silent", do_without_headers, remembers=True), KEYS, NOT_TOLD),
    Case(KEYS_ASKED, keys_asked, KEYS, OUTLIVED),
    Case(KEYS_ASKED, written("keys_asked_silent", do_without_headers, probes=ask), KEYS, NOT_TOLD),
    Case(KEYS_ONLY, keys_only, KEYS, OUTLIVED),
    Case(KEYS_ONLY, written("keys_silent", do_without_headers), KEYS, NOT_TOLD),
    Case(FENCES, written("fences_again", probes=ask_and_fence, fences=True), NEITHER, TWICE, held=True),
    Case(
        FENCES,
        written("only_asks", probes=ask, fences=True, retry=mg.NEVER),
        NEITHER,
        NOT_FENCED,
        held=True,
    ),
    Case(
        FENCES,
        written(
            "only_asks_in_a_thread",
            do,
            undo,
            ask_in_a_thread,
            fences=True,
            retry=mg.NEVER,
        ),
        NEITHER,
        NOT_FENCED,
        held=True,
    ),
    Case(
        FENCES,
        written("tokenless", probes=fence_without_a_token, fences=True, retry=mg.NEVER),
        NEITHER,
        NO_TOKEN,
        held=True,
    ),
    Case(
        FENCES,
        written("act_tokenless", do_without_headers, probes=ask_and_fence, fences=True, retry=mg.NEVER),
        NEITHER,
        NO_TOKEN,
        held=True,
    ),
    Case(
        FENCES,
        written("elsewhere", probes=fence_and_ask_for_another, fences=True, retry=mg.NEVER),
        NEITHER,
        NOT_FOUND,
        held=True,
    ),
    Case(ASKED, written("asked_again", probes=ask), NEITHER, TWICE, held=True),
    Case(BARE, written("bare_again"), NEITHER, TWICE, held=True),
    Case(ASKED, written("asked_once", probes=ask, retry=ONCE), NEITHER, LATE, True, cancelled=True),
    Case(BARE, written("bare_once", retry=ONCE), NEITHER, NO_NAME, True, cancelled=True),
    Case(HARMLESS, written("harmless_silent", do_without_headers, None, undo=mg.NOTHING), BOTH, NOT_TOLD),
    Case(
        FOR_GOOD, written("for_good_silent", do_without_headers, None, no_return=True), BOTH, NOT_TOLD, True
    ),
]


def prove(case: Case) -> None:
    """Prove the workflow of a case, at work and cancelled in its middle; raises ``UnprovedError``."""

    @crash_everywhere(kinds=case.kinds)
    async def test_at_work(world: World) -> None:
        Remote.it = world.service("it", **case.honours)
        task = await world.submit(case.workflow, "o7")
        await world.run_to_rest()
        (task.assert_whole if case.held else task.assert_processed_or_undone)()

    @crash_everywhere(kinds=case.kinds)
    async def test_cancelled(world: World) -> None:
        Remote.it = world.service("it", **case.honours)
        name = case.workflow.name
        task = await world.submit(case.workflow, "o7")
        await world.until(lambda: task.steps[name] != "waiting")
        with suppress(mg.ActRefusedError):  # it had ended already
            await world.operator.cancel(task)
        await world.run_to_rest()
        (task.assert_whole if case.held else task.assert_processed_or_undone)()

    if not case.cancelled:
        test_at_work()
    test_cancelled()


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.workflow.name)
def test_what_is_right_for_its_service_is_proved(case: Case) -> None:
    prove(case)


@pytest.mark.parametrize(
    "case", [case for case in RIGHT if case.kinds is ALL], ids=lambda case: case.workflow.name
)
def test_what_is_right_for_its_service_holds_in_storms(case: Case) -> None:
    """Many faults at once, any of them; a task that an operator must look at is let."""

    @simulate(seeds=8)
    async def test_storm(world: World) -> None:
        Remote.it = world.service("it", **case.honours)
        tasks = [await world.submit(case.workflow, f"o{n}") for n in range(3)]
        await world.run_to_rest()
        for task in tasks:
            task.assert_whole()

    test_storm()


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case.workflow.name} {'/'.join(case.row[:3])[:9]}")
def test_what_is_wrong_for_its_service_is_caught_with_the_mend(case: Case) -> None:
    with pytest.raises(UnprovedError) as error:
        prove(case)
    assert re.search(case.said, str(error.value).partition("\n\nWhat happened")[0], re.DOTALL)


def test_each_row_of_the_page_is_tried_both_ways() -> None:
    """A row that is added to the table needs a workflow that is right for it and one that is not."""
    table = PAGE.read_text(encoding="utf-8").partition("| Keys | Tokens |")[2].partition("\n\n")[0]
    rows = {tuple(cell.strip() for cell in line.split("|")[1:5]) for line in table.splitlines()[2:]}
    assert rows == {case.row for case in RIGHT} == {case.row for case in WRONG}


def test_a_service_that_is_only_asked_counts_as_called_and_not_as_the_one_that_should_have_done_it() -> None:
    """Another place tells whether it happened; that nothing stands there is as it should be."""

    async def script(world: World) -> None:
        Remote.it, Remote.mirror = world.service("it"), world.service("mirror")
        task = await world.submit(mirrored, "o7")
        await world.run_to_rest()
        task.assert_processed()
        assert [each.outcome for each in Remote.mirror.heard] == ["not happened"]
        pytest.fail("something else is wrong")

    proof = Proof(lambda stage: script(World(stage)))
    with pytest.raises(UnprovedError) as error:
        proof.calm(0)
    assert "something else is wrong" in str(error.value)
    assert "at mirror" not in str(error.value).partition("What happened")[0]
    assert proof.calls == {"it": True, "mirror": True}
