"""The single records of a run, packed for the page: an index that is small, and details in parts read when opened.

Text is kept as data (compressed, then base64), so nothing in it is ever seen by the page's parser. A question stands
once for all models and lengths that it was asked at; so do excerpts within a part.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longflow.anatomy import FLAGS, LABELS, STATES
from longflow.cells import Cell
from longflow.jsonio import canonical, digest, read_jsonl
from longflow.report.data import Gathered, Run

MOST = 50_000
"""Records that a report holds; of larger runs, one question in so many."""

PART = 500
"""Records in a part of the details."""

SHORT = 140
"""Characters of an answer that the table shows."""

LONGEST = 4000
"""Characters of an answer, a question or a right answer that the report keeps."""

Row = Mapping[str, Any]


class Pool:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def add(self, value: Any) -> int:
        """The number of a value."""
        name = canonical(value)
        if name not in self._numbers:
            self._numbers[name] = len(self.values)
            self.values.append(value)
        return self._numbers[name]


COLUMNS = ("benchmark", "model", "setting", "dataset", "length", "label", "score", "question", "answer")
"""The columns of the index; all but score (percent, null for none) and answer are numbers into lists of names."""


class Records:
    """All records of a run; `index` and `parts` are made by `pack`."""

    def __init__(self) -> None:
        self.names = {name: Pool() for name in ("benchmark", "model", "setting", "dataset", "length")}
        self.questions = Pool()
        self.languages: dict[int, str] = {}
        self.rows: list[list[Any]] = []
        self.details: list[dict[str, Any]] = []
        self.taken = 1

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, cell: Cell, language: str, prediction: Row, line: Row, fate: Row | None) -> None:
        """Add a record by its three rows; without its anatomy, its fate is empty."""
        place = {name: pool.add(getattr(cell, name)) for name, pool in self.names.items()}
        self.languages[place["dataset"]] = language
        question = self.questions.add(
            {
                # Rows made elsewhere may have no names but their numbers, which each data set counts anew.
                "set": [place["benchmark"], place["dataset"]],
                "name": str(line.get("question_id") or line["id"]),
                "text": _text(prediction.get("input") or prediction.get("question")),
                "answers": [_text(each) for each in _listed(prediction.get("answers") or prediction.get("answer"))],
                "keyword": _text(prediction.get("gold_ans")) or None,
                "choices": [_text(prediction[f"choice_{x}"]) for x in "ABCD" if prediction.get(f"choice_{x}")],
            }
        )
        label = "" if fate is None else str(fate["label"])
        answer = _text(prediction.get("pred") or prediction.get("response"))
        score = None if line["score"] is None else round(100 * float(line["score"]), 2)
        labels = list(LABELS)
        self.rows.append(
            [
                *(place[name] for name in ("benchmark", "model", "setting", "dataset", "length")),
                labels.index(label) if label in LABELS else -1,
                score,
                question,
                answer[:SHORT],
            ]
        )
        self.details.append(
            {
                "id": line["id"],
                "repeat": line.get("repeat"),
                "answer": answer,
                "error": prediction.get("error"),
                "facts": {
                    name: prediction[name]
                    for name in (
                        "prompt_tokens",
                        "sent_tokens",
                        "answer_tokens",
                        "finish_reason",
                        "kept_head",
                        "kept_tail",
                    )
                    if prediction.get(name) is not None
                },
                "gated": bool(line.get("gated")),
                "plain": None if line.get("plain") is None else round(100 * float(line["plain"]), 2),
                "flags": [] if fate is None else _flags(fate),
                "position": None if fate is None else fate.get("position"),
                "evidence": None if fate is None else fate.get("evidence"),
                "excerpts": [] if fate is None else fate.get("excerpts") or [],
            }
        )

    def pack(self) -> tuple[str, list[str]]:
        """The index and the parts of the details, as base64 of gzip of JSON. The same records give the same text."""
        order = sorted(range(len(self.rows)), key=lambda i: (self.rows[i][0], self.rows[i][3], self.rows[i][7], i))
        rows = [self.rows[i] for i in order]
        index = {
            "names": {name: pool.values for name, pool in self.names.items()},
            "labels": list(LABELS.items()),
            "flags": FLAGS,
            "states": STATES,
            "languages": [self.languages[i] for i in range(len(self.languages))],
            "questions": self.questions.values,
            "part": PART,
            "columns": {name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)},
        }
        parts = [self._part([self.details[i] for i in order[k : k + PART]]) for k in range(0, len(order), PART)]
        return packed(index), parts

    def _part(self, details: Sequence[dict[str, Any]]) -> str:
        excerpts = Pool()
        rows = [{**each, "excerpts": [excerpts.add(found) for found in each["excerpts"]]} for each in details]
        return packed({"rows": rows, "excerpts": excerpts.values})


def packed(value: Any) -> str:
    """A JSON value as base64 of gzip: ASCII letters, digits and `+/=` alone, the same for the same value."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST:,} more characters)"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _flags(fate: Row) -> list[list[str]]:
    """The flags that are not `no`: name, state and why."""
    return [[name, flag["state"], flag["why"]] for name, flag in fate["flags"].items() if flag["state"] != "no"]


def records(gathered: Gathered, most: int = MOST) -> Records:
    """The records of all benchmarks that were scored; of more than `most`, one question in so many."""
    total = sum(int(summary["n_expected"]) for run in gathered.runs for summary in run.summaries)
    found = Records()
    found.taken = -(-total // most)
    for run in gathered.runs:
        for summary in run.summaries:
            cell = Cell(*(str(summary[key]) for key in ("benchmark", "model", "setting", "dataset", "length")))
            for rows in _of_cell(gathered, run, cell, found.taken):
                found.add(cell, str(summary["language"]), *rows)
    return found


def _of_cell(gathered: Gathered, run: Run, cell: Cell, taken: int) -> Iterator[tuple[Row, Row, Row | None]]:
    """Prediction, score and anatomy of each record of a cell, in step."""
    files = gathered.files
    if not Path(files.predictions(cell)).is_file() or not Path(files.score_lines(cell)).is_file():
        return
    anatomy = Path(files.anatomy(cell))
    fates = read_jsonl(anatomy) if anatomy.is_file() else iter(())
    lines = read_jsonl(files.score_lines(cell))
    line, fate = next(lines, None), next(fates, None)
    chosen = _Choice(taken)
    for index, row in enumerate(read_jsonl(files.predictions(cell))):
        if line is None:
            return
        if line["id"] != str(row.get("id", row.get("_id", index))):
            continue  # left out of the scores, since it equals an earlier row
        mine = fate if fate is not None and fate["id"] == line["id"] else None
        if chosen(line):
            yield row, line, mine
        if mine is not None:
            fate = next(fates, None)
        line = next(lines, None)


class _Choice:
    """Says of the lines of a cell whether they are among one in `taken`: the same questions at all lengths and models.

    Of a question that a cell asks several times (at several places of a haystack), the same times are taken.
    """

    def __init__(self, taken: int) -> None:
        self._taken = taken
        self._times: dict[str, int] = {}
        self._of: dict[str, bool] = {}

    def __call__(self, line: Row) -> bool:
        name = str(line["id"])
        if name not in self._of:  # else another answer to the same record
            question = str(line.get("question_id") or name)
            time = self._times[question] = self._times.get(question, -1) + 1
            self._of[name] = int(digest([question, time])[:8], 16) % self._taken == 0
        return self._of[name]
