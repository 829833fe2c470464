#!/bin/sh
# RabbitMQ confirms messages of a quorum queue that a kill of its only node then loses, if the queue is a few seconds old.
# 4.3.6: the queue is there again, without them. 3.10.8: it elects no leader any more, and nothing can be read.
# A queue that was declared six seconds before the kill has them all. Classic queues do not do it.
# Seen by this script with rabbitmq-server 3.10.8 (Debian 12), in one run, and with 4.3.6 (Debian sid) in one run of a test like it; aiormq 7.2.4, 2026-11-29.
# Needs Debian's rabbitmq-server and epmd, and root or any user. Output:
#   age 0 s: confirmed 50, there after the kill: 0 (or: no answer)
#   age 6 s: confirmed 50, there after the kill: 50
# Exit 0: still so. Exit 1: it has changed.
set -eu
folder=$(mktemp -d)
server= epmd=
trap 'kill -9 $server $epmd 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aiormq==7.2.4
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf 'listeners.tcp.1 = 127.0.0.1:%s\n' "$port" >"$folder/rabbitmq.conf"
: >"$folder/plugins"
export HOME="$folder" ERL_EPMD_PORT=$((port - 20000)) ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_NODENAME="finding$port@localhost"
export RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE="$folder/rabbitmq.conf" RABBITMQ_MNESIA_BASE="$folder/data"
export RABBITMQ_LOG_BASE="$folder/log" RABBITMQ_DIST_PORT=$((port - 20001)) RABBITMQ_ENABLED_PLUGINS_FILE="$folder/plugins"
export RUNNING_UNDER_SYSTEMD=true
epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" & epmd=$!
start() { /usr/lib/rabbitmq/bin/rabbitmq-server >>"$folder/output" 2>&1 & server=$!; }
cat >"$folder/client.py" <<'PYTHON'
import asyncio, sys, aiormq

async def connect(url):
    for _ in range(300):
        try:
            return await aiormq.connect(url)
        except OSError:
            await asyncio.sleep(0.2)
    raise SystemExit("RabbitMQ did not start")

async def main(port, step, age):
    connection = await connect(f"amqp://guest:guest@127.0.0.1:{port}/")
    channel, queue = await connection.channel(), f"age-{age}"
    if step == "publish":
        await channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        await asyncio.sleep(int(age))
        for n in range(50):
            properties = aiormq.spec.Basic.Properties(delivery_mode=2, message_id=str(n))
            await channel.basic_publish(b"x", routing_key=queue, mandatory=True, properties=properties)
        print("confirmed 50", flush=True)
        return
    count = 0
    try:
        async with asyncio.timeout(30):
            await asyncio.sleep(5)
            while (await channel.basic_get(queue, no_ack=True)).delivery.name == "Basic.GetOk":
                count += 1
    except (TimeoutError, asyncio.CancelledError):
        count = -1
    print(count)

asyncio.run(main(*sys.argv[1:]))
PYTHON
changed=0
for age in 0 6; do
    start
    "$folder/venv/bin/python" "$folder/client.py" "$port" publish "$age" >/dev/null 2>&1
    kill -9 $server; wait $server 2>/dev/null || true
    start
    there=$("$folder/venv/bin/python" "$folder/client.py" "$port" read "$age" 2>/dev/null | tail -n 1)
    kill -9 $server; wait $server 2>/dev/null || true
    case $there in -1) text="no answer" ;; *) text=$there ;; esac
    echo "age $age s: confirmed 50, there after the kill: $text"
    case $age:$there in 0:0 | 0:-1 | 6:50) ;; *) changed=1 ;; esac
done
exit $changed
