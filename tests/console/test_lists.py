"""The pages of lists: what their rows say, tried without HTTP; and on both stores, that ended tasks cost nothing."""

import csv
import io
from typing import Any, get_args

import msgspec
import pytest

import makegood as mg
from makegood.base import ids
from makegood.base.clock import SystemClock, date_text, iso
from makegood.client.client import Client
from makegood.console.pages import agents, alerts, audit, bulk, cluster, errors, overview, stores, tasks
from makegood.console.pages.task import context as task_context
from makegood.console.reads import Reads
from makegood.console.visits import Context
from makegood.election.views import TermView
from makegood.model.messages import AlertKind
from makegood.model.states import StepState
from makegood.store.filters import text_of
from makegood.store.oversight_records import (
    BulkKind,
    BulkView,
    ErrorGroup,
    MinuteFigures,
    SupervisorDecisionKind,
)
from makegood.store.protocol import Store
from makegood.store.views import (
    AgentInfo,
    AlertView,
    AuditView,
    Filter,
    LeaseView,
    NodeInfo,
    NodeView,
    Prefix,
    SignalWait,
    StepBrief,
    TaskGroup,
    TaskView,
    UnendedTally,
)
from tests.browser.sample import fill
from tests.conformance.builders import draft
from tests.conformance.ended import many_ended
from tests.conformance.worlds import Counts, World

NOW = 1_800_000_000.0


def task(state: Any = "processing", **changes: Any) -> TaskView:
    """Return a task, one minute old."""
    fields: dict[str, Any] = {
        "id": 1, "app": "shop", "workflow": "place_order", "key": "o-1", "state": state, "goal": "forward", "submission": 1, "priority": 0,
        "cause": "", "failure_count": 0, "locked_by": 7, "epoch": 1, "correlation_id": None, "created": NOW - 60, "ended": None,
        "complete_by": NOW + 60,
    }  # fmt: skip
    return TaskView(**(fields | changes))


def step(name: str, state: StepState, **changes: Any) -> StepBrief:
    """Return an action step."""
    fields: dict[str, Any] = {
        "idx": 0, "kind": "action", "name": name, "agent": "payments", "state": state, "attempt": 1, "round": 1, "failures": 0, "error": None,
    }  # fmt: skip
    return StepBrief(**(fields | changes))


def node(name: str, roles: tuple[str, ...], *infos: AgentInfo, left: float = 4.0, **changes: Any) -> NodeView:
    """Return a process whose heartbeat lasts five seconds."""
    fields: dict[str, Any] = {
        "id": 7, "info": NodeInfo(name, roles, "host", 1, 5.0, infos), "started": NOW - 3600, "remaining": left, "is_stopped": False,
        "dead": False,
    }  # fmt: skip
    return NodeView(**(fields | changes))


def alert(number: int, kind: Any, about: int | None = None, **changes: Any) -> AlertView:
    """Return an open alert."""
    return msgspec.structs.replace(
        AlertView(number, kind, about, "", f"text {number}", NOW - number), **changes
    )


@pytest.mark.parametrize(
    ("task_view", "steps", "look", "text", "now"),
    [
        (task(), [step("charge", "running", taken_by=7, doing="do")], "processing", "", "charge at a-1"),
        (
            task(),
            [step("charge", "in_doubt", attempt=3, failures=2, doing="timer", due=4.1)],
            "failing",
            "attempt 4 · failing",
            "charge in doubt, again at 08:00:04",
        ),
        (task(), [step("charge", "running", attempt=2, failures=1, doing="probe")], "failing", "attempt 2 · failing", "charge in doubt, being probed"),
        (task(), [step("charge", "done", failures=2), step("ship", "running", doing="do", taken_by=7)], "processing", "", "ship at a-1"),
        (task(), [step("label", "running", doing="do", wait=840.0)], "waiting", "no process takes it", "label: no process has taken it since 07:46:00"),
        (task(), [step("ship", "ready", doing="timer", due=30.0)], "waiting", "asked to come back later", "ship, again at 08:00:30"),
        (task("sleeping"), [step("approval", "ready", kind="wait_for", doing="timer", due=604_800.0)], "waiting", "waits for approval, a signal", f"approval, until {date_text(NOW + 604_800.0, '%Y-%m-%d %H:%M')}"),
        (task("sleeping"), [step("approval", "ready", kind="wait_for")], "waiting", "waits for approval, a signal", ""),
        (task("sleeping"), [step("sleep", "ready", kind="sleep", doing="timer", due=60.0)], "sleeping", "sleeps", "sleep, until 08:01:00"),
        (task("undoing", goal="undo"), [step("book", "undoing", attempt=2, taken_by=7, doing="undo")], "undoing", "", "undo of book, attempt 2 at a-1"),
        (task("error", goal="undo"), [step("charge", "undo_failed", error="closed")], "error", "undo incomplete", "undo of charge failed: closed"),
        (task("error", goal="hold", cause="no card"), [step("charge", "failed")], "error", "held", "no card"),
        (task("undone", cause="no card"), [step("charge", "undone")], "undone", "", "no card"),
        (task("pending"), [step("charge", "waiting")], "pending", "", ""),
    ],
)  # fmt: skip
def test_a_row_says_what_a_task_waits_for(
    task_view: TaskView, steps: list[StepBrief], look: str, text: str, now: str
) -> None:
    row = tasks.row(task_view, steps, {7: "a-1"}, NOW)
    assert (row.look, row.said, row.step) == (look, text, now)
    due = [(one.kind, one.due) for one in steps if one.due is not None and one.kind != "action"]
    assert (
        row.rest == next(({"sleep": "ends", "wait_for": "times out"}[kind], left) for kind, left in due)
        if due
        else row.rest is None
    )
    assert row.need == (task_view.state == "error")


def test_a_row_draws_its_first_steps_and_counts_the_others() -> None:
    row = tasks.row(task(), [step("s", "done")] * 30 + [step("w", "skipped", kind="when")], {}, NOW)
    assert (row.pips, row.more, row.held, row.left) == (("done",) * 20, 10, "", 60.0)


def test_only_acts_that_fit_a_state_in_view_are_offered() -> None:
    rows = [tasks.row(task(state), [], {}, NOW) for state in ("pending", "undone")]
    assert [kind for kind, _ in tasks.allowed_acts(rows)] == ["cancel", "resubmit"]
    assert tasks.unfit(rows) == "Undo is not offered: no task on this page is processed or error."


def test_alerts_of_one_task_are_one_item_and_name_the_worst() -> None:
    items = alerts.items(
        [alert(3, "undo_stuck", 1), alert(2, "undo_incomplete", 1), alert(1, "starved")],
        {1: task("error", goal="undo")},
    )
    assert [(item.ids, item.title, item.about, item.acts) for item in items] == [
        ("2,3", "Undo incomplete", "o-1", ("undo", "settle")), ("1", "Starved", "", ()),
    ]  # fmt: skip


def test_every_kind_has_words_of_its_own() -> None:
    """A kind that is added must be titled: without it, its own name is shown."""
    assert set(alerts.ICONS) == set(get_args(AlertKind))
    assert set(overview.DECIDED) == set(get_args(SupervisorDecisionKind))
    assert set(bulk.LOOKS) == set(get_args(BulkKind))


def test_the_verdict_of_alerts_says_who_has_the_others() -> None:
    def of(*views: AlertView) -> list[alerts.Item]:
        return alerts.items(views, {})

    acknowledgement = of(alert(2, "held", 1, acked=NOW, acked_by="bob"))
    verdict = alerts.verdict(
        of(alert(1, "undo_incomplete", 5)), acknowledgement, of(alert(3, "circuit_open"))
    )
    assert (verdict.tone, verdict.title) == ("need", "1 needs somebody: undo incomplete")
    assert verdict.more == "bob has acknowledged 1. 1 alert needs nobody."
    assert alerts.verdict([], [], []).title == "Nothing needs you"
    assert acknowledgement[0].tone == "idle"


def test_a_test_alert_that_was_reported_needs_nobody() -> None:
    """A later test that arrives takes back the alarm of one that did not; both are one item."""
    refused, arrived = alert(1, "test", logged=1, tries=1), alert(2, "test", logged=1, told=1)
    assert [item.tone for item in alerts.items([refused], {})] == ["need"]
    assert [(item.ids, item.tone) for item in alerts.items([arrived, refused], {})] == [("2,1", "doubt")]


def test_an_agent_without_a_process_needs_somebody() -> None:
    well = AgentInfo("shop/stock", 10, used=7, calls=10, seconds=0.5, success=1.0, circuit="closed")
    open_ = AgentInfo("shop/payments", 10, circuit="open", reset=2.4, success=0.5)
    absentee = AgentInfo("shop/label", 10)
    nodes = [
        node("a", ("agent",), well),
        node("b", ("agent",), open_, well),
        node("c", ("agent",), absentee, left=-3.0),
    ]
    rows = agents.agent_rows(nodes, {"shop/label": (14, 840.0), "shop/stock": (1, 0.1)})
    assert [(row.name, row.state, row.used, row.slots, row.processes) for row in rows] == [
        ("label", "no process", 0, 0, 0), ("payments", "circuit open", 0, 10, 1), ("stock", "well", 14, 20, 2),
    ]  # fmt: skip
    verdict = agents.verdict(rows)
    assert (verdict.title, verdict.more) == (
        "label has no process",
        "14 requests wait for label, the oldest for 14 min.",
    )
    assert agents.verdict(rows[1:]).title == "payments does not answer well"
    assert agents.verdict(rows[2:]).title == "stock is well"
    assert agents.heartbeat(nodes[2]) == ("dead for 3.0 s", "dead")
    assert agents.heartbeat(node("d", (), left=1.0)) == ("late: silent for 4.0 s", "late")


def test_a_service_that_answers_again_and_for_which_nothing_waits_is_no_matter() -> None:
    back = AgentInfo("shop/flight", 10, circuit="release", most=2, success=0.9)
    nodes = [node("a", ("agent",), back)]
    verdict = agents.verdict(agents.agent_rows(nodes, {}))
    assert (verdict.tone, verdict.title) == ("ok", "flight answers again")
    busy = agents.verdict(agents.agent_rows(nodes, {"shop/flight": (3, 1.0)}))
    assert (busy.tone, busy.title) == ("doubt", "flight does not answer well")
    assert busy.more.startswith("Tasks wait")


def test_the_strip_of_terms_fills_its_width() -> None:
    """The latest is at the right; a gap of seconds is seen beside a term of hours."""
    terms = [
        TermView(3, "c", NOW - 7200, None, False, 17.2),
        TermView(2, "b", NOW - 9000, NOW - 7217.2, True, 0.2),
        TermView(1, "a", NOW - 90_000, NOW - 9000.2, False, None),
    ]
    parts = cluster.strip(terms, NOW)
    assert [(part.epoch, part.gap, part.now) for part in parts] == [
        (1, False, False), (2, True, False), (2, False, False), (3, True, False), (3, False, True),
    ]  # fmt: skip
    assert parts[-1].x + parts[-1].width == pytest.approx(100.0, abs=0.1)
    assert parts[1].width < parts[3].width < parts[0].width
    assert (parts[0].text, parts[3].text) == ("22 h", "17 s")
    assert cluster.strip([], NOW) == []


@pytest.mark.parametrize(
    ("left", "roles", "title"),
    [
        (9.6, ("scheduler", "supervisor"), "c has led for 2 h"),
        (-1.0, ("scheduler", "supervisor"), "Nobody leads"),
        (9.6, ("supervisor",), "No Scheduler runs"),
        (9.6, (), "No process runs"),
    ],
)
def test_the_cluster_says_what_is_missing(left: float, roles: tuple[str, ...], title: str) -> None:
    view = LeaseView("makegood/supervisor", "c", 14, 15.0, NOW - 7200, left)
    nodes = [node("c", roles)] if roles else []
    verdict = cluster.verdict(cluster.lease_of(view), nodes, NOW, cluster.heals(nodes, view))
    assert verdict.title == title
    assert cluster.heals([node("c", ())], view) == 25.0


def test_a_formula_in_the_audit_stays_text() -> None:
    """Files of a spreadsheet: who and why were written by people."""
    view = AuditView(
        "a-1", 5, "undo", "=cmd()", 'he said "no",\nthen left', "applied", "undone", "undoing", NOW
    )
    rows = list(csv.reader(io.StringIO(audit.as_csv([view]))))
    assert rows[0] == list(audit.COLUMNS)
    assert (rows[1][1], rows[1][4], len(rows)) == ("'=cmd()", 'he said "no",\nthen left', 2)
    (line,) = audit.as_json_lines([view]).splitlines()
    assert msgspec.json.decode(line)["who"] == "=cmd()"


@pytest.mark.parametrize(
    "sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\u2212", "|", "%"]
)
@pytest.mark.parametrize(
    "before",
    ["", " ", "\n", "\t", "\r", "\ufeff", "\xa0", "\u3000", "\u200b", "\u202e", "\x00", " \n\ufeff "],
)
def test_no_spelling_of_a_formula_passes(before: str, sign: str) -> None:
    """Spreadsheets skip blanks and invisible characters, and know full-width signs."""
    view = AuditView("a-1", 5, "undo", f"{before}{sign}cmd()", "", "applied", "undone", "undoing", NOW)
    assert list(csv.reader(io.StringIO(audit.as_csv([view]), newline="")))[1][1].startswith("'")


@pytest.mark.parametrize("text", ["ann", "o-7 = 8", " two words", "7", "\uff17", "a@b", "caf\xe9"])
def test_a_plain_cell_stays_as_it_is(text: str) -> None:
    view = AuditView("a-1", 5, "undo", text, "", "applied", "undone", "undoing", NOW)
    assert list(csv.reader(io.StringIO(audit.as_csv([view]))))[1][1] == text


def failures(states: dict[str, int], retries: int = 0, blocking: int | None = None) -> ErrorGroup:
    """A group whose tasks are in these states; in ``retries`` of them the step is tried again, and it blocks ``blocking``."""
    blocks = states.get("error", 0) if blocking is None else blocking
    return ErrorGroup(
        "shop/payments", "charge", "do", "down", "", 3, sum(states.values()), NOW - 9, NOW - 1, "down", (1,), states, (NOW - 1,), retries, "", blocks
    )  # fmt: skip


@pytest.mark.parametrize(
    ("states", "retries", "fate", "count", "what"),
    [
        ({"error": 2, "undone": 1}, 0, "need", 2, "tasks in error"),
        ({"processing": 3}, 1, "retried", 1, "task trying again"),
        ({"undoing": 1}, 0, "ended", 1, "task under way"),
        ({"undone": 3, "processing": 1}, 0, "ended", 3, "tasks undone"),
        ({"processed": 1}, 0, "ended", 1, "task processed since"),
    ],
)
def test_a_group_of_errors_goes_by_what_became_of_its_tasks(
    states: dict[str, int], retries: int, fate: str, count: int, what: str
) -> None:
    group = errors.group_of(failures(states, retries), NOW, 3600.0)
    assert (group.fate, group.count, group.what) == (fate, count, what)


def test_a_failure_that_a_task_in_error_had_before_does_not_need_anybody() -> None:
    """Only the one that the task stands in does: the others are over."""
    group = errors.group_of(failures({"error": 6}, blocking=0), NOW, 3600.0)
    assert (group.fate, group.count, group.what, group.acts) == (
        "ended",
        6,
        "tasks in error for another reason",
        (),
    )
    some = errors.group_of(failures({"error": 6}, blocking=1), NOW, 3600.0)
    assert (some.fate, some.count, some.acts[0]) == ("need", 1, ("undo", 1, "error"))


def test_a_group_offers_no_act_on_more_tasks_than_it_names() -> None:
    assert errors.group_of(failures({"error": 374}), NOW, 3600.0).acts == (
        ("undo", 1, "error"),
        ("resubmit", 1, "error"),
    )


def test_a_group_offers_the_acts_that_fit_its_tasks() -> None:
    raw_group = ErrorGroup(
        "shop/payments", "charge", "undo", "N refunds are closed for '…'", "orders.py:117 in refund", 3, 2, NOW - 180, NOW - 32,
        "403 refunds are closed for 'm-1'", (1, 2), {"error": 2}, (NOW - 32, NOW - 180), blocking=2,
    )  # fmt: skip
    group = errors.group_of(raw_group, NOW, 3600.0)
    assert (group.count, group.what, group.where) == (2, "tasks in error", "payments · undo of charge")
    assert group.words == "2 tasks, 3 attempts · now 2 error"
    assert group.acts == (("undo", 2, "error"), ("resubmit", 2, "error"))
    assert group.parts == ((True, "N"), (False, "refunds are closed for"), (True, "'…'"))
    assert (group.bars[-1], sum(group.bars)) == (1, 2)
    verdict = errors.verdict([group], [], [])
    assert (verdict.tone, verdict.title) == ("need", "1 error holds up 2 tasks")
    assert errors.verdict([group, group], [], []).title == "2 errors hold up tasks", "perhaps the same ones"
    assert errors.verdict([], [group], []).title == "1 error being retried"


def test_an_act_on_many_tasks_says_how_far_it_is() -> None:
    view = BulkView(
        "b-1", "undo", Filter(states=("error",), workflow="sell"), "ann", "down", 412, None, 50.0, "running", NOW - 10, None, 263, 236, 2,
        7, "",
    )  # fmt: skip
    row = bulk.row(view, NOW)
    assert (row.filter, row.left, row.view.waiting, row.eta, row.rate) == (
        "state:error workflow:sell",
        149,
        18,
        "3.0 s",
        "50 a second at most",
    )
    assert row.parts == (("undo", 57.28), ("run", 4.37), ("idle", 0.49), ("fail", 1.7))
    bulk_row = bulk.row(msgspec.structs.replace(view, state="stopped", ended=NOW - 6, stopped_by="bob"), NOW)
    assert (bulk_row.running, bulk_row.left, bulk_row.took, bulk_row.eta) == (False, 0, "4.0 s", "")


def test_a_list_shows_what_a_service_asks_to_wait_for_and_the_overview_counts_it() -> None:
    """A crowd that waits for a person does not look like health."""
    rests = [step("decide", "ready", doing="timer", due=5.0, error="nobody has answered yet\nsee the wiki")]
    row = tasks.row(task(), rests, {}, NOW)
    assert (row.look, row.said) == ("waiting", "nobody has answered yet")
    counts = {"nobody has answered yet": 300, "busy": 1}
    page = overview.verdict([], UnendedTally({"processing": 301}), 0.0, has_leader=True, wait_counts=counts)
    assert (page.tone, page.title) == ("ok", "300 wait: nobody has answered yet; 1 for another reason")
    assert page.more == "301 tasks under way, 0 a minute."
    approvals = [SignalWait("approval", 300, NOW - 90_000.0), SignalWait("payment", 1, NOW)]
    page = overview.verdict(
        [], UnendedTally({"sleeping": 301}), 0.0, has_leader=True, signal_waits=approvals, now=NOW
    )
    since = iso(NOW - 90_000.0)[:16].replace("T", " ")
    assert (page.tone, page.icon, page.title) == ("ok", "waiting", f"300 wait for approval since {since}")


def test_an_act_on_many_tasks_is_under_way_until_its_tasks_have_ended() -> None:
    """Its commands are accepted long before."""
    view = BulkView(
        "b-1", "undo", Filter(), "ann", "down", 299, None, None, "done", NOW - 10, NOW - 9.6, 299, 299, 0, 0, "",
    )  # fmt: skip
    row = bulk.row(view, NOW, {"undone": 112, "undoing": 180, "pending": 7})
    assert (row.state, row.progress) == ("under way", "299 accepted; 112 undone, 187 to go, 0 stuck")
    over = bulk.row(view, NOW, {"undone": 297, "error": 2})
    assert (over.state, over.progress) == ("done", "297 undone, 2 stuck")


def test_the_charts_leave_out_minutes_that_nobody_saw() -> None:
    """The latest minute is at the right; heights are shares of the axis."""
    last = NOW // 60 * 60
    minutes = [
        MinuteFigures(last - 60 * n, 60.0, 400, 400, 9, 50 * (n == 1), 2400, 0.15, 0.44) for n in (2, 1)
    ]
    per_minute = overview.by_minute(minutes, NOW)
    assert [n for n, minute in enumerate(per_minute) if minute] == [57, 58]
    chart = overview.ended_chart(per_minute, NOW)
    assert (chart.top, chart.middle) == ("500", "250")
    assert chart.bars == ((95.0, 64.0, 1.44, 65.44, 0.0), (96.67, 64.0, 1.44, 65.44, 8.0))
    lines = overview.latency_chart(per_minute, NOW).lines
    assert [(name, value) for name, value, _ in lines] == [("p50", "150 ms"), ("p95", "440 ms")]
    assert overview.ended_chart([None] * 60, NOW).bars == ()
    tiles = overview.tiles(
        UnendedTally({"processing": 1}),
        per_minute,
        [],
        ("", 0.0),
        23.0,
        lately=({"processed": 30, "undone": 10}, False),
    )
    assert [(tile.label, tile.value, tile.note) for tile in tiles[1:3]] == [
        ("Processed", "400", "30 of those submitted in the last hour"),
        ("Undone", "9", "10, 25.0% of those submitted in the last hour"),
    ], "the notes count what the lists behind them show, which does not depend on a Supervisor"
    half = overview.latency_chart(
        [*per_minute[:-1], MinuteFigures(last, 60.0, 1, 1, 0, 0, 1, 70.0, 150.0)], NOW
    )
    assert (half.top, half.middle) == ("4 min", "2 min")


def test_the_tasks_of_an_act_are_those_selected_or_those_of_the_filter() -> None:
    assert bulk.filter_of({"t-0000000000001": "on", "ids": "0000000000002", "q": "state:error"}) == Filter(
        ids=(1, 2), limit=2
    )
    assert bulk.filter_of({"q": "state:error"}) == Filter(states=("error",))
    with pytest.raises(mg.ConfigError, match="no task is chosen"):
        bulk.filter_of({"q": " "})
    some = bulk.filter_of({"ids": f"{ids.show(5)},{ids.show(3)}", "state": "pending,processing"})
    assert (some.ids, some.states) == ((3, 5), ("pending", "processing")), (
        "an act on a group counts what it names"
    )


@pytest.mark.parametrize(
    "text",
    [
        "state:error,undone app:shop",
        'error:"card refused" failing:yes',
        "failures:>=3 priority:<=5",
        "older:60s o-1",
        "key:'it is \"half\"' doubt:no",
    ],
)
def test_a_filter_is_written_as_it_is_read(text: str) -> None:
    assert bulk.filter_of({"q": text_of(bulk.filter_of({"q": text}))}) == bulk.filter_of({"q": text})


def test_the_overview_asks_first_whether_anything_needs_somebody() -> None:
    item = alerts.items([alert(1, "undo_incomplete", 5)], {})
    assert overview.verdict(item, UnendedTally({}), 406, has_leader=True).title == "1 task needs you"
    calm = overview.verdict([], UnendedTally({"processing": 128}), 406, has_leader=True)
    assert (calm.tone, calm.title, calm.more) == ("ok", "All well", "128 tasks under way, 406 a minute.")
    assert overview.verdict([], UnendedTally({"pending": 1}), None, has_leader=False).title == "Nobody leads"
    open_ = AgentInfo("shop/payments", 10, circuit="open", reset=3.0)
    rows = agents.agent_rows([node("one", ("agent",), open_)], {"shop/payments": (85, 60.0)})
    outage = overview.verdict([], UnendedTally({"processing": 128}), 0, has_leader=True, rows=rows)
    assert (outage.tone, outage.title) == ("doubt", "payments does not answer well")


PAGES = {
    "overview": overview.context, "tasks": tasks.context, "alerts": alerts.context, "errors": errors.context, "agents": agents.context,
    "cluster": cluster.context, "audit": audit.context, "bulk": bulk.context, "stores": stores.context,
}  # fmt: skip


FILTERS = (
    "state:processed",
    "workflow:place_order since:1h",
    "error:expired",
    "failing:yes",
    "key:none",
    "key:none*",
    "correlation:none",
    "attribute:customer=none",
    "step:charge",
)


async def test_a_filter_that_names_a_batch_says_how_far_it_is(store: Store) -> None:
    """And each of its tasks leads there, whatever its correlation id looks like."""
    await store.tasks.submit(
        [
            draft(n, key=f"night/{n}", correlation_id="ni ght*", attributes=(("customer", "ada"),))
            for n in range(1, 4)
        ]
    )
    await store.tasks.submit([draft(4)])
    reads = Reads(Client(store), SystemClock())
    for query, progress in (
        ("correlation:'ni ght*'", "3 submitted; 0 processed, 3 to go, 0 stuck"),
        ("key:night/*", "3 submitted; 0 processed, 3 to go, 0 stuck"),
        ("attribute:customer=ada workflow:place_order", "3 submitted; 0 processed, 3 to go, 0 stuck"),
        ("correlation:none", ""),
        ("correlation:n* state:pending", ""),
        ("workflow:place_order", ""),
    ):
        page = await tasks.context(reads, {"q": query})
        assert page["batch"] == progress, query
        assert page["refused"] == ""
    *_, row = (await tasks.context(reads, {"q": "key:night/1"}))["rows"]
    assert row.batch == "correlation:'ni ght*'"
    assert len((await tasks.context(reads, {"q": row.batch}))["rows"]) == 3
    refusal = await tasks.context(reads, {"q": "workflow:place*"})
    assert refusal["refused"].startswith("workflow:place* is not understood")
    assert refusal["rows"] == []


async def test_pages_of_batches_follow_each_other(store: Store) -> None:
    """Each batch is on one of them, however its tasks lie among others; one that is small is a task's row."""
    names = ["a", "b"] * 3 + [None] * 25 + ["a", "c", "c"]
    await store.tasks.submit([draft(n, correlation_id=name) for n, name in enumerate(names, 1)])
    client = Client(store)
    await client.open()
    reads = Reads(client, SystemClock())
    query: dict[str, str] = {"group": "batch"}
    rows: list[str] = []
    page: dict[str, Any] = {}
    for _ in range(2):
        page = await tasks.context(reads, query)
        rows += [
            f"{line.name} {line.count}" if isinstance(line, tasks.BatchRow) else str(line.task.id)
            for line in page["lines"]
        ]
        query = {"group": "batch", **{name: text for name, text in (page["older"] or {}).items() if text}}
    assert (rows, page["older"]) == (["c 2", "a 4", *map(str, range(31, 6, -1)), "b 3"], None)
    bar = tasks.batch_row(
        TaskGroup(9, "n*", {"processed": 2, "error": 1, "pending": 1}),
        [],
        (tasks.Grouping(), Filter(states=("error",))),
        NOW,
        more=True,
    )
    assert (bar.parts, bar.need, bar.count) == ((("ok", 50.0), ("need", 25.0), ("run", 25.0)), True, "4+")
    assert bar.path == "state:error correlation:'n*'"
    listing = (
        tasks.Grouping("customer"),
        Filter(states=("error",), attributes={"customer": Prefix("a"), "region": "eu"}),
    )
    value = tasks.batch_row(TaskGroup(9, "ada", {"error": 2}), [], listing, NOW, more=False)
    assert (value.name, value.path) == (
        "customer=ada",
        "state:error attribute:customer=ada attribute:region=eu",
    )
    long = tasks.batch_row(TaskGroup(9, "x" * 600, {"pending": 2}), [], listing, NOW, more=False)
    assert long.path == ""


async def test_a_page_costs_the_same_beside_any_number_of_ended_tasks(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """Statements with a hundred and with 100,000 ended tasks, of lists, filters and a task."""
    await fill(counting_store)
    client = Client(counting_store)
    await client.open()
    costs: list[dict[str, int]] = []
    for first, count in (
        (1, 100),
        (1000, 1),
        (2000, 100_000),
    ):  # the first statements of a connection cost more
        like = (await counting_store.tasks.search(Filter(states=("processed",), limit=1))).tasks[0].id
        await many_ended(world, count, like=like, first=first)
        costs.append({})
        requests: list[tuple[str, Context, dict[str, str]]] = [
            (name, page, {}) for name, page in PAGES.items()
        ]
        requests += [(q, tasks.context, {"q": q}) for q in FILTERS]
        for way in ("batch", "attribute:customer"):
            requests += [(f"{q} by {way}", tasks.context, {"q": q, "group": way}) for q in ("", *FILTERS)]
        requests.append(("task", task_context, {"id": ids.show(like)}))
        group = (await counting_store.oversight.error_groups()).groups[0].name
        requests.append(("error", errors.group, {"name": group}))
        for name, context, query in requests:
            await counts.reset()
            await context(Reads(client, SystemClock()), query)
            costs[-1][name] = counts.statements
    assert costs[1] == costs[2]
    assert max(costs[1].values()) <= 40, costs[1]
