"""The blocking facade: the work runs in the caller's thread, and the lease is given back only once it has returned."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry import context as otel

from makegood.election import Election, LeadershipLostError, SyncElection, SyncTerm, open_leases
from makegood.errors import ConfigError, StoreUnavailableError

FAST = {"ttl": 0.6, "renew": 0.1, "timeout": 0.1}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file of leases."""
    return f"sqlite:///{tmp_path / 'leases.db'}"


@contextlib.contextmanager
def elected(url: str, me: str = "a") -> Iterator[SyncElection]:
    """A candidate on that file."""
    with Election.sync("lead", open_leases(url), me=me, **FAST) as election:
        yield election


def test_terms_one_after_another_with_rising_epochs_and_a_history(url: str) -> None:
    with elected(url) as election:
        epochs = []
        for term in election.terms():
            assert 0 < term.remaining() <= 0.6
            term.check()
            term.beat()
            epochs.append(term.epoch)
            if len(epochs) == 2:
                break
        assert epochs == [1, 2]
        assert [(t.epoch, t.holder, t.released) for t in election.history()] == [
            (2, "a", True),
            (1, "a", True),
        ]


def test_run_in_the_callers_thread_until_it_is_stopped(url: str) -> None:
    with elected(url) as election:
        threads: list[str] = []

        def lead(term: SyncTerm) -> None:
            threads.append(threading.current_thread().name)
            if term.epoch == 2:
                election.stop()

        election.run(lead)
        assert threads == [threading.current_thread().name] * 2


def test_a_lost_term_is_told_to_the_work_and_its_lease_stays_until_the_work_returns(url: str) -> None:
    with elected(url) as election:
        stepping = threading.Thread(target=election.step_down, args=(0,))
        for term in election.terms():
            stepping.start()
            assert term.lost.wait(60)
            with pytest.raises(LeadershipLostError):
                term.check()
            with elected(url, "b") as other:
                view = next(iter(other.watch()))
                assert (view.leader, view.epoch) == ("a", 1)
            assert stepping.is_alive()
            assert term.ending == "stepped down"
            break
        stepping.join(60)
        assert not stepping.is_alive()
        assert next(iter(election.watch())).leader is None


def test_an_error_of_the_work_comes_out_after_the_lease_was_given_back(url: str) -> None:
    def lead(term: SyncTerm) -> None:
        raise ValueError("broken")

    with elected(url) as election:
        with pytest.raises(ValueError, match="broken"):
            election.run(lead)
        assert election.history()[0].released


def test_guard_on_a_connection_of_the_same_file(url: str) -> None:
    with elected(url) as election:
        for term in election.terms():
            with (
                contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection,
                connection,
            ):
                connection.execute("create table if not exists work (epoch integer)")
                connection.execute("insert into work values (?)", (term.epoch,))
                term.guard(connection)
            break


def test_outside_of_with_it_says_how_it_is_used(url: str) -> None:
    with pytest.raises(ConfigError, match=r"with Election\.sync"):
        Election.sync("lead", open_leases(url)).stop()


def test_settings_that_are_not_sound_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must fit into"), Election.sync("lead", open_leases(url), renew=15):
        pass


def test_a_store_that_cannot_be_had_is_told_of() -> None:
    nowhere = open_leases("postgresql://nobody@127.0.0.1:1/none", timeout=1)
    with Election.sync("lead", nowhere) as election, pytest.raises(StoreUnavailableError):
        election.history()


def test_leaving_with_ends_what_goes_on_in_another_thread_before_the_lease_is_given_back(url: str) -> None:
    """Work that looks at ``lost`` stops, and run() returns; the next leader begins after that."""
    steps: list[str] = []

    def lead(term: SyncTerm) -> None:
        start.set()
        while not term.lost.wait(0.01):
            pass
        with pytest.raises(LeadershipLostError):
            term.check()
        with elected(url, "b") as other:
            steps.append(f"{next(iter(other.watch())).leader} has the lease")

    start = threading.Event()
    with contextlib.suppress(KeyError), elected(url) as election:
        running = threading.Thread(target=election.run, args=(lead,))
        watching = threading.Thread(target=lambda: steps.append(f"saw {len(list(election.watch()))}"))
        running.start()
        assert start.wait(60)
        watching.start()
        raise KeyError("the main thread")
    running.join(60)
    watching.join(60)
    assert not running.is_alive()
    assert not watching.is_alive()
    assert sorted(steps) in (["a has the lease", "saw 1"], ["a has the lease", "saw 0"])
    with elected(url, "b") as other:
        assert other.history()[0].released
    with pytest.raises(ConfigError, match="was left"):
        election.history()
    election.stop()


def test_leaving_with_waits_for_work_that_looks_at_nothing_until_the_deadline_and_renews_no_more(
    url: str,
) -> None:
    start, free = threading.Event(), threading.Event()

    def lead(term: SyncTerm) -> None:
        start.set()
        free.wait(60)
        ends.append(term.lost.is_set() and term.remaining() == 0)

    ends: list[bool] = []
    with elected(url) as election:
        running = threading.Thread(target=election.run, args=(lead,))
        running.start()
        assert start.wait(60)
    with elected(url, "b") as other:
        assert next(iter(other.terms())).epoch == 2
    free.set()
    running.join(60)
    assert (ends, running.is_alive()) == ([True], False)


def test_leaving_with_while_another_thread_contends_and_with_a_term_of_this_thread_in_hand(url: str) -> None:
    with elected(url, "b") as other:
        terms = other.terms()
        term = next(terms)
        with elected(url) as election:
            running = threading.Thread(target=election.run, args=(print,))
            running.start()
        running.join(60)
        assert not running.is_alive()
    assert term.lost.is_set()
    assert list(terms) == []
    with elected(url) as again:
        assert again.history()[0].released


def test_leaving_with_while_another_thread_is_just_about_to_contend(url: str) -> None:
    """Its call is heard only once all others have been ended: it begins nothing that nobody would end any more (a warning, and
    with warnings as errors a crash of the interpreter).
    """
    question, end = threading.Event(), threading.Event()
    with elected(url) as election:
        run = election._loop.run

        def slow(work: Callable[[], Coroutine[Any, Any, object]], instead: str) -> object:
            if work.__name__ == "begin":
                question.set()
                assert end.wait(60)
            try:
                return run(work, instead)
            finally:
                if work.__name__ == "_cancel_all":
                    end.set()

        election._loop.run = slow  # type: ignore[method-assign, assignment]
        running = threading.Thread(target=election.run, args=(print,))
        running.start()
        assert question.wait(60)
    running.join(60)
    assert not running.is_alive()


def test_work_that_stops_at_check_ends_its_term_and_the_next_one_begins(url: str) -> None:
    """As in ``Election``: what ``check`` raised does not come out of ``run``."""
    with elected(url) as election:
        epochs: list[int] = []

        def lead(term: SyncTerm) -> None:
            epochs.append(term.epoch)
            if term.epoch == 2:
                election.stop()
                return
            threading.Thread(target=election.step_down, args=(0,)).start()
            term.lost.wait(60)
            term.check()

        election.run(lead)
        assert epochs == [1, 2]


CHILD = """
import sys
from makegood.election import Election, open_leases

def lead(term):
    print("leads", term.epoch, flush=True)
    term.lost.wait(60)
    print("stopped", flush=True)

with Election.sync("lead", open_leases(sys.argv[1]), ttl=6) as election:
    election.run(lead)
print("given back", flush=True)
"""


def test_sigterm_steps_down_first(url: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, url], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "leads 1\n"
        child.send_signal(signal.SIGTERM)
        output = child.stdout.read()
    assert (child.returncode, output) == (0, "stopped\ngiven back\n")
    with elected(url, "b") as other:
        assert other.history()[0].released


def test_each_call_of_lead_runs_in_a_fresh_copy_of_the_context_of_run(url: str) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    contexts: list[str] = []
    with elected(url) as election:

        def lead(term: SyncTerm) -> None:
            contexts.append(f"{tenant.get()} {dict(baggage.get_all())}")
            tenant.set(f"term {term.epoch}")
            if term.epoch == 2:
                election.stop()

        tenant.set("program")
        token = otel.attach(baggage.set_baggage("started by", "deploy 7"))
        try:
            election.run(lead)
        finally:
            otel.detach(token)
    assert (contexts, tenant.get()) == (["program {}", "program {}"], "program")
