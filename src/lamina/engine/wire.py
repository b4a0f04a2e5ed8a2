"""The wire: one TCP connection from each process to the hub, JSON lines both ways.

`serve` is the hub's side, one thread for all connections; `Line` is a process's side.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from lamina.engine.hub import Hub, Letters, Message

TICK = 0.25
GREETING = "lamina"
LONGEST = 1 << 20  # bytes of a message


class Line:
    """A process's end of the wire; any thread may send."""

    def __init__(self, connection: socket.socket):
        self._connection, self._lock = connection, threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: Message) -> None:
        """OSError when the hub is gone."""
        with self._lock:
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def messages(self) -> Iterator[Message]:
        """What the hub says, until the connection closes."""
        buffer = b""
        while data := self._received():
            *lines, buffer = (buffer + data).split(b"\n")
            yield from map(json.loads, lines)

    def _received(self) -> bytes:
        try:
            return self._connection.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError:  # reset: it is gone
            return b""

    def within(self, seconds: float | None) -> None:
        """How long `messages` waits for the next one before it raises TimeoutError."""
        self._connection.settimeout(seconds)

    def close(self) -> None:
        self._connection.close()


def listen(port: int, is_reserved: bool = False) -> socket.socket:
    """A listening socket on every address of this host; OSError if the port is taken.

    `is_reserved`: the launcher holds the port for us (see `lamina.cli.launch`), which only SO_REUSEPORT gets past.
    """
    if socket.has_dualstack_ipv6():
        family = socket.AF_INET6
        return socket.create_server(
            ("", port), family=family, dualstack_ipv6=True, backlog=1024, reuse_port=is_reserved
        )
    return socket.create_server(("", port), backlog=1024, reuse_port=is_reserved)


def dial(host: str, port: int, seconds: float) -> Line | None:
    """A line to the hub, tried until it answers; None if it doesn't in time."""
    until = time.monotonic() + seconds
    while True:
        try:
            return Line(socket.create_connection((host, port), timeout=max(0.1, min(5.0, until - time.monotonic()))))
        except OSError:
            if time.monotonic() > until:
                return None
            time.sleep(0.05)


class Server:
    """The hub's side: who is on which connection, and what is to be told."""

    def __init__(self, hub: Hub, listener: socket.socket, complete: Callable[[], None]):
        self.hub, self.listener, self.complete = hub, listener, complete
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.ranks: dict[socket.socket, int | None] = {}
        self.buffers: dict[socket.socket, bytes] = {}
        self.listening, self.started = True, False

    def run(self, start_seconds: float) -> None:
        """Until all have gone; or nobody came, or not all of them in `start_seconds`."""
        until = time.monotonic() + start_seconds
        while self.listening or self.ranks:
            for key, _ in self.selector.select(TICK):
                if key.fileobj is self.listener:
                    self._accept()
                else:
                    self._read(key.fileobj)  # type: ignore[arg-type]
            if self.started:
                self._tell(self.hub.tick())
            elif time.monotonic() > until:
                self._refuse_all(start_seconds)
                return

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.settimeout(10)  # what a process that stopped doesn't read mustn't hold up the others
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ranks[connection], self.buffers[connection] = None, b""
        self.selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> None:
        if connection not in self.ranks:  # closed since it was seen to be readable
            return
        try:
            data = connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._lost(connection)
            return
        *lines, rest = (self.buffers[connection] + data).split(b"\n")
        if len(rest) > LONGEST:  # nobody who speaks to the hub says that much
            self._lost(connection)
            return
        self.buffers[connection] = rest
        for line in lines:
            self._hear(connection, line)

    def _hear(self, connection: socket.socket, line: bytes) -> None:
        rank = self.ranks.get(connection)
        if rank is not None:
            self._tell(self.hub.hear(rank, json.loads(line)))
        elif connection in self.ranks:
            self._enroll(connection, line)

    def _enroll(self, connection: socket.socket, line: bytes) -> None:
        try:
            hello: Any = json.loads(line)
            if hello["kind"] != GREETING:
                raise ValueError(hello)
            rank, count, name = int(hello["rank"]), int(hello["count"]), str(hello["name"])
        except (ValueError, KeyError, TypeError):  # somebody else's port scan
            self._close(connection)
            return
        if why := self.hub.enroll(rank, count, name):
            _send(connection, {"kind": "refused", "why": why})
            self._close(connection)
            return
        self.ranks[connection] = rank
        if not self.hub.missing:
            self._start()

    def _start(self) -> None:
        """All are there.  The port is free for JAX's service now: these connections stay."""
        self.selector.unregister(self.listener)
        self.listener.close()
        self.listening, self.started = False, True
        for connection in [one for one, rank in self.ranks.items() if rank is None]:
            self._close(connection)
        self.complete()
        self._tell([(rank, {"kind": "start"}) for rank in self.hub.members])

    def _refuse_all(self, seconds: float) -> None:
        missing = self.hub.missing
        for connection in list(self.ranks):
            _send(connection, {"kind": "late", "missing": missing, "seconds": seconds})
            self._close(connection)
        self.listener.close()

    def _lost(self, connection: socket.socket) -> None:
        rank = self.ranks[connection]
        self._close(connection)
        if rank is None:
            return
        if self.started:
            self._tell(self.hub.lost(rank))
        else:
            del self.hub.members[rank]  # it may come again

    def _tell(self, letters: Letters) -> None:
        connections = {rank: connection for connection, rank in self.ranks.items()}
        for rank, message in letters:
            if rank in connections:
                _send(connections[rank], message)

    def _close(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        connection.close()
        del self.ranks[connection], self.buffers[connection]


def _send(connection: socket.socket, message: Message) -> None:
    with contextlib.suppress(OSError):  # the next read sees that it is gone
        connection.sendall(json.dumps(message).encode() + b"\n")
