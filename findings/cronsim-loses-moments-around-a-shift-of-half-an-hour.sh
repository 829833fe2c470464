#!/bin/sh
# cronsim 2.8 in Australia/Lord_Howe, whose clocks change by half an hour: `*/15 0 * * *` has four moments each night, and
# loses two of them in the night after each change, though no clock skips or repeats anything between 00:00 and 01:00.
# In Europe/Berlin, whose clocks change by an hour, the same text keeps its four.
# Seen with cronsim 2.8, tzdata 2026.3, Python 3.11.7, 2026-11-29. Output:
#   Australia/Lord_Howe: nights with other than four moments: 2026-04-06 2, 2026-10-05 2
#   Europe/Berlin: nights with other than four moments: none
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/nights.py" <<'PYTHON'
import sys
from collections import Counter
from datetime import datetime
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim

name = sys.argv[1]
zone = ZoneInfo(name)
moments = takewhile(lambda at: at.year == 2026, CronSim("*/15 0 * * *", datetime(2026, 1, 1, 12, tzinfo=zone)))
nights = Counter(at.date().isoformat() for at in moments)
odd = ", ".join(f"{night} {count}" for night, count in sorted(nights.items()) if count != 4)
print(f"{name}: nights with other than four moments: {odd or 'none'}")
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cronsim==2.8 tzdata==2026.3
half=$("$folder/venv/bin/python" "$folder/nights.py" Australia/Lord_Howe)
whole=$("$folder/venv/bin/python" "$folder/nights.py" Europe/Berlin)
printf '%s\n' "$half" "$whole"
[ "$half" = "Australia/Lord_Howe: nights with other than four moments: 2026-04-06 2, 2026-10-05 2" ] || exit 1
[ "$whole" = "Europe/Berlin: nights with other than four moments: none" ] || exit 1
