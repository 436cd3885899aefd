"""How much faster a LongBench run is scored here than by calling `rouge`, jieba and difflib as its eval.py does.

Takes the 4,750 predictions of ../shared/cases/longbench/mistral, or of the folder given. Prints the time of both on the
CPU, by kind of metric and in all, their ratio, and whether every record's score is equal. Imports and the reading of
jieba's dictionary are paid by neither.

Run from the project's root: python -m perf.score [FOLDER]
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from rouge import Rouge

from longflow import metrics
from longflow.jsonio import read_jsonl
from longflow.metrics.text import normalize_en, normalize_zh, segment
from longflow.score import first_line, score_cell

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CASES = SHARED / "cases" / "longbench" / "mistral"
TASKS = SHARED / "reference" / "longbench_tasks.json"

Scorer = Callable[[str, str, list[str] | None], float]

cut = segment.__wrapped__  # without the cache


def f1(prediction: list[str], truth: list[str]) -> float:
    """F1 of two bags of words."""
    same = sum((Counter(prediction) & Counter(truth)).values())
    if not same:
        return 0.0
    precision, recall = same / len(prediction), same / len(truth)
    return (2 * precision * recall) / (precision + recall)


def chinese_words(text: str) -> list[str]:
    """jieba's words, normalised."""
    return [token for token in map(normalize_zh, cut(text)) if token]


def package_rouge(prediction: str, truth: str) -> float:
    """ROUGE-L of the package, with the reference's zero for any error."""
    try:
        return float(Rouge().get_scores([prediction], [truth], avg=True)["rouge-l"]["f"])
    except Exception:
        return 0.0


def code_similarity(prediction: str, truth: str) -> float:
    """difflib's ratio of the first line of code, in whole percents."""
    line = next((x for x in prediction.lstrip("\n").split("\n") if not any(m in x for m in ("`", "#", "//"))), "")
    if line == truth:
        return 1.0
    return round(100 * SequenceMatcher(None, line, truth).ratio()) / 100 if line and truth else 0.0


REFERENCE: dict[str, Scorer] = {
    "qa_f1_score": lambda p, t, _: f1(normalize_en(p).split(), normalize_en(t).split()),
    "qa_f1_zh_score": lambda p, t, _: f1(chinese_words(p), chinese_words(t)),
    "rouge_score": lambda p, t, _: package_rouge(p, t),
    "rouge_zh_score": lambda p, t, _: package_rouge(" ".join(cut(p)), " ".join(cut(t))),
    "code_sim_score": lambda p, t, _: code_similarity(p, t),
    "count_score": lambda p, t, _: metrics.count_score(p, t),
    "retrieval_score": lambda p, t, _: metrics.retrieval_score(p, t),
    "retrieval_zh_score": lambda p, t, _: metrics.retrieval_zh_score(p, t),
    "classification_score": lambda p, t, classes: metrics.classification_score(p, t, all_classes=classes or []),
}
"""Metrics as the reference computes them; the last four cost next to nothing and are our own."""


def reference_scores(path: Path, task: dict[str, Any]) -> list[float]:
    """The best score of each line over all its answers, as eval.py computes it."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    scorer, classes = REFERENCE[task["metric"]], rows[-1]["all_classes"]
    scores = []
    for row in rows:
        prediction = first_line(row["pred"]) if task["first_line_only"] else row["pred"]
        scores.append(max([0.0, *(scorer(prediction, answer, classes) for answer in row["answers"])]))
    return scores


def our_scores(path: Path, dataset: str, task: dict[str, Any]) -> list[float]:
    """The scores of the records of a cell, in the file's order."""
    spec = {
        **dict.fromkeys(("model", "setting", "length"), "-"),
        "benchmark": "longbench",
        "dataset": dataset,
        **{key: task[key] for key in ("metric", "language", "category")},
        "n_expected": task["n_samples"],
        "answers": "best",
        "clean": "first_line" if task["first_line_only"] else None,
    }
    lines, _ = score_cell(read_jsonl(path), spec, str(path))
    return [line["score"] for line in lines]


def main() -> None:
    """Score every data set both ways and print the times by metric."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else CASES
    if not folder.is_dir() or not TASKS.is_file():
        print(f"skipped: {folder} or {TASKS} is absent")
        return
    tasks = json.loads(TASKS.read_text(encoding="utf-8"))["tasks"]
    files = {path: tasks[path.stem] for path in sorted(folder.glob("*.jsonl")) if path.stem in tasks}
    segment("读字典")
    our_scores(next(iter(files)), next(iter(files)).stem, next(iter(files.values())))  # reads the benchmark's table
    segment.cache_clear()
    times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for path, task in files.items():
        start = time.process_time()
        ours = our_scores(path, path.stem, task)
        middle = time.process_time()
        theirs = reference_scores(path, task)
        end = time.process_time()
        if list(map(repr, ours)) != list(map(repr, theirs)):
            sys.exit(f"{path}: scores differ")
        for name in (task["metric"], "in all"):
            spent = (end - middle, middle - start, len(ours))
            times[name] = [a + b for a, b in zip(times[name], spent, strict=True)]
    total = times.pop("in all")
    for name, (slow, fast, records) in [*sorted(times.items()), ("in all", total)]:
        print(f"{name:<22} direct {slow:7.2f} s   ours {fast:6.2f} s   {slow / fast:6.1f}x   {records:5.0f} equal")


if __name__ == "__main__":
    main()
