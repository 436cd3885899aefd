"""Progress that a person can read in a job's log: whole lines, now and then."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass, field


def set_up_logging() -> None:
    """Log lines with the time of day to standard error, where the rules send them to the job's log."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for noisy in ("httpx", "httpcore", "httpx2", "httpcore2", "openai", "urllib3", "filelock", "huggingface_hub"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").propagate = False  # it prints its lines itself


def duration(seconds: float) -> str:
    """A duration as a person says it: 12 s, 4 min 05 s, 2 h 10 min, 3 d 4 h."""
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60} min {s % 60:02d} s"
    if s < 86400:
        return f"{s // 3600} h {s % 3600 // 60:02d} min"
    return f"{s // 86400} d {s % 86400 // 3600} h"


@dataclass
class Progress:
    """Counts the records of a cell as they are answered, and says how it goes about every `every` seconds.

    `known` of the `total` records were answered before, from the journal.
    """

    name: str
    total: int
    known: int = 0
    every: float = 15.0
    done: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    _said: float = 0.0

    def step(self, prompt_tokens: int | None, answer_tokens: int | None) -> None:
        """One more record was answered."""
        self.done += 1
        self.prompt_tokens += prompt_tokens or 0
        self.answer_tokens += answer_tokens or 0
        now = time.monotonic()
        if self.done == 1 or now - self._said >= self.every or self.known + self.done >= self.total:
            self._said = now
            logging.getLogger("longflow").info(self.line(now))

    def line(self, now: float) -> str:
        """The line: records of records, tokens per second, time left."""
        spent = max(now - self.started, 1e-6)
        rate = (self.prompt_tokens + self.answer_tokens) / spent
        left = (self.total - self.known - self.done) * spent / max(self.done, 1)
        tokens = f", {rate:,.0f} tokens/s" if self.prompt_tokens else ""
        return f"{self.name}: {self.known + self.done} of {self.total} records{tokens}, {duration(left)} left"
