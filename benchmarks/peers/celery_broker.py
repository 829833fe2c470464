"""Celery as a reader from a broker, set up as its documents advise against loss: late acknowledgement, rejection when a worker is lost,
one message prefetched for each of two processes.

``python -m benchmarks.peers.celery_broker FIRST COUNT`` publishes; the worker is Celery's own.
"""

import os
import sys

from celery import Celery

from benchmarks.peers.books import write

URL, QUEUE, AGAIN = os.environ["BENCH_URL"], os.environ["BENCH_QUEUE"], float(os.environ["BENCH_AGAIN"])

app = Celery("bench", broker=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_default_queue=QUEUE,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    # Redis returns what a dead worker had taken after this time, an hour by default.
    broker_transport_options={"visibility_timeout": AGAIN}
    if URL.startswith("redis")
    else {"confirm_publish": True},
)


@app.task(name="accept")
def accept(order: dict[str, object]) -> None:
    """Make a message durable."""
    write(int(str(order["n"])))


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    text = "x" * int(os.environ["BENCH_BYTES"])
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(first, first + count):
            accept.apply_async(({"n": number, "text": text},), producer=producer)
