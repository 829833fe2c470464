#!/usr/bin/env bash
# Sees to it that there is a Chromium for the tests that drive the console's pages. It starts nothing and asks nothing.
#
# Taken in this order: MAKEGOOD_CHROMIUM; chromium in PATH; for root, Debian's package.
set -euo pipefail

say() { printf 'makegood: %s\n' "$*" >&2; }

there() { [ -x "${MAKEGOOD_CHROMIUM:-}" ] || command -v chromium >/dev/null; }

# Shows what a command said only when it failed.
quietly() {
    local said
    said=$("$@" 2>&1 </dev/null) || { printf '%s\n' "$said" >&2; return 1; }
}

install_package() {
    local root=("$@")
    command -v apt-get >/dev/null || return 1
    say "installing Debian's chromium for the tests of the console"
    quietly "${root[@]}" apt-get update -qq || return 1
    quietly "${root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
}

there && exit 0
if [ "$(id -u)" = 0 ]; then
    install_package env && there && exit 0
else
    sudo -n true 2>/dev/null && install_package sudo -n env && there && exit 0
fi
say "no Chromium found; run once: sudo apt-get install -y chromium, or set MAKEGOOD_CHROMIUM"
# Outside CI the tests go on without it and say so; in CI it is a failure.
[ "${CI:-}" != true ]
