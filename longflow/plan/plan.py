"""What a run will take, before anything runs: tokens, memory, GPUs, hours and money, per model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longflow import jobs
from longflow.cell_run import Job
from longflow.cells import Cell, Files, cells, predict_spec
from longflow.config import Config, ModelOptions
from longflow.engines import Tokenizer, load_engine
from longflow.engines.tokenizers import load_tokenizer
from longflow.errors import UserError
from longflow.gpus import visible_devices
from longflow.jsonio import read_json
from longflow.plan import memory, shared, tokens
from longflow.plan.found import Found, find, tokenizer_folder
from longflow.plan.light import LightTokenizer
from longflow.plan.tokens import CellTokens
from longflow.plan.walk import Teller
from longflow.pricing import cost

VERSION = 1
"""Of plan.json."""


@dataclass(frozen=True)
class Options:
    """How to plan.

    Attributes:
        exact: count tokens with each model's own tokenizer.
        gpu_memory: GiB of each GPU; None: what nvidia-smi says here.
        memory: GiB that a job without GPUs may take; None: the model's `mem_mb`, else what this machine has.
        prefill_rate: tokens of prompts a second.
        decode_rate: tokens of answers a second.
    """

    exact: bool = False
    gpu_memory: float | None = None
    memory: float | None = None
    prefill_rate: float | None = None
    decode_rate: float | None = None


def make(config: Config, options: Options) -> dict[str, Any]:
    """The plan of a run, as it is written to plan.json (docs/plan.md describes it)."""
    every = list(cells(config))
    device = options.gpu_memory * memory.GIB if options.gpu_memory else device_memory()
    plan: dict[str, Any] = {
        "version": VERSION,
        "exact": options.exact,
        "first_records_only": config.run.limit,
        "gpus_here": len(visible_devices(os.environ)),
        "gpu_memory_mb": None if device is None else int(device) // memory.MIB,
        "models": {},
        "cells": {},
        "refused": [],
    }
    for name in config.run.models:
        own = [cell for cell in every if cell.model == name]
        if not isinstance(config.models[name], ModelOptions):
            plan["models"][name] = {"engine": "imported", "cells": len(own)}
            continue
        model, by_cell, refused = _model(config, name, own, options, device)
        plan["models"][name] = model
        plan["cells"] |= by_cell
        plan["refused"] += refused
    return plan


def _model(
    config: Config, name: str, own: Sequence[Cell], options: Options, device: float | None
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A model's part of the plan: its totals, its cells, and what of them is refused."""
    entry = config.runnable(name).entry()
    found = find(config, name)
    light = LightTokenizer.load(tokenizer_folder(entry, found), str(entry["chat_date"]))
    exact, not_counted = None, None
    if options.exact:
        try:
            own_tokenizer = _tokenizer(entry, found)
            exact = Teller(lambda: own_tokenizer)
        except UserError as error:
            not_counted = f"not counted: {error}"
    counted = {cell: _tokens(config, cell, entry, found, exact, light) for cell in own}
    ran = _usage(config, own)
    shape, why = _shape(entry, found)
    way = memory.Way.of(entry)
    by_cell: dict[str, Any] = {}
    refused: list[dict[str, Any]] = []
    seconds: list[float | None] = []
    for cell, each in counted.items():
        if each.problem is not None:
            refused.append({"cell": cell.name, "why": each.problem})
        needed = memory.need(shape, way, *each.longest) if shape is not None and each.to_prefill else None
        takes = _seconds(each, _reused(entry, [each]), cell, ran, options, entry)
        seconds.append(takes)
        available = device if way.gpus else _host_memory(config.runnable(name), cell, options)
        if needed is not None and shape is not None and available is not None and needed.total > available:
            refused.append(_refusal(cell, shape, way, each.longest, needed, int(available)))
        by_cell[cell.name] = {
            "records": each.records,
            "calls": each.calls,
            "in_journal": each.in_journal,
            "prompt_tokens": each.prompt_tokens,
            "to_prefill": each.to_prefill,
            "error": each.error,
            "basis": each.basis,
            "answer_tokens_at_most": each.answer_tokens,
            "longest_prompt": each.longest[0],
            "truncated": each.truncated,
            "memory_mb": None if needed is None else needed.to_json(),
            "seconds": None if takes is None else round(takes, 1),
        }
    model = {
        "engine": entry["engine"],
        "not_counted": not_counted,
        **_totals(counted.values()),
        **_sharing(config, name, entry, counted),
        **_largest_need(counted.values(), shape, way, why, device),
        "hours": _hours(seconds, ran, options, entry),
        "money": _money(entry, counted.values(), ran),
    }
    return model, by_cell, refused


# --- tokens -----------------------------------------------------------------------------------------------------------


def _tokenizer(entry: dict[str, Any], found: Found) -> Tokenizer:
    """The model's own tokenizer. Raises UserError if it is not here."""
    if entry["engine"] == "openai":
        named = entry.get("tokenizer")
        if not named:
            raise UserError(f"model {entry['model']}: it has no tokenizer; name one under tokenizer:")
        return load_tokenizer(str(named), str(entry["chat_date"]))
    if entry["engine"] == "transformers" and found.folder is None:
        raise UserError(f"model {entry['path']}: its tokenizer is not here to count with ({found.why})")
    tokenizer = load_engine(entry["engine"], entry, found.folder).tokenizer()
    if tokenizer is None:
        raise UserError(f"engine {entry['engine']}: it has no tokenizer to count with")
    return tokenizer


def _tokens(
    config: Config, cell: Cell, entry: dict[str, Any], found: Found, exact: Teller | None, light: Tokenizer | None
) -> CellTokens:
    files = Files(config)
    job = Job(
        name=cell.name,
        records=files.records_of(cell),
        model=found.model or {"identity": {}, "location": found.folder, "window": None},
        entry=entry,
        spec=json.loads(predict_spec(config, cell)),
        journal=files.journal_of(cell),
    )
    return tokens.of_cell(config, cell, job, exact, light, found.model is not None)


def _totals(counted: Iterable[CellTokens]) -> dict[str, Any]:
    each = list(counted)
    total = sum(cell.to_prefill for cell in each)
    known = all(cell.in_journal is not None for cell in each)
    # The errors of cells have one cause, the tokenizer: they add up rather than cancel out.
    error = sum(cell.error * cell.to_prefill for cell in each) / total if total else 0.0
    return {
        "cells": len(each),
        "records": sum(cell.records for cell in each),
        "calls": sum(cell.calls for cell in each),
        "in_journal": sum(cell.in_journal or 0 for cell in each) if known else None,
        "prompt_tokens": sum(cell.prompt_tokens for cell in each),
        "to_prefill": total,
        "error": round(error, 3),
        "basis": sorted({cell.basis for cell in each}),
        "answer_tokens_at_most": sum(cell.answer_tokens for cell in each),
        "truncated": sum(cell.truncated for cell in each),
    }


def _sharing(config: Config, name: str, entry: dict[str, Any], counted: dict[Cell, CellTokens]) -> dict[str, Any]:
    """Tokens that prompts of one job have in common at their beginnings, and those of them not computed again."""
    groups = jobs.batches(config, name) if entry.get("batch") else [[cell] for cell in counted]
    common = reused = 0
    for group in groups:
        here = [counted[cell] for cell in group]
        common += _common(here)
        reused += _reused(entry, here)
    return {"shared_tokens": common, "reused_tokens": reused}


def _common(group: Sequence[CellTokens]) -> int:
    block = max((cell.block for cell in group), default=1)
    return round(block * sum(shared.common(blocks for cell in group for blocks in cell.beginnings)))


def _reused(entry: dict[str, Any], group: Sequence[CellTokens]) -> int:
    """What the engine takes from its cache: whole chunks, of greedy requests."""
    chunk = int(entry.get("prefill_chunk") or 0)
    if entry["engine"] != "transformers" or not chunk or not entry.get("share_prefixes", True):
        return 0
    block = max((cell.block for cell in group), default=1)
    found = shared.common(blocks for cell in group for blocks in cell.beginnings)
    return sum(int(count * block + 0.5) // chunk * chunk for count in found)


# --- memory -----------------------------------------------------------------------------------------------------------


def _shape(entry: dict[str, Any], found: Found) -> tuple[memory.Shape | None, str]:
    """The model's shape, or why it cannot be told."""
    if entry["engine"] == "openai":
        return None, "the server's"
    if entry["engine"] != "transformers":
        return None, "not known of an engine of one's own"
    if found.folder is None:
        return None, found.why
    try:
        return memory.shape_of(found.folder, entry), ""
    except UserError as error:
        return None, str(error)


def _largest_need(
    counted: Iterable[CellTokens], shape: memory.Shape | None, way: memory.Way, why: str, device: float | None
) -> dict[str, Any]:
    to_come = [cell for cell in counted if cell.to_prefill]
    longest = max((cell.longest for cell in to_come), key=sum, default=(0, 0))
    gpus: dict[str, Any] = {"configured": way.gpus, "needed": None}
    if shape is None or not to_come:
        return {
            "longest_prompt": longest[0],
            "memory_mb": None,
            "memory_unknown": why or "nothing is to be computed",
            "gpus": gpus,
        }
    needed = memory.need(shape, way, *longest)
    if way.gpus and device is not None:
        gpus["needed"] = memory.gpus_needed(shape, way, *longest, int(device))
    return {"longest_prompt": longest[0], "memory_mb": needed.to_json(), "memory_words": needed.words(), "gpus": gpus}


def _refusal(
    cell: Cell, shape: memory.Shape, way: memory.Way, longest: tuple[int, int], needed: memory.Need, available: int
) -> dict[str, Any]:
    where = "each GPU has" if way.gpus else "a job has"
    helps = memory.remedies(shape, way, *longest, available)
    return {
        "cell": cell.name,
        "why": (
            f"a prompt of {longest[0]:,} tokens needs {memory.gigabytes(needed.total)} ({needed.words()}), {where} "
            f"{memory.gigabytes(available)}; what makes it fit: {', or '.join(helps) or 'a larger machine'}"
        ),
        "remedies": helps,
    }


def device_memory() -> int | None:
    """Bytes of the smallest GPU here, by nvidia-smi; None where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    sizes = [int(word) for word in listed.stdout.split() if word.isdigit()] if listed.returncode == 0 else []
    return min(sizes) * memory.MIB if sizes else None


def _host_memory(model: ModelOptions, cell: Cell, options: Options) -> float | None:
    """Bytes that a job without GPUs may take."""
    if options.memory is not None:
        return options.memory * memory.GIB
    given = model.mem_mb.get(cell.length) if isinstance(model.mem_mb, dict) else model.mem_mb
    if given:
        return given * 1e6
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


# --- time and money ---------------------------------------------------------------------------------------------------


def _usage(config: Config, own: Iterable[Cell]) -> dict[Cell, dict[str, Any]]:
    """What cells of a model that have run did cost, as far as it can be read."""
    files, found = Files(config), {}
    for cell in own:
        path = Path(files.usage(cell))
        value = read_json(path) if path.is_file() else None
        if isinstance(value, dict) and value.get("generation_seconds") and value.get("prompt_tokens"):
            found[cell] = value
    return found


def _seconds(
    each: CellTokens,
    reused: int,
    cell: Cell,
    ran: dict[Cell, dict[str, Any]],
    options: Options,
    entry: dict[str, Any],
) -> float | None:
    """Seconds of a cell's calls to come, by the rates given, else by those of cells that ran; None without either.

    Cells of the same length come first, since long prompts take longer for each token. Calls of a server run side by
    side.
    """
    if not each.to_prefill:
        return 0.0
    if options.prefill_rate:
        decode = each.answer_tokens / options.decode_rate if options.decode_rate else 0.0
        return (each.to_prefill - reused) / options.prefill_rate + decode
    like = [value for other, value in ran.items() if other.length == cell.length] or list(ran.values())
    if not like:
        return None
    rate = float(sum(value["prompt_tokens"] for value in like) / sum(value["generation_seconds"] for value in like))
    return each.to_prefill / rate / max(1, int(entry.get("api_calls") or 1))


def _hours(
    seconds: Sequence[float | None], ran: dict[Cell, Any], options: Options, entry: dict[str, Any]
) -> dict[str, Any] | None:
    """Hours of a model's cells one after another, and what they rest on; None if no rate is known."""
    if any(value is None for value in seconds):
        return None
    hours = sum(value for value in seconds if value is not None) / 3600
    if options.prefill_rate:
        basis = "given" if options.decode_rate else "given, without answers"
    else:
        basis = "measured" if ran else "nothing to do"
    return {
        "hours": round(hours, 4),
        "gpu_hours": round(hours * int(entry.get("gpu") or 0), 4),
        "basis": basis,
        "cells_measured": len(ran),
    }


def _money(
    entry: dict[str, Any], counted: Iterable[CellTokens], ran: dict[Cell, dict[str, Any]]
) -> dict[str, Any] | None:
    """What a server takes, with answers as long as they may be, and as long as those so far; None without a price."""
    price = entry.get("price")
    if price is None:
        return None
    each = list(counted)
    prompt = sum(cell.to_prefill for cell in each)
    most = sum(cell.answer_tokens for cell in each)
    calls = sum(value.get("calls", 0) for value in ran.values())
    expected = None
    if calls:
        mean = sum(value.get("answer_tokens", 0) for value in ran.values()) / calls
        to_come = sum(cell.calls - (cell.in_journal or 0) for cell in each)
        expected = round(cost(price, prompt, None, round(mean * to_come)), 4)
    return {"at_most": round(cost(price, prompt, None, most), 4), "expected": expected}
