#!/usr/bin/env bash
# Makes .venv: the locked packages and makegood itself, editable. Started by `make`; a second start does nothing.
#
# It wants only a python3 (3.11 or newer) and works round what a bare Debian lacks: a system python that refuses
# to be installed into (PEP 668), and a python without ensurepip (no python3-venv package).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'makegood: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

venv=.venv
stamp=$venv/.made-from

new_enough() { "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; }

# The newest python found wins nothing: `python3` is taken when it will do, for that is the one people mean.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.15 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    local found="none"
    if command -v "${PYTHON:-python3}" >/dev/null; then
        found=$("${PYTHON:-python3}" --version 2>&1)
    fi
    die "needs Python 3.11 or newer; found: $found. Install one (Debian: apt-get install python3) or name it: make PYTHON=/path/to/python3"
}

make_venv() {
    local python=$1
    rm -rf "$venv"
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv "$venv"
        return
    fi
    # Debian without python3-venv. Installing into a folder of our own is not barred by PEP 668.
    if "$python" -m pip --version >/dev/null 2>&1; then
        say "this python has no ensurepip; making the environment with virtualenv"
        "$python" -m pip install -qq --target .bootstrap virtualenv
        PYTHONPATH=.bootstrap "$python" -m virtualenv --quiet "$venv"
        return
    fi
    local root=()
    if [ "$(id -u)" != 0 ]; then
        if sudo -n true 2>/dev/null; then
            root=(sudo -n)
        else
            die "this python has neither venv nor pip. Run once: sudo apt-get install -y python3-venv"
        fi
    fi
    command -v apt-get >/dev/null || die "this python has neither venv nor pip; install its venv and ensurepip modules"
    say "this python has neither venv nor pip; installing python3-venv"
    "${root[@]}" apt-get update -qq </dev/null
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv \
        </dev/null >/dev/null
    "$python" -m venv "$venv"
}

fingerprint() { cat pyproject.toml requirements.lock scripts/environment.sh | sha256sum | cut -d' ' -f1; }

wanted=$(fingerprint)
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

if ! { [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    python=$(find_python)
    say "making $venv with $("$python" --version)"
    make_venv "$python"
fi
say "installing the locked packages"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
# The wheel carries the example, an editable one a copy of it that would grow old; the checkout's own is used.
rm -rf "$venv"/lib/python*/site-packages/makegood
printf '%s\n' "$wanted" >"$stamp"
say "$venv is ready"
