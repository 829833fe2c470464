"""The Celery app: a step that does nothing, one that fails, and the compensation of those before it, written by hand."""

import os
from typing import Any

from celery import Celery, chain, signature

_URL = f"redis://127.0.0.1:{os.environ.get('BENCH_REDIS_PORT', '6379')}"
app = Celery("bench", broker=f"{_URL}/0", backend=f"{_URL}/1")
app.conf.update(
    worker_hijack_root_logger=False,
    task_acks_late=os.environ.get("BENCH_LATE") == "1",
    result_expires=3600,
    broker_connection_retry_on_startup=True,
)


@app.task(name="step")
def step(number: int) -> int:
    """Do nothing."""
    return number


@app.task(name="fail")
def fail() -> None:
    """Fail for good."""
    raise ValueError("as it should")


@app.task(name="compensate")
def compensate(count: int, last: str) -> None:
    """Undo so many steps in reverse order; the id of the last of these tasks was chosen by who waits for it."""
    chain(*undos(count, last)).apply_async()


def undos(count: int, last: str) -> list[Any]:
    """Return the tasks that undo."""
    return [signature("step", (number,), immutable=True, app=app) for number in range(1, count)] + [
        signature("step", (0,), immutable=True, app=app).set(task_id=last)
    ]
