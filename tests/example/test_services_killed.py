"""SIGKILL of the services in the middle of their work leaves books in which every answer that was given stands."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from examples.orders.remote import Unanswered
from examples.orders.world import PACKAGE, Services
from tests.example.caller import Caller, entries
from tests.example.starter import assert_gone_with_starter

CHARGE = "payments/charge"


def charge_until_silence(thread: int, answers: dict[str, str], enough: threading.Semaphore) -> None:
    """Charge under one key after the other until the services are gone; note each answer that came."""
    for number in range(10_000):
        key = f"{thread}-{number}"
        try:
            answers[key] = Caller(key, token="1.1", scope=key).ask(CHARGE, key).id
        except Unanswered:
            answers[key] = ""
            return
        enough.release()
    raise AssertionError("the services were never killed")


def test_killed_under_load_no_answer_is_lost_and_no_effect_is_doubled(services: Services) -> None:
    answers: dict[str, str] = {}
    for start in range(3):
        enough = threading.Semaphore(0)
        with ThreadPoolExecutor(8) as pool:
            callers = [
                pool.submit(charge_until_silence, 8 * start + thread, answers, enough) for thread in range(8)
            ]
            for _ in range(40):
                assert enough.acquire(timeout=120)
            services.kill()
            for caller in callers:
                caller.result()
        services.start()
    with closing(sqlite3.connect(services.books)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        bodies = dict(db.execute("SELECT key, body FROM answer"))
    keys = [key for _, _, key, _ in entries(services.books)]
    assert len(keys) == len(set(keys))
    assert set(keys) == set(bodies), "an effect without its answer, or an answer without its effect"
    assert {key for key, answer in answers.items() if answer} <= set(keys)
    for key, answer in answers.items():
        again = Caller(key, token="1.1", scope=key).ask(CHARGE, key).id
        assert answer in ("", again)
    assert len(entries(services.books)) == len(answers)


def test_the_services_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    """However the starter goes, no services stay behind: here it kills itself without a word."""
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        f"from {PACKAGE}.world import start_services\n"
        "services = start_services(Path(sys.argv[1]))\n"
        "print(services.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert_gone_with_starter(program, str(tmp_path / "books.db"))
