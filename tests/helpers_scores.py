"""Score summaries as the score stage writes them, made by hand."""

from __future__ import annotations

from typing import Any

from longflow import benchmarks


def summary(dataset: str, length: str, score: float | None, model: str = "mine", **changes: Any) -> dict[str, Any]:
    """A cell's summary as the score stage writes it; every record found and none truncated unless changed.

    A data set that the benchmark does not have is given the task of its first.
    """
    tasks = benchmarks.load(changes.get("benchmark", "lveval")).tasks
    task = tasks.get(dataset) or next(iter(tasks.values()))
    n = changes.get("n_expected", task.n)
    counts = dict.fromkeys(("truncated", "empty", "failed", "gated", "keywords_empty", "rouge_overflow", "ran_out"), 0)
    counts.update(changes.pop("counts", {}))
    return {
        "benchmark": "lveval",
        "model": model,
        "setting": "full",
        "dataset": dataset,
        "length": length,
        "metric": task.metric,
        "language": task.language,
        "category": task.category,
        "score": score,
        "score_expected": score,
        "plain": score,
        "total": (score or 0) * n / 100,
        "n": n,
        "n_expected": n,
        "counts": counts,
        "answer_keywords": {"present": n, "absent": 0},
        "sent_tokens": {"mean": 1000.0, "max": 2000},
        **changes,
    }


def groups(
    scores: dict[str, float | None], sizes: dict[str, int], found: dict[str, int] | None = None
) -> dict[str, Any]:
    """The groups of a summary, with `sizes` records expected and, unless `found` says otherwise, found."""
    n = {**sizes, **(found or {})}
    return {
        name: {
            "score": score,
            "score_expected": score if score is None else score * n[name] / sizes[name],
            "total": (score or 0) * n[name] / 100,
            "n": n[name],
            "n_expected": sizes[name],
        }
        for name, score in scores.items()
    }
