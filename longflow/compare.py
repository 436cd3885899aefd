"""Two sets of results side by side: what differs in how they were made, first, and then in what came out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longflow.benchmarks import length_units
from longflow.errors import UserError, nearest
from longflow.jsonio import read_json, read_jsonl
from longflow.tables import Summary, read_summaries

OUTCOME = ("records", "answer_keywords", "cells_without_score", "cells", "groups")
"""Keys of protocol.json that tell what became of the records and not how they were to be treated."""

_WIDEST = 60


class _Absent:
    """Stands for what a side does not have."""


ABSENT = _Absent()


@dataclass(frozen=True)
class Side:
    """One of the two: a results folder, and the model that is meant, or None for all."""

    results: Path
    model: str | None

    @classmethod
    def parse(cls, text: str) -> Side:
        """A side of RESULTS or RESULTS:MODEL. Raises UserError if there are no tables or not of that model."""
        folder, model = Path(text), None
        if not folder.is_dir() and ":" in text:
            name, _, model = text.rpartition(":")
            folder = Path(name)
        if not folder.is_dir():
            raise UserError(f"{text}: there is no folder {folder}; a folder of results was expected, or FOLDER:MODEL")
        known = {name for _, name, _ in cls(folder, None).tables()}
        if not known:
            raise UserError(f"{folder}: no tables are here (tables/BENCHMARK/MODEL/SETTING/protocol.json); run to them")
        if model is not None and model not in known:
            raise UserError(f"{folder}: no tables of the model {model!r}; {nearest(model, known)}")
        return cls(folder, model)

    def tables(self) -> list[tuple[str, str, str]]:
        """Benchmark, model and setting of each table."""
        found = (self.results / "tables").glob("*/*/*/protocol.json")
        names = [(path.parts[-4], path.parts[-3], path.parts[-2]) for path in found]
        return sorted(name for name in names if self.model in (None, name[1]))

    def protocol(self, table: tuple[str, str, str]) -> dict[str, Any]:
        """How the numbers of a table came about. Raises UserError."""
        path = self.results.joinpath("tables", *table, "protocol.json")
        value = read_json(path)
        if not isinstance(value, dict):
            raise UserError(f"{path}: a JSON object was expected; make the table again")
        return value

    def scores(self, table: tuple[str, str, str]) -> dict[str, Summary]:
        """The summaries of a table's cells by "{dataset}/{length}". Raises UserError."""
        folder = self.results.joinpath("scores", *table)
        found = read_summaries(sorted(folder.glob("*/*.json")))
        return {f"{summary['dataset']}/{summary['length']}": summary for summary in found}

    def records(self, table: tuple[str, str, str], cell: str) -> dict[str, list[Any]]:
        """The scores of a cell's records by their id, in the order of their rows; empty without the file."""
        path = self.results.joinpath("scores", *table, f"{cell}.jsonl")
        found: dict[str, list[Any]] = {}
        if path.exists():
            for row in read_jsonl(path):
                found.setdefault(str(row.get("id")), []).append(row.get("score"))
        return found


@dataclass(frozen=True)
class Difference:
    """A field that differs: its keys joined by dots, and the value of each side."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class CellScores:
    """The score of a cell on both sides, and how many of the records that both have were scored differently."""

    cell: str
    a: Any
    b: Any
    differing: int
    common: int

    @property
    def equal(self) -> bool:
        """Whether the cell came out alike, to the record."""
        return bool(self.a == self.b and not self.differing)


@dataclass
class Pair:
    """A table of one side and its counterpart of the other."""

    a: tuple[str, str, str]
    b: tuple[str, str, str]
    protocol: list[Difference] = field(default_factory=list)
    outcome: list[Difference] = field(default_factory=list)
    scores: list[CellScores] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    overall: Mapping[str, Any] | None = None
    """The difference of the overall means over the cells that both have, A less B, as `statistics` tells it."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        differ = self.protocol or self.outcome or self.only_a or self.only_b
        return not differ and all(cell.equal for cell in self.scores)


@dataclass
class Comparison:
    """All pairs of tables, and the tables that one side does not have, as benchmark/model/setting."""

    pairs: list[Pair]
    only_a: list[str]
    only_b: list[str]

    @property
    def equal(self) -> bool:
        """Whether nothing differs and nothing is missing."""
        return not self.only_a and not self.only_b and all(pair.equal for pair in self.pairs)


def compare(a: Side, b: Side) -> Comparison:
    """Compare the tables of two sides.

    A table's counterpart is that of the same benchmark, setting and model. Where both sides mean one model each, by
    name or because they hold one only, these two are compared whatever they are called. Raises UserError if there is
    nothing to compare.
    """
    models_a, models_b = ({name for _, name, _ in side.tables()} for side in (a, b))
    one_each = len(models_a) == len(models_b) == 1
    other = dict(zip(models_a, models_b, strict=True)) if one_each else {}
    counterparts = {
        (bench, other.get(model, model), setting): (bench, model, setting) for bench, model, setting in a.tables()
    }
    theirs = b.tables()
    pairs = [_pair(a, b, counterparts[table], table) for table in theirs if table in counterparts]
    if not pairs:
        raise UserError(
            f"{a.results} and {b.results} have no benchmark, model and setting in common; name the models to compare: "
            "RESULTS:MODEL"
        )
    return Comparison(
        pairs,
        ["/".join(own) for table, own in counterparts.items() if table not in theirs],
        ["/".join(table) for table in theirs if table not in counterparts],
    )


def _pair(a: Side, b: Side, table_a: tuple[str, str, str], table_b: tuple[str, str, str]) -> Pair:
    made = Pair(table_a, table_b)
    for found in differences(a.protocol(table_a), b.protocol(table_b)):
        # That two models of different names are compared was asked for.
        if found.key != "model" or table_a[1] == table_b[1]:
            (made.outcome if found.key.split(".")[0] in OUTCOME else made.protocol).append(found)
    scores_a, scores_b = a.scores(table_a), b.scores(table_b)
    made.only_a = sorted(scores_a.keys() - scores_b.keys(), key=_order)
    made.only_b = sorted(scores_b.keys() - scores_a.keys(), key=_order)
    for cell in sorted(scores_a.keys() & scores_b.keys(), key=_order):
        records_a, records_b = a.records(table_a, cell), b.records(table_b, cell)
        common = records_a.keys() & records_b.keys()
        differing = sum(records_a[name] != records_b[name] for name in common)
        made.scores.append(CellScores(cell, scores_a[cell]["score"], scores_b[cell]["score"], differing, len(common)))
    if any(not cell.equal for cell in made.scores):
        made.overall = _overall(a, b, made)
    return made


def _overall(a: Side, b: Side, pair: Pair) -> Mapping[str, Any] | None:
    """The paired difference of the overall means over the cells that both have; None where it cannot be told."""
    from longflow import benchmarks
    from longflow.statistics.analysis import analyse
    from longflow.statistics.clusters import CellScores as Scored

    benchmark = pair.a[0]
    if benchmark not in benchmarks.names():  # a configuration's own one is not known here
        return None
    scored = []
    for name, side, table in (("A", a, pair.a), ("B", b, pair.b)):
        summaries = side.scores(table)
        for cell in pair.scores:
            path = side.results.joinpath("scores", *table, f"{cell.cell}.jsonl")
            if not path.exists():
                return None
            summary = {**summaries[cell.cell], "model": name, "setting": pair.a[2]}
            scored.append(Scored(summary, list(read_jsonl(path))))
    families = analyse(benchmark, scored)["families"]
    return next((family["differences"][0] for family in families if family["kind"] == "models"), None)


def _order(cell: str) -> tuple[str, int, str]:
    dataset, _, length = cell.partition("/")
    return dataset, length_units(length), length


def differences(a: Any, b: Any, key: str = "") -> Iterator[Difference]:
    """The fields in which two JSON values differ, nested keys joined by dots; lists are compared whole."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in [*a, *(name for name in b if name not in a)]:
            inner = f"{key}.{name}" if key else str(name)
            yield from differences(a.get(name, ABSENT), b.get(name, ABSENT), inner)
    elif a != b or (type(a) is not type(b) and not {type(a), type(b)} <= {int, float}):
        yield Difference(key, a, b)


def text(found: Comparison, a: str, b: str) -> str:
    """The comparison for people: of each pair of tables the protocol, then the records, then the scores."""
    lines = [f"A: {a}", f"B: {b}"]
    for pair in found.pairs:
        names = "/".join(pair.a) if pair.a == pair.b else f"{'/'.join(pair.a)} | {'/'.join(pair.b)}"
        lines += ["", names]
        if pair.equal:
            lines.append(f"  equal: protocol, records and the scores of {len(pair.scores)} cells")
            continue
        lines += _listed("protocol", pair.protocol) + _listed("records", pair.outcome) + _scores(pair)
    for side, tables in (("A", found.only_a), ("B", found.only_b)):
        lines += ["", *(f"only in {side}: {table}" for table in tables)] if tables else []
    lines += ["", "equal" if found.equal else "different"]
    return "\n".join(lines)


def _listed(name: str, found: list[Difference]) -> list[str]:
    if not found:
        return [f"  {name}: equal"]
    return [f"  {name}: A | B", *(f"    {each.key}: {_short(each.a)} | {_short(each.b)}" for each in found)]


def _scores(pair: Pair) -> list[str]:
    differing = [cell for cell in pair.scores if not cell.equal]
    head = f"  scores: {len(differing)} of {len(pair.scores)} cells differ" if differing else "  scores: equal"
    rows = [["cell", "A", "B", "B - A", "records that differ"]] if differing else []
    for cell in differing:
        both = isinstance(cell.a, int | float) and isinstance(cell.b, int | float)
        change = f"{cell.b - cell.a:+.2f}" if both else ""
        rows.append([cell.cell, _number(cell.a), _number(cell.b), change, f"{cell.differing} of {cell.common}"])
    widths = [max(len(row[column]) for row in rows) for column in range(5)] if rows else []
    lines = ["    " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    if pair.overall is not None:
        lines.append("    " + _told(pair.overall))
    for side, cells in (("A", pair.only_a), ("B", pair.only_b)):
        lines += [f"    only in {side}: {cell}" for cell in cells]
    return [head, *lines]


def _told(overall: Mapping[str, Any]) -> str:
    """The difference of the overall means in words, B less A, over the records that were expected."""
    low, high = -overall["high"], -overall["low"]
    tested = f", p = {overall['p']:.4f} (paired on the same questions)" if overall["paired"] else " (not in pairs)"
    interval = f"95 % interval {low:+.2f} to {high:+.2f}"
    return f"B - A on the cells of both, over the records expected: {-overall['difference']:+.2f}, {interval}{tested}"


def _number(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "none"


def _short(value: Any) -> str:
    if isinstance(value, _Absent):
        return "(absent)"
    written = json.dumps(value, ensure_ascii=False)
    return written if len(written) <= _WIDEST else written[: _WIDEST - 1] + "…"
