"""Ctrl-C, twice: the first asks a run to stop where it can, the second stops it where it is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def first_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Within this block, the first Ctrl-C calls ``stop`` and nothing else; another one raises KeyboardInterrupt as ever.

    Only where Ctrl-C would raise it anyway: a program with a handler of its own, and other threads, are left alone.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def handle(signum: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
