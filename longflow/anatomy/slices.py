"""Counts over the rows of a cell, and over cells: labels, slices, evidence positions, with and without context.

Means are kept as sums and counts, so that cells can be put together; what puts them together takes the mean of the
data sets' means, as the benchmarks do, and says how many records and data sets there are. A failed record scores 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longflow.anatomy.fate import FLAGS, LABELS, RIGHT, STATES
from longflow.benchmarks import Task
from longflow.settings import NoContext, fits

BINS = 10
"""Bins of the evidence's position, from the beginning of the context to its end."""

Row = Mapping[str, Any]


def marks(task: Task) -> dict[str, Any]:
    """What a benchmark's table says of a data set: hop, confusing facts, keyword replacement, keywords, and so on.

    None where the table does not say. `asked` is whether its records can be asked without their context.
    """
    hop = task.category.split("-hop")[0] if "-hop" in task.category else None
    replaced = task.extra["keyword_replacements"] is not None if "keyword_replacements" in task.extra else None
    return {
        "language": task.language,
        "category": task.category,
        "hop": hop,
        "confusing_facts": task.extra.get("confusing_facts"),
        "keyword_replacement": replaced,
        "answer_keywords": task.extra.get("answer_keywords"),
        "asked": fits(NoContext(kind="no_context"), task),
    }


class Counts:
    """The counts of one cell, filled row by row; `to_json` gives them."""

    def __init__(self, asked: bool) -> None:
        self._asked = asked
        self.n = 0
        self._labels = dict.fromkeys(LABELS, 0)
        self._flags = {name: dict.fromkeys(STATES, 0) for name in FLAGS}
        self._slices: dict[str, dict[str, list[float]]] = {}
        self._positions: dict[str, list[list[float]]] = {
            when: [[0, 0.0] for _ in range(BINS)] for when in ("before", "after")
        }
        self._placed = {"before": 0, "after": 0}
        self._pair = {known: dict.fromkeys(("right", "wrong"), 0) for known in ("right", "wrong", "unknown")}
        self._not_known = [0, 0.0]

    def add(self, row: Row) -> None:
        """Count a row as `anatomy.cell` makes it."""
        self.n += 1
        score = float(row["score"] or 0)
        self._labels[row["label"]] += 1
        for name, flag in row["flags"].items():
            self._flags[name][flag["state"]] += 1
        for name, values in row["slices"].items():
            for value in values:
                part = self._slices.setdefault(name, {}).setdefault(value, [0, 0.0])
                part[0] += 1
                part[1] += score
        for when, bins in self._positions.items():
            place = row["position"][when]
            if place is not None:
                self._placed[when] += 1
                found = bins[min(BINS - 1, int(place * BINS))]
                found[0] += 1
                found[1] += score
        self._pair[row["blind"]["right"]]["right" if score >= RIGHT else "wrong"] += 1
        if row["blind"]["right"] == "wrong":
            self._not_known[0] += 1
            self._not_known[1] += score

    def to_json(self) -> dict[str, Any]:
        """The counts: labels, flags by state, slices, positions, and, if asked without context, the two-by-two.

        A part of a slice and a bin of positions have `n` and `total`, the sum of the scores (0 to 1). `two_by_two` is
        without context -> with context -> records; `not_known` is over the records that were wrong without context.
        """
        return {
            "n": self.n,
            "labels": self._labels,
            "flags": self._flags,
            "slices": {
                name: {value: _part(self._slices[name][value]) for value in sorted(self._slices[name])}
                for name in self._slices
            },
            "positions": {when: [_part(found) for found in bins] for when, bins in self._positions.items()},
            "placed": self._placed,
            "two_by_two": self._pair if self._asked and self._asked_blind() else None,
            "not_known": _part(self._not_known) if self._asked and self._asked_blind() else None,
        }

    def _asked_blind(self) -> bool:
        return any(sum(self._pair[name].values()) for name in ("right", "wrong"))


def _part(found: Sequence[float]) -> dict[str, float]:
    return {"n": int(found[0]), "total": found[1]}


def slices_of(row: Row, line: Row, cut: str, known: str) -> dict[str, list[str]]:
    """The slices that a record of a cell differs in from others of it, and its values in them (most have one).

    Whether there are answer keywords and confusing facts is told by the record, whatever its data set's table says.
    """
    truncated = "unknown" if "kept_head" not in row else "no" if row["kept_head"] is None else "yes"
    facts = "unknown" if "confusing_facts" not in row else "yes" if row["confusing_facts"] else "no"
    found = {
        "truncated": [truncated],
        "evidence_cut": [cut],
        "answer_keywords": ["yes" if row.get("gold_ans") else "no"],
        "confusing_facts": [facts],
        "known": [known],
    }
    return {**found, "group": list(line["groups"])} if line.get("groups") else found


TABLE_SLICES = ("hop", "language", "category", "confusing_facts", "keyword_replacement", "answer_keywords")
"""Slices by which the data sets of a benchmark are told apart in its table."""


def _word(value: Any) -> str:
    return {True: "yes", False: "no", None: "not marked"}.get(value, str(value))


def _mean(parts: Iterable[tuple[float, float]]) -> dict[str, Any]:
    """The mean (percent) of the means of data sets; (n, total) each, those without records left out."""
    full = [(n, total) for n, total in parts if n]
    score = 100 * sum(total / n for n, total in full) / len(full) if full else None
    return {"score": score, "n": int(sum(n for n, _ in full)), "datasets": len(full)}


def by_slice(summaries: Sequence[Row]) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Slice -> value -> length -> score (percent: mean of the data sets' means), n and datasets.

    `summaries` are those of one model in one setting. The slices of the table (`table: hop` ...) hold whole data sets;
    the others hold records, as their rows tell.
    """
    parts: dict[str, dict[str, dict[str, list[tuple[float, float]]]]] = {}

    def put(name: str, value: str, length: str, n: float, total: float) -> None:
        parts.setdefault(name, {}).setdefault(value, {}).setdefault(length, []).append((n, total))

    for summary in summaries:
        length = str(summary["length"])
        n, total = _whole(summary)
        put("all", "all", length, n, total)
        for name in TABLE_SLICES:
            put(f"table: {name}", _word(summary["marks"].get(name)), length, n, total)
        for name, values in summary["slices"].items():
            for value, part in values.items():
                put(name, value, length, part["n"], part["total"])
    return {
        name: {value: {length: _mean(found) for length, found in lengths.items()} for value, lengths in values.items()}
        for name, values in parts.items()
    }


def _whole(summary: Row) -> tuple[float, float]:
    parts = summary["slices"].get("truncated", {}).values()
    return sum(part["n"] for part in parts), sum(part["total"] for part in parts)


def by_label(summaries: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Length -> label -> records, in the order of `LABELS`: the stacked bar."""
    found: dict[str, dict[str, int]] = {}
    for summary in summaries:
        counts = found.setdefault(str(summary["length"]), dict.fromkeys(LABELS, 0))
        for name, n in summary["labels"].items():
            counts[name] += n
    return found


def heat_map(summaries: Sequence[Row], when: str = "before") -> dict[str, list[dict[str, Any]]]:
    """Length -> one entry a bin of positions (score in percent, n, datasets), over all records whose place is known."""
    bins: dict[str, list[list[tuple[float, float]]]] = {}
    for summary in summaries:
        row = bins.setdefault(str(summary["length"]), [[] for _ in range(BINS)])
        for place, part in zip(row, summary["positions"][when], strict=True):
            place.append((part["n"], part["total"]))
    return {length: [_mean(parts) for parts in row] for length, row in bins.items()}


def histogram(summaries: Sequence[Row], when: str = "before") -> dict[str, list[int]]:
    """Data set -> records by bin of the evidence's position, over all lengths."""
    found: dict[str, list[int]] = {}
    for summary in summaries:
        row = found.setdefault(str(summary["dataset"]), [0] * BINS)
        for i, part in enumerate(summary["positions"][when]):
            row[i] += part["n"]
    return found


def two_by_two(summaries: Sequence[Row]) -> dict[str, dict[str, dict[str, Any]]]:
    """Length -> `pairs` (without context -> with context -> records) and `not_known` (score in percent, n, datasets).

    Only cells that were asked without context as well.
    """
    found: dict[str, dict[str, Any]] = {}
    for summary in summaries:
        if summary["two_by_two"] is None:
            continue
        entry = found.setdefault(str(summary["length"]), {"pairs": {}, "parts": []})
        for without, counts in summary["two_by_two"].items():
            pair = entry["pairs"].setdefault(without, dict.fromkeys(counts, 0))
            for name, n in counts.items():
                pair[name] += n
        entry["parts"].append((summary["not_known"]["n"], summary["not_known"]["total"]))
    return {length: {"pairs": entry["pairs"], "not_known": _mean(entry["parts"])} for length, entry in found.items()}
