"""A stub of Azure Service Bus, for azure-servicebus: what the client asks of the service, by AMQP 1.0.

Run by the system's Python, which has Debian's python3-qpid-proton; nothing of makegood is imported::

    /usr/bin/python3 service_bus_stub.py AMQP_PORT CONTROL_PORT

It proves makegood's calls, not Azure's service. It has queues, subscriptions of topics, sessions, peek-lock
with expiring locks and delivery counts, renewals, dead letters, duplicate detection; and faults: a clock that
differs, detached links, lost connections, refused tokens. A line of JSON on the control port does what a
rig needs, and is answered by a line.
"""

# mypy: ignore-errors

import base64
import collections
import json
import socketserver
import sys
import threading
import time
import uuid

from proton import Condition, Data, Delivery, Endpoint, Message, symbol, timestamp, ulong
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

SESSION_FILTER = "com.microsoft:session-filter"
DEAD = "/$deadletterqueue"
EPOCH_TICKS = 621_355_968_000_000_000


class Entity:
    """A queue or a subscription."""

    def __init__(self, name, lock=30.0, most=10, sessions=False, duplicates=False):
        self.name, self.lock, self.most = name, lock, most
        self.sessions, self.duplicates = sessions, duplicates
        self.waiting = collections.deque()
        self.locked = {}  # token: (message, deadline, link)
        self.known = set()
        self.session_links = {}  # session: link


def path(address):
    """The entity of an address, which may be a whole URL."""
    text = address or ""
    return (text.split("/", 3)[-1] if "://" in text else text).lower()


class Stub(MessagingHandler):
    """The service."""

    def __init__(self, port, injector):
        super().__init__(auto_accept=False, auto_settle=False, prefetch=0)
        # proton's own handler opens each link once more after on_link_opening: none could be refused, or left to wait.
        self.handlers[0].on_link_remote_open = self.on_link_remotely_open
        self.port, self.injector = port, injector
        self.entities, self.topics = {}, collections.defaultdict(list)
        self.receivers, self.wanting = [], []
        self.connections = set()
        self.sessions_of = {}
        self.ahead, self.denied, self.sequence, self.silent = 0.0, False, 0, False

    def now(self):
        """The service's clock."""
        return time.time() + self.ahead

    def on_start(self, event):
        self.container = event.container
        event.container.selectable(self.injector)
        event.container.listen(f"127.0.0.1:{self.port}")
        event.container.schedule(0.05, self)
        print("up", flush=True)

    def on_timer_task(self, event):
        now = time.monotonic()
        for entity in list(self.entities.values()):
            for token, (_, deadline, _) in list(entity.locked.items()):
                if deadline <= now:
                    self.back(entity, token)
        self.pump()
        self.container.schedule(0.05, self)

    # -- links

    def on_connection_opening(self, event):
        self.connections.add(event.connection)

    def on_disconnected(self, event):
        self.connections.discard(event.connection)
        self.receivers = [link for link in self.receivers if link.connection != event.connection]
        self.wanting = [link for link in self.wanting if link.connection != event.connection]

    def on_link_remotely_open(self, event):
        link = event.link
        address = link.remote_source.address if link.is_sender else link.remote_target.address
        name = path(address)
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode, link.rcv_settle_mode = link.remote_snd_settle_mode, link.remote_rcv_settle_mode
        if self.silent and not name.startswith("$"):
            return  # an opening that nobody answers
        entity = self.entities.get(name)
        if name == "$cbs" or name.endswith("$management"):
            link.open()
        elif self.denied:
            self.refuse(
                link,
                "amqp:unauthorized-access",
                "Unauthorized access. 'Listen' or 'Send' claim(s) are required",
            )
            return
        elif entity is None and name not in self.topics:
            self.refuse(link, "amqp:not-found", f"The messaging entity '{name}' could not be found.")
            return
        elif link.is_sender:
            asks = self.asks_session(link)
            if asks is None and entity.sessions:
                self.refuse(
                    link,
                    "amqp:not-allowed",
                    "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
                )
                return
            if asks is not None:
                self.wanting.append(link)
                self.give_sessions()
                return
            link.open()
            self.receivers.append(link)
        else:
            link.max_message_size = ulong(262_144)
            link.open()
        if link.is_receiver:
            link.flow(500)

    @staticmethod
    def refuse(link, name, text):
        """Attach, and detach with a reason, as the service does."""
        link.open()
        link.condition = Condition(name, text)
        link.close()

    @staticmethod
    def asks_session(link):
        """None: no session; "": any; else its name."""
        data = link.remote_source.filter
        data.rewind()
        if not data.next() or data.type() != Data.MAP:
            return None
        filters = {str(key): value for key, value in data.get_dict().items()}
        if SESSION_FILTER not in filters:
            return None
        value = filters[SESSION_FILTER]
        return str(getattr(value, "value", value) or "")

    def give_sessions(self):
        """Open links that wait for a session, as far as there is one."""
        for link in list(self.wanting):
            entity = self.entities[path(link.remote_source.address)]
            wish = self.asks_session(link)
            names = [str(m.group_id) for m in entity.waiting if str(m.group_id) not in entity.session_links]
            if wish:
                names = [wish] if wish not in entity.session_links else []
            if not names:
                continue
            self.wanting.remove(link)
            entity.session_links[names[0]] = link
            link.source.filter.clear()
            link.source.filter.put_dict({symbol(SESSION_FILTER): names[0]})
            ticks = int((self.now() + entity.lock) * 10_000_000) + EPOCH_TICKS
            link.properties = {symbol("com.microsoft:locked-until-utc"): ticks}
            self.sessions_of[link] = names[0]
            link.open()
            self.receivers.append(link)

    def on_link_closing(self, event):
        self.forget(event.link)
        event.link.close()

    def forget(self, link):
        """A link is gone: its session is free, and what it holds of it is delivered again."""
        self.receivers = [other for other in self.receivers if other != link]
        self.wanting = [other for other in self.wanting if other != link]
        session = self.sessions_of.pop(link, None)
        if session is None:
            return
        entity = self.entities.get(path(link.remote_source.address))
        if entity is not None:
            entity.session_links.pop(session, None)
            for token, (_, _, holder) in list(entity.locked.items()):
                if holder == link:
                    self.back(entity, token)

    def links(self, connection):
        """The links of a connection."""
        link = connection.link_head(Endpoint.REMOTE_ACTIVE | Endpoint.LOCAL_ACTIVE)
        while link:
            yield link
            link = link.next(Endpoint.REMOTE_ACTIVE | Endpoint.LOCAL_ACTIVE)

    # -- messages

    def on_message(self, event):
        message, name = event.message, path(event.link.remote_target.address)
        event.link.flow(1)
        if name == "$cbs" or name.endswith("$management"):
            event.delivery.update(Delivery.ACCEPTED)
            event.delivery.settle()
            answer = self.answer(name, message, event.connection)
            for link in self.links(event.connection):
                if link.is_sender and path(link.remote_source.address) == name:
                    link.send(answer)
            return
        if len(message.body or b"") > 262_144:
            event.delivery.local.condition = Condition(
                "amqp:link:message-size-exceeded", "The message is too large.", {symbol("of"): "the stub"}
            )
            event.delivery.update(Delivery.REJECTED)
        elif failure := self.put(name, message):
            event.delivery.local.condition = Condition(
                "amqp:not-allowed", failure, {symbol("of"): "the stub"}
            )
            event.delivery.update(Delivery.REJECTED)
        else:
            event.delivery.update(Delivery.ACCEPTED)
        event.delivery.settle()
        self.pump()

    def answer(self, name, message, connection):
        """The answer to a request."""
        code, text, body = (
            (401, "InvalidSignature: The token has an invalid signature.", None)
            if self.denied
            else (200, "OK", None)
        )
        operation = str((message.properties or {}).get("operation"))
        entity = self.entities.get(name.rpartition("/")[0])
        if operation == "com.microsoft:renew-lock" and entity is not None:
            body, code, text = {"expirations": []}, 200, "OK"
            for token in message.body["lock-tokens"].elements:
                held = entity.locked.get(str(token))
                if held is None:
                    code, text = (
                        410,
                        "The lock supplied is invalid. Either the lock expired, or the message has already been removed.",
                    )
                    continue
                entity.locked[str(token)] = (held[0], time.monotonic() + entity.lock, held[2])
                body["expirations"].append(timestamp(int((self.now() + entity.lock) * 1000)))
        elif operation == "com.microsoft:renew-session-lock" and entity is not None:
            body = {"expiration": timestamp(int((self.now() + entity.lock) * 1000))}
            for token, (held, _, link) in list(entity.locked.items()):
                if str(held.group_id) == message.body["session-id"]:
                    entity.locked[token] = (held, time.monotonic() + entity.lock, link)
        elif operation == "com.microsoft:peek-message" and entity is not None:
            first, most = message.body["from-sequence-number"], message.body["message-count"]
            found = [m for m in entity.waiting if m.annotations["x-opt-sequence-number"] >= first][:most]
            body = {"messages": [{"message": m.encode()} for m in found]}
            code = 200 if found else 204
        properties = {
            "status-code": code,
            "statusCode": code,
            "status-description": text,
            "statusDescription": text,
        }
        if code == 410:
            properties["errorCondition"] = symbol("com.microsoft:message-lock-lost")
        return Message(properties=properties, correlation_id=message.id, body=body)

    def put(self, name, message):
        """Keep a message; return why not."""
        for entity in self.topics.get(name) or [self.entities[name]]:
            if entity.sessions and not message.group_id:
                return "The SessionId was not set on a message, and it cannot be sent to the entity."
            if entity.duplicates:
                if message.id in entity.known:
                    continue
                entity.known.add(message.id)
            copy = Message()
            copy.decode(message.encode())
            self.sequence += 1
            copy.annotations = {
                **(copy.annotations or {}),
                "x-opt-sequence-number": self.sequence,
                "x-opt-enqueued-time": timestamp(int(self.now() * 1000)),
            }
            entity.waiting.append(copy)
        return ""

    def pump(self):
        """Send what waits where there is credit."""
        self.give_sessions()
        for link in self.receivers:
            entity = self.entities.get(path(link.remote_source.address))
            session = self.sessions_of.get(link)
            while entity is not None and link.credit > 0:
                fitting = next((m for m in entity.waiting if session in (None, str(m.group_id))), None)
                if fitting is None:
                    break
                entity.waiting.remove(fitting)
                tag = uuid.uuid4().hex[:16]
                token = str(uuid.UUID(bytes_le=tag.encode()))
                entity.locked[token] = (fitting, time.monotonic() + entity.lock, link)
                locked_until = timestamp(int((self.now() + entity.lock) * 1000))
                fitting.annotations = {**fitting.annotations, "x-opt-locked-until": locked_until}
                link.send(fitting, tag=tag)

    def on_sendable(self, event):
        self.pump()

    def back(self, entity, token):
        """A lock is over: the message is delivered again, or dead."""
        message = entity.locked.pop(token)[0]
        message.delivery_count += 1
        if message.delivery_count >= entity.most:
            self.bury(entity, message)
        else:
            entity.waiting.appendleft(message)

    def bury(self, entity, message):
        """Move a message to the dead letters."""
        self.entities[entity.name + DEAD].waiting.append(message)

    def settled(self, event, then):
        """Settle a delivery whose lock holds; refuse it otherwise."""
        delivery = event.delivery
        entity = self.entities.get(path(event.link.remote_source.address))
        token = str(uuid.UUID(bytes_le=delivery.tag.encode()))
        if entity is None or token not in entity.locked:
            delivery.local.condition = Condition(
                "com.microsoft:message-lock-lost", "The lock supplied is invalid."
            )
            delivery.update(Delivery.REJECTED)
        else:
            then(entity, token)
            delivery.update(delivery.remote_state)
        delivery.settle()
        self.pump()

    def on_accepted(self, event):
        if (
            event.link.is_sender
            and not path(event.link.remote_source.address).startswith("$")
            and "$management" not in path(event.link.remote_source.address)
        ):
            self.settled(event, lambda entity, token: entity.locked.pop(token))

    def on_rejected(self, event):
        if event.link.is_sender:
            condition = event.delivery.remote.condition

            def then(entity, token):
                message = entity.locked.pop(token)[0]
                reasons = (
                    {str(name): str(value) for name, value in (condition.info or {}).items()}
                    if condition
                    else {}
                )
                message.properties = {**(message.properties or {}), **reasons}
                self.bury(entity, message)

            self.settled(event, then)

    def on_released(self, event):
        if not event.link.is_sender:
            return
        counts = event.delivery.remote_state == Delivery.MODIFIED

        def then(entity, token):
            if counts:
                self.back(entity, token)
            else:
                entity.waiting.appendleft(entity.locked.pop(token)[0])

        self.settled(event, then)

    # -- the rig

    def on_command(self, event):
        words, done = event.subject
        try:
            done.answer = self.command(**words)
        except Exception as fault:  # the rig shows it
            done.answer = {"error": repr(fault)}
        done.set()

    def command(self, do, name="", **more):
        """Do what the rig says."""
        name = name.lower()
        if do == "queue":
            topic, _, subscription = name.partition("/subscriptions/")
            entity = self.entities[name] = Entity(name, **more)
            self.entities[name + DEAD] = Entity(name + DEAD)
            if subscription:
                self.topics[topic].append(entity)
        elif do == "delete":
            for link in [link for link in self.receivers if path(link.remote_source.address) == name]:
                self.forget(link)
                link.condition = Condition(
                    "amqp:not-found", f"The messaging entity '{name}' could not be found."
                )
                link.close()
            self.entities.pop(name, None)
        elif do == "send":
            for draft in more["messages"]:
                message = Message(
                    inferred=True, body=base64.b64decode(draft["body"]), properties=draft.get("headers") or {}
                )
                message.id, message.group_id = draft.get("id"), draft.get("session")
                if failure := self.put(name, message):
                    raise ValueError(failure)
            self.pump()
        elif do == "read":
            entity = self.entities[name]
            messages, entity.waiting = list(entity.waiting), collections.deque()
            return [
                {
                    "body": base64.b64encode(bytes(m.body)).decode(),
                    "id": m.id,
                    "session": m.group_id,
                    "type": m.content_type,
                    "correlation": m.correlation_id,
                    "count": m.delivery_count,
                    "reason": (m.properties or {}).get("DeadLetterReason"),
                }
                for m in messages
            ]
        elif do == "waiting":
            return len(self.entities[name].waiting) + len(self.entities[name].locked)
        elif do == "expire":
            for token in list(self.entities[name].locked):
                self.back(self.entities[name], token)
            self.pump()
        elif do == "detach":
            for link in [link for link in self.receivers if path(link.remote_source.address) == name]:
                self.forget(link)
                text = "The link was force detached. Reason: link idle timeout"
                link.condition = Condition("amqp:link:detach-forced", text)
                link.close()
        elif do == "disconnect":
            for connection in list(self.connections):
                connection.transport.close_tail()
                connection.close()
        elif do == "set":
            for attribute, value in more.items():
                setattr(self, attribute, value)
        return True


class Done(threading.Event):
    """The answer to a command."""

    answer = None


def control(port, injector):
    """Answer the rig's lines."""

    class Lines(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                done = Done()
                injector.trigger(ApplicationEvent("command", subject=(json.loads(line), done)))
                done.wait()
                self.wfile.write(json.dumps(done.answer).encode() + b"\n")
                self.wfile.flush()

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    server = Server(("127.0.0.1", port), Lines)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    """Serve."""
    injector = EventInjector()
    control(int(sys.argv[2]), injector)
    Container(Stub(int(sys.argv[1]), injector)).run()


if __name__ == "__main__":
    main()
