#!/bin/sh
# DBOS 3.4.0 starts queued workflows first in, first out, says its documentation. On SQLite and Python 3.11 a partition
# with partition_concurrency=1 starts those that were enqueued within one second in any order: DBOS stamps them by whole
# seconds there, and the next one of a partition is, of equal stamps, the one with the least workflow id, which is random.
# A queue without partitions, under concurrency=1, keeps the order.
# Seen with dbos 3.4.0, Python 3.11.7, SQLite 3.40.1, 2026-11-30. Output:
#   without partitions: in order
#   one partition: in another order, stamps of whole seconds: True
# Needs python3.11 (or pyenv's); exit 77 where there is none. Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=
for each in "$(command -v python3.11 || true)" "$HOME"/.pyenv/versions/3.11.*/bin/python; do
    if [ -x "$each" ] && "$each" -c 'import sqlite3' 2>/dev/null; then python=$each; break; fi
done
[ -n "$python" ] || { echo "no Python 3.11 on this machine" >&2; exit 77; }
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dbos==3.4.0
cat > "$folder/queues.py" <<'PYTHON'
import contextlib, logging, sqlite3, sys
from dbos import DBOS, SetEnqueueOptions

path, starts = f"{sys.argv[1]}/{sys.argv[2]}.db", []
partitioned = sys.argv[2] == "partition"

@DBOS.workflow()
def order(number: int) -> None:
    starts.append(number)

logging.disable()
DBOS(config={"name": "peer", "log_level": "CRITICAL", "system_database_url": f"sqlite:///{path}"})
DBOS.launch()
limit = {"partition_concurrency" if partitioned else "concurrency": 1}
DBOS.register_queue("orders", polling_interval_sec=0.05, **limit)
handles = []
for number in range(20):
    with SetEnqueueOptions(queue_partition_key="ada") if partitioned else contextlib.nullcontext():
        handles.append(DBOS.enqueue_workflow("orders", order, number))
for handle in handles:
    handle.get_result()
DBOS.destroy()
stamps = [stamp for (stamp,) in sqlite3.connect(path).execute("select created_at from workflow_status")]
print(f"{'in order' if starts == sorted(starts) else 'in another order'}, stamps of whole seconds: {all(stamp % 1000 == 0 for stamp in stamps)}")
PYTHON
plain=$("$folder/venv/bin/python" "$folder/queues.py" "$folder" plain 2>/dev/null | tail -1)
one=$("$folder/venv/bin/python" "$folder/queues.py" "$folder" partition 2>/dev/null | tail -1)
echo "without partitions: ${plain%%,*}"
echo "one partition: $one"
[ "${plain%%,*}" = "in order" ] && [ "$one" = "in another order, stamps of whole seconds: True" ]
