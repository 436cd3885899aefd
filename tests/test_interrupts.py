"""Signals end a process within seconds, whatever it does, and its status says why."""

import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from longflow import interrupts
interrupts.install(grace={grace})
try:
    print("ready", flush=True)
    {work}
except interrupts.Interrupted as error:
    print("caught", flush=True)
    {after}
    print("clean", flush=True)
    sys.exit(error.status)
"""


def run(work, after="pass", grace=1.5, signals=(signal.SIGTERM,), pause=0.1):
    """Send signals to a program that does some work: its status, what it said, and the seconds to its end."""
    program = PROGRAM.format(root=str(ROOT), work=work, after=after, grace=grace)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    began = time.monotonic()
    for number in signals:
        process.send_signal(number)
        time.sleep(pause)
    said, complaint = process.communicate(timeout=30)
    return process.returncode, said.split(), complaint, time.monotonic() - began


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_raises_in_the_main_thread_and_the_status_says_which(number, status):
    assert run("import time; time.sleep(60)", signals=[number])[:3] == (status, ["caught", "clean"], "")


def test_later_signals_do_not_disturb_the_cleaning_up():
    ended = run(
        "import time; time.sleep(60)", "time.sleep(0.6)", signals=[signal.SIGTERM, signal.SIGINT, signal.SIGTERM]
    )
    assert ended[:3] == (143, ["caught", "clean"], "")


def test_a_broad_except_in_an_engine_does_not_swallow_it():
    work = "\n    ".join(
        ["import time", "while True:", "    try:", "        time.sleep(60)", "    except Exception:", "        pass"]
    )
    assert run(work)[:2] == (143, ["caught", "clean"])


@pytest.mark.parametrize(
    ("work", "after"),
    [
        # one long call of a library, which lets other threads run but no handler
        ("import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**8)", "pass"),
        ("import time; time.sleep(60)", "time.sleep(60)"),  # the cleaning up hangs
        # the interpreter waits for a thread at its end
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); time.sleep(60)", "pass"),
    ],
)
def test_who_cannot_be_reached_is_not_waited_for(work, after):
    status, _, complaint, seconds = run(work, after)
    assert status == 143
    assert "ended by SIGTERM, without waiting" in complaint
    assert 1 < seconds < 8


def test_a_signal_to_a_forked_child_is_not_the_parents():
    work = "\n    ".join(
        [
            "import os, signal, time",
            "child = os.fork()",
            "if child == 0: time.sleep(60)",
            "time.sleep(0.2)",
            "os.kill(child, signal.SIGTERM)",
            "print(os.waitpid(child, 0)[1])",
            "time.sleep(1)",
        ]
    )
    assert run(work, grace=0.3, signals=[])[:3] == (0, [str(int(signal.SIGTERM))], "")


def test_what_the_process_was_started_to_ignore_stays_ignored():
    program = PROGRAM.format(root=str(ROOT), work="import time; time.sleep(1)", after="pass", grace=0.2)
    command = f"trap '' INT; exec {sys.executable} -c \"$1\""
    process = subprocess.Popen(["sh", "-c", command, "sh", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0


def test_without_a_signal_nothing_happens():
    done = run("pass", signals=[])
    assert done[:3] == (0, [], "")


@pytest.mark.slow
def test_a_long_computation_of_the_real_library_is_left_within_seconds():
    """A prefill of minutes on the processor, in calls of torch."""
    work = "import torch; x = torch.rand(6000, 6000)\n    while True: x = (x @ x).clamp(0, 1)"
    status, _, _, seconds = run(work, grace=3, pause=3)
    assert status == 143
    assert seconds < 10
