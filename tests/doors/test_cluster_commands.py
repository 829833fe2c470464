"""What runs, who leads, what an operator must see."""

from makegood.cli.commands.agents import agent_rows
from makegood.client import as_json
from makegood.store.views import AgentInfo, NodeInfo, NodeView
from tests.doors.conftest import Shop


def node(
    number: int, *agents: AgentInfo, remaining: float = 4.0, is_stopped: bool = False, dead: bool = False
) -> NodeView:
    """Return a process with these agents."""
    return NodeView(
        number, NodeInfo(f"n{number}", ("agent",), "web", 1, 5.0, agents), 0.0, remaining, is_stopped, dead
    )


def test_a_process_is_alive_stopped_or_dead() -> None:
    """Stopped in good order is not dead; silent for longer than its life is, judged or not."""
    views = [node(1), node(2, is_stopped=True, remaining=-9), node(3, remaining=-0.1), node(4, dead=True)]
    assert [view.state for view in views] == ["alive", "stopped", "dead", "dead"]


def test_an_agent_is_a_row_per_process_and_a_queue_nobody_takes_is_one_too() -> None:
    """Slots, calls, recent success, mean, circuit, rate, waiting; what waits for an agent that runs nowhere stands out."""
    till = AgentInfo("shop/till", 5, 2, 40, 1, 0.25, 0.975, "open", 12.4, 0, 20.0)
    stock = AgentInfo("shop/stock", 8, 2, 40, 1, 0.25, 1.0, "release", most=3)
    views = [node(1, till), node(2, AgentInfo("shop/stock", 3)), node(3, stock)]
    assert agent_rows(views, {"shop/till": 7, "shop/carrier": 2, "shop/done": 0}) == [
        ("shop/carrier", "none", None, None, None, None, None, None, 2),
        ("shop/stock", 2, "0/3", 0, None, None, None, None, 0),
        ("shop/stock", 3, "2/8", 40, "100%", "250ms", "release 3/8", None, 0),
        ("shop/till", 1, "2/5", 40, "98%", "250ms", "open, 12.4s", "20/s", 7),
    ]


def test_json_says_what_the_circuit_is_and_when_it_lets_a_call_through() -> None:
    till = AgentInfo("shop/till", 5, 2, 40, 1, 0.25, 0.975, "open", 12.4, 0, 20.0)
    (shape,) = as_json.node(node(1, till))["agents"]
    fields = {
        "success": 0.975,
        "circuit": "open",
        "reset": 12.4,
        "most": 0,
        "rate": 20.0,
        "failure_rate": 0.025,
    }
    assert shape.items() >= fields.items()
    (shape,) = as_json.node(node(1, AgentInfo("shop/till", 5)))["agents"]
    assert shape.items() >= {"success": None, "circuit": None, "reset": None, "most": 5, "rate": None}.items()


def test_agents_shows_processes_and_their_agents(open_shop: Shop) -> None:
    """One process runs all roles; its agents have their slots."""
    report = open_shop.json("agents")
    (process,) = report["nodes"]
    assert process["state"] == "alive"
    assert set(process["roles"]) == {"scheduler", "agent", "supervisor", "inbox"}
    slots = {agent["agent"]: agent["slots"] for agent in process["agents"]}
    assert slots == {"kiosk/stock": 10, "kiosk/till": 5}
    text = open_shop.done("agents")
    assert text.startswith("NODE  NAME")
    assert "kiosk/till" in text
    assert "0/5" in text


def test_leader_shows_who_leads_since_when_and_for_how_long(open_shop: Shop) -> None:
    """The supervisor of that process holds the lease. "Started" does not mean that it leads already: it contends then."""
    while open_shop.json("leader")["holder"] is None:
        pass
    lease = open_shop.json("leader")
    assert lease["name"] == "makegood/supervisor"
    assert lease["holder"]
    assert lease["epoch"] >= 1
    assert 0 < lease["remaining"] <= lease["ttl"]
    assert lease["holder"] in open_shop.done("leader")


def test_the_leading_supervisor_is_asked_to_step_down(open_shop: Shop) -> None:
    """It is named and audited; together with --past, or for an election of one's own, it is refused."""
    while open_shop.json("leader")["holder"] is None:
        pass
    leads = open_shop.json("leader")["holder"]
    request = open_shop.json("leader", "--step-down", "--reason", "the host is drained", "--who", "ann")
    assert request == {"asked": leads}
    (act,) = [act for act in open_shop.json("audit") if act["kind"] == "step_down"]
    assert (act["who"], act["why"]) == ("ann", "the host is drained")
    assert open_shop.call("leader", "--step-down", "--past").exit_code == 2
    assert open_shop.call("leader", "reports", "--step-down").exit_code == 2


def test_alerts_are_listed_newest_first_and_by_task(open_shop: Shop) -> None:
    """A stuck undo alerts; one may ask for one task's alerts."""
    order = '{"id": "e", "card": "stuck"}'
    task = open_shop.json("task", "submit", "kiosk:buy", order, "--wait", code=6)["id"]
    alerts = open_shop.json("alerts", "--task", task)
    assert [alert["kind"] for alert in alerts] == ["undo_incomplete"], "one alert a task"
    assert {alert["task"] for alert in alerts} == {task}
    assert [alert["id"] for alert in alerts] == sorted((alert["id"] for alert in alerts), reverse=True)
    assert "undo_incomplete" in open_shop.done("alerts", "--limit", "5")


def test_an_empty_store_says_what_to_start(shop: Shop) -> None:
    """Nothing runs, nobody leads, no alerts: each says so, and JSON stays a document."""
    assert shop.json("agents") == {"nodes": [], "waiting": {}}
    assert "makegood run APP" in shop.call("agents").stderr
    assert "nobody leads" in shop.done("leader")
    assert shop.json("leader")["holder"] is None
    assert shop.json("alerts") == []
    assert shop.call("alerts").stderr == "no alerts\n"
    word = shop.call("alerts", "list")
    assert (
        word.exit_code,
        "'list' is not the number of an alert: `makegood alerts` alone lists them" in word.stderr,
    ) == (2, True)


def test_agents_shows_a_queue_whose_agent_no_process_has_ever_run(shop: Shop) -> None:
    """A scheduler alone: what it asks of agents waits, and stands out with no process beside it."""
    shop.serve("scheduler")
    shop.done("task", "submit", "kiosk:buy", '{"id": "w"}')
    while not shop.json("agents")["waiting"]:
        pass
    assert shop.json("agents")["waiting"] == {"kiosk/stock": 1}
    lines = [line.split() for line in shop.done("agents").splitlines()]
    assert ["kiosk/stock", "none", *"-" * 6, "1"] in lines
