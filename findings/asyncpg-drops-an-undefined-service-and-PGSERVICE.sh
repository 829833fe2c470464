#!/bin/sh
# asyncpg 0.32.0 connects to another server than the one named, without an error, where libpq refuses or follows:
#   1. PGSERVICE has no effect: it is read after the service file was looked up. libpq uses the service.
#   2. postgresql://?service=NAME with a NAME that no file defines connects to the default server. libpq: "definition
#      of service "NAME" not found".
# Seen with asyncpg 0.32.0 and psycopg 3.3.9 (libpq 18) on Python 3.11, 2026-11-28. Nothing but two listening
# sockets is needed: the script looks which of them gets a connection. Output:
#   PGSERVICE=shop             asyncpg: default server      libpq: the service's
#   ?service=shopp (misspelt)  asyncpg: default server      libpq: definition of service "shopp" not found
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check asyncpg==0.32.0 'psycopg[binary]==3.3.9'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import asyncio, os, socket, sys, threading

import asyncpg, psycopg

folder = sys.argv[1]
reached = []

def listen(name):
    """Accept connections, note them, and hang up."""
    server = socket.create_server(("127.0.0.1", 0))
    def serve():
        while True:
            connection, _ = server.accept()
            reached.append(name)
            connection.close()
    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]

usual, shop = listen("default server"), listen("the service's")
with open(f"{folder}/services", "w") as file:
    file.write(f"[shop]\nhost=127.0.0.1\nport={shop}\nuser=me\ndbname=shop\n")
os.environ.update(PGSERVICEFILE=f"{folder}/services", PGHOST="127.0.0.1", PGPORT=str(usual), PGUSER="me", PGSSLMODE="disable", PGGSSENCMODE="disable")

def by(connect):
    reached.clear()
    try:
        connect()
    except Exception as fault:
        text = str(fault)
        if "definition of service" in text:
            return text[text.index("definition of service"):].strip()
    return reached[0] if reached else "nobody"

def asyncpg_to(url):
    return by(lambda: asyncio.run(asyncpg.connect(url, timeout=5)))

def libpq_to(url):
    return by(lambda: psycopg.connect(url, connect_timeout=5))

misspelt = "postgresql://?service=shopp"
seen = {"?service=shopp (misspelt)": (asyncpg_to(misspelt), libpq_to(misspelt))}
os.environ["PGSERVICE"] = "shop"
seen["PGSERVICE=shop"] = (asyncpg_to("postgresql://"), libpq_to("postgresql://"))
for what, (ours, theirs) in seen.items():
    print(f"{what:26} asyncpg: {ours:20} libpq: {theirs}")
assert seen["?service=shopp (misspelt)"] == ("default server", 'definition of service "shopp" not found'), seen
assert seen["PGSERVICE=shop"] == ("default server", "the service's"), seen
PYTHON
