"""One cell on its way: from records to requests that the journal lacks, and from answers to predictions.

`predict.py` runs cells, several at a time where they share a model; here is what one of them asks and keeps.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from longflow.engines import Completion, Engine, Generation, Prompt, Request, Tokenizer
from longflow.errors import UserError
from longflow.journal import Answer, Journal, Rendering
from longflow.jsonio import digest
from longflow.prompts import counts_special_tokens, post_process, render, truncate_middle, wrap
from longflow.reasoning import Reasoning, take_apart
from longflow.records import DOCUMENT, Prediction, Record, document_id, read_records
from longflow.turns import Call, turns_of

COMPUTE_FIELDS = (
    *("dtype", "attention", "config_overrides", "trust_remote_code", "extra_body", "options", "protocol"),
    *("prefill_chunk", "prompt_lookup", "decode"),
)
"""Keys of a model's entry that may change an answer to the same prompt by the same weights."""

WITHOUT_EFFECT = {"protocol": "longflow"}
"""Values of such keys that say nothing; left out of keys as empty ones are."""


def request_key(
    prompt: Prompt, special_tokens: bool, generation: Generation, model: dict[str, Any], version: int, repeat: int = 0
) -> str:
    """The journal key of a request: a digest of all that may change its answer, and of no path, name or address.

    Args:
        prompt: what is sent, to the character.
        special_tokens: whether the tokenizer adds its own.
        generation: how the answer is generated.
        model: the model's identity, and how it is computed (`model_key`).
        version: `cells.INFERENCE_VERSION`.
        repeat: which of several answers to the same prompt.
    """
    return digest(
        {
            "prompt": prompt,
            "special_tokens": special_tokens,
            "generation": generation.to_spec(),
            "model": model,
            "version": version,
            "repeat": repeat,
        }
    )


def model_key(spec: dict[str, Any], identity: dict[str, Any]) -> dict[str, Any]:
    """What stands for the model in a key: its identity, and how it computes."""
    given = {name: spec["model"].get(name) for name in COMPUTE_FIELDS}
    compute = {name: value for name, value in given.items() if value and value != WITHOUT_EFFECT.get(name)}
    return {"identity": identity, "compute": compute}


@dataclass(frozen=True)
class Job:
    """What a cell's job needs to know.

    Attributes:
        name: the cell's name, for messages.
        records: the records file.
        model: the model's `model.json`, read: its identity, location and window.
        entry: the model's entry of the configuration, for the engine.
        spec: the cell's specification (`cells.predict_spec`), read.
        journal: the folder of the cell's journal.
        max_failures: failed records that end the cell: a number, or a share of its records; None is no limit.
    """

    name: str
    records: str
    model: dict[str, Any]
    entry: dict[str, Any]
    spec: dict[str, Any]
    journal: str
    max_failures: float | None = None


@dataclass
class Row:
    """A record and the request that its prediction comes from: the last one, or the first that failed."""

    record: Record
    repeat: int
    rendering: Rendering
    kept: dict[str, Any] = field(default_factory=dict)


class CellRun:
    """Renders a cell's prompts, says what the journal lacks, and keeps the answers.

    A record is answered in turns (see `turns.py`) and, with repeats, several times. Each turn goes through the records
    file once; `requests(turn)` has to be used up, and what it gave answered or failed, before the next one.

    Args:
        job: the cell.
        journal: its journal, open.
        engine: the model's engine.
        chosen: the indexes of the records to answer; None is all of them.
    """

    def __init__(self, job: Job, journal: Journal, engine: Engine, chosen: Collection[int] | None = None) -> None:
        self.job = job
        self.journal = journal
        self.engine = engine
        self.spec = job.spec
        self.chosen = chosen
        self.turns = turns_of(self.spec.get("setting"), self.spec["prompt"], self.spec.get("language"))
        self.repeats = int(self.spec.get("repeats", 1))
        self.model_key = model_key(job.spec, job.model["identity"])
        # A benchmark may say that a data set's prompts are sent as they are, whatever the model's rule.
        self.chat = str(job.spec["model"]["chat"]) if job.spec["wrap"] else "none"
        self.messages = job.entry.get("api") == "chat" and self.chat == "template"
        markers = job.spec["model"].get("reasoning")
        self.reasoning = Reasoning(**markers) if markers else None
        self.failures: dict[str, str] = {}
        self.asked: set[str] = set()
        self.rows: list[Row] = []
        self.used: set[str] = set()
        """Keys of all requests that the predictions stand on."""
        self.stopped = False
        """Set where too many records failed, or where there is a fault: nothing more is asked."""
        self.fault: str | None = None
        """What is wrong with the cell itself, such as a record of which no prompt can be made."""
        self.total = 0
        """Answers that the predictions will hold: records times repeats; known once `count` was asked."""
        self._of: dict[str, set[tuple[int, int]]] = {}
        """The records and repeats, by index, that asked for a key."""
        self._calls: dict[tuple[int, int], list[list[Rendering]]] = {}
        self._digests: dict[int, str] = {}
        self._tokenizer: Tokenizer | None = None
        self._tokenizer_loaded = False
        # What the rendering of a record depends on beside the record.
        self._rendering = digest(
            {
                "prompt": self.spec["prompt"],
                "setting": self.spec.get("setting"),
                "wrap": self.spec["wrap"],
                "limit": self.spec["max_prompt_tokens"],
                "truncation": self.spec["truncation"],
                "chat": [self.spec["model"][name] for name in ("chat", "chat_options", "chat_date")],
                "tokenizer": job.model.get("tokenizer"),
                "generation": self.spec["generation"],
                "reasoning": markers,
                "model": self.model_key,
                "version": self.spec["version"],
            }
        )

    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, loaded when first needed. Raises UserError if the limit cannot fit the window."""
        if not self._tokenizer_loaded:
            self._tokenizer = self.engine.tokenizer()
            self._tokenizer_loaded = True
            self._check_window()
        return self._tokenizer

    def _check_window(self) -> None:
        """Refuse a run whose longest prompt could not be answered: limit, wrapper and answer have to fit."""
        limit, window = self.spec["max_prompt_tokens"], self.job.entry.get("window") or self.job.model.get("window")
        if self._tokenizer is None or limit is None or window is None:
            return
        around = 0  # a server wraps the prompt itself; how, only it knows
        if not self.messages:
            model = self.spec["model"]
            wrapper = wrap("", self.chat, self._tokenizer, model["chat_options"], messages=False)
            around = wrapper.tokens(self._tokenizer) or 0
        setting = self.spec.get("setting") or {}
        answer = max(self.spec["generation"]["max_new_tokens"], setting.get("max_new_tokens") or 0)
        answer += self.reasoning.max_tokens if self.reasoning else 0
        if limit + around + answer > window:
            raise UserError(
                f"{self.job.name}: a prompt of {limit} tokens, {around} of chat wrapper and {answer} of answer exceed "
                f"the model's window of {window}; set max_prompt_tokens to {window - around - answer} or less"
            )

    def requests(self, turn: int = 0) -> Iterator[Request]:
        """The requests of a turn that the journal lacks, made as they are taken.

        Raises UserError naming the record of which no prompt can be made.
        """
        last = turn == self.turns.count - 1
        for index, record in self._records():
            for repeat in range(self.repeats):
                if self.stopped:
                    return
                failed = self._failed(index, repeat)
                if failed is not None:
                    if last:
                        self.rows.append(Row(_without_context(record), repeat, failed))
                    continue
                texts = self._texts(index, repeat)
                found = []
                for number, call in enumerate(self._calls_of(turn, record, texts)):
                    rendering, request = self._rendered(index, record, call, (turn, number, repeat))
                    found.append(rendering)
                    self.used.add(rendering.key)
                    self._of.setdefault(rendering.key, set()).add((index, repeat))
                    if request is not None:
                        self.asked.add(request.key)
                        yield request
                if last:
                    kept = {**self.turns.kept(record, texts), **self._thoughts(index, repeat)}
                    self.rows.append(Row(_without_context(record), repeat, found[-1], kept))
                else:
                    self._calls.setdefault((index, repeat), []).append(found)

    def count(self, turn: int = 0) -> tuple[int, int]:
        """Calls of a turn, and how many of them the journal answers without tokenising anything."""
        total = known = self.total = 0
        for index, record in self._records():
            for repeat in range(self.repeats):
                self.total += 1
                if self._failed(index, repeat) is not None:
                    continue
                for number, call in enumerate(self._calls_of(turn, record, self._texts(index, repeat))):
                    total += 1
                    rendering = self.journal.renderings.get(self._id(index, record, call, (turn, number, repeat)))
                    known += rendering is not None and rendering.key in self.journal.answers
        return total, known

    def _records(self) -> Iterator[tuple[int, Record]]:
        for index, record in enumerate(read_records(self.job.records, self.spec["limit"])):
            if self.chosen is None or index in self.chosen:
                yield index, record

    def _calls_of(self, turn: int, record: Record, texts: list[list[str]]) -> list[Call]:
        try:
            return self.turns.calls(turn, record, texts)
        except UserError as error:
            raise UserError(f"{self.job.records}, record {record.id}: {error}") from error

    def _texts(self, index: int, repeat: int) -> list[list[str]]:
        """What the model answered in the turns so far."""
        answers = self.journal.answers
        return [
            [self._on_the_way(answers[rendering.key])[0] for rendering in calls]
            for calls in self._calls.get((index, repeat), [])
        ]

    def _on_the_way(self, answer: Answer) -> tuple[str, dict[str, Any]]:
        """As `_answer`, of a call before the last turn, which has a length of its own."""
        return self._answer(answer, int(self.spec["setting"]["max_new_tokens"]))

    def _thoughts(self, index: int, repeat: int) -> dict[str, Any]:
        """What a thinking model thought in the turns before the last one, and whether it always came to its end."""
        calls = self._calls.get((index, repeat), [])
        if self.reasoning is None or not calls:
            return {}
        thought = [[self._on_the_way(self.journal.answers[rendering.key])[1] for rendering in turn] for turn in calls]
        return {
            "reasoning_before": [[each["reasoning"] for each in turn] for turn in thought],
            "reasoning_before_closed": all(each["reasoning_closed"] for turn in thought for each in turn),
        }

    def _failed(self, index: int, repeat: int) -> Rendering | None:
        """The first call of the turns so far that has no answer."""
        for calls in self._calls.get((index, repeat), []):
            for rendering in calls:
                if rendering.key not in self.journal.answers:
                    return rendering
        return None

    def _id(self, index: int, record: Record, call: Call, place: tuple[int, int, int]) -> str:
        """The name of a call's rendering in the journal; `place` is turn, number within it and repeat."""
        if index not in self._digests:
            self._digests[index] = digest(record.to_row())
        # What a later turn adds to the record's fields was not in the record.
        added = {name: value for name, value in call.fields.items() if record.fields.get(name) != value}
        own = [] if place == (0, 0, 0) and not added else [place, added]
        return digest([self._rendering, self._digests[index], *own])

    def _rendered(
        self, index: int, record: Record, call: Call, place: tuple[int, int, int]
    ) -> tuple[Rendering, Request | None]:
        """How a call is rendered, and the request if the journal has no answer to it and it was not asked yet."""
        name = self._id(index, record, call, place)
        known = self.journal.renderings.get(name)
        if known is not None and (known.key in self.journal.answers or known.key in self.asked):
            return known, None
        rendering, request = self._render(name, record, call, place)
        if known is None:
            self.journal.add(rendering)
        answered = request.key in self.journal.answers or request.key in self.asked
        return rendering, None if answered else request

    def _render(self, name: str, record: Record, call: Call, place: tuple[int, int, int]) -> tuple[Rendering, Request]:
        """The request of a call, tokenised and cut as the limit says. Raises UserError naming the record."""
        try:
            text, start = render(call.template, call.fields)
        except UserError as error:
            raise UserError(f"{self.job.records}, record {record.id}: {error}") from error
        limit = self.spec["max_prompt_tokens"]
        tokenizer = self.tokenizer()
        tokens = kept_head = kept_tail = None
        if limit is not None and tokenizer is not None:
            counts = counts_special_tokens(self.spec["model"]["chat"])
            cut = truncate_middle(text, limit, tokenizer, self.spec["truncation"], counts)
            text, tokens, kept_head, kept_tail = cut.text, cut.tokens, cut.kept_head, cut.kept_tail
        wrapped = wrap(text, self.chat, tokenizer, self.spec["model"]["chat_options"], self.messages)
        turn, _, repeat = place
        generation = self._generation(record, call, turn, repeat)
        version = self.spec["version"]
        key = request_key(wrapped.prompt, wrapped.special_tokens, generation, self.model_key, version, repeat)
        rendering = Rendering(name, key, tokens, kept_head, kept_tail, start)
        return rendering, Request(key, wrapped.prompt, wrapped.special_tokens, generation, record.id)

    def _generation(self, record: Record, call: Call, turn: int, repeat: int) -> Generation:
        """How an answer is generated; a sampled one has a seed of its own."""
        chosen = self.spec["generation"]
        seed = None
        if chosen["temperature"]:
            seed = int(digest([chosen["seed"], record.id, turn, *([repeat] if repeat else [])])[:8], 16)
        own = call.max_new_tokens is None
        tokens = chosen["max_new_tokens"] if call.max_new_tokens is None else call.max_new_tokens
        return Generation(
            max_new_tokens=tokens + (self.reasoning.max_tokens if self.reasoning else 0),
            temperature=float(chosen["temperature"]),
            top_p=float(chosen["top_p"]),
            seed=seed,
            min_new_tokens=chosen["min_new_tokens"] if own else 0,
            stop_newline=chosen["stop_newline"] and own,
        )

    def keep(self, completion: Completion, libraries: str) -> bool:
        """Keep an answer in the journal, or a failure for this run only. Returns whether it is a new answer.

        Raises UserError naming the engine and the field for what is no completion: an engine may be anybody's.
        """
        answer = checked_answer(completion, libraries, f"{self.job.name}: engine {self.job.entry['engine']!r}")
        if answer is None:
            self.fail(completion.key, str(completion.error or "no reason given"))
            return False
        return self.take(answer)

    def take(self, answer: Answer) -> bool:
        """Keep an answer in the journal. Returns whether it is new there."""
        self.failures.pop(answer.key, None)
        if answer.key in self.journal.answers:
            return False
        self.journal.add(answer)
        return True

    def fail(self, key: str, reason: str) -> None:
        """A request has no answer in this run."""
        self.failures[key] = " ".join(reason.split())

    @property
    def failed_records(self) -> int:
        """Records (times repeats) of which a call failed, however many of its calls."""
        return len(set().union(*(self._of.get(key, {(key,)}) for key in self.failures)))

    def predictions(self) -> Iterator[Prediction]:
        """The predictions in the benchmark's order."""
        for row in self.rows:
            rendering = row.rendering
            repeat = {"repeat": row.repeat} if self.repeats > 1 else {}
            made = Prediction(
                pred="",
                record=row.record,
                prompt_tokens=rendering.tokens,
                kept_head=rendering.kept_head,
                kept_tail=rendering.kept_tail,
                context_start=rendering.context_start,
                extra={**repeat, **row.kept},
            )
            answer = self.journal.answers.get(rendering.key)
            if answer is None:
                reason = self.failures.get(rendering.key, "the engine gave no answer")
                yield replace(made, finish_reason="error", error=reason)
            else:
                text, extra = self._answer(answer, int(self.spec["generation"]["max_new_tokens"]))
                if row.kept.get("reasoning_before_closed") is False:
                    extra["reasoning_closed"] = False  # it answered out of thoughts that were cut off
                if answer.note:
                    extra["note"] = answer.note
                yield replace(
                    made,
                    pred=post_process(self.spec["model"]["chat"], text),
                    extra={**made.extra, **extra},
                    sent_tokens=answer.prompt_tokens,
                    answer_tokens=answer.answer_tokens,
                    finish_reason=answer.finish_reason,
                )

    def _answer(self, answer: Answer, most: int) -> tuple[str, dict[str, Any]]:
        """The answer in a model's text, of at most so many tokens, and what else of it is kept: its reasoning."""
        if self.reasoning is None:
            return answer.text, {}
        thought = take_apart(answer.text, answer.finish_reason, self.reasoning)
        text = thought.answer
        # The answer has its own limit, however little of the other was used. A token is a byte at least.
        if len(text.encode("utf-8", "replace")) > most and (tokenizer := self.tokenizer()) is not None:
            ids = tokenizer.encode(text, special_tokens=False)
            text = tokenizer.decode(ids[:most]) if len(ids) > most else text
        return text, {"reasoning": thought.reasoning, "reasoning_closed": thought.closed}


def checked_answer(completion: Completion, libraries: str, engine: str) -> Answer | None:
    """A completion as an answer for the journal, or None if it is a failure.

    Raises UserError that begins with `engine` for what is no completion: an engine may be anybody's.
    """
    if completion.finish_reason == "error" or completion.error is not None:
        return None
    if completion.finish_reason not in ("stop", "length"):
        raise UserError(f"{engine} gave finish_reason {completion.finish_reason!r}; stop, length or error is right")
    if not isinstance(completion.text, str):
        raise UserError(f"{engine} gave a text of type {type(completion.text).__name__}; a str was expected")
    counts = {}
    for name in ("prompt_tokens", "answer_tokens", "cached_tokens"):
        value = getattr(completion, name)
        if value is not None and not isinstance(value, numbers.Integral):
            raise UserError(f"{engine} gave {name} {value!r}; a whole number or None was expected")
        counts[name] = None if value is None else int(value)
    seconds = completion.seconds
    if seconds is not None and not (isinstance(seconds, numbers.Real) and math.isfinite(seconds)):
        raise UserError(f"{engine} gave seconds {seconds!r}; a number or None was expected")
    return Answer(
        key=completion.key,
        text=completion.text,
        finish_reason=completion.finish_reason,
        seconds=None if seconds is None else round(float(seconds), 3),
        libraries=libraries,
        note=completion.note,
        **counts,
    )


def _without_context(record: Record) -> Record:
    """A record with its document's name in place of its text, which may be a megabyte and is not needed any more."""
    large = ("context", "template", "templates")
    document = record.fields.get(DOCUMENT) or document_id(str(record.fields.get("context", "")))
    kept = {name: value for name, value in record.fields.items() if name not in large}
    return replace(record, fields={**kept, DOCUMENT: document})
