"""Ctrl-C: the first one asks a run to stop after its current step, a second one stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def first_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Within this block, the first Ctrl-C calls ``stop`` and nothing else; the next one raises KeyboardInterrupt as usual.

    Outside of the main thread, and in programs that handle Ctrl-C themselves, this does nothing.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
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
