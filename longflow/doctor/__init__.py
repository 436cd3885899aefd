"""A look over everything that a run needs, before it waits in a queue. No model is loaded, nothing is fetched.

Each check says `ok`, `problem` with its remedy, or `cannot be told` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from longflow import cells
from longflow.config import Config, ImportedModel, ModelOptions
from longflow.doctor.check import Check, Checks
from longflow.doctor.data import data, imported, settings
from longflow.doctor.machine import disk, folders, gpus, versions
from longflow.doctor.models import model

__all__ = ["Check", "examine", "report"]


def examine(config: Config) -> Checks:
    """All checks of a run, one after the other as they are made."""
    every = list(cells.cells(config))
    yield Check(
        "ok" if every else "problem", "run", f"{len(every)} cells" + ("" if every else "; nothing is left to do")
    )
    yield from versions(config)
    yield from folders(config)
    yield from data(config, every)
    for name in config.run.models:
        entry = config.models[name]
        if isinstance(entry, ImportedModel):
            yield from imported(config, name, every)
        elif isinstance(entry, ModelOptions):
            yield from model(config, name)
    yield from settings(config)
    yield from gpus(config)
    yield from disk(config, every)


def report(checks: Iterable[Check], say: Callable[[str], None]) -> int:
    """Say each check as it is made. Returns the number of problems."""
    problems = 0
    for check in checks:
        say(check.line())
        problems += check.word == "problem"
    return problems
