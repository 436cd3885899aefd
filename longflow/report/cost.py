"""What a run was expected to cost, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longflow.config import Config
from longflow.report.data import Gathered, Run

HEADER = (
    "cells",
    "calls",
    "prompt tokens",
    "answer tokens",
    "seconds of generation",
    "prompt tokens per second",
    "answer tokens per second",
    "GPU hours",
    "peak memory (MB)",
    "peak device memory (MB)",
    "money",
)


@dataclass(frozen=True)
class Cost:
    """A line of costs by the names of `HEADER`; None where it is not known."""

    name: str
    setting: str
    values: dict[str, float | None]


def costs(gathered: Gathered, run: Run) -> list[Cost]:
    """What each model in each setting cost, answers taken from the journal included."""
    lines = []
    for model, setting in run.names:
        used = [found for cell, found in run.usage.items() if (cell.model, cell.setting) == (model, setting)]
        if used:
            lines.append(Cost(model, setting, _line(used, _gpus(gathered.config, model))))
    return lines


def by_cell(gathered: Gathered, run: Run) -> list[Cost]:
    """What each cell cost; its name is data set and length."""
    return [
        Cost(
            f"{cell.model} {cell.dataset}/{cell.length}",
            cell.setting,
            _line([found], _gpus(gathered.config, cell.model)),
        )
        for cell, found in run.usage.items()
    ]


def _gpus(config: Config, model: str) -> int:
    return int(getattr(config.models[model], "gpu", 0) or 0)


def _line(used: Sequence[Mapping[str, Any]], gpus: int) -> dict[str, float | None]:
    seconds = _sum(used, "generation_seconds")
    prompt, answer = _sum(used, "prompt_tokens"), _sum(used, "answer_tokens")

    def rate(tokens: float | None) -> float | None:
        return tokens / seconds if tokens and seconds else None

    values = (
        float(len(used)),
        _sum(used, "calls"),
        prompt,
        answer,
        seconds,
        rate(prompt),
        rate(answer),
        seconds * gpus / 3600 if seconds is not None and gpus else None,
        _most(used, "peak_rss_mb"),
        _most(used, "peak_device_mb"),
        _sum(used, "cost"),
    )
    return dict(zip(HEADER, values, strict=True))


def _sum(used: Sequence[Mapping[str, Any]], key: str) -> float | None:
    known = [float(each[key]) for each in used if each.get(key) is not None]
    return sum(known) if known else None


def _most(used: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return max((float(each[key]) for each in used if each.get(key) is not None), default=None)


@dataclass(frozen=True)
class Planned:
    """A figure of a model as it was planned and as it was spent."""

    model: str
    what: str
    planned: str
    spent: str


def planned(gathered: Gathered) -> list[Planned]:
    """What was planned beside what was spent, over all benchmarks; nothing without a plan."""
    models = (gathered.plan or {}).get("models")
    if not isinstance(models, Mapping):
        return []
    rows = []
    for model, plan in models.items():
        used = [found for run in gathered.runs for cell, found in run.usage.items() if cell.model == model]
        spent = _line(used, 0) if used else {}
        seconds = spent.get("seconds of generation")
        peaks = [value for name in ("peak device memory (MB)", "peak memory (MB)") if (value := spent.get(name))]
        pairs = (
            ("cells", ("cells",), float(len(used))),
            ("calls", ("calls",), spent.get("calls")),
            ("prompt tokens", ("prompt_tokens",), spent.get("prompt tokens")),
            ("answer tokens (planned: at most)", ("answer_tokens_at_most",), spent.get("answer tokens")),
            ("hours of generation", ("hours", "hours"), None if seconds is None else seconds / 3600),
            ("memory (MB)", ("memory_mb", "total"), peaks[0] if peaks else None),
            ("money (planned: at most)", ("money", "at_most"), spent.get("money")),
        )
        for what, keys, value in pairs:
            told = _within(plan, *keys)
            if told is not None:
                rows.append(Planned(str(model), what, number(told), number(value)))
    return rows


def _within(value: Any, *keys: str) -> float | None:
    """A number in a plan: under these keys, or under the first ones where that is a number already."""
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key)
    return float(value) if isinstance(value, int | float) else None


def number(value: Any) -> str:
    """A number for people: three digits that count, thousands apart; a dash for none."""
    if value is None:
        return "–"
    if not isinstance(value, int | float):
        return str(value)
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}"
