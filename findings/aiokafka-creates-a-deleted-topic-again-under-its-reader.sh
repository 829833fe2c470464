#!/bin/sh
# aiokafka 0.14: each of its look-ups of topics says that the broker may create those that are missing, and no option changes it.
# So a topic that is deleted while a consumer reads it comes back empty, where the broker creates topics by itself.
# Seen with aiokafka 0.14.0 and the mock cluster of confluent-kafka 2.16.1, Python 3.11.7, 2026-11-29. Output:
#   after the deletion, a consumer of aiokafka reading: ['orders']
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/topics.py" <<'PYTHON'
import asyncio
import ctypes
from pathlib import Path

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient

[path] = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*.so*")
library = ctypes.CDLL(str(path))
for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
    getattr(library, name).restype = ctypes.c_void_p
library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
problem = ctypes.create_string_buffer(512)
client = ctypes.c_void_p(library.rd_kafka_new(0, ctypes.c_void_p(library.rd_kafka_conf_new()), problem, 512))
cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
servers = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()


async def main():
    library.rd_kafka_mock_topic_create(cluster, b"orders", 2, 1)
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=servers, metadata_max_age_ms=500)
    await consumer.start()
    library.rd_kafka_mock_topic_delete(cluster, b"orders")
    await asyncio.sleep(3)
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
    print("after the deletion, a consumer of aiokafka reading:", sorted(topics))
    await consumer.stop()


asyncio.run(main())
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aiokafka==0.14.0 confluent-kafka==2.16.1
seen=$("$folder/venv/bin/python" "$folder/topics.py" 2>/dev/null)
printf '%s\n' "$seen"
[ "$seen" = "after the deletion, a consumer of aiokafka reading: ['orders']" ] || exit 1
