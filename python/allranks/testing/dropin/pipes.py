"""What stands for a `multiprocessing.Queue` between the pytest process and one rank: a pipe."""

from __future__ import annotations

import array
import contextlib
import fcntl
import multiprocessing
import os
import queue
import stat
import termios
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class PipeQueue:
    """One process puts, another gets. The end that a process does not use is closed when it first uses the other."""

    def __init__(self, reader: Connection | None = None, writer: Connection | None = None) -> None:
        if reader is None or writer is None:
            reader, writer = multiprocessing.Pipe(duplex=False)
        self._reader, self._writer = reader, writer
        #: Waits until a descriptor can be read.
        self.wait_for: Callable[[int], None] | None = None

    def ends(self) -> tuple[Connection, Connection]:
        """Where it is read and where it is written."""
        return self._reader, self._writer

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Sends one item; it is lost if nobody can read it any more."""
        self._reader.close()
        with contextlib.suppress(BrokenPipeError):
            self._writer.send(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next item; raises `queue.Empty` after `timeout` seconds, or at once if nobody can put one any more."""
        self._writer.close()
        if block and timeout is None and self.wait_for is not None:
            self.wait_for(self._reader.fileno())
        if not self._reader.poll(timeout if block else 0):
            raise queue.Empty
        try:
            return self._reader.recv()
        except EOFError:
            raise queue.Empty from None

    def get_nowait(self) -> Any:
        """The next item, if it is there."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Whether there is nothing to get now, or ever."""
        if not self._reader.poll(0):
            return True
        return self._at_end()

    def _at_end(self) -> bool:
        # A pipe that is readable and has no bytes has lost its writers.
        fd = self._reader.fileno()
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        waiting = array.array("i", [0])
        fcntl.ioctl(fd, termios.FIONREAD, waiting)
        return waiting[0] == 0

    def close(self) -> None:
        """Closes both ends."""
        self._reader.close()
        self._writer.close()

    def join_thread(self) -> None:
        """There is none."""

    def cancel_join_thread(self) -> None:
        """There is none."""
