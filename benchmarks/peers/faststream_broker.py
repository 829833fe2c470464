"""FastStream as a reader from a broker: acknowledged by hand, after the handler has written its row.

``python -m benchmarks.peers.faststream_broker work``, or ``publish FIRST COUNT``.
"""

import asyncio
import os
import sys
from typing import Any

from faststream import AckPolicy, FastStream

from benchmarks.peers.books import write

URL, QUEUE, AGAIN = os.environ["BENCH_URL"], os.environ["BENCH_QUEUE"], float(os.environ["BENCH_AGAIN"])
PREFETCH = 10
MANUAL: Any = {"ack_policy": AckPolicy.MANUAL}
broker: Any
more: dict[str, Any] = {}

if URL.startswith("amqp"):
    from faststream.rabbit import Channel, RabbitBroker, RabbitQueue
    from faststream.rabbit.annotations import RabbitMessage as Message

    broker = RabbitBroker(URL, logger=None, default_channel=Channel(prefetch_count=PREFETCH))
    subscribers = [broker.subscriber(RabbitQueue(QUEUE, durable=True), **MANUAL)]
    more = {"persist": True, "mandatory": True, "queue": QUEUE}
elif URL.startswith("redis"):
    from faststream.redis import RedisBroker, StreamSub
    from faststream.redis.annotations import RedisStreamMessage as Message
    from redis.asyncio import Redis
    from redis.exceptions import ResponseError

    broker = RedisBroker(URL, logger=None)
    # Of a group's reader and of one that claims what a dead one had taken, each has its own subscriber.
    subscribers = [
        broker.subscriber(
            stream=StreamSub(QUEUE, group="shop", consumer="one", max_records=PREFETCH), **MANUAL
        ),
        broker.subscriber(
            stream=StreamSub(QUEUE, group="shop", consumer="two", min_idle_time=int(AGAIN * 1000)), **MANUAL
        ),
    ]
    more = {"stream": QUEUE}
else:
    from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub
    from faststream.nats.annotations import NatsMessage as Message
    from nats import connect

    broker = NatsBroker(URL, logger=None)
    subscribers = [
        broker.subscriber(
            QUEUE,
            stream=JStream(QUEUE, subjects=[QUEUE]),
            durable="shop",
            pull_sub=PullSub(batch_size=PREFETCH, timeout=0.5),
            config=ConsumerConfig(ack_wait=AGAIN, max_deliver=-1),
            **MANUAL,
        )
    ]
    more = {"subject": QUEUE, "stream": QUEUE}


async def accept(order: dict[str, Any], message: Message) -> None:
    """Make a message durable, then acknowledge it. The loop sends acknowledgements while a thread writes."""
    await asyncio.to_thread(write, order["n"])
    await message.ack()


for subscriber in subscribers:
    subscriber(accept)


async def publish(first: int, count: int) -> None:
    """Publish messages, each confirmed by the broker."""
    text = "x" * int(os.environ["BENCH_BYTES"])
    await broker.connect()
    if URL.startswith("amqp"):
        await broker.declare_queue(RabbitQueue(QUEUE, durable=True))
    elif URL.startswith("redis"):
        await group_made()
    else:
        client = await connect(URL)
        await client.jetstream().add_stream(name=QUEUE, subjects=[QUEUE])
        await client.close()
    for number in range(first, first + count):
        await broker.publish({"n": number, "text": text}, **more)
    await broker.stop()


async def group_made() -> None:
    """Make the stream's group, which must begin before the first message."""
    client = Redis.from_url(URL)
    try:
        await client.xgroup_create(QUEUE, "shop", id="0", mkstream=True)
    except ResponseError:  # it is there
        pass
    finally:
        await client.aclose()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        asyncio.run(FastStream(broker).run())
    else:
        asyncio.run(publish(*map(int, sys.argv[2:])))
