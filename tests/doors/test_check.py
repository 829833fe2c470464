"""``makegood check``: declarations that are not whole, and waiting steps that new code could not run."""

import re

from makegood.cli.commands.check import needs_of
from makegood.model.plan import StepPlan
from makegood.model.policy import Policy
from makegood.model.states import StepState
from makegood.store.views import StepView
from tests.doors.conftest import Shop

RENAMED = """
import makegood as mg
kiosk = mg.App("kiosk")
stock, till = kiosk.agent("stock"), kiosk.agent("till")

@stock.action(complete_within="5s", undo=mg.NOTHING)
def reserve(order: dict) -> str:
    return "hold"

@till.action(complete_within="5s", undo=mg.NOTHING{formerly})
def take_money(order: dict, hold: str) -> str:
    return "paid"

@till.action(complete_within="5s", undo=mg.NOTHING)
def print_receipt(order: dict, note: str) -> str:
    return note

@kiosk.workflow(complete_within="5m")
def buy(order: dict) -> str:
    return take_money(order, reserve(order))
"""


def test_a_whole_app_has_nothing_to_tell(shop: Shop) -> None:
    """Exit 0; JSON lists what is declared; the store is looked at because it is named."""
    shop.done("task", "submit", "kiosk:buy", '{"id": "o"}')
    report = shop.json("check", "kiosk:kiosk")
    assert report["agents"] == {"stock": ["reserve"], "till": ["charge", "print_receipt"]}
    assert (report["workflows"], report["problems"], report["stranded"], report["tasks"]) == (
        ["buy"],
        [],
        [],
        1,
    )
    text = shop.done("check", "kiosk:kiosk")
    assert "1 inbox, 1 workflow; 1 open task" in text


def test_what_is_declared_is_listed_in_text_too(shop: Shop) -> None:
    """Agents, actions with their undo, workflows, inboxes: a row each."""
    rows = [re.split(r" {2,}", line.strip()) for line in shop.done("check", "kiosk:kiosk").splitlines()]
    assert rows[1:-1] == [
        ["agent", "stock", "10 at once"],
        ["action", "stock.reserve", "1m; undo release"],
        ["agent", "till", "5 at once"],
        ["action", "till.charge", "2m; undo refund"],
        ["action", "till.print_receipt", "1m; nothing to undo"],
        ["workflow", "buy", "5m; on failure undo"],
        ["inbox", "orders", "accept, 4 at once"],
    ]
    report = shop.json("check", "kiosk:kiosk")
    assert report["inboxes"] == ["orders"]
    assert (report["actions"][0]["action"], report["actions"][0]["undo"]) == ("reserve", "release")


def test_without_a_named_store_only_the_declarations_are_checked(shop: Shop) -> None:
    """The default file is not looked at, let alone made."""
    result = shop.call("check", "kiosk:kiosk", MAKEGOOD_STORE="")
    assert result.exit_code == 0
    assert "no store was named" in result.stdout
    assert not (shop.folder / "makegood.db").exists()


def test_steps_that_new_code_could_not_run_are_found(shop: Shop) -> None:
    """A renamed action strands the steps that wait for it, a dropped undo those that may need it: exit 1, with the remedy."""
    task = shop.done("task", "submit", "kiosk:buy", '{"id": "o"}').strip()
    (shop.folder / "renamed.py").write_text(RENAMED.format(formerly=""), encoding="utf-8")
    report = shop.json("check", "renamed:kiosk", code=1)
    assert [(each["agent"], each["action"], each["needs"], each["steps"]) for each in report["stranded"]] == [
        ("stock", "reserve", "undo", 1),
        ("till", "charge", "action", 1),
    ]
    assert report["stranded"][0]["tasks"] == [task]
    text = shop.call("check", "renamed:kiosk")
    assert text.exit_code == 1
    assert "till.charge is missing: 1 step needs it" in text.stdout
    assert 'formerly=("charge",)' in text.stdout
    assert "the undo of stock.reserve is missing" in text.stdout


def test_that_not_all_was_looked_at_is_said(shop: Shop) -> None:
    """Nothing found among the newest tasks is not nothing found."""
    for n in range(3):
        shop.done("task", "submit", "kiosk:buy", f'{{"id": "{n}"}}')
    assert "2 open tasks, the newest ones, and perhaps there are more" in shop.done(
        "check", "kiosk:kiosk", "--limit", "2"
    )
    assert (
        shop.json("check", "kiosk:kiosk", "--limit", "2")["more"],
        shop.json("check", "kiosk:kiosk")["more"],
    ) == (True, False)


def test_formerly_keeps_the_old_name_alive(shop: Shop) -> None:
    """A renamed action that names its old name strands nothing but the undo it dropped."""
    shop.done("task", "submit", "kiosk:buy", '{"id": "o"}')
    (shop.folder / "kept.py").write_text(RENAMED.format(formerly=', formerly=("charge",)'), encoding="utf-8")
    report = shop.json("check", "kept:kiosk", code=1)
    assert {(each["action"], each["needs"]) for each in report["stranded"]} == {
        ("reserve", "undo"),
        ("charge", "undo"),
    }


def test_ended_tasks_are_no_concern(open_shop: Shop) -> None:
    """What was processed or undone waits for nothing."""
    open_shop.done("task", "submit", "kiosk:buy", '{"id": "o"}', "--wait")
    (open_shop.folder / "renamed2.py").write_text(RENAMED.format(formerly=""), encoding="utf-8")
    assert open_shop.json("check", "renamed2:kiosk")["tasks"] == 0


def test_an_attempt_that_may_outlast_its_key_is_a_warning(shop: Shop) -> None:
    (shop.folder / "outlast.py").write_text(
        'import makegood as mg\napp = mg.App("outlast")\nbank = app.agent("bank")\n\n'
        '@bank.action(complete_within="2h", keeps="1h", undo=mg.NOTHING)\ndef charge() -> None: ...\n\n\n'
        '@bank.action(complete_within="1m", keeps="1h", undo=mg.NOTHING)\ndef look() -> None: ...\n\n\n'
        '@app.workflow(complete_within="30m")\ndef buy() -> None:\n    charge()\n    look()\n',
        encoding="utf-8",
    )
    (warning,) = shop.json("check", "outlast:app")["warnings"]
    assert warning.startswith(
        "bank.charge has 2h to complete an attempt, and its service keeps a key for 1h: "
    )


def test_an_app_that_is_not_whole_is_told(shop: Shop) -> None:
    """An agent without actions, an action that says not how it is made good, annotations that nobody knows, an app without workflows."""
    (shop.folder / "bare.py").write_text(
        'import makegood as mg\nbare = mg.App("bare")\nidle, busy = bare.agent("idle"), bare.agent("busy")\n\n'
        '@busy.action(complete_within="1s")\ndef call(x: int) -> int:\n    return x\n\n\n'
        '@busy.action(complete_within="1s", undo=mg.NOTHING)\ndef look(x: "Nowhere") -> int:\n    return 1\n\n\n'
        '@bare.inbox("q")\ndef accept(x: "Nobody", tx: mg.Transaction) -> None: ...\n',
        encoding="utf-8",
    )
    problems = shop.json("check", "bare:bare", code=1)["problems"]
    assert len(problems) == 5
    assert "agent 'idle' declares no action" in problems[0]
    assert "busy.call does not declare how it is undone" in problems[1]
    assert "'Nowhere' is not defined" in problems[2]
    assert "inbox q: an annotation cannot be evaluated (name 'Nobody' is not defined)" in problems[3]
    assert "no workflow" in problems[4]
    (shop.folder / "odd.py").write_text(
        'import makegood as mg\nodd = mg.App("odd")\n\n@odd.workflow()\ndef work(x: "Nowhere") -> None: ...\n',
        encoding="utf-8",
    )
    assert (
        "odd.work: an annotation cannot be evaluated" in shop.json("check", "odd:odd", code=1)["problems"][0]
    )


def test_a_waiting_each_needs_what_its_body_does() -> None:
    """Steps that are not rows yet are found in the body, nested ones too, and so are their undos and probes."""
    wrap = Policy(within=1.0, undoable=False, probe=True)
    inner = StepPlan(-1, name="wrap", agent="stock", action="wrap", policy=wrap)
    inner_each = StepPlan(-2, kind="each", name="inner", body=(inner,))
    pick = StepPlan(-1, name="pick", agent="till", action="pick", policy=Policy(within=1.0))
    outer = StepPlan(0, kind="each", name="outer", body=(pick, inner_each))

    def view(state: StepState) -> StepView:
        return StepView(0, "each", "outer", "", "", state, 0, 1, 0, doubt=False, undoable=False, plan=outer)

    assert [need[:3] for need in needs_of(view("waiting"))] == [
        ("till", "pick", "action"),
        ("till", "pick", "undo"),
        ("stock", "wrap", "action"),
        ("stock", "wrap", "probe"),
    ]
    assert list(needs_of(view("done"))) == []


CHANGED = """
import dataclasses
import makegood as mg
kiosk = mg.App("kiosk")
stock, till = kiosk.agent("stock"), kiosk.agent("till")

@dataclasses.dataclass
class Order:
    id: int
    cents: int = 100

@stock.action(complete_within="5s")
def reserve(order: Order) -> str:
    return "hold"

@reserve.undo
def release(order: Order, *, result: str | None) -> None:
    pass

@till.action(complete_within="2m")
async def charge(order: dict, hold: int, currency: str) -> str:
    return "paid"

@charge.undo
def refund(*, result: str | None) -> None:
    pass

@till.action(complete_within="5s", undo=mg.NOTHING)
def print_receipt(order: dict, note: str, copies: int = 1) -> str:
    return note

@kiosk.workflow(complete_within="5m")
def buy(order: dict) -> str:
    return charge(order, 1, "EUR")
"""


def test_stored_arguments_that_new_code_could_not_read_are_found(shop: Shop) -> None:
    """Another type, a parameter that is new and needed, a result of another type to come; what was dropped or has a default is none.
    Each fault comes once, with how many steps have it and which tasks.
    """
    tasks = [shop.done("task", "submit", "kiosk:buy", f'{{"id": "{n}"}}').strip() for n in "ab"]
    (shop.folder / "changed.py").write_text(CHANGED, encoding="utf-8")
    faults = shop.json("check", "changed:kiosk", code=1)["stranded"]
    assert [(each["agent"], each["action"], each["needs"], each["steps"]) for each in faults] == [
        ("stock", "reserve", "action", 2),
        ("till", "charge", "action", 2),
        ("till", "charge", "action", 2),
    ]
    assert [(each["parameter"], each["why"]) for each in faults] == [
        ("order", "order does not fit Order: Expected `int`, got `str` - at `$.id`"),
        ("currency", "there is no currency"),
        ("hold", "hold will be str, and is to be int"),
    ]
    assert sorted(faults[0]["tasks"]) == sorted(tasks)
    text = shop.call("check", "changed:kiosk").stdout
    assert "till.charge cannot be given what is stored for 2 steps (such as in " in text
    assert "there is no currency; take what is stored as well (currency with a default), or keep" in text
