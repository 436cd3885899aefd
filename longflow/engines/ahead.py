"""Requests tokenised ahead of the model, in a thread of their own, and handed out so that shared beginnings meet.

A few hundred prompts wait as arrays of token ids. Next is the one that shares most with what the model has in its KV
cache, else the one that has waited longest. With all prompts at hand this computes every shared beginning once: taking
the longest shared one each time is a walk through the tree of beginnings.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from longflow.engines import Generation, Request
from longflow.engines.decoding import Ids

WINDOW_REQUESTS = 256
WINDOW_TOKENS = 1 << 22
"""How far ahead: so many requests, and so many tokens in all (16 MiB of ids)."""


@dataclass(frozen=True)
class Waiting:
    """A request without its text: the ids of its prompt, or why there are none."""

    key: str
    name: str
    generation: Generation
    ids: Ids
    error: str | None = None


class Ahead:
    """The requests that wait, filled by a thread as they are taken.

    The requests' iterator runs the caller's code, which is not made for two threads: it is never run while the caller
    is at work (`caller`), nor is the caller let go on while it runs.

    Args:
        requests: taken one by one; what it raises is raised by `take`, after all that came before it was taken.
        prepare: tokenises one; called in the thread.
        most: requests to hold, and tokens: one request is held however long it is.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        prepare: Callable[[Request], Waiting],
        most: int = WINDOW_REQUESTS,
        most_tokens: int = WINDOW_TOKENS,
    ) -> None:
        self._source = iter(requests)
        self._prepare = prepare
        self._most = most
        self._most_tokens = most_tokens
        self._waiting: list[Waiting] = []
        self._failure: BaseException | None = None
        self._done = False
        self._stopped = False
        self._pulling = False  # the thread runs the caller's iterator
        self._held = False  # the caller is at work
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._fill, name="tokenise", daemon=True)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            self._wait_while_pulling()  # the caller goes on

    def start(self) -> bool:
        """Take the first request here, and the others in the thread. Returns whether there is one."""
        self._pull()
        if not self._done:
            self._thread.start()
        if self._failure is not None and not self._waiting:
            raise self._failure
        return bool(self._waiting)

    def take(self, shared: Callable[[Ids], int], longest: bool = False) -> Waiting | None:
        """The next request, or None if there is none left; waits for the thread where it must.

        Args:
            shared: how many tokens of a prompt the model would not have to compute.
            longest: of those that share nothing the longest comes first, not the one that has waited longest; and what
                comes next depends on the requests alone, not on how fast they were tokenised: all that may wait do.
        """
        with self._changed:
            while not self._done and not (self._is_full() if longest else self._waiting):
                self._changed.wait(1.0)
            if not self._waiting:
                if self._failure is not None:
                    raise self._failure
                return None
            gains = [(shared(each.ids), len(each.ids) if longest else 0) for each in self._waiting]
            taken = self._waiting.pop(gains.index(max(gains)))
            self._changed.notify_all()
            return taken

    @contextlib.contextmanager
    def caller(self) -> Iterator[None]:
        """While the caller has an answer in its hands, its iterator is left alone."""
        with self._changed:
            self._held = True
            self._wait_while_pulling()
        try:
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

    def _wait_while_pulling(self) -> None:
        while self._pulling:
            self._changed.wait(1.0)

    def _fill(self) -> None:
        while not self._done:
            with self._changed:
                while not self._stopped and (self._held or self._is_full()):
                    self._changed.wait()
                if self._stopped:
                    return
                self._pulling = True
            self._pull()

    def _is_full(self) -> bool:
        tokens = sum(len(each.ids) for each in self._waiting)
        return len(self._waiting) >= self._most or (bool(self._waiting) and tokens >= self._most_tokens)

    def _pull(self) -> None:
        """Take one request from the source and tokenise it."""
        prepared, failure = None, None
        try:
            request = next(self._source, None)
            prepared = None if request is None else self._prepare(request)
        except BaseException as error:  # raised where it is waited for, in the caller's thread
            failure = error
        with self._changed:
            self._pulling = False
            if prepared is not None:
                self._waiting.append(prepared)
            else:
                self._failure, self._done = failure, True
            self._changed.notify_all()


def as_ids(ids: list[int]) -> Ids:
    """Token ids as a compact array."""
    return np.asarray(ids, dtype=np.int32)
