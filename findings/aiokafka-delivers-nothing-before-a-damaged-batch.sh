#!/bin/sh
# aiokafka 0.14: a batch with a wrong checksum hides the good batches before it that came with the same fetch. The first call raises,
# the second returns nothing and leaves the position before them, so the consumer fetches the same again, for as long as it runs.
# (Fetched one by one, with max_partition_fetch_bytes=1, they are delivered.)
# Seen with aiokafka 0.14.0, Python 3.11.7, 2026-11-29. Output:
#   first: CorruptRecordException
#   second: [] position 0
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/batches.py" <<'PYTHON'
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords, READ_COMMITTED
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

def batch(first, count):
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, 0, 10_000)
    for n in range(count):
        builder.append(n, 1000, None, b"order %d" % (first + n), [])
    data = bytearray(builder.build())
    data[0:8] = first.to_bytes(8)   # the broker fills in the offset; the checksum does not cover it
    return data

class State:
    paused = False
    position = 0
    def consumed_to(self, position): self.position = position
class Assignment:
    active = True
    state = State()
    def state_value(self, tp): return self.state

good, bad = batch(0, 3), batch(3, 1)
bad[-1] ^= 1
tp = TopicPartition("orders", 0)
records = PartitionRecords(tp, MemoryRecords(bytes(good + bad)), [], 0, None, None, True, READ_COMMITTED)
result = FetchResult(tp, assignment=Assignment(), partition_records=records, backoff=0)
try:
    print("first:", result.getall())
except Exception as error:
    print("first:", type(error).__name__)
print("second:", result.getall(), "position", Assignment.state.position)
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aiokafka==0.14.0
seen=$("$folder/venv/bin/python" "$folder/batches.py")
printf '%s\n' "$seen"
[ "$seen" = "first: CorruptRecordException
second: [] position 0" ] || exit 1
