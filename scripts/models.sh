#!/usr/bin/env bash
# Searches the protocol models of models/ with spin, after seeing to it that spin and gcc are there. Arguments: those of
# scripts/models.py. It asks nothing; without spin and without a way to install it, it says so and fails.
# With --ready it only sees to the programs, and does not fail without them: `make proof` then skips the models, aloud.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'makegood: %s\n' "$*" >&2; }

there() { command -v spin >/dev/null && command -v gcc >/dev/null; }

# Shows what a command said only when it failed.
quietly() {
    local said
    said=$("$@" 2>&1 </dev/null) || { printf '%s\n' "$said" >&2; return 1; }
}

install_packages() {
    local root=("$@") wanted=() install=(apt-get install -y -qq --no-install-recommends)
    command -v apt-get >/dev/null || { say "there is no apt-get on this machine"; return 1; }
    command -v spin >/dev/null || wanted+=(spin)
    command -v gcc >/dev/null || wanted+=(gcc libc6-dev)
    say "installing Debian's ${wanted[*]} for the protocol models"
    quietly "${root[@]}" apt-get update -qq || return 1
    quietly "${root[@]}" DEBIAN_FRONTEND=noninteractive "${install[@]}" "${wanted[@]}"
}

if ! there; then
    if [ "$(id -u)" = 0 ]; then
        install_packages env || true
    elif sudo -n true 2>/dev/null; then
        install_packages sudo -n env || true
    fi
    there || {
        say "the models were NOT checked: spin (6.5 or later) and gcc are needed; run once: sudo apt-get install -y spin gcc"
        say "elsewhere: build spin from https://spinroot.com and put it on PATH"
        [ "${1:-}" = --ready ] && exit 0
        exit 1
    }
fi
[ "${1:-}" = --ready ] && exit 0
exec .venv/bin/python scripts/models.py "$@"
