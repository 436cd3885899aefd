"""The data: records or what they are made of, predictions made elsewhere, what settings need."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from longflow import benchmarks, cells
from longflow.cells import Cell, Files
from longflow.config import Config, ModelOptions
from longflow.doctor.check import Check, Checks
from longflow.errors import UserError
from longflow.jsonio import read_jsonl
from longflow.retrieval import RagOptions


def data_sets(config: Config, every: Iterable[Cell]) -> list[tuple[str, str, str]]:
    """The data sets whose records are needed: all but those of predictions made elsewhere alone."""
    ours = [cell for cell in every if isinstance(config.models[cell.model], ModelOptions)]
    return list(dict.fromkeys((cell.benchmark, cell.dataset, cell.length) for cell in ours))


def data(config: Config, every: Sequence[Cell]) -> Checks:
    """Whether the records are there and complete, or what they are made of, and its first record as it should be."""
    for benchmark in config.run.benchmarks:
        good, faults, absent = 0, [], []
        for name, dataset, length in data_sets(config, every):
            if name == benchmark:
                fault, missing = _data_fault(config, benchmark, dataset, length)
                good += not fault and not missing
                faults += [f"{dataset} at {length}: {fault}"] if fault else []
                absent += missing
        for fault in faults:
            yield Check("problem", f"data of {benchmark}", fault)
        if absent:
            files = sorted(set(absent))
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            text = f"not here yet: {files[0]}{more}; fetch it where there is network: snakemake download"
            yield Check("problem", f"data of {benchmark}", text)
        if good:
            yield Check("ok", f"data of {benchmark}", f"{good} data sets and lengths are here")


def _data_fault(config: Config, benchmark: str, dataset: str, length: str) -> tuple[str | None, list[str]]:
    """What is wrong with the data of one data set at one length, and which files are still to be downloaded."""
    files, options, loaded = Files(config), config.options[benchmark], benchmarks.load(benchmark)
    task = loaded.task(dataset)
    records = Path(files.records(benchmark, dataset, length))
    try:
        if records.is_file():
            found = sum(1 for _ in read_jsonl(records))
            expected = getattr(options, "records", None) or task.records(length)
            if found != expected:
                return f"{records} has {found} records, {expected} were expected; delete it to have it made anew", []
            return None, []
        sources = loaded.module.sources(task, length, options, files.resources)
        absent = [source for source in sources if not Path(source).is_file()]
        if absent:
            return None, absent
        # The first record shows whether the files are what they should be; the others are checked when they are used.
        if next(iter(loaded.module.prepare(task, length, options, sources)), None) is None:
            return f"{', '.join(sources)}: no records", []
    except UserError as error:
        return str(error), []
    return None, []


def imported(config: Config, name: str, every: Sequence[Cell]) -> Checks:
    """Predictions made elsewhere: which of the cells have a file."""
    own = sum(cell.model == name for cell in every)
    missing = [cell for (_, model), found in cells.absent(config).items() if model == name for cell in found]
    said = f"{own} files of predictions" + (f"; none for {', '.join(missing)}" if missing else "")
    yield Check("ok" if own else "problem", f"models.{name}", said)


def settings(config: Config) -> Checks:
    """What retrieval needs: packages, models, tokenizers, keys."""
    for name in config.run.settings:
        setting = config.settings.get(name)
        if not isinstance(setting, RagOptions):
            continue
        what, key = f"settings.{name}", setting.api_key_env
        faults = []
        if setting.retriever.startswith("bm25") and importlib.util.find_spec("rank_bm25") is None:
            faults.append("the package rank-bm25 is not installed; pip install -r requirements.txt")
        local = setting.retriever == "dense" and setting.base_url is None
        if local and importlib.util.find_spec("torch") is None:
            faults.append("the package torch is not installed; pip install -r requirements.txt")
        for option, value in (("model", setting.model if local else None), ("tokenizer", setting.tokenizer)):
            if value and value.startswith(("/", ".", "~")) and not Path(value).expanduser().is_dir():
                faults.append(f"{option}: there is no folder {value}; mend it")
        if setting.base_url and not os.environ.get(key) and "api.openai.com" in setting.base_url:
            faults.append(f"{key} is not set; export it with the API key")
        for fault in faults:
            yield Check("problem", what, fault)
        if not faults:
            yield Check("ok", what, f"{setting.retriever} has what it needs, as far as it is named here")
