"""The declaration of setups: what is refused, where, and with what text."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import makegood as mg
from makegood.node.roles import slots_of


@pytest.fixture
def app() -> mg.App:
    """An app without anything."""
    return mg.App("shop")


def test_a_name_that_nobody_declares_is_refused_at_the_start_with_its_place(app: mg.App) -> None:
    @app.setup
    def db() -> Iterator[int]:
        yield 1

    desk = app.agent("desk")

    @desk.action(complete_within="1m")
    def charge(order: str, *, db: int = mg.SETUP) -> str:
        return order

    @charge.undo
    def refund(order: str, *, result: str | None, dbb: int = mg.SETUP) -> None: ...

    line = refund.__code__.co_firstlineno
    with pytest.raises(
        mg.DefinitionError,
        match=rf"the undo of shop/desk/charge \({__file__}:{line}\) takes dbb=mg.SETUP, and app shop declares no setup 'dbb'; it has db",
    ):
        slots_of(app, None, None)


def test_an_unknown_setup_of_a_setup_is_refused_as_well(app: mg.App) -> None:
    @app.setup
    def db(*, config: int = mg.SETUP) -> Iterator[int]:
        yield config

    @app.agent("desk").action(complete_within="1m", undo=mg.NOTHING)
    def charge(order: str, *, db: int = mg.SETUP) -> str:
        return order

    with pytest.raises(mg.DefinitionError, match=r"the setup db of app shop \(.*\) takes config=mg.SETUP"):
        slots_of(app, None, None)


def test_setups_that_need_each_other_are_refused(app: mg.App) -> None:
    @app.setup
    def a(*, b: int = mg.SETUP) -> Iterator[int]:
        yield b

    @app.setup
    def b(*, c: int = mg.SETUP) -> Iterator[int]:
        yield c

    with pytest.raises(mg.DefinitionError, match="c -> a -> b -> c"):

        @app.setup
        def c(*, a: int = mg.SETUP) -> Iterator[int]:
            yield a

    assert [*app.setups] == ["a", "b"]


def test_two_of_one_name_are_refused(app: mg.App) -> None:
    def db() -> Iterator[int]:
        yield 1

    app.setup(db)
    with pytest.raises(mg.DuplicateNameError, match="two setups named db"):
        app.setup(db)


class Session:
    """A context manager of its own."""

    def __enter__(self) -> int:
        return 1

    def __exit__(self, *_: object) -> None: ...


def test_what_opens_something_is_taken(app: mg.App) -> None:
    @app.setup
    @contextmanager
    def one() -> Iterator[int]:
        yield 1

    app.setup(Session)
    assert [*app.setups] == ["one", "Session"]


def test_empty_parentheses_change_nothing(app: mg.App) -> None:
    def db() -> Iterator[int]:
        yield 1

    assert app.setup()(db) is db
    assert [*app.setups] == ["db"]


def plain() -> int:
    """Return a number."""
    return 1


def needs(path: str) -> Iterator[int]:
    """Yield something of an argument."""
    yield len(path)


def by_place(db: int = mg.SETUP) -> Iterator[int]:
    """Take a setup by place."""
    yield db


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (plain, "takes a function that yields once"),
        (7, "takes a function that yields once"),
        (
            needs,
            r"takes path, and is called without arguments: of other setups write `\*, path: ... = mg.SETUP`",
        ),
        (by_place, r"db=mg.SETUP is filled by name: write it after a `\*`"),
    ],
)
def test_what_cannot_be_opened_is_refused(app: mg.App, fn: Any, text: str) -> None:
    with pytest.raises(mg.DefinitionError, match=text):
        app.setup(fn)


def test_a_workflow_and_an_inbox_take_none(app: mg.App) -> None:
    with pytest.raises(mg.DefinitionError, match=r"takes db=mg.SETUP, which only actions"):

        @app.workflow
        def order(n: int, *, db: int = mg.SETUP) -> int:
            return n

    with pytest.raises(mg.DefinitionError, match=r"takes db=mg.SETUP, which only actions"):

        @app.inbox("orders")
        def accept(n: int, tx: mg.Transaction, *, db: int = mg.SETUP) -> None: ...


def test_an_action_takes_it_after_the_star_and_a_call_does_not_pass_it(app: mg.App) -> None:
    desk = app.agent("desk")
    with pytest.raises(mg.DefinitionError, match=r"db=mg.SETUP is filled by name"):

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        def wrong(n: int, db: int = mg.SETUP) -> int:
            return n

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    def right(n: int, *, db: object = mg.SETUP) -> int:
        return n

    @app.workflow
    def order(n: int) -> int:
        return right(n, db=7)

    with pytest.raises(mg.DefinitionError, match="there is no parameter 'db'"):
        order.plan(1)
    assert repr(mg.SETUP) == "mg.SETUP"
