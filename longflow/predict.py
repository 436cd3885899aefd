"""The loop: records -> requests -> engine -> journal -> predictions.

This and `score.py` are the only places where benchmarks, engines and metrics meet.
"""

from __future__ import annotations

import importlib.metadata
import logging
import math
import numbers
import os
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from longflow.engines import Completion, Engine, Generation, Prompt, Request, Tokenizer, load_engine
from longflow.errors import UserError
from longflow.journal import Answer, Journal, Rendering
from longflow.jsonio import digest, write_json, write_jsonl
from longflow.progress import Progress
from longflow.prompts import post_process, render, truncate_middle, wrap
from longflow.reasoning import Reasoning, take_apart
from longflow.records import Prediction, Record, read_records

log = logging.getLogger("longflow")

COMPUTE_FIELDS = ("dtype", "attention", "config_overrides", "trust_remote_code", "extra_body", "options")
"""Keys of a model's entry that may change an answer to the same prompt by the same weights."""


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
    compute = {name: spec["model"][name] for name in COMPUTE_FIELDS if spec["model"].get(name)}
    return {"identity": identity, "compute": {**compute, "decode": spec["decode"]}}


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
    """

    name: str
    records: str
    model: dict[str, Any]
    entry: dict[str, Any]
    spec: dict[str, Any]
    journal: str


class Cell:
    """One cell on its way: renders prompts, asks the engine for what the journal lacks, keeps the answers."""

    def __init__(self, job: Job, journal: Journal) -> None:
        self.job = job
        self.journal = journal
        self.spec = job.spec
        self.engine: Engine = load_engine(job.entry["engine"], job.entry, job.model.get("location"))
        self.model_key = model_key(job.spec, job.model["identity"])
        # A benchmark may say that a data set's prompts are sent as they are, whatever the model's rule.
        self.chat = str(job.spec["model"]["chat"]) if job.spec["wrap"] else "none"
        self.messages = job.entry.get("api") == "chat" and self.chat == "template"
        markers = job.spec["model"].get("reasoning")
        self.reasoning = Reasoning(**markers) if markers else None
        self.failures: dict[str, str] = {}
        self.asked: set[str] = set()
        self.rows: list[tuple[Record, Rendering]] = []
        self._left: Iterator[Request] | None = None
        self._tokenizer: Tokenizer | None = None
        self._tokenizer_loaded = False
        # What the rendering of a record depends on beside the record.
        self._rendering = digest(
            {
                "prompt": self.spec["prompt"],
                "wrap": self.spec["wrap"],
                "limit": self.spec["max_prompt_tokens"],
                "truncation": self.spec["truncation"],
                "chat": [self.spec["model"][name] for name in ("chat", "chat_options", "chat_date")],
                "tokenizer": job.model.get("tokenizer"),
                "generation": self.spec["generation"],
                "model": self.model_key,
                "version": self.spec["version"],
            }
        )

    def rendering_id(self, record: Record) -> str:
        """The name of a record's rendering in the journal."""
        return digest([self._rendering, record.to_row()])

    def generation(self, record: Record) -> Generation:
        """How this record's answer is generated; a sampled one has a seed of its own."""
        chosen = self.spec["generation"]
        seed = None
        if chosen["temperature"]:
            seed = int(digest([chosen["seed"], record.id, 0])[:8], 16)
        return Generation(
            max_new_tokens=chosen["max_new_tokens"] + (self.reasoning.max_tokens if self.reasoning else 0),
            temperature=float(chosen["temperature"]),
            top_p=float(chosen["top_p"]),
            seed=seed,
            min_new_tokens=chosen["min_new_tokens"],
            stop_newline=chosen["stop_newline"],
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
            around = len(self._tokenizer.encode(str(wrapper.prompt), wrapper.special_tokens))
        answer = self.spec["generation"]["max_new_tokens"] + (self.reasoning.max_tokens if self.reasoning else 0)
        if limit + around + answer > window:
            raise UserError(
                f"{self.job.name}: a prompt of {limit} tokens, {around} of chat wrapper and {answer} of answer exceed "
                f"the model's window of {window}; set max_prompt_tokens to {window - around - answer} or less"
            )

    def render(self, record: Record) -> tuple[Rendering, Request]:
        """The request of a record, tokenised and cut as the limit says. Raises UserError naming the record."""
        template = self.spec["prompt"] if self.spec["prompt"] is not None else record.fields.get("template")
        try:
            if template is None:
                raise UserError("brings no prompt template, and the configuration names none; prepare it again")
            text, start = render(template, record.fields)
        except UserError as error:
            raise UserError(f"{self.job.records}, record {record.id}: {error}") from error
        limit = self.spec["max_prompt_tokens"]
        tokenizer = self.tokenizer()
        tokens = kept_head = kept_tail = None
        if limit is not None and tokenizer is not None:
            cut = truncate_middle(text, limit, tokenizer, self.spec["truncation"])
            text, tokens, kept_head, kept_tail = cut.text, cut.tokens, cut.kept_head, cut.kept_tail
        wrapped = wrap(text, self.chat, tokenizer, self.spec["model"]["chat_options"], self.messages)
        generation = self.generation(record)
        key = request_key(wrapped.prompt, wrapped.special_tokens, generation, self.model_key, self.spec["version"])
        rendering = Rendering(self.rendering_id(record), key, tokens, kept_head, kept_tail, start)
        return rendering, Request(key, wrapped.prompt, wrapped.special_tokens, generation, record.id)

    def requests(self) -> Iterator[Request]:
        """The requests whose answers the journal lacks, made as the engine takes them; fills `rows` on the way."""
        self._left = self._requests()
        return self._left

    def remaining(self) -> Iterator[Request]:
        """The requests that the engine has not taken."""
        return self._left if self._left is not None else self.requests()

    def _requests(self) -> Iterator[Request]:
        for record in read_records(self.job.records, self.spec["limit"]):
            rendering = self.journal.renderings.get(self.rendering_id(record))
            request = None
            if rendering is None or (rendering.key not in self.journal.answers and rendering.key not in self.asked):
                known, (rendering, request) = rendering, self.render(record)
                if known is None:
                    self.journal.add(rendering)
            self.rows.append((_without_context(record), rendering))
            if request is not None and request.key not in self.journal.answers and request.key not in self.asked:
                self.asked.add(request.key)
                yield request

    def count_known(self) -> tuple[int, int]:
        """Records of the cell, and how many of them the journal answers without tokenising anything."""
        total = known = 0
        for record in read_records(self.job.records, self.spec["limit"]):
            total += 1
            rendering = self.journal.renderings.get(self.rendering_id(record))
            known += rendering is not None and rendering.key in self.journal.answers
        return total, known

    def keep(self, completion: Completion, libraries: str) -> bool:
        """Keep an answer in the journal, or a failure for this run only. Returns whether it is a new answer.

        Raises UserError naming the engine and the field for what is no completion: an engine may be anybody's.
        """
        answer = self._checked(completion, libraries)
        if answer is None:
            self.failures[completion.key] = " ".join(str(completion.error or "no reason given").split())
            return False
        self.failures.pop(answer.key, None)
        if answer.key in self.journal.answers:
            return False
        self.journal.add(answer)
        return True

    def _checked(self, completion: Completion, libraries: str) -> Answer | None:
        """A completion as an answer for the journal, or None if it is a failure."""
        engine = f"{self.job.name}: engine {self.job.entry['engine']!r}"
        if not isinstance(completion, Completion):
            raise UserError(f"{engine} gave a {type(completion).__name__}; generate() has to yield Completion objects")
        if completion.key not in self.asked:
            raise UserError(
                f"{engine} answered a request it was not asked (key {str(completion.key)[:12]}…); a completion carries "
                "the key of its request"
            )
        if completion.finish_reason == "error" or completion.error is not None:
            return None
        if completion.finish_reason not in ("stop", "length"):
            raise UserError(f"{engine} gave finish_reason {completion.finish_reason!r}; stop, length or error is right")
        if not isinstance(completion.text, str):
            raise UserError(f"{engine} gave a text of type {type(completion.text).__name__}; a str was expected")
        counts = {}
        for name in ("prompt_tokens", "answer_tokens"):
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
            **counts,
        )

    def predictions(self) -> Iterator[Prediction]:
        """The predictions in the benchmark's order."""
        for record, rendering in self.rows:
            made = Prediction(
                pred="",
                record=record,
                prompt_tokens=rendering.tokens,
                kept_head=rendering.kept_head,
                kept_tail=rendering.kept_tail,
                context_start=rendering.context_start,
            )
            answer = self.journal.answers.get(rendering.key)
            if answer is None:
                reason = self.failures.get(rendering.key, "the engine gave no answer")
                yield replace(made, finish_reason="error", error=reason)
            else:
                text, extra = self._answer(answer)
                yield replace(
                    made,
                    pred=post_process(self.spec["model"]["chat"], text),
                    extra=extra,
                    sent_tokens=answer.prompt_tokens,
                    answer_tokens=answer.answer_tokens,
                    finish_reason=answer.finish_reason,
                )

    def _answer(self, answer: Answer) -> tuple[str, dict[str, Any]]:
        """The answer in a model's text, and what else of it is kept: a thinking model's reasoning."""
        if self.reasoning is None:
            return answer.text, {}
        thought = take_apart(answer.text, answer.finish_reason, self.reasoning)
        text, most = thought.answer, self.spec["generation"]["max_new_tokens"]
        # The answer has its own limit, however little of the other was used. A token is a byte at least.
        if len(text.encode("utf-8", "replace")) > most and (tokenizer := self.tokenizer()) is not None:
            ids = tokenizer.encode(text, special_tokens=False)
            text = tokenizer.decode(ids[:most]) if len(ids) > most else text
        return text, {"reasoning": thought.reasoning, "reasoning_closed": thought.closed}


def _completions(cell: Cell) -> Iterator[Completion]:
    """What the engine yields. Raises UserError if it yields nothing at all because it is no generator."""
    found = cell.engine.generate(cell.requests())
    if not hasattr(found, "__iter__"):
        engine = cell.job.entry["engine"]
        raise UserError(
            f"{cell.job.name}: engine {engine!r}: generate() returned {found!r}; it has to yield completions"
        )
    yield from found
    # An engine that took fewer requests than there are leaves records that were never looked at.
    for _ in cell.remaining():
        pass


def _without_context(record: Record) -> Record:
    """A record without its text, which may be a megabyte and is not needed any more."""
    large = ("context", "template", "templates")
    return replace(record, fields={name: value for name, value in record.fields.items() if name not in large})


def libraries(engine: str) -> str:
    """The versions that make an engine's answers, for the protocol."""
    names = {"transformers": ("transformers", "torch", "tokenizers"), "openai": ("openai",)}.get(engine, ())
    return ", ".join([f"{name} {importlib.metadata.version(name)}" for name in names])


def run(job: Job, output: str | Path, usage: str | Path) -> dict[str, int]:
    """Answer every record of a cell and write its predictions, whole or not at all.

    Answers that the journal holds are taken from there; if it holds all of them no model is loaded, and often no
    tokenizer either. Whatever ends this early leaves in the journal all that was answered.

    Returns the counts of records, of requests generated here, and of failed records.
    Raises UserError for what a person can mend.
    """
    began = time.monotonic()
    with Journal(job.journal) as journal:
        if journal.dropped:
            log.info("%s: %d torn or foreign lines of the journal were passed over", job.name, journal.dropped)
        cell = Cell(job, journal)
        total, known = cell.count_known()
        log.info("%s: %d records, %d answered before", job.name, total, known)
        progress = Progress(job.name, total, known)
        versions = libraries(job.entry["engine"])
        generated = 0
        try:
            for completion in _completions(cell):
                if cell.keep(completion, versions):
                    generated += 1
                    progress.step(completion.prompt_tokens, completion.answer_tokens)
                elif completion.key in cell.failures:
                    progress.step(None, None)
                    log.info("%s: a record failed: %s", job.name, cell.failures[completion.key])
        finally:
            cell.engine.close()
        rows = list(cell.predictions())
        if rows and all(row.error is not None for row in rows):
            raise UserError(f"{job.name}: every one of its {len(rows)} records failed; the first: {rows[0].error}")
        write_jsonl(output, (row.to_row() for row in rows))
        failed = sum(row.error is not None for row in rows)
        answers = [journal.answers[r.key] for _, r in cell.rows if r.key in journal.answers]
    write_json(
        usage,
        {
            "cell": job.name,
            "records": len(rows),
            "failed": failed,
            "generated_here": generated,
            "prompt_tokens": sum(a.prompt_tokens or 0 for a in answers),
            "answer_tokens": sum(a.answer_tokens or 0 for a in answers),
            "generation_seconds": round(sum(a.seconds or 0 for a in answers), 1),
            "job_seconds": round(time.monotonic() - began, 1),
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "libraries": sorted({a.libraries for a in answers}),
            "host": socket.gethostname(),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        },
    )
    log.info("%s: done, %d records, %d generated, %d failed", job.name, len(rows), generated, failed)
    return {"records": len(rows), "generated": generated, "failed": failed}
