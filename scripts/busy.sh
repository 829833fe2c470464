#!/usr/bin/env bash
# Runs a command beside busy loops: no test may need an idle machine. `scripts/busy.sh 4 pytest tests/actors`: four of them.
# They end with the command, whatever becomes of it; its exit code is the script's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ! ${1:-} =~ ^[0-9]+$ || $# -lt 2 ]]; then
    echo 'makegood: scripts/busy.sh NUMBER COMMAND...' >&2
    exit 2
fi

loops=()
ended() { [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null || true; }
trap ended EXIT
trap 'exit 130' INT TERM
for ((n = 0; n < $1; n++)); do
    # A loop ends by itself when this script was killed and could not end it.
    (while kill -0 $$; do for ((i = 0; i < 100000; i++)); do :; done; done) &
    loops+=($!)
done
shift
code=0
"$@" || code=$?
exit "$code"
