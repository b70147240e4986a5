"""Messages between the pytest process, the zygote and a child: a length, then a pickle; descriptors travel along.

Called on threads of ranks too: the socket's own methods, not what a run puts in their place, so that nothing is handed
over in the middle of a message.
"""

from __future__ import annotations

import array
import io
import pickle
import socket
import struct
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from allranks.testing.dropin.pipes import PipeQueue

_HEAD = struct.Struct("!Q")
_sendall = socket.socket.sendall
_sendmsg = socket.socket.sendmsg
_recv = socket.socket.recv
_recvmsg = socket.socket.recvmsg
#: The most descriptors that Linux passes with one message.
MOST_DESCRIPTORS = 253


def send(sock: socket.socket, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Sends one message; raises `OSError` if nobody is there any more."""
    data = pickle.dumps(message)
    head = _HEAD.pack(len(data))
    if descriptors:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        head = head[_sendmsg(sock, [head], rights) :]
    _sendall(sock, head + data)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Waits for one message and its descriptors; raises `EOFError` if the other end is gone."""
    fds = array.array("i")
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * fds.itemsize)
    head, rights, _, _ = _recvmsg(sock, _HEAD.size, room)
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not head:
        raise EOFError
    head += _exactly(sock, _HEAD.size - len(head))
    return pickle.loads(_exactly(sock, _HEAD.unpack(head)[0])), list(fds)


def _exactly(sock: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = _recv(sock, min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class Inbox:
    """The receiving end of a socket that is looked at without waiting."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray()
        self.ended = False

    def messages(self) -> list[Any]:
        """All that have come whole since the last call; `ended` says that no more will come."""
        while not self.ended:
            try:
                part = _recv(self._sock, 1 << 16, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                part = b""
            self._data += part
            self.ended = not part
        found = []
        while len(self._data) >= _HEAD.size:
            end = _HEAD.size + _HEAD.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            found.append(pickle.loads(self._data[_HEAD.size : end]))
            del self._data[:end]
        return found


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, descriptors: list[int]) -> None:
        super().__init__(file)
        self._descriptors = descriptors

    def persistent_id(self, value: Any) -> Any:
        """Connections and queues travel as descriptors, everything else as pickle has it."""
        if isinstance(value, Connection):
            return "connection", *self._add(value)
        if isinstance(value, PipeQueue):
            return "queue", [self._add(end) for end in value.ends()]
        return None

    def _add(self, end: Connection) -> tuple[int, bool, bool]:
        self._descriptors.append(end.fileno())
        return len(self._descriptors) - 1, end.readable, end.writable


def pack(value: Any, descriptors: list[int]) -> bytes:
    """Pickles what a rank gets; the descriptors that have to travel along are appended."""
    file = io.BytesIO()
    _Packer(file, descriptors).dump(value)
    return file.getvalue()


class Unpacker(pickle.Unpickler):
    """Reads what `pack` wrote, with the descriptors as they arrived."""

    def __init__(self, data: bytes, descriptors: Sequence[int]) -> None:
        super().__init__(io.BytesIO(data))
        self._descriptors = descriptors
        #: In order of their first mention.
        self.connections: list[Connection] = []
        self.queues: list[PipeQueue] = []

    def persistent_load(self, pid: Any) -> Any:
        """A connection or a queue."""
        if pid[0] == "queue":
            queue = PipeQueue(*(self._connection(*end) for end in pid[1]))
            self.queues.append(queue)
            return queue
        connection = self._connection(*pid[1:])
        self.connections.append(connection)
        return connection

    def _connection(self, at: int, readable: bool, writable: bool) -> Connection:
        return Connection(self._descriptors[at], readable=readable, writable=writable)
