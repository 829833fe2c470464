#!/bin/sh
# SQLite, file opened with `mode=ro&readonly_shm=1` beside one live, healthy writer that commits without a pause: a plain SELECT
# fails now and then with "attempt to write a readonly database" (SQLITE_READONLY_RECOVERY, 264), though nothing is to be
# recovered, and no busy timeout helps. A later SELECT on a new connection succeeds. Opened with `mode=ro` alone, all succeed.
# Seen with SQLite 3.54.1 (apsw 3.54.1.0) and 3.40.1, Python 3.11.7, Linux, 2026-11-29. Output (the first number varies):
#   SQLite 3.54.1
#   readonly_shm=1: 499 of 20000 failed: ReadOnlyError 264 attempt to write a readonly database; after each a later read succeeded
#   without: 0 of 20000 failed
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/reads.py" <<'PYTHON'
import os
import sys

import apsw

READS = 20_000
path = os.path.join(sys.argv[1], "a.db")


def connect(options):
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"file:{path}?{options}", flags=flags)


def read(options):
    database = connect(options)
    database.set_busy_timeout(5000)
    try:
        return list(database.execute("select count(*) > 0 from sqlite_schema"))
    finally:
        database.close()


writer = apsw.Connection(path)
writer.execute("pragma journal_mode = wal; pragma synchronous = off; create table t (x)")
writer.close()
child = os.fork()
if not child:
    writer = apsw.Connection(path)
    writer.set_busy_timeout(5000)
    writer.execute("pragma synchronous = off; create table if not exists u (x); insert into u values (0)")
    while True:
        writer.execute("update u set x = x + 1")

print("SQLite", apsw.sqlite_lib_version())
try:
    while not os.path.exists(path + "-wal"):
        pass
    failures = set()
    count = 0
    for _ in range(READS):
        try:
            read("mode=ro&readonly_shm=1")
        except apsw.Error as failure:
            count += 1
            failures.add(f"{type(failure).__name__} {failure.extendedresult} {failure}")
            for _ in range(20):
                try:
                    read("mode=ro&readonly_shm=1")
                    break
                except apsw.ReadOnlyError:
                    pass
            else:
                raise
    print(f"readonly_shm=1: {count} of {READS} failed: {', '.join(failures)}; after each a later read succeeded")
    for _ in range(READS):
        read("mode=ro")
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the writer has ended"
    print(f"without: 0 of {READS} failed")
finally:
    os.kill(child, 9)
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check apsw==3.54.1.0
result=$("$folder/venv/bin/python" "$folder/reads.py" "$folder")
printf '%s\n' "$result"
case $result in *"readonly_shm=1: 0 of"*) exit 1 ;; esac
case $result in *"failed: ReadOnlyError 264 attempt to write a readonly database; after each a later read succeeded"*"without: 0 of 20000 failed"*) ;; *) exit 1 ;; esac
