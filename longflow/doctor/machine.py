"""The machine: packages, folders, GPUs, disk."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from longflow import benchmarks
from longflow.cells import Cell, Files, expected_of
from longflow.config import ROOT, Config, ModelOptions
from longflow.doctor.check import Check, Checks, size_words
from longflow.doctor.data import data_sets
from longflow.engines.tokenizers import TIKTOKEN
from longflow.errors import UserError
from longflow.gpus import visible_devices
from longflow.settings import longest_call

ROW_BYTES = 12_000
"""Of a call in predictions, journal, scores and anatomy, without its answer."""

TOKEN_BYTES = 12
"""Of a token of an answer, which stands in the journal and in the predictions, in UTF-8 and as JSON escapes."""

_NEEDED = {"transformers": ("torch", "transformers", "accelerate"), "openai": ("openai",)}
"""Packages without which an engine does not begin."""


def versions(config: Config) -> Checks:
    """Python, and the packages that the run's engines need, against the pinned ones."""
    yield Check("ok", "Python", platform.python_version())
    pinned = dict(re.findall(r"^([\w.-]+)(?:\[[^]]*])?==(\S+)", _text(ROOT / "requirements.txt"), re.MULTILINE))
    needed = {"snakemake", "pydantic", "jieba", "rouge", "matplotlib", "pandas"}
    for name in config.run.models:
        entry = config.models[name].entry()
        needed.update(_NEEDED.get(str(entry["engine"]), ()))
        if str(entry.get("tokenizer") or "").startswith(TIKTOKEN):
            needed.add("tiktoken")
    for package in sorted(needed):
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield Check("problem", package, "not installed; pip install -r requirements.txt -c constraints.txt")
            continue
        wanted = pinned.get(package)
        other = f"; tested with {wanted}" if wanted and found.split("+")[0] != wanted else ""
        yield Check("ok", package, found + other)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def folders(config: Config) -> Checks:
    """Whether the folders of the run can be written to."""
    files = Files(config)
    named = {"results": files.results, "resources": files.resources, "journal": files.journal}
    for name, folder in named.items():
        place = _existing(folder)
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            yield Check(
                "problem",
                f"run.{name}",
                f"{folder} cannot be written to ({place}: {error.strerror}); give yourself permission there or name "
                f"another folder under run.{name}",
            )
        else:
            yield Check("ok", f"run.{name}", f"{folder} can be written to")


def _existing(folder: str | Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    place = Path(folder).absolute()
    while not place.exists():
        place = place.parent
    return place


def gpus(config: Config) -> Checks:
    """Whether there are as many GPUs as the jobs of the run ask for."""
    wanted = {name: int(config.models[name].entry().get("gpu") or 0) for name in config.run.models}
    wanted |= {f"setting {n}": getattr(config.settings.get(n), "gpu", 0) for n in config.run.settings}
    name, most = max(wanted.items(), key=lambda pair: pair[1])
    here = len(visible_devices(os.environ))
    if not most:
        yield Check("ok", "GPUs", f"none needed, {here} here")
    elif here >= most:
        yield Check("ok", "GPUs", f"{name} needs {most}, {here} are here; snakemake wants --resources gpu={here}")
    elif here:
        yield Check(
            "problem",
            "GPUs",
            f"{name} needs {most} and {here} are here; lower its gpu:, or run where there are more (with a SLURM "
            "profile the jobs' nodes count, not this machine)",
        )
    else:
        yield Check("cannot be told", "GPUs", f"{name} needs {most}, and this machine has none; the jobs' nodes count")


def disk(config: Config, every: Sequence[Cell]) -> Checks:
    """Whether there is room for the records and results that are not there yet."""
    files = Files(config)
    needed: dict[str, float] = {"resources": 0, "results": 0}
    unknown: list[str] = []
    for benchmark, dataset, length in data_sets(config, every):
        if not Path(files.records(benchmark, dataset, length)).is_file():
            size = _records_size(config, benchmark, dataset, length)
            if size is None:
                unknown.append(f"{benchmark}/{dataset}/{length}")
            needed["resources"] += size or 0
    for cell in every:
        if not Path(files.predictions(cell)).is_file() and isinstance(config.models[cell.model], ModelOptions):
            calls = expected_of(config, cell)
            calls *= config.options[cell.benchmark].repeats
            answer = config.max_new_tokens(cell.benchmark, cell.dataset)
            answer += longest_call(config.settings.get(cell.setting))
            reasoning = config.runnable(cell.model).reasoning
            answer += reasoning.max_tokens if reasoning else 0
            needed["results"] += calls * (ROW_BYTES + TOKEN_BYTES * answer)
    for name, folder in (("resources", files.resources), ("results", files.results)):
        free, wanted = shutil.disk_usage(_existing(folder)).free, needed[name]
        text = f"{size_words(wanted)} to come, {size_words(free)} free in {folder}"
        if wanted > free:
            yield Check("problem", f"disk ({name})", f"{text}; make room, or name another folder under run.{name}")
        elif name == "resources" and unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            yield Check(
                "cannot be told", f"disk ({name})", f"{text}, without {unknown[0]}{more}, which is not here yet"
            )
        else:
            yield Check("ok", f"disk ({name})", text)


def _records_size(config: Config, benchmark: str, dataset: str, length: str) -> int | None:
    """Bytes that a records file will have: those of what it is made of. None where that is not here."""
    loaded = benchmarks.load(benchmark)
    try:
        sources = loaded.module.sources(
            loaded.task(dataset), length, config.options[benchmark], Files(config).resources
        )
        first = Path(sources[0])
        if first.suffix != ".zip":
            return first.stat().st_size
        with zipfile.ZipFile(first) as archive:
            sizes = {item.filename.rsplit("/", 1)[-1]: item.file_size for item in archive.infolist()}
    except (UserError, OSError, IndexError, zipfile.BadZipFile):
        return None
    names = (f"{dataset}_{length}.jsonl", f"{dataset}_e.jsonl" if benchmark.endswith("_e") else f"{dataset}.jsonl")
    return next((sizes[name] for name in names if name in sizes), None)
