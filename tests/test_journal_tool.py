"""Looking after journals: nothing that is needed is ever lost, whoever runs, prunes or is killed meanwhile."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from longflow.errors import UserError
from longflow.journal import COMPACTED, TAKEN, Answer, Journal, Rendering, dump, segments, write_segment
from longflow.journal_prune import IDLE, Needs, find_cells, may_be_written, plan, plan_text, prune
from longflow.journal_tool import export, merge, merge_text, renamings, stats, stats_text
from longflow.jsonio import read_jsonl

CELL = "demo/model/full/needle_en/250"


def answer(key, text=None):
    return Answer(key, text or f"text of {key}", "stop", 7, 2, 0.1, "library 1")


def rendering(name, key):
    return Rendering(name, key, 7, None, None, 0)


def put(root, lines, cell=CELL, name=None, tail=b""):
    """A segment with these lines, as a process that has ended left it."""
    path = write_segment(Path(root) / cell, lines)
    path.write_bytes(path.read_bytes() + tail)
    aged = path.with_name(name or "elsewhere-" + path.name)
    path.rename(aged)
    os.utime(aged, (time.time() - 2 * IDLE,) * 2)
    return aged


def content(root):
    """Every file under a folder with its bytes."""
    return {str(p.relative_to(root)): p.read_bytes() for p in Path(root).rglob("*") if p.is_file()}


def command(*arguments, cwd=ROOT, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "scripts.journal", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


# --- merge ---


def test_merging_adds_what_is_lacking_and_changes_nothing_else(tmp_path):
    put(tmp_path / "a", [answer("1"), answer("2", "theirs"), rendering("r1", "1")])
    put(tmp_path / "a", [answer("3")], cell="demo/other/full/needle_en/250")
    put(tmp_path / "b", [answer("1", "another"), answer("4")])
    put(tmp_path / "into", [answer("2", "ours")])
    before = content(tmp_path / "into")

    done = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "into")
    after = content(tmp_path / "into")
    assert before.items() <= after.items()
    held = Journal(tmp_path / "into" / CELL)
    assert {key: value.text for key, value in held.answers.items()} == {
        "1": "text of 1",  # the first source that has it
        "2": "ours",
        "4": "text of 4",
    }
    assert list(held.renderings) == ["r1"]
    assert list(Journal(tmp_path / "into/demo/other/full/needle_en/250").answers) == ["3"]
    assert f"{CELL}: 2 answers and 1 renderings added; 2 answers differ" in merge_text(done)

    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "into")[0].answers == 0
    assert content(tmp_path / "into") == after


def test_merging_into_nothing_makes_a_journal_and_order_does_not_matter(tmp_path):
    put(tmp_path / "a", [answer("1"), rendering("r1", "1")])
    put(tmp_path / "b", [answer("2"), rendering("r2", "2")])
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "one")
    merge([tmp_path / "b"], tmp_path / "two")
    merge([tmp_path / "a"], tmp_path / "two")
    one, two = Journal(tmp_path / "one" / CELL), Journal(tmp_path / "two" / CELL)
    assert (one.answers, one.renderings) == (two.answers, two.renderings)
    assert one.answers.keys() == {"1", "2"}


def test_results_stand_for_the_journal_in_them_and_models_may_have_other_names(tmp_path):
    put(tmp_path / "theirs/journal", [answer("1")], cell="demo/llama3/full/needle_en/250")
    merge([tmp_path / "theirs"], tmp_path / "ours", renamings(["llama3=model"]))
    assert find_cells(tmp_path / "ours") == [CELL]


def test_a_torn_line_of_a_running_writer_is_left_for_the_next_time(tmp_path):
    path = put(tmp_path / "a", [answer("1")])
    whole = dump(answer("2"))
    path.write_bytes(path.read_bytes() + whole[:20])
    merge([tmp_path / "a"], tmp_path / "into")
    assert list(Journal(tmp_path / "into" / CELL).answers) == ["1"]
    path.write_bytes(path.read_bytes() + whole[20:])
    merge([tmp_path / "a"], tmp_path / "into")
    assert Journal(tmp_path / "into" / CELL).answers.keys() == {"1", "2"}


@pytest.mark.parametrize(
    ("source", "into", "said"),
    [
        ("absent", "into", "absent: no journal is here"),
        ("empty", "into", "empty: no journal is here"),
        ("a", "a", "a: is, holds or lies in"),
        ("a/demo", "a", "a/demo: is, holds or lies in"),
        ("a", "a/demo", "a: is, holds or lies in"),
    ],
)
def test_what_cannot_be_merged_is_named_before_anything_is_written(tmp_path, source, into, said):
    put(tmp_path / "a", [answer("1")])
    put(tmp_path / "good", [answer("2")])
    (tmp_path / "empty").mkdir()
    before = content(tmp_path)
    with pytest.raises(UserError, match=said):
        merge([tmp_path / "good", tmp_path / source], tmp_path / into)
    assert content(tmp_path) == before


@pytest.mark.parametrize("pair", ["a", "a=", "=b", "a=../b", "a/b=c"])
def test_names_of_models_cannot_leave_the_folder(pair):
    with pytest.raises(UserError, match=r"THEIRS=OURS was expected"):
        renamings([pair])


def test_a_later_format_is_not_merged(tmp_path):
    folder = tmp_path / "a" / CELL
    folder.mkdir(parents=True)
    (folder / "x.jsonl").write_text('{"v": 2, "kind": "completion"}\n')
    status, _, said = command("merge", tmp_path / "a", tmp_path / "into")
    assert (status, said.count("\n")) == (2, 1)
    assert "x.jsonl: journal format 2 is of a later longflow" in said
    assert not (tmp_path / "into").exists()


# --- prune ---

NEEDS = {CELL: Needs({"r1", "r2"}, {"1", "2"})}


def test_pruning_drops_what_is_not_needed_and_makes_one_file(tmp_path):
    put(tmp_path, [answer("1"), answer("old"), rendering("r1", "1")], name="a-1-00000000.jsonl", tail=b"torn")
    put(tmp_path, [answer("1", "second"), answer("2"), rendering("old", "old")], name="b-1-00000000.jsonl")
    before = content(tmp_path)

    plans = plan(tmp_path, NEEDS)
    assert "2 files of " in plan_text(plans, False)
    assert "1 answers would go; 1 renderings would go; 2 torn, foreign or repeated lines would go" in plan_text(
        plans, False
    )
    assert content(tmp_path) == before  # planning changes nothing

    prune(tmp_path, plans)
    (only,) = segments(tmp_path / CELL)
    assert only.name.startswith(COMPACTED)
    held = Journal(tmp_path / CELL)
    assert {key: value.text for key, value in held.answers.items()} == {"1": "text of 1", "2": "text of 2"}
    assert list(held.renderings) == ["r1"]
    assert held.dropped == 0
    assert plan_text(plan(tmp_path, NEEDS), False) == "nothing to do"


def test_of_a_cell_that_was_not_run_to_its_end_nothing_goes(tmp_path):
    put(tmp_path, [answer("1"), answer("old")])
    put(tmp_path, [answer("2")])
    prune(tmp_path, plan(tmp_path, {CELL: Needs(set(), set(), "not run yet")}))
    assert Journal(tmp_path / CELL).answers.keys() == {"1", "old", "2"}
    assert len(segments(tmp_path / CELL)) == 1


def test_other_cells_go_only_if_asked_for(tmp_path):
    put(tmp_path, [answer("x")], cell="demo/gone/full/needle_en/250")
    put(tmp_path, [answer("1")])
    prune(tmp_path, plan(tmp_path, NEEDS))
    assert len(find_cells(tmp_path)) == 2
    prune(tmp_path, plan(tmp_path, NEEDS, other_cells=True))
    assert find_cells(tmp_path) == [CELL]
    assert not (tmp_path / "demo/gone").exists()


def test_who_may_still_write_is_left_alone(tmp_path):
    with Journal(tmp_path / CELL) as journal:
        journal.add(answer("mine"))
        (mine,) = segments(tmp_path / CELL)
        assert may_be_written(mine)  # this process runs
        put(tmp_path, [answer("old")])
        prune(tmp_path, plan(tmp_path, NEEDS))
        assert segments(tmp_path / CELL) == [mine]
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead = mine.with_name(mine.name.replace(str(os.getpid()), ended.stdout.strip()))
    mine.rename(dead)
    assert not may_be_written(dead)  # of this host, and gone
    there = dead.with_name("elsewhere-1-00000000.jsonl")
    dead.rename(there)
    assert may_be_written(there)  # of another host, and young


def test_a_kept_file_does_not_lose_to_one_that_was_compacted(tmp_path):
    """Of two values of a key the same one wins before and after, whatever was put together."""
    chooser = random.Random(5)
    for number in range(40):
        root = tmp_path / str(number)
        for name in "abcd":
            lines = [answer(key, f"{key} of {name}") for key in "wxyz" if chooser.random() < 0.6]
            path = put(root, lines, name=f"{name}-1-00000000.jsonl")
            if chooser.random() < 0.4:
                os.utime(path)  # may be written to, and stays
        before = Journal(root / CELL).answers
        prune(root, plan(root, {}))
        assert Journal(root / CELL).answers == before


def test_what_a_writer_adds_while_its_file_is_pruned_is_kept(tmp_path):
    """The worst case: a writer that was taken for dead and goes on."""
    folder = tmp_path / CELL
    with Journal(folder) as journal:
        journal.add(answer("1"))
        (mine,) = segments(folder)
        os.utime(mine, (1, 1))
        plans = plan(tmp_path, NEEDS)
        journal.add(answer("late"))  # after the plan read the file
        prune(tmp_path, plans)
        journal.add(answer("later"))  # after the file is gone
    assert Journal(folder).answers.keys() == {"1", "late", "later"}


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from longflow.journal import Answer, Journal
with Journal(sys.argv[1]) as journal:
    for number in range(400):
        journal.add(Answer(f"{sys.argv[3]}-{number}", "text", "stop", 1, 1, 0.1, ""))
        print(number, flush=True)
"""

PRUNER = """
import sys
sys.path.insert(0, sys.argv[2])
from longflow import journal_prune
journal_prune.may_be_written = lambda path: False  # everybody is taken for dead
while True:
    journal_prune.prune(sys.argv[1], journal_prune.plan(sys.argv[1], {}))
"""


def test_pruning_again_and_again_loses_no_line_of_two_running_writers(tmp_path):
    folder = tmp_path / CELL
    folder.mkdir(parents=True)
    arguments = [str(ROOT)]
    pruner = subprocess.Popen([sys.executable, "-c", PRUNER, str(tmp_path), *arguments], stderr=subprocess.DEVNULL)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), *arguments, name], stdout=subprocess.DEVNULL)
        for name in "ab"
    ]
    try:
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    finally:
        pruner.kill()
        pruner.wait()
    assert Journal(folder).answers.keys() == {f"{name}-{number}" for name in "ab" for number in range(400)}


def test_a_prune_killed_at_any_moment_has_lost_nothing(tmp_path):
    chooser = random.Random(3)
    expected = {}
    for number in range(30):
        put(tmp_path, [line := answer(str(number)), answer("same", f"{number}")])
        expected[line.key] = line
    expected["same"] = Journal(tmp_path / CELL).answers["same"]
    for number in range(15):
        put(tmp_path, [line := answer(f"more {number}")])
        expected[line.key] = line
        process = subprocess.Popen(
            [sys.executable, "-c", PRUNER.replace("while True", "if True"), str(tmp_path), str(ROOT)],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(chooser.uniform(0.05, 0.35))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert Journal(tmp_path / CELL).answers == expected
    prune(tmp_path, plan(tmp_path, {}))
    assert Journal(tmp_path / CELL).answers == expected
    assert len(segments(tmp_path / CELL)) == 1


def test_a_prune_that_died_before_its_last_step_is_finished_by_the_next(tmp_path):
    put(tmp_path, [answer("1")], name=f"{COMPACTED}a-1-00000000.jsonl")
    put(tmp_path, [answer("1"), answer("late"), answer("old")], name=f"b-1-00000000.jsonl{TAKEN}")
    assert Journal(tmp_path / CELL).answers.keys() == {"1", "late", "old"}
    prune(tmp_path, plan(tmp_path, {CELL: Needs(set(), {"1", "late"})}))
    assert Journal(tmp_path / CELL).answers.keys() == {"1", "late"}
    assert len(segments(tmp_path / CELL)) == 1


# --- stats and export ---


def test_stats_count_what_is_there(tmp_path):
    tail = b"foreign\n" + dump(answer("1"))[:-5]
    put(tmp_path, [answer("1"), answer("old"), rendering("r1", "1")], tail=tail)
    put(tmp_path, [answer("1")])
    (found,) = stats(tmp_path, {CELL: Needs({"r1"}, {"1"}, model="abcd1234")})
    counts = (found.files, found.answers, found.needed, found.renderings, found.repeated, found.dropped)
    assert counts == (2, 2, 1, 1, 1, 2)
    assert found.bytes == sum(len(data) for data in content(tmp_path).values())
    text = stats_text([found])
    assert "model (identity abcd1234): 2 answers" in text
    assert "made with library 1: 2 answers" in text


def test_exported_answers_are_rows_by_cell_and_key(tmp_path):
    put(tmp_path, [answer("2"), answer("1", "a\ud800b\n")])
    put(tmp_path, [answer("3")], cell="demo/other/full/needle_en/250")
    status, _, said = command("export", tmp_path, "--cell", "demo/model", "--output", tmp_path / "out.jsonl")
    assert (status, said) == (0, "")
    rows = list(read_jsonl(tmp_path / "out.jsonl"))
    assert [(row["cell"], row["key"]) for row in rows] == [(CELL, "1"), (CELL, "2")]
    assert rows[0]["text"] == "a\ud800b\n"
    assert "note" not in rows[0]
    assert len(list(export(tmp_path))) == 3
    with pytest.raises(UserError, match="nothing of 'demo/mod' is in this journal"):
        list(export(tmp_path, "demo/mod"))
    assert len(command("export", tmp_path)[1].splitlines()) == 3


@pytest.mark.parametrize("name", ["stats", "export"])
def test_a_folder_that_is_not_there_is_named(tmp_path, name):
    status, _, said = command(name, tmp_path / "absent")
    assert (status, said) == (
        2,
        f"error: {tmp_path}/absent: no journal is here; name the folder that holds the cells' folders\n",
    )


# --- with a workflow ---


@pytest.mark.slow
def test_a_finished_run_needs_what_it_looked_up_and_pruning_costs_it_nothing(finished):
    def journal(*arguments):
        status, text, said = command(*arguments, cwd=finished.folder, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
        assert status == 0, said
        return text

    run = ("--configfile", "run.yaml")
    predictions = content(finished.folder / "results/predictions")
    finished.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "{input} {context} {input}"}
    finished.run()
    rows = [line.split() for line in journal("stats", *run).splitlines() if "needle_en/250" in line]
    assert rows[0][2:4] == ["6", "3"]  # answers, needed

    # Of prompts that were never sent it cannot be known which answers they ask for: nothing of those cells may go.
    finished.config["benchmarks"]["demo"]["prompts"]["needle_en"] = "{input} {context}"
    finished.command()
    text = journal("prune", *run)
    (line,) = (line for line in text.splitlines() if "needle_en/250" in line)
    assert "no answer goes: it was not run to its end with this configuration" in line
    assert "in all, 0 answers would go" in text
    del finished.config["benchmarks"]["demo"]["prompts"]

    finished.command()
    before = content(finished.folder / "results/journal")
    text = journal("prune", *run)
    assert "would go; add --yes to do it" in text
    assert content(finished.folder / "results/journal") == before
    assert journal("prune", *run, "--yes", "--dry-run") == text
    assert content(finished.folder / "results/journal") == before
    assert "in all, 6 answers go" in journal("prune", *run, "--yes")

    finished.counted()
    shutil.rmtree(finished.folder / "results/predictions")
    finished.run("predictions")
    assert finished.counted() == {"loads": 0, "requests": 0}
    assert content(finished.folder / "results/predictions") == predictions
    rows = [json.loads(line) for line in journal("export", *run, "--cell", "demo/standin").splitlines()]
    assert len(rows) == 12
