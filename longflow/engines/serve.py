"""A server for the length of one job: start it on a free port, wait until it is healthy, end it with all it started."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import logging
import os
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType

from longflow.errors import UserError
from longflow.progress import duration

log = logging.getLogger(__name__)

SERVE_TIMEOUT = 900.0
"""Seconds that a server may take to start, where the entry does not say."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
PAUSE = 0.25
"""Seconds between two looks at a server that starts."""
SAY_EVERY = 15.0
"""Seconds between two lines that say that it starts."""
PORTS = range(20000, 32768)
"""Below the ports that the kernel hands out for connections, which could take one before the server does."""


class Server:
    """A command that serves a model on this machine. Use as a context manager, or `start` and `stop`.

    The command runs in a process group of its own under a watcher (watch.py), which ends the whole group when `stop`
    is called, when this process is told to end, and when it is killed. Its output goes to standard error, line by
    line.

    Args:
        command: a shell command that stays in the foreground; {port}, {model} and {gpu} in it are filled in.
        model: the model's name on the server or its path, for {model}.
        gpu: number of GPUs, for {gpu}.
        timeout: seconds until it must be healthy.
        key: sent as the API key when asking for its health, if not empty.
        hide: takes what must not be shown out of a line of its output.
    """

    def __init__(
        self,
        command: str,
        *,
        model: str,
        gpu: int = 0,
        timeout: float = SERVE_TIMEOUT,
        key: str = "",
        hide: Callable[[str], str] = str,
    ) -> None:
        if "{port}" not in command:
            raise UserError(f"serve: {hide(command)!r} names no {{port}}, so the server's address would not be known")
        self._command = command
        self._model = model
        self._gpu = gpu
        self._timeout = timeout
        self._key = key
        self._hide = hide
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lock: int | None = None
        self._last: collections.deque[str] = collections.deque(maxlen=1)
        self.url = ""

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> str:
        """Start it and wait until it is healthy; its address for a client, with /v1.

        Raises UserError, with the last line of its output, if it ends before or takes too long.
        """
        port, self._lock = _free_port()
        # Not str.format: a command may hold JSON.
        command = self._command
        for name, value in (("port", port), ("model", self._model), ("gpu", self._gpu)):
            command = command.replace(f"{{{name}}}", shlex.quote(str(value)))
        log.info("starting the server: %s", self._hide(command))
        watcher = str(Path(__file__).with_name("watch.py"))
        try:
            # -I: neither the working folder nor PYTHONPATH may put modules in the watcher's way.
            self._process = subprocess.Popen(
                [sys.executable, "-I", watcher, str(os.getpid()), str(GRACE), command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches this process only, which then ends the server in order
                pass_fds=(self._lock,),  # the port is taken until the server is gone, however this process ends
            )
            assert isinstance(self._process.stdout, TextIOWrapper)
            self._reader = threading.Thread(target=self._copy, args=(self._process.stdout,), daemon=True)
            self._reader.start()
            self.url = f"http://127.0.0.1:{port}/v1"
            self._wait(f"http://127.0.0.1:{port}")
        except BaseException:
            self.stop()
            raise
        return self.url

    def ended(self, when: str = "") -> str | None:
        """What became of a server that ended by itself, on one line (`when` after how), or None while it runs."""
        if self._process is None or self._process.poll() is None:
            return None
        if self._reader is not None:
            self._reader.join(1.0)  # its last words
        status = self._process.returncode
        killed = -status if status < 0 else status - 128
        how = f"was killed by signal {killed}" if killed > 0 else f"ended with status {status}"
        return f"{how}{when}{self._last_words()}"

    def stop(self) -> None:
        """End it. Returns when it is gone; calling it again does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(GRACE + 5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            finally:
                if self._reader is not None:
                    self._reader.join(1.0)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _wait(self, address: str) -> None:
        """Until it is healthy."""
        began = said = time.monotonic()
        while True:
            if ended := self.ended(" before it was healthy"):
                raise UserError(f"the server of model {self._model} {ended}")
            answer = self._health(address)
            # Asked again after the answer: a server that found its port taken would not have given it.
            if answer == "healthy" and self.ended() is None:
                log.info("the server is healthy after %s", duration(time.monotonic() - began))
                return
            now = time.monotonic()
            if now - began > self._timeout:
                raise UserError(
                    f"the server of model {self._model} was not healthy within serve_timeout "
                    f"({duration(self._timeout)}; {answer}){self._last_words()}"
                )
            if now - said >= SAY_EVERY:
                said = now
                log.info("waiting for the server, %s so far (%s)", duration(now - began), answer)
            time.sleep(PAUSE)

    def _health(self, address: str) -> str:
        """ "healthy", or what it answers. Servers without /health are asked for their models."""
        answer = _get(f"{address}/health", self._key)
        if answer in ("HTTP 404", "HTTP 405"):
            answer = _get(f"{address}/v1/models", self._key)
        return answer

    def _copy(self, output: TextIOWrapper) -> None:
        for line in output:
            line = self._hide(line.rstrip())
            if line:
                self._last.append(line)
                # Not through sys.stderr, whose lock a thread may hold while the interpreter ends.
                with contextlib.suppress(OSError):
                    os.write(2, f"server: {line}\n".encode("utf-8", "replace"))

    def _last_words(self) -> str:
        line = " ".join(self._last[-1].split()) if self._last else ""
        return f"; its last line: {line if len(line) <= 300 else line[:297] + '...'}" if line else ""


def _get(url: str, key: str) -> str:
    """ "healthy" for status 200, else the status or the reason why there is none."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    # No proxy: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as answer:
            return "healthy" if answer.status == 200 else f"HTTP {answer.status}"
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}"
    except (OSError, ValueError) as error:
        return f"no answer: {getattr(error, 'reason', error)}"
    except Exception as error:  # http.client's own, for what is no HTTP
        return f"no HTTP: {type(error).__name__}"


def _free_port() -> tuple[int, int]:
    """A port on 127.0.0.1 that nobody listens on, and the open lock that keeps this user's other jobs off it.

    A server binds its port only once its model is loaded. Without the lock a second job could choose the same port
    meanwhile, and would then talk to the first one's model.
    """
    folder = Path(tempfile.gettempdir()) / f"longflow-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for port in random.sample(PORTS, 200):
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as free:
                free.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        return port, lock
    raise UserError("serve: no free port was found on 127.0.0.1")
