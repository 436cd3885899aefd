"""SIGTERM and SIGINT as a clean end: what is in flight is dropped, what was answered is kept.

A scheduler that takes a job's machine away, or a person's Ctrl-C, ends a job within seconds. The first signal raises an
exception in the main thread, between two tokens, so that the engine closes its connections and servers and temporary
files go. A main thread that cannot be reached, since it computes in one long call, waits in a library or is stuck in
its own end, is not waited for: after a grace period the process is gone. Answers are on disk when they are kept (see
`journal`), so nothing more is lost by that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType

GRACE = 10.0
"""Seconds for a clean end. Schedulers commonly kill 30 seconds after they terminate."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(KeyboardInterrupt):
    """The process was asked to end. Like KeyboardInterrupt it is no `Exception`, so that no retry swallows it.

    Attributes:
        status: the exit status that says so: 128 and the signal's number (130, 143).
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.status = 128 + number


def install(grace: float = GRACE) -> None:
    """Have SIGTERM and SIGINT raise `Interrupted` in the main thread, and end the process `grace` seconds later.

    Further signals change nothing: a scheduler sends several. A signal that this process was started to ignore, as in
    the background of a shell script, stays ignored. To be called once, in the main thread, before work begins.
    """
    receive, send = os.pipe()
    os.set_blocking(send, False)
    # The interpreter writes a signal's number here at once, also while the main thread is in a long call of a library,
    # where a handler in Python has to wait.
    signal.set_wakeup_fd(send, warn_on_full_buffer=False)
    # A forked child's signals are not this process's.
    os.register_at_fork(after_in_child=_leave)
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)
    threading.Thread(target=_watch, args=(receive, grace), name="interrupts", daemon=True).start()


def _leave() -> None:
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        if signal.getsignal(number) in (_raise, _ignore):
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    # Once is enough: a second one would interrupt the cleaning up.
    for each in SIGNALS:
        if signal.getsignal(each) is _raise:
            signal.signal(each, _ignore)
    raise Interrupted(number)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def _watch(receive: int, grace: float) -> None:
    """End the process `grace` seconds after the first signal, if it is still there."""
    number = 0
    while number not in SIGNALS:  # a library may have handlers for other signals
        number = os.read(receive, 1)[0]
    time.sleep(grace)
    sys.stderr.write(f"ended by {signal.Signals(number).name}, without waiting any longer for what is in flight\n")
    sys.stderr.flush()
    os._exit(128 + number)
