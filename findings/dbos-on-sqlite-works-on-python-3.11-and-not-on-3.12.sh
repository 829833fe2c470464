#!/bin/sh
# DBOS 3.4.0 on one machine with one SQLite (3.40.1, as in Debian 12): a workflow works on Python 3.11, and on Python
# 3.12 DBOS.launch() fails, because DBOS stamps rows by unixepoch('subsec') from Python 3.12 on, whatever the SQLite.
# Before SQLite 3.42 that modifier is unknown, and the function answers NULL.
# Seen with dbos 3.4.0, Python 3.11.7 and 3.12.1, SQLite 3.40.1, 2026-11-28. Output:
#   Python 3.11, SQLite 3.40.1: result 1
#   Python 3.12, SQLite 3.40.1: IntegrityError: NOT NULL constraint failed: application_versions.version_timestamp
# Needs python3.11 and python3.12 (or pyenv's) with a SQLite before 3.42; exit 77 where there is none.
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/flow.py" <<'PYTHON'
import logging, sqlite3, sys, tempfile
from dbos import DBOS

DBOS(config={"name": "peer", "log_level": "CRITICAL", "system_database_url": f"sqlite:///{tempfile.mkdtemp(dir=sys.argv[1])}/s.db"})

@DBOS.step()
def one():
    return 1

@DBOS.workflow()
def flow():
    return one()

place = f"Python {sys.version_info[0]}.{sys.version_info[1]}, SQLite {sqlite3.sqlite_version}"
logging.disable()
try:
    DBOS.launch()
    print(f"{place}: result {flow()}")
except Exception as fault:
    print(f"{place}: {type(fault).__name__}: {str(getattr(fault, 'orig', fault))}")
DBOS.destroy()
PYTHON
run() {
    python=$(command -v "python$1" || true)
    for each in "$python" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
        if [ -x "$each" ] && "$each" -c 'import sqlite3, sys; sys.exit(sqlite3.sqlite_version_info >= (3, 42))' 2>/dev/null; then
            "$each" -m venv "$folder/$1"
            "$folder/$1/bin/pip" install --quiet --disable-pip-version-check dbos==3.4.0
            "$folder/$1/bin/python" "$folder/flow.py" "$folder" 2>/dev/null | tail -1
            return
        fi
    done
    echo "no Python $1 with a SQLite before 3.42 on this machine" >&2
    exit 77
}
old=$(run 3.11)
new=$(run 3.12)
printf '%s\n' "$old" "$new"
case $old in *"result 1") ;; *) exit 1 ;; esac
case $new in *"NOT NULL constraint failed: application_versions.version_timestamp"*) ;; *) exit 1 ;; esac
