"""Runs a command as long as the process that wants it lives, and ends it with all that it started.

    python -I watch.py PARENT GRACE COMMAND

A program of its own, on the standard library alone: only a process that outlives a job which is killed at once
(kill -9, out of memory) can clean up behind it. The command runs in a process group of its own. When the parent is
gone, or a signal arrives here, the group gets SIGTERM and, after GRACE seconds, SIGKILL.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
PAUSE = 0.1


class Ended(Exception):
    """A signal asks for the end."""


def prctl(option: int, value: int) -> None:
    """A Linux setting of this process; elsewhere nothing happens."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def raise_ended(*_: object) -> None:
    """Handle a signal once; the next ones wait in vain."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise Ended


def reap(child: "subprocess.Popen[bytes]") -> None:
    """Take note of every process below this one that has ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child.pid:
                child.returncode = os.waitstatus_to_exitcode(found[1])


def signal_group(child: "subprocess.Popen[bytes]", number: int) -> bool:
    """Send a signal to the command's group; whether there is anyone in it."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end(child: "subprocess.Popen[bytes]", grace: float) -> None:
    """End the command's group, in time or by force."""
    deadline = time.monotonic() + grace
    signal_group(child, signal.SIGTERM)
    while time.monotonic() < deadline:
        reap(child)
        if not signal_group(child, 0):
            return
        time.sleep(PAUSE)
    signal_group(child, signal.SIGKILL)
    for _ in range(20):
        reap(child)
        if not signal_group(child, 0):
            return
        time.sleep(PAUSE)


def main() -> int:
    """Run the command and return its exit status, 128 + N for a signal N."""
    parent, grace, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    # What the command leaves behind comes to this process, which sees it end.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, raise_ended)
    child = None
    try:
        # Should this process be killed too, the command's first process goes with it.
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        while child.returncode is None and os.getppid() == parent:
            time.sleep(PAUSE)
            reap(child)
        raise_ended()
    except Ended:
        if child is not None:
            end(child, grace)
    status = child.returncode if child is not None and child.returncode is not None else -signal.SIGKILL
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
