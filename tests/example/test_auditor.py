"""The auditor is tested on falsified books: each kind of finding is planted once and found, and nothing else is."""

import ast
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from examples.orders import auditor, shop
from examples.orders.auditor import EFFECTS, LIMIT, AuditError, Kind, Told, audit, read_told
from examples.orders.books import OPERATIONS, Ask, Books
from examples.orders.world import PACKAGE, ROOT

LARGE = LIMIT + 1
DO = {op.name: op for op in OPERATIONS.values() if not op.undoes}
UNDO = {op.undoes: op for op in OPERATIONS.values() if op.undoes}


@dataclass
class World:
    """Books in the making, and what the shop was told: honest orders first, then forged lines."""

    path: Path
    told: list[dict[str, Any]] = field(default_factory=list)

    def honest(self, order: str, effects: tuple[str, ...] = EFFECTS, *, with_undo: bool = False) -> None:
        """Do the effects, and take them back in reverse order where that can be, as the services write it."""
        books = Books(self.path)
        for effect in effects:
            books.do(DO[effect], Ask(f"{order}/{effect}", order_id=order, sku="pen", cents=500))
        for effect in reversed(effects if with_undo else ()):
            if effect in UNDO:
                key = f"{order}/{effect}"
                books.undo(UNDO[effect], Ask(f"{key}/undo", undoes=key, order_id=order))
        books.close()

    def ended(self, order: str, outcome: str, *standing: str, cents: int = 500) -> None:
        """Tell the shop."""
        self.told.append({"order": order, "cents": cents})
        self.told.append({"order": order, "outcome": outcome, "standing": list(standing)})

    def forge(
        self, order: str, effect: str, change: int = 1, *, key: str = "", cents: int = 500, by: str = ""
    ) -> None:
        """Write a line past every rule of the services."""
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(
                "INSERT INTO entry (service, operation, effect, change, key, asked_by, scope, token, order_id, sku,"
                " cents, at, approved_by) VALUES ('forged', 'forged', ?, ?, ?, 'forged', '', '', ?, 'pen', ?, 0, ?)",
                (effect, change, key or f"{order}/{effect}", order, cents, by),
            )

    def large(self, order: str, by: str) -> None:
        """Have a large order be processed whose papers name this approver."""
        for effect in EFFECTS:
            self.forge(order, effect, cents=LARGE, by=by if effect == "ship" else "")
        self.ended(order, "processed", cents=LARGE)

    def answer(self, order: str, answer: str, by: str) -> None:
        """Note somebody's answer in the shop's book."""
        self.told.append({"order": order, answer: by, "why": "so it is"})

    def settle(self, night: str) -> int:
        """Have the bank pay out what it owes, and tell the accountant, as the services write it."""
        books = Books(self.path)
        paid_out = books.do(OPERATIONS["payments/settle"], Ask(f"{night}/settle", order_id=night))
        books.do(OPERATIONS["carrier/email"], Ask(f"{night}/email", order_id=night))
        books.close()
        return int(paid_out.body["cents"])

    def found(self, *, final: bool = True) -> list[tuple[Kind, str]]:
        """Kind and order of each finding."""
        return [
            (finding.kind, finding.order) for finding in audit(self.path, self.told, final=final).findings
        ]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A clean world: a processed order, two undone ones, one refused at once, and one in an operator's hands."""
    world = World(tmp_path / "books.db")
    world.honest("good")
    world.ended("good", "processed")
    world.honest("undone", ("reserve", "charge", "book", "pack", "email"), with_undo=True)
    world.ended("undone", "undone", "email")
    world.honest("refused", ("reserve",), with_undo=True)
    world.ended("refused", "undone")
    world.ended("nothing", "undone")
    world.honest("stuck", ("reserve", "charge"))
    world.ended("stuck", "error", "reserve", "charge", "book")
    return world


def test_clean_books_give_no_finding_and_the_right_totals(world: World) -> None:
    report = audit(world.path, world.told)
    assert report.balanced
    assert report.findings == ()
    assert report.orders == {"submitted": 5, "processed": 1, "undone": 3, "error": 1, "without outcome": 0}
    assert report.effects == {
        "reserve": (4, 2, 2),
        "charge": (3, 1, 2),
        "book": (2, 1, 1),
        "pack": (2, 1, 1),
        "email": (2, 0, 2),
        "ship": (1, 0, 1),
    }
    assert report.money == {"charged": 1500, "refunded": 500, "kept": 1000, "paid out": 0}


def charged_again_while_one_stands(world: World) -> None:
    world.forge("good", "charge", key="another")
    world.forge("good", "charge", -1, key="another")


def charged_twice_under_one_key(world: World) -> None:
    world.forge("stuck", "charge", -1)
    world.forge("stuck", "charge")


def shipped_twice(world: World) -> None:
    world.forge("good", "ship", key="another")


def mailed_twice_under_one_key(world: World) -> None:
    world.forge("good", "email")


def charged_for_an_undone_order(world: World) -> None:
    world.forge("refused", "charge")


def charge_listed_as_standing_in_an_undone_order(world: World) -> None:
    world.forge("swindled", "charge")
    world.ended("swindled", "undone", "charge")


def stock_held_for_an_undone_order(world: World) -> None:
    world.forge("nothing", "reserve")


def shipped_for_an_undone_order(world: World) -> None:
    world.forge("undone", "ship")


def a_mail_that_was_not_listed(world: World) -> None:
    world.forge("nothing", "email")


def processed_without_any_effect(world: World) -> None:
    world.ended("empty", "processed")


def processed_with_one_effect_taken_back(world: World) -> None:
    world.forge("good", "pack", -1)


def standing_in_error_and_not_listed(world: World) -> None:
    world.forge("stuck", "pack")


def refunded_what_was_never_charged(world: World) -> None:
    world.forge("nothing", "charge", -1)


def refunded_twice(world: World) -> None:
    world.forge("undone", "charge", -1)


def refunded_less_than_charged(world: World) -> None:
    world.forge("short", "charge", cents=500)
    world.forge("short", "charge", -1, cents=400)
    world.ended("short", "undone")


def charged_more_than_agreed(world: World) -> None:
    world.told.append({"order": "good", "cents": 450})


def an_order_without_outcome(world: World) -> None:
    world.told.append({"order": "lost"})


def an_order_nobody_submitted(world: World) -> None:
    world.forge("ghost", "email")


def large_and_shipped_without_a_name(world: World) -> None:
    world.large("blind", "")


def large_and_shipped_in_the_name_of_somebody_who_said_no(world: World) -> None:
    world.answer("forced", "refused_by", "desk")
    world.large("forced", "desk")


def large_and_shipped_in_the_name_of_somebody_who_was_not_asked(world: World) -> None:
    world.answer("other", "approved_by", "desk")
    world.large("other", "desk")
    world.large("borrowed", "desk")


def paid_out_twice_for_one_night(world: World) -> None:
    world.settle("night-1")
    world.forge("night-1", "settle", key="another", cents=0)


def paid_out_more_than_was_owed(world: World) -> None:
    world.forge("night-1", "settle", cents=1001)


def paid_back_what_was_never_paid_out(world: World) -> None:
    world.forge("night-1", "settle", -1)


PLANTED: list[tuple[Any, list[tuple[Kind, str]]]] = [
    (charged_again_while_one_stands, [(Kind.CHARGED_TWICE, "good")]),
    (charged_twice_under_one_key, [(Kind.CHARGED_TWICE, "stuck")]),
    (shipped_twice, [(Kind.DONE_TWICE, "good")]),
    (mailed_twice_under_one_key, [(Kind.DONE_TWICE, "good")]),
    (charged_for_an_undone_order, [(Kind.CHARGED_THOUGH_UNDONE, "refused")]),
    (charge_listed_as_standing_in_an_undone_order, [(Kind.CHARGED_THOUGH_UNDONE, "swindled")]),
    (stock_held_for_an_undone_order, [(Kind.STANDING_THOUGH_UNDONE, "nothing")]),
    (shipped_for_an_undone_order, [(Kind.STANDING_THOUGH_UNDONE, "undone")]),
    (a_mail_that_was_not_listed, [(Kind.NOT_LISTED, "nothing")]),
    (processed_without_any_effect, [(Kind.MISSING, "empty")] * len(EFFECTS)),
    (processed_with_one_effect_taken_back, [(Kind.MISSING, "good")]),
    (standing_in_error_and_not_listed, [(Kind.NOT_LISTED, "stuck")]),
    (refunded_what_was_never_charged, [(Kind.UNDONE_TOO_OFTEN, "nothing")]),
    (refunded_twice, [(Kind.UNDONE_TOO_OFTEN, "undone")]),
    (refunded_less_than_charged, [(Kind.WRONG_AMOUNT, "short")]),
    (charged_more_than_agreed, [(Kind.WRONG_AMOUNT, "good")]),
    (an_order_without_outcome, [(Kind.LOST, "lost")]),
    (an_order_nobody_submitted, [(Kind.UNKNOWN_ORDER, "ghost")]),
    (large_and_shipped_without_a_name, [(Kind.NOT_APPROVED, "blind")]),
    (large_and_shipped_in_the_name_of_somebody_who_said_no, [(Kind.NOT_APPROVED, "forced")]),
    (large_and_shipped_in_the_name_of_somebody_who_was_not_asked, [(Kind.NOT_APPROVED, "borrowed")]),
    (paid_out_twice_for_one_night, [(Kind.DONE_TWICE, "night-1")]),
    (paid_out_more_than_was_owed, [(Kind.WRONG_SETTLEMENT, "night-1")]),
    (paid_back_what_was_never_paid_out, [(Kind.UNDONE_TOO_OFTEN, "night-1")]),
]


@pytest.mark.parametrize(("plant", "findings"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_each_falsification_is_found_and_nothing_else(
    world: World, plant: Any, findings: list[tuple[Kind, str]]
) -> None:
    plant(world)
    assert world.found() == findings


def test_every_kind_of_finding_is_planted_above() -> None:
    assert {kind for _, findings in PLANTED for kind, _ in findings} == set(Kind)


def test_a_large_order_ships_with_the_yes_of_somebody_whose_answers_are_noted_or_of_anybody_else(
    world: World,
) -> None:
    """Whoever answers in the console keeps no book of answers: the carrier's papers name them."""
    world.answer("desk's", "approved_by", "desk")
    world.large("desk's", "desk")
    world.large("ann's", "ann")
    world.answer("no", "refused_by", "desk")
    world.ended("no", "undone")
    assert world.found() == []
    assert world.found(final=False) == []


def test_each_settlement_pays_out_what_was_not_paid_out_before_refunds_deducted(world: World) -> None:
    assert world.settle("night-1") == 1000
    assert world.settle("night-1") == 1000, "the same key again"
    assert world.settle("night-2") == 0
    world.forge("stuck", "charge", -1)
    world.ended("stuck", "undone")
    world.forge("stuck", "reserve", -1)
    assert world.settle("night-3") == -500
    books = Books(world.path)
    books.undo(OPERATIONS["payments/reverse"], Ask("back", undoes="night-3/settle", order_id="night-3"))
    books.close()
    assert world.settle("night-4") == -500
    assert world.found() == []
    assert audit(world.path, world.told).money == {
        "charged": 1500, "refunded": 1000, "kept": 500, "paid out": 500
    }  # fmt: skip


def test_the_limit_is_that_of_the_shop() -> None:
    """They share no code, so each has its own."""
    assert LIMIT == shop.LIMIT


def test_answers_are_kept_whatever_the_outcome_is() -> None:
    lines = ['{"order": "o", "cents": 5}', '{"order": "o", "refused_by": "desk"}']
    lines += ['{"order": "o", "outcome": "undone"}', '{"order": "o", "outcome": "under way"}']
    lines += ['{"order": "o", "approved_by": ["ann", "you"]}']
    outcome = auditor.merge(read_told(lines))["o"]
    assert (outcome.outcome, outcome.approvers, outcome.refusers) == (
        "",
        frozenset({"ann", "you"}),
        frozenset({"desk"}),
    )


def test_a_second_charge_after_a_refund_is_right_for_an_order_that_was_submitted_again(world: World) -> None:
    world.forge("undone", "charge", key="undone/charge/2")
    world.ended("undone", "error", "charge", "email")
    assert world.found() == []


def test_while_orders_are_under_way_only_what_is_always_wrong_is_found(world: World) -> None:
    world.forge("under way", "charge")
    world.told.append({"order": "under way"})
    world.forge("not yet told", "charge")
    assert world.found(final=False) == []
    world.forge("under way", "charge", key="another")
    assert world.found(final=False) == [(Kind.CHARGED_TWICE, "under way")]


def test_the_last_outcome_counts_and_the_amount_is_kept() -> None:
    lines = ['{"order": "o", "cents": 5}', "", '{"order": "o", "outcome": "error", "standing": ["charge"]}']
    lines += ['{"order": "o", "outcome": "processed"}', '{"order": "o"}']
    assert auditor.merge(read_told(lines)) == {"o": Told("o", "processed", frozenset(), 5)}


@pytest.mark.parametrize("name", ["charge", "payments.charge", "2 charge", "charge (in doubt)"])
def test_a_listed_step_is_known_by_its_action(name: str) -> None:
    (outcome,) = read_told([json.dumps({"order": "o", "outcome": "error", "standing": [name]})])
    assert outcome.standing == {"charge"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2"),
        ("[]", "with an order"),
        ('{"order": 1}', "with an order"),
        ('{"order": "o", "outcome": "lost"}', "processed, undone, error"),
        ('{"order": "o", "outcome": "error", "standing": "charge"}', "list of names"),
        ('{"order": "o", "cents": "5"}', "whole number"),
        ('{"order": "o", "approved_by": 5}', "a name, or a list of names"),
    ],
)
def test_an_outcome_that_makes_no_sense_is_named_with_its_line(line: str, says: str) -> None:
    with pytest.raises(AuditError, match=says) as error:
        read_told(['{"order": "o"}', line])
    assert "line 2" in str(error.value)


def test_missing_books_are_an_error_and_are_not_created(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="cannot be read"):
        audit(tmp_path / "none.db", [])
    assert list(tmp_path.iterdir()) == []


def run(world: World, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the auditor as a program."""
    outcomes = world.path.with_name("told.jsonl")
    outcomes.write_text("\n".join(map(json.dumps, world.told)))
    command = [
        sys.executable,
        "-m",
        f"{PACKAGE}.auditor",
        "--books",
        str(world.path),
        "--outcomes",
        str(outcomes),
    ]
    return subprocess.run(
        [*command, *more], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_as_a_program_it_ends_with_0_when_the_books_balance(world: World) -> None:
    ran = run(world)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("the books balance\n")


def test_as_a_program_it_ends_with_1_and_names_the_finding_otherwise(world: World) -> None:
    charged_for_an_undone_order(world)
    ran = run(world)
    assert ran.returncode == 1
    assert "FINDING  order refused: charged, though undone: charge" in ran.stdout
    report = json.loads(run(world, "--json").stdout)
    assert report["findings"] == [{"kind": "charged, though undone", "order": "refused", "detail": "charge"}]
    assert report["effects"]["charge"] == {"done": 4, "undone": 1, "standing": 3}


def test_as_a_program_it_ends_with_2_when_there_is_nothing_to_read(world: World) -> None:
    world.path = world.path.with_name("none.db")
    ran = run(world)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "cannot be read" in ran.stderr


def test_the_auditor_shares_no_code_with_what_it_audits() -> None:
    tree = ast.parse(Path(auditor.__file__).read_text())
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            modules.add((node.module or "").partition(".")[0])
    assert modules <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("forgets", "kinds"), [({}, []), ({"/pack.brief/": 0.0}, [Kind.DONE_TWICE, Kind.UNDONE_TOO_OFTEN])]
)
def test_what_is_sent_again_under_a_forgotten_key_is_done_twice_and_found(
    tmp_path: Path, forgets: dict[str, float], kinds: list[Kind]
) -> None:
    """Without a key that is forgotten each request has its answer."""
    books = Books(tmp_path / "books.db", forgets)
    key, undone_key = "o-1/pack.brief/1/do", "o-2/pack.brief/1/do"
    for _ in range(2):
        books.do(DO["pack"], Ask(key, order_id="o-1"))
    books.do(DO["pack"], Ask(undone_key, order_id="o-2"))
    for _ in range(2):
        books.undo(UNDO["pack"], Ask("o-2/pack.brief/1/undo", undoes=undone_key, order_id="o-2"))
    books.close()
    outcomes: list[dict[str, object]] = [
        {"order": "o-1", "outcome": "error", "standing": ["pack.brief"]},
        {"order": "o-2", "outcome": "undone"},
    ]
    assert [finding.kind for finding in audit(tmp_path / "books.db", outcomes).findings] == kinds
