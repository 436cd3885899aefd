"""Cells, their files and their specifications: one source for the rules and for every command beside them.

A cell is benchmark x model x setting x data set x length. A specification (*spec*) is a JSON value that holds
everything that may change a file and nothing that may not; it is the one parameter of a rule, so that Snakemake runs
a rule again exactly when its spec changes.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from longflow import __version__, benchmarks, imported
from longflow.benchmarks import length_units
from longflow.config import Config, ImportedModel
from longflow.errors import UserError
from longflow.figures import OF_RECORDS, figures
from longflow.jsonio import canonical, digest
from longflow.secrets import without_secrets
from longflow.settings import FULL, NoContext, fits, has_records, rows_per_record, spec_of
from longflow.settings import VERSION as SETTINGS_VERSION
from longflow.specs import spec_digest

HERE = Path(__file__).parent

INFERENCE_VERSION = 2
"""Raised when a change of code changes predictions; every prediction is then made anew."""

RECORDS_VERSION = 1
"""Raised when a change of code changes records."""

DATA_OPTIONS = ("revision", "records", "seed", "substitution", "datasets_from")
"""Options of benchmarks that tell which records were taken, for the protocol."""


@dataclass(frozen=True, order=True)
class Cell:
    """The unit of work: one model on one data set at one length."""

    benchmark: str
    model: str
    setting: str
    dataset: str
    length: str

    @property
    def name(self) -> str:
        """The cell as a path: benchmark/model/setting/dataset/length."""
        return f"{self.benchmark}/{self.model}/{self.setting}/{self.dataset}/{self.length}"

    @classmethod
    def parse(cls, name: str) -> Cell:
        """A cell by its name. Raises UserError."""
        parts = name.split("/")
        if len(parts) != 5:
            raise UserError(f"{name!r} is no cell; a cell is benchmark/model/setting/dataset/length")
        return cls(*parts)


def cells(config: Config) -> Iterator[Cell]:
    """The cells of a run: benchmark by benchmark, model by model, short lengths first.

    Of a model whose predictions were made elsewhere these are the cells that have a file, in the setting `full`. Other
    settings have only cells of data sets that they make sense for. Raises UserError where no cell has a file, or one
    has two.
    """
    for benchmark in config.run.benchmarks:
        for model in config.run.models:
            found = None
            if isinstance(config.models[model], ImportedModel):
                found = imported_files(config, model, benchmark)
            for setting in config.run.settings:
                for length in config.lengths(benchmark):
                    for dataset in config.datasets(benchmark):
                        task = benchmarks.load(benchmark).task(dataset)
                        if setting != FULL and (found is not None or not fits(config.settings[setting], task)):
                            continue
                        if found is None or (dataset, length) in found:
                            yield Cell(benchmark, model, setting, dataset, length)


def settings_of(config: Config, benchmark: str) -> dict[str, BaseModel]:
    """The settings beside `full` that a benchmark has cells in, by name."""
    names = {cell.setting for cell in cells(config) if cell.benchmark == benchmark}
    return {name: config.settings[name] for name in config.run.settings if name in names and name != FULL}


@functools.cache
def imported_files(config: Config, model: str, benchmark: str) -> dict[tuple[str, str], str]:
    """The files of predictions made elsewhere, by data set and length; looked for once in a process."""
    entry = config.models[model]
    assert isinstance(entry, ImportedModel)
    table = benchmarks.load(benchmark)
    wanted = [(dataset, length) for dataset in config.datasets(benchmark) for length in config.lengths(benchmark)]
    if entry.pattern is not None:
        if wrong := imported.pattern_error(entry.pattern, len(table.tasks)):
            raise UserError(f"models.{model}.pattern: {entry.pattern!r}: {wrong}")
        patterns = [entry.pattern]
    else:
        patterns = imported.default_patterns(table.lengths, benchmark, single=len(table.tasks) == 1)
    return imported.find(entry.path, patterns, wanted, f"models.{model}")


def absent(config: Config) -> dict[tuple[str, str], list[str]]:
    """Cells that were asked for and have no file of predictions made elsewhere, by benchmark and model."""
    found: dict[tuple[str, str], list[str]] = {}
    for benchmark in config.run.benchmarks:
        for model in config.run.models:
            if isinstance(config.models[model], ImportedModel):
                here = imported_files(config, model, benchmark)
                missing = [
                    f"{dataset}/{length}"
                    for dataset in config.datasets(benchmark)
                    for length in config.lengths(benchmark)
                    if (dataset, length) not in here
                ]
                if missing:
                    found[benchmark, model] = missing
    return found


class Files:
    """Where the files of a run are, relative to the working directory."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.results = config.run.results
        self.resources = config.run.resources
        self.journal = config.run.journal_folder

    def model(self, model: str) -> str:
        """The identity of a model and where it was found; another model under the same name is another file."""
        return f"{self.resources}/models/{model}/{spec_digest(model_spec(self.config, model))}/model.json"

    def records(self, benchmark: str, dataset: str, length: str) -> str:
        """The records of a data set at a length."""
        return f"{self.resources}/records/{benchmark}/{dataset}/{length}.jsonl"

    def records_of(self, cell: Cell) -> str:
        """The records that a cell's predictions are made of: the data set's, or its setting's."""
        if cell.setting == FULL or not has_records(self.config.settings[cell.setting]):
            return self.records(cell.benchmark, cell.dataset, cell.length)
        return f"{self.resources}/retrieved/{cell.benchmark}/{cell.setting}/{cell.dataset}/{cell.length}.jsonl"

    def predictions(self, cell: Cell) -> str:
        """The predictions of a cell; the digest of their spec stands beside them as .spec."""
        return f"{self.results}/predictions/{cell.name}.jsonl"

    def from_batch(self, cell: Cell) -> str:
        """The predictions of a cell as its batch gave them, or why it has none (`batch_files`)."""
        return f"{self.results}/batches/{cell.name}.jsonl"

    def shards(self, cell: Cell, number: int) -> list[str]:
        """What each shard of a cell says of itself: what failed, and what it cost."""
        return [f"{self.results}/shards/{cell.name}/{shard}-{number}.json" for shard in range(number)]

    @property
    def usage_folder(self) -> str:
        """Where time and tokens are kept, by cell."""
        return f"{self.results}/usage"

    def usage(self, cell: Cell) -> str:
        """Time and tokens that a cell cost."""
        return f"{self.usage_folder}/{cell.name}.json"

    def journal_of(self, cell: Cell) -> str:
        """The folder of a cell's journal."""
        return f"{self.journal}/{cell.name}"

    def score(self, cell: Cell) -> str:
        """The score of a cell; one line per record stands beside it as .jsonl."""
        return f"{self.results}/scores/{cell.name}.json"

    def score_lines(self, cell: Cell) -> str:
        """The scores of a cell's records, one line each."""
        return f"{self.results}/scores/{cell.name}.jsonl"

    def anatomy(self, cell: Cell) -> str:
        """What became of each record of a cell, one line each."""
        return f"{self.results}/anatomy/{cell.name}.jsonl"

    def anatomy_summary(self, cell: Cell) -> str:
        """The counts of a cell's anatomy."""
        return f"{self.results}/anatomy/{cell.name}.json"

    def anatomies(self, benchmark: str, model: str, setting: str) -> str:
        """The counts of all cells of a model in a setting; written when the anatomies of all of them are."""
        return f"{self.results}/anatomy/{benchmark}/{model}/{setting}.json"

    def analysis(self, benchmark: str) -> str:
        """Intervals, differences and effective lengths of a benchmark."""
        return f"{self.results}/analysis/{benchmark}.json"

    @property
    def provenance(self) -> str:
        """What made the results."""
        return f"{self.results}/provenance.json"

    @property
    def plan(self) -> str:
        """What the run was expected to take, if it was asked."""
        return f"{self.results}/plan.json"

    @property
    def report(self) -> str:
        """The report, one file to read."""
        return f"{self.results}/report.html"

    @property
    def citations(self) -> str:
        """What to cite for the run, as BibTeX."""
        return f"{self.results}/CITATIONS.bib"

    @property
    def leaderboard_long(self) -> str:
        """The leaderboard of all benchmarks, one score a row."""
        return f"{self.results}/leaderboard.csv"

    def leaderboard(self, benchmark: str) -> str:
        """The leaderboard of a benchmark, one model a row."""
        return f"{self.results}/leaderboard/{benchmark}.csv"

    def plots(self, benchmark: str) -> list[str]:
        """The plots of a benchmark."""
        folder = f"{self.results}/plots/{benchmark}"
        names = figures(benchmark, settings_of(self.config, benchmark))
        return [f"{folder}/{name}.{kind}" for name in names for kind in ("svg", "png", "pdf")]

    def record_plots(self, benchmark: str) -> list[str]:
        """The plots of what became of a benchmark's records."""
        folder = f"{self.results}/plots/{benchmark}"
        return [f"{folder}/{name}.{kind}" for name in OF_RECORDS for kind in ("svg", "png", "pdf")]

    def table(self, benchmark: str, model: str, setting: str, name: str) -> str:
        """A file among the tables of a model."""
        return f"{self.results}/tables/{benchmark}/{model}/{setting}/{name}"


def records_spec(config: Config, benchmark: str, dataset: str, length: str) -> str:
    """What makes a records file: the benchmark's options that concern records, and the version of the code.

    A source folder is among them, since two runs that share their resources may name two folders; records that are
    the same after all cost nothing, the journal knows them.
    """
    options = config.options[benchmark].of_records(dataset)
    return canonical(
        {"benchmark": benchmark, "dataset": dataset, "length": length, **options, "version": RECORDS_VERSION}
    )


def setting_spec(config: Config, setting: str) -> str:
    """What makes the records of a setting: its entry, and the version of the code."""
    limit = config.run.limit
    return canonical({"setting": spec_of(config.settings[setting]), "limit": limit, "version": SETTINGS_VERSION})


def model_files(config: Config, model: str) -> list[str]:
    """The files that a local model is made of, so that one trained anew in its old place is noticed."""
    kept = (".json", ".jinja", ".safetensors", ".bin", ".pt", ".model", ".gguf", ".py")
    found: list[str] = []
    for name in ("path", "tokenizer"):
        path = Path(getattr(config.models[model], name, None) or "")
        if path.is_file():
            found.append(str(path))
        elif path != Path() and path.is_dir():
            found += sorted(str(file) for file in path.iterdir() if file.is_file() and file.suffix in kept)
    return found


def model_spec(config: Config, model: str) -> str:
    """What decides which model this is, as far as the configuration tells."""
    entry = config.runnable(model).entry()
    keys = ("engine", "path", "revision", "tokenizer", "model", "identity", "options", "config_overrides")
    return canonical({key: entry[key] for key in keys if entry.get(key) is not None})


def generation(config: Config, benchmark: str, model: str, dataset: str) -> dict[str, Any]:
    """How the answers to a data set are generated: the benchmark's way, unless the model's entry says otherwise."""
    entry, table = config.runnable(model), benchmarks.load(benchmark)
    task = table.task(dataset)
    temperature = entry.temperature if entry.temperature is not None else float(table.table.get("temperature", 0.0))
    return {
        "max_new_tokens": config.max_new_tokens(benchmark, dataset),
        "temperature": temperature,
        "top_p": entry.top_p if temperature else 1.0,
        "seed": config.run.seed if temperature else None,
        "min_new_tokens": int(task.extra.get("min_new_tokens", 0)),
        "stop_newline": bool(task.extra.get("stop_newline", False)),
    }


def predict_spec(config: Config, cell: Cell) -> str:
    """Everything in the configuration that may change a cell's predictions."""
    made_elsewhere = config.models[cell.model]
    if isinstance(made_elsewhere, ImportedModel):
        return canonical({"model": made_elsewhere.spec(), "version": INFERENCE_VERSION})
    model = config.runnable(cell.model)
    limit, _ = config.prompt_limit(cell.model, cell.benchmark, cell.setting)
    table = benchmarks.load(cell.benchmark)
    task = table.task(cell.dataset)
    return canonical(
        {
            "model": model.spec(),
            "benchmark": cell.benchmark,
            "setting": None if cell.setting == FULL else spec_of(config.settings[cell.setting]),
            "prompt": config.prompt_template(cell.benchmark, cell.dataset),
            "wrap": task.extra.get("wrap", True),
            "max_prompt_tokens": limit,
            "truncation": table.table.get("truncation", "middle"),
            "generation": generation(config, cell.benchmark, cell.model, cell.dataset),
            "limit": limit_of(config, cell),
            "language": task.language,
            "repeats": config.options[cell.benchmark].repeats,
            "version": INFERENCE_VERSION,
        }
    )


def limit_of(config: Config, cell: Cell) -> int | None:
    """How many rows of a cell's records file are taken: those of the run's first N records."""
    task = benchmarks.load(cell.benchmark).task(cell.dataset)
    rows = rows_per_record(config.settings.get(cell.setting), task)
    return config.run.limit * rows if config.run.limit else None


def expected_records(config: Config, benchmark: str, dataset: str, length: str, setting: str = FULL) -> int:
    """How many records a cell has: the benchmark's number, or a run's own smaller choice. Repeats are not counted."""
    options = config.options[benchmark]
    own = getattr(options, "records", None)
    task = benchmarks.load(benchmark).task(dataset)
    n = own or task.records(length)
    return min(n, config.run.limit or n) * rows_per_record(config.settings.get(setting), task)


def expected_of(config: Config, cell: Cell) -> int:
    """How many records a cell's predictions should have. Of those made elsewhere all are taken, whatever the limit."""
    if isinstance(config.models[cell.model], ImportedModel):
        own = getattr(config.options[cell.benchmark], "records", None)
        return own or benchmarks.load(cell.benchmark).task(cell.dataset).records(cell.length)
    return expected_records(config, cell.benchmark, cell.dataset, cell.length, cell.setting)


def score_spec(config: Config, cell: Cell) -> str:
    """What decides a cell's scores: its metric, and the code of the metrics, so that editing them scores anew."""
    from longflow import metrics

    table = benchmarks.load(cell.benchmark)
    task, options = table.task(cell.dataset), config.options[cell.benchmark]
    expected = expected_of(config, cell)
    rotations = rows_per_record(config.settings.get(cell.setting), task)
    whole = expected == task.records(cell.length) * rotations
    imported_rows = isinstance(config.models[cell.model], ImportedModel)
    repeats = 1 if imported_rows else options.repeats
    return canonical(
        {
            **dict(zip(("benchmark", "model", "setting", "dataset", "length"), cell.name.split("/"), strict=True)),
            "metric": task.metric,
            "language": task.language,
            "category": task.category,
            "n_expected": expected * repeats,
            "repeats": repeats,
            "rouge_overflow": options.rouge_overflow,
            "code_similarity": options.code_similarity,
            "answers": task.extra.get("answers", "first"),
            "clean": task.extra.get("clean"),
            "rounding": table.table.get("rounding", "python"),
            # How many records of each group there should be is known of the whole data set only.
            "groups": [[name, n * rotations * repeats] for name, n in task.extra.get("groups", {}).items()]
            if whole
            else [],
            "rows": getattr(config.models[cell.model], "rows", "all"),
            "code": [metrics.code_digest(), _code(f"benchmarks/{cell.benchmark}.py")],
        }
    )


def without_context(config: Config, cell: Cell) -> Cell | None:
    """The cell that asks the same questions of the same model without any context, if the run has one."""
    blind = [name for name in config.run.settings if isinstance(config.settings.get(name), NoContext)]
    fitting = blind and fits(config.settings[blind[0]], benchmarks.load(cell.benchmark).task(cell.dataset))
    if not fitting or cell.setting in blind or isinstance(config.models[cell.model], ImportedModel):
        return None
    return replace(cell, setting=blind[0])


def anatomy_spec(config: Config, cell: Cell) -> str:
    """What decides the anatomy of a cell, beside its predictions, scores and records."""
    from longflow.anatomy.slices import marks

    scored = json.loads(score_spec(config, cell))
    made_elsewhere = isinstance(config.models[cell.model], ImportedModel)
    kept = (
        *("benchmark", "model", "setting", "dataset", "length", "metric", "language", "category"),
        "answers",
        "clean",
    )
    return canonical(
        {
            **{name: scored[name] for name in kept},
            "prompt": None if made_elsewhere else config.prompt_template(cell.benchmark, cell.dataset),
            "marks": marks(benchmarks.load(cell.benchmark).task(cell.dataset)),
            "code": _code("anatomy/*", "metrics/text.py", "metrics/stopwords.yaml", "metrics/outcome.py", "score.py"),
        }
    )


def anatomies_spec(config: Config, benchmark: str, model: str, setting: str) -> str:
    """What decides the anatomies of a model's cells."""
    chosen = [c for c in cells(config) if (c.benchmark, c.model, c.setting) == (benchmark, model, setting)]
    return canonical({"cells": digest([anatomy_spec(config, cell) for cell in chosen])})


def analysis_spec(config: Config, benchmark: str) -> str:
    """What decides the analysis of a benchmark: its cells, the baseline without context, and the code."""
    names = [c.name for c in cells(config) if c.benchmark == benchmark]
    blind = [name for name in config.run.settings if isinstance(config.settings.get(name), NoContext)]
    code = _code("statistics/*", "means.py", "benchmarks/*")
    return canonical({"cells": digest(names), "without_context": blind, "seed": config.run.seed, "code": code})


@functools.cache
def _code(*names: str) -> str:
    """A digest of parts of the library, for the specs of cheap stages: editing them makes their files anew."""
    found = sorted(path for name in names for path in HERE.glob(name) if path.is_file())
    return digest([hashlib.sha256(path.read_bytes()).hexdigest() for path in found])[:16]


def protocol(config: Config, benchmark: str, model: str, setting: str) -> dict[str, Any]:
    """How the scores of a model come about, as far as the configuration tells: the facts of protocol.json."""
    table = benchmarks.load(benchmark)
    options, made_elsewhere = config.options[benchmark], config.models[model]
    datasets = config.datasets(benchmark)
    scoring = {
        "metrics": {name: table.task(name).metric for name in datasets},
        "metric_options": {
            "rouge_overflow": options.rouge_overflow,
            "code_similarity": options.code_similarity,
            "answers": {name: table.task(name).extra.get("answers", "first") for name in datasets},
        },
    }
    if isinstance(made_elsewhere, ImportedModel):
        return {
            "benchmark": benchmark,
            "model": model,
            "setting": setting,
            "longflow": __version__,
            "predictions": "made elsewhere: prompts, truncation and generation are not known",
            "rows": made_elsewhere.rows,
            "reasoning": made_elsewhere.spec()["reasoning"],
            "absent": absent(config).get((benchmark, model), []),
            **scoring,
        }
    entry = config.runnable(model)
    limit, why = config.prompt_limit(model, benchmark, setting)
    from_hub = getattr(options, "source", None) == "hub"
    spec = entry.spec()
    return {
        "benchmark": benchmark,
        "model": model,
        "setting": setting,
        "setting_options": None if setting == FULL else spec_of(config.settings[setting]),
        "longflow": __version__,
        "inference_version": INFERENCE_VERSION,
        "data": {
            **{name: table.table[name] for name in ("repository", "commit") if name in table.table},
            **({name: table.table[name] for name in ("hub", "revision")} if from_hub else {"source": "a local folder"}),
            **{
                name: value
                for name, value in options.model_dump().items()
                if name in DATA_OPTIONS and value is not None
            },
        },
        "first_records_only": config.run.limit,
        "prompts_sha256": {
            name: hashlib.sha256(template.encode("utf-8")).hexdigest()
            for name in datasets
            if (template := config.prompt_template(benchmark, name)) is not None
        },
        "prompt_files_sha256": table.table.get("prompt_files", {}),
        "own_prompts": sorted(options.prompts),
        "chat": {name: spec[name] for name in ("chat", "chat_options", "chat_date")},
        "not_wrapped": [name for name in datasets if not table.task(name).extra.get("wrap", True)],
        "truncation": {
            "rule": f"{table.table.get('truncation', 'middle')}, before the chat wrapper",
            "max_prompt_tokens": limit,
            "why": why,
        },
        "stop": "an end-of-sequence token or max_new_tokens",
        "repeats": options.repeats,
        "generation": {name: generation(config, benchmark, model, name) for name in datasets},
        **scoring,
        "compute": {
            name: without_secrets(value, name)
            for name, value in spec.items()
            if name not in ("chat", "chat_options", "chat_date", "path")
        },
    }


def table_spec(config: Config, benchmark: str, model: str, setting: str) -> str:
    """What decides the tables of a model: its cells, the protocol, and the code that writes them."""
    names = [c.name for c in cells(config) if (c.benchmark, c.model, c.setting) == (benchmark, model, setting)]
    code = _code("tables.py", "benchmarks/*")
    return canonical({"cells": digest(names), "protocol": protocol(config, benchmark, model, setting), "code": code})


def leaderboard_spec(config: Config) -> str:
    """What decides the leaderboard: the cells, the published rows, and the code."""
    code = _code("leaderboard.py", "means.py", "published.py", "published/*", "tables.py", "benchmarks/*")
    return canonical({"cells": digest([c.name for c in cells(config)]), "code": code})


def citations_spec(config: Config) -> str:
    """What decides the citations of a run: its data sets, and the entries there are."""
    chosen = {benchmark: config.datasets(benchmark) for benchmark in config.run.benchmarks}
    return canonical({"datasets": chosen, "code": _code("citations.py", "citations.bib")})


def record_plots_spec(config: Config, benchmark: str) -> str:
    """What decides the plots of what became of a benchmark's records: its cells, and the code."""
    names = [cell.name for cell in cells(config) if cell.benchmark == benchmark]
    code = _code("plots/*", "figures.py", "style.py", "fonts.py", "anatomy/*")
    return canonical({"benchmark": benchmark, "cells": digest(names), "code": code})


def report_spec(config: Config) -> str:
    """What decides the report beside the files that it reads: the cells, and the code."""
    code = _code(
        *("report/*", "report/templates/*", "plots/*", "figures.py", "style.py", "fonts.py", "anatomy/*"),
        *("statistics/*", "leaderboard.py", "means.py", "published.py", "published/*", "benchmarks/*"),
    )
    return canonical({"cells": digest([cell.name for cell in cells(config)]), "code": code})


def provenance_spec(config: Config) -> str:
    """What decides what is said of how results were made: all of the configuration, addresses and numbers included."""
    return canonical({"configuration": digest(config.merged), "code": _code("provenance.py")})


def plots_spec(config: Config, benchmark: str) -> str:
    """What decides the plots of a benchmark: its cells, the published rows, and the code."""
    names = [c.name for c in cells(config) if c.benchmark == benchmark]
    drawing = ("plots/*", "figures.py", "style.py", "fonts.py", "metrics/*")
    code = _code("leaderboard.py", "means.py", "published.py", "published/*", "tables.py", "benchmarks/*", *drawing)
    settings = {name: spec_of(setting) for name, setting in settings_of(config, benchmark).items()}
    return canonical({"benchmark": benchmark, "cells": digest(names), "settings": settings, "code": code})


def memory_mb(config: Config, cell: Cell, attempt: int = 1) -> int:
    """Memory of a cell's job in MB, growing with the attempt: as configured, or a guess on the safe side.

    Without a word in the configuration: 4 GB for Python, torch and a small model on the CPU, 24 GB to load a larger
    one for GPUs, 1 GB for a client; and for every thousand words of a record 20 MB for its text and tokens.
    """
    model = config.runnable(cell.model)
    own = model.mem_mb.get(cell.length) if isinstance(model.mem_mb, dict) else model.mem_mb
    base = 1000 if model.engine == "openai" and not model.entry()["serve"] else 24_000 if model.gpu else 4000
    return (own or base + 20 * length_units(cell.length) // 1000) * attempt


def runtime_minutes(config: Config, cell: Cell, attempt: int = 1) -> int:
    """Time of a cell's job in minutes, growing with the attempt: as configured, or half an hour and 3 per 1k words."""
    model = config.runnable(cell.model)
    own = model.runtime.get(cell.length) if isinstance(model.runtime, dict) else model.runtime
    return (own or 30 + 3 * length_units(cell.length) // 1000) * attempt
