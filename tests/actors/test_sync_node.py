"""A node for blocking code: started and stopped by the hooks of a server, asked how it is from any thread."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.node.sync import SyncNode
from makegood.options import Options
from tests.actors.noop_apps import chain_app

QUICK = Options(
    poll_every="50ms", lease="10s", supervise_every="500ms", alerts_every=None, leaderless_after=None
)
ABSENT = "not started in this process, or stopped"


def made(folder: Path, **options: Any) -> tuple[SyncNode, Any]:
    """Return a node that is not started, and a workflow of its app."""
    app, chain = chain_app(1)
    return SyncNode(app, f"sqlite:///{folder / 'a.db'}", options=QUICK, **options), chain


def test_it_starts_and_stops_as_a_servers_hooks_want_it(tmp_path: Path) -> None:
    """Again and again, and a second stop does nothing."""
    node, chain = made(tmp_path, console="127.0.0.1:0")
    assert (node.dead(), node.unready(), node.leads(), node.console) == ("", ABSENT, None, "")
    node.stop()
    for _ in range(2):
        node.start()
        with pytest.raises(mg.ConfigError, match="runs already"):
            node.start()
        assert node.client.submit(chain, "a").result("120s") == "a"
        assert (node.dead(), node.unready()) == ("", "")
        assert node.leads() in (True, False)
        assert node.console.startswith("http://127.0.0.1:")
        with ThreadPoolExecutor(1) as other:
            assert other.submit(node.unready).result() == ""
        node.stop("the server ends")
        node.stop()
        assert (node.dead(), node.unready(), node.leads(), node.console) == ("", ABSENT, None, "")
        with pytest.raises(mg.ClosedError, match="not started"):
            node.client.find()
    assert node.supervise_once(120.0) is not None


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("no database at all, but a file of text" * 100, encoding="utf-8")
    node, _ = made(tmp_path)
    with pytest.raises(mg.MakegoodError):
        node.start()
    assert node.unready() == ABSENT
    with pytest.raises(mg.MakegoodError), node:
        pytest.fail("it started")


def test_what_an_actor_died_of_is_raised_at_the_end_as_by_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = made(tmp_path)

    death = threading.Event()

    async def die(_: object) -> None:
        death.set()
        raise LookupError("a defect")

    monkeypatch.setattr("makegood.supervisor.janitor.Janitor.run", die)
    node.__enter__()
    assert death.wait(120)
    node.client.find()  # the node's loop has taken up something else
    assert "janitor has ended" in node.dead()
    with pytest.raises(LookupError, match="a defect"):
        node.__exit__(None, None, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_worker_starts_a_node_of_its_own(tmp_path: Path) -> None:
    """As gunicorn's workers do; that of the parent is not theirs."""
    node, chain = made(tmp_path)
    with node:
        pid = os.fork()
        if pid == 0:
            try:
                assert node.unready() == ABSENT
                node.start()
                assert node.client.submit(chain, "child").result("120s") == "child"
                node.stop()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert node.client.submit(chain, "parent").result("120s") == "parent"
