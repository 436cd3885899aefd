"""The tokens of a cell: how many are to be prefilled after truncation, and what the journal answers already.

Three ways, the best that is possible:

- *counted*: every prompt is rendered, cut and wrapped by the code that a run uses, with the model's own tokenizer;
- *records*: every prompt is rendered, and its length in characters turned into tokens by a rate measured on samples of
  these very prompts (by a typical rate where the model's tokenizer is not here);
- *table*: there are no records and nothing to make them of, so the lengths are those that the benchmark's table states.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from longflow import benchmarks, settings
from longflow.benchmarks import Task, length_units
from longflow.cell_run import Job
from longflow.cells import Cell, Files, expected_records
from longflow.config import Config
from longflow.engines import Request, Tokenizer
from longflow.errors import UserError
from longflow.plan import shared
from longflow.plan.walk import ReadOnlyJournal, Teller, Walk
from longflow.prompts import wrap
from longflow.records import Record, read_records
from longflow.retrieval import RagOptions
from longflow.settings import FULL, NoContext
from longflow.turns import turns_of

EN, ZH = 0.26, 1.1
"""Typical tokens a character, of alphabets and code, and of Chinese (SmolLM2 0.28 and 2.0, Gemma 3 0.26 and 0.99)."""

EN_ERROR, ZH_ERROR = 0.25, 0.8
"""How far tokenizers are from these, about."""

WORD = 5.7
"""Characters of an English word with the space before it."""

WRAPPER = 30
"""Tokens of a chat wrapper that cannot be told."""

QUESTION = 40
"""Tokens of a question, with the prompt's template where that is in records which are not there."""

TABLE_ERROR = 0.15
"""How far texts of one stated length are from each other in tokens."""

SAMPLE_ERROR = 0.02
"""What samples cannot tell: where they are cut, and what stands between them."""

_SAMPLES, _SLICE = 12, 2000
_CHINESE = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")

Source = Callable[[], Iterator[Record]]


@dataclass
class CellTokens:
    """What a cell will take.

    Attributes:
        records: the records it has.
        calls: calls of the model in all, and `in_journal` those that it answers (None: it cannot be told).
        prompt_tokens: tokens of the prompts of all calls, and `to_prefill` of those that the journal does not answer,
            as they are sent: cut and wrapped.
        answer_tokens: tokens of the answers to come, at most.
        longest: tokens of the prompt to come that needs the most memory, and those that its answer may have.
        truncated: prompts to come that are cut.
        basis: counted, records or table.
        error: how far the tokens may be off, as a share of them.
        beginnings: the beginnings of the prompts to come, in blocks of `block` tokens.
        problem: why nothing can be told, or why the cell cannot run.
    """

    records: int = 0
    calls: int = 0
    in_journal: int | None = 0
    prompt_tokens: int = 0
    to_prefill: int = 0
    answer_tokens: int = 0
    longest: tuple[int, int] = (0, 0)
    truncated: int = 0
    basis: str = "counted"
    error: float = 0.0
    beginnings: list[shared.Blocks] = field(default_factory=list)
    block: float = shared.BLOCK_TOKENS
    problem: str | None = None

    def add(self, tokens: int, answer: int, cut: bool, calls: int = 1) -> None:
        """Count calls that are to be made."""
        self.calls += calls
        self.prompt_tokens += tokens * calls
        self.to_prefill += tokens * calls
        self.answer_tokens += answer * calls
        self.truncated += calls if cut else 0
        self.longest = max(self.longest, (tokens, answer), key=sum)

    def known(self, tokens: int) -> None:
        """Count a call that the journal answers."""
        self.calls += 1
        self.in_journal = (self.in_journal or 0) + 1
        self.prompt_tokens += tokens


def of_cell(
    config: Config, cell: Cell, job: Job, exact: Teller | None, light: Tokenizer | None, journal_known: bool
) -> CellTokens:
    """The tokens of a cell, counted if `exact` gives a tokenizer, else estimated.

    Args:
        config: the configuration.
        cell: the cell.
        job: what its job would be told.
        exact: gives the model's tokenizer, None to estimate.
        light: a tokenizer for samples, None for typical rates.
        journal_known: whether the model's identity is known, by which the journal is asked.
    """
    source = records_of(config, cell)
    journal = ReadOnlyJournal(job.journal)
    if source is None:
        found = _from_table(config, cell, job, light)
    else:
        walk = Walk(job, journal, exact or Teller(lambda: None), source, exact is not None)
        try:
            found = _counted(walk, exact) if exact is not None else _estimated(walk, light)
        except UserError as error:
            found = CellTokens(problem=str(error))
        found.records = sum(1 for _ in source())
    if not journal_known or source is None:
        found.in_journal = None if journal.answers else 0
    return found


def records_of(config: Config, cell: Cell) -> Source | None:
    """Where the records of a cell come from: its file, or what that will be made of; None if neither is here."""
    files, limit = Files(config), config.run.limit
    path = files.records_of(cell)
    if Path(path).is_file():
        return lambda: read_records(path, limit)
    base: Source
    own = files.records(cell.benchmark, cell.dataset, cell.length)
    if Path(own).is_file():
        base = lambda: read_records(own)  # noqa: E731
    else:
        benchmark, options = benchmarks.load(cell.benchmark), config.options[cell.benchmark]
        task = benchmark.task(cell.dataset)
        try:
            sources = benchmark.module.sources(task, cell.length, options, files.resources)
        except UserError:
            return None
        if not sources or not all(Path(source).is_file() for source in sources):
            return None
        base = lambda: benchmark.module.prepare(task, cell.length, options, sources)  # noqa: E731
    if cell.setting == FULL or not settings.has_records(config.settings[cell.setting]):
        return lambda: islice(base(), limit)
    setting = config.settings[cell.setting]
    # What retrieval finds is not known before it has searched.
    return (lambda: islice(settings.apply(base(), setting), limit)) if isinstance(setting, NoContext) else None


# --- counted ----------------------------------------------------------------------------------------------------------


def _counted(walk: Walk, teller: Teller) -> CellTokens:
    found, owed = CellTokens(), 0
    for step in walk.steps():
        if step.request is None:
            found.known(step.answered or 0)
            continue
        tokenizer = teller.tokenizer()
        if tokenizer is None:
            raise UserError(f"{walk.job.name}: the model has no tokenizer here to count with")
        ids = ids_of(step.request, tokenizer)
        found.add(len(ids) + step.owed, step.request.generation.max_new_tokens, step.cut)
        found.beginnings.append(shared.of_ids(ids))
        owed += step.owed
    # What the model will have answered by then is taken for as long as it may be.
    found.error = round(owed / found.to_prefill, 3) if owed else 0.0
    return found


def ids_of(request: Request, tokenizer: Tokenizer) -> list[int]:
    """The token ids of a request, as far as they can be told: how a server wraps messages only it knows."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, request.special_tokens)
    texts = [part["content"] for part in prompt if isinstance(part, dict)]
    if not texts:
        return [part for part in prompt if isinstance(part, int)]
    text = "\n".join(texts)
    try:
        return tokenizer.encode(tokenizer.chat(text, {}), False)
    except UserError:
        return tokenizer.encode(text, False)


# --- estimated from records -------------------------------------------------------------------------------------------


class Sample:
    """Tokens a character, measured on slices of the first few texts that it is shown."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._rates: list[float] = []
        self._weights: list[int] = []

    def show(self, text: str) -> None:
        """Measure a text, if there are not enough of them yet."""
        if len(self._rates) >= _SAMPLES or not text:
            return
        middle = (len(text) - _SLICE) // 2
        whole = len(text) <= 3 * _SLICE
        slices = [text] if whole else [text[:_SLICE], text[middle : middle + _SLICE], text[-_SLICE:]]
        length = sum(map(len, slices))
        if self._tokenizer is not None:
            tokens: float = sum(len(self._tokenizer.encode(part, False)) for part in slices)
        else:
            chinese = sum(len(_CHINESE.findall(part)) for part in slices)
            tokens = chinese * ZH + (length - chinese) * EN
        self._rates.append(tokens / length)
        self._weights.append(len(text))

    @property
    def rate(self) -> float:
        """Tokens a character."""
        total = sum(self._weights)
        return sum(r * w for r, w in zip(self._rates, self._weights, strict=True)) / total if total else EN

    @property
    def error(self) -> float:
        """Twice the standard error of the rate, as a share of it; what is typical without a tokenizer."""
        if self._tokenizer is None:
            return ZH_ERROR if self.rate > (EN + ZH) / 2 else EN_ERROR
        if len(self._rates) < 2:
            return 0.1
        spread = statistics.stdev(self._rates) / self.rate
        return SAMPLE_ERROR + 2 * spread / math.sqrt(len(self._rates))


def _estimated(walk: Walk, tokenizer: Tokenizer | None) -> CellTokens:
    found = CellTokens(basis="records")
    limit = walk.spec["max_prompt_tokens"]
    sample = Sample(tokenizer)
    block = 0
    calls: list[tuple[int, int, int]] = []
    for step in walk.steps():
        if step.request is None:
            found.known(step.answered or 0)
            continue
        text = str(step.request.prompt)
        sample.show(text)
        # Blocks have the size that the first text suggests; of a text that is cut only the first half stays in place.
        block = block or max(1, round(shared.BLOCK_TOKENS / sample.rate))
        cut = limit is not None and len(text) * sample.rate > limit
        most = int(limit / 2 / sample.rate) if limit is not None and cut else len(text)
        found.beginnings.append(shared.of_text(text, block, most))
        calls.append((len(text), step.owed, step.request.generation.max_new_tokens))
    around = wrapper_tokens(walk.chat, tokenizer, walk.spec["model"]["chat_options"])
    for length, owed, answer in calls:
        tokens = round(length * sample.rate) + owed
        cut = limit is not None and tokens > limit
        found.add((limit if cut else tokens) + around, answer, cut)
    if calls:
        found.error = round(sample.error + sum(owed for _, owed, _ in calls) / found.to_prefill, 3)
    found.block = block * sample.rate
    return found


def wrapper_tokens(chat: str, tokenizer: Tokenizer | None, options: dict[str, Any]) -> int:
    """Tokens that a chat rule puts around a prompt; a usual number where it cannot be told."""
    if tokenizer is not None:
        try:
            wrapped = wrap("", chat, tokenizer, options, messages=False)
            if isinstance(wrapped.prompt, str):
                return len(tokenizer.encode(wrapped.prompt, wrapped.special_tokens))
        except UserError:
            pass
    return 1 if chat == "none" else WRAPPER


# --- estimated from the benchmark's table -----------------------------------------------------------------------------


def _from_table(config: Config, cell: Cell, job: Job, tokenizer: Tokenizer | None) -> CellTokens:
    found = CellTokens(basis="table")
    task = benchmarks.load(cell.benchmark).task(cell.dataset)
    setting = config.settings.get(cell.setting)
    n = expected_records(config, cell.benchmark, cell.dataset, cell.length) * settings.rows_per_record(setting, task)
    found.records = min(n, config.run.limit or n)
    limit = job.spec["max_prompt_tokens"]
    rate, found.error = rate_of(task.language, tokenizer)
    length = characters(cell, task, setting)
    template = job.spec["prompt"] or ""
    frame = round(len(template) * rate) + QUESTION
    around = wrapper_tokens(str(job.spec["model"]["chat"]), tokenizer, job.spec["model"]["chat_options"])
    answer = int(job.spec["generation"]["max_new_tokens"]) + int(
        (job.spec["model"].get("reasoning") or {}).get("max_tokens", 0)
    )
    unknown = length is None
    if length is None:
        # As much as there may be: nothing says how long the texts are.
        context, found.error = limit or 0, 1.0
    else:
        context = round(length * rate)
    calls = found.records * job.spec.get("repeats", 1)
    whole = context + frame
    cut = limit is not None and whole > limit
    thoughts = turns_of(job.spec.get("setting"), job.spec["prompt"]).count > 1
    sent = (limit if cut and limit is not None else whole) + around
    if thoughts and setting is not None:
        more = int(getattr(setting, "max_new_tokens", 0))
        words = getattr(setting, "piece_words", None)
        if words:
            pieces = max(1, round((length or 0) / (WORD if task.language == "en" else 1) / words))
            found.add(context // pieces + frame + around, more, False, calls * pieces)
            found.add(min(more * pieces, limit or more * pieces) + frame + around, answer, False, calls)
        else:
            found.add(sent, more, cut, calls)
            found.add(frame + more + around, answer, False, calls)
    else:
        found.add(sent, answer, cut and not unknown, calls)
    if limit is not None and not cut:
        # Texts of a data set are of unequal length: the longest may well reach the limit, unless a level says not.
        top = whole + around if length_units(cell.length) else limit + around
        found.longest = (max(found.longest[0], min(round(top * (1 + found.error)), limit + around)), answer)
    return found


def characters(cell: Cell, task: Task, setting: Any) -> int | None:
    """Characters of a context as the benchmark's table states them, None where it does not.

    A level, or a data set's mean length, counts words in English and characters in Chinese, for the demo pairs of them.
    """
    if isinstance(setting, NoContext):
        return 0
    units = length_units(cell.length) or int(task.extra.get("mean_length", 0))
    found = None
    if units:
        unit = str(benchmarks.load(cell.benchmark).table.get("length_unit", ""))
        found = units * (2 if "pairs" in unit else 1) if task.language == "zh" else round(units * WORD)
    if isinstance(setting, RagOptions):
        words = setting.top_n * setting.chunk_size
        retrieved = words if task.language == "zh" else round(words * WORD)
        return retrieved if found is None else min(retrieved, found)
    return found


def rate_of(language: str, tokenizer: Tokenizer | None) -> tuple[float, float]:
    """Tokens a character of a language, measured on the demo's documents with the model's tokenizer, and the error."""
    path = benchmarks.HERE.parents[1] / "demo" / f"distractors_{'zh' if language == 'zh' else 'en'}.yaml"
    if tokenizer is None or not path.is_file():
        return (ZH, ZH_ERROR + TABLE_ERROR) if language == "zh" else (EN, EN_ERROR + TABLE_ERROR)
    from longflow.builder import read_distractors

    sample = Sample(tokenizer)
    for text in islice(read_distractors(path).stream("plan"), _SAMPLES):
        sample.show(text)
    return sample.rate, TABLE_ERROR
