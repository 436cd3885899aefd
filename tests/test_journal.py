"""The journal: nothing kept is lost, nothing torn is believed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longflow.errors import UserError
from longflow.journal import FORMAT, Answer, Journal, Rendering

QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)

texts = st.text(max_size=30)  # with surrogates, line separators and control characters
counts = st.none() | st.integers(0, 10**7)
answers = st.builds(
    Answer,
    key=st.text("0123456789abcdef", min_size=4, max_size=4),
    text=texts,
    finish_reason=st.sampled_from(["stop", "length"]),
    prompt_tokens=counts,
    answer_tokens=counts,
    seconds=st.none() | st.floats(0, 1e6),
    libraries=st.just("x 1"),
)
renderings = st.builds(
    Rendering,
    id=st.text("0123456789abcdef", min_size=4, max_size=4),
    key=st.just("k"),
    tokens=counts,
    kept_head=counts,
    kept_tail=counts,
    context_start=counts,
)
lines = st.lists(answers | renderings, max_size=8)


def fresh(tmp_path_factory):
    return tmp_path_factory.mktemp("journal")


def write(folder, items):
    with Journal(folder) as journal:
        for item in items:
            journal.add(item)


def first_wins(items):
    """What a reader should hold after these lines in this order."""
    answers, renderings = {}, {}
    for item in items:
        if isinstance(item, Answer):
            answers.setdefault(item.key, item)
        else:
            renderings.setdefault(item.id, item)
    return answers, renderings


@QUIET
@given(lines)
def test_what_is_kept_is_read_back(tmp_path_factory, items):
    folder = fresh(tmp_path_factory)
    write(folder, items)
    read = Journal(folder)
    assert (read.answers, read.renderings) == first_wins(items)
    assert read.dropped == 0


@QUIET
@given(lines, st.data())
def test_any_prefix_gives_the_whole_lines_in_it(tmp_path_factory, items, data):
    folder = fresh(tmp_path_factory)
    write(folder, items)
    for path in folder.glob("*.jsonl"):
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")
        read = Journal(folder)
        assert (read.answers, read.renderings) == first_wins(items[:complete])
        assert read.dropped == (0 if whole[:cut].endswith(b"\n") or cut == 0 else 1)


@QUIET
@given(lines, st.binary(max_size=200))
def test_garbage_at_the_end_is_dropped(tmp_path_factory, items, garbage):
    folder = fresh(tmp_path_factory)
    write(folder, items)
    for path in folder.glob("*.jsonl"):
        with open(path, "ab") as stream:
            stream.write(garbage)
    read = Journal(folder)
    assert (read.answers, read.renderings) == first_wins(items)


@QUIET
@given(st.lists(answers, max_size=8, unique_by=lambda a: a.key), st.integers(1, 4))
def test_files_of_several_writers_merge_in_any_order(tmp_path_factory, items, writers):
    folder = fresh(tmp_path_factory)
    for number in range(writers):
        write(folder, items[number::writers])
    assert Journal(folder).answers == {item.key: item for item in items}
    # and as one file, concatenated
    joined = b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl"), reverse=True))
    other = fresh(tmp_path_factory)
    (other / "all.jsonl").write_bytes(joined)
    assert Journal(other).answers == {item.key: item for item in items}


VALID = {
    "v": FORMAT, "kind": "rendering", "id": "i", "key": "k", "tokens": 1, "kept_head": None, "kept_tail": None,
    "context_start": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        {"a": 1},
        {**VALID, "tokens": "1"},
        {**VALID, "tokens": True},
        {**VALID, "more": 1},
        {k: v for k, v in VALID.items() if k != "key"},
        {**VALID, "kind": "other"},
        {**VALID, "v": None},
        [1],
        None,
        "text",
    ],
)
def test_a_foreign_line_is_dropped_and_counted(tmp_path, line):
    (tmp_path / "x.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(VALID) + "\n")
    read = Journal(tmp_path)
    assert read.dropped == 1
    assert list(read.renderings) == ["i"]


def test_a_later_format_is_refused_by_name(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps({**VALID, "v": FORMAT + 1}) + "\n")
    with pytest.raises(UserError, match=rf"x\.jsonl: journal format {FORMAT + 1} is of a later longflow"):
        Journal(tmp_path)


def test_no_file_is_made_before_a_line_is_kept(tmp_path):
    write(tmp_path / "cell", [])
    assert not (tmp_path / "cell").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_keeps_what_was_kept(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        kept = []

        def fill(journal):
            for number in range(1000):
                item = Answer(str(number), "x" * 900, "stop", 1, 1, 0.1, "")
                journal.add(item)
                kept.append(item)

        with Journal(disk / "cell") as journal, pytest.raises(UserError, match=r"cannot be written \(No space left"):
            fill(journal)
        assert len(kept) > 10
        read = Journal(disk / "cell")
        assert all(read.answers[item.key] == item for item in kept)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_line_is_on_disk_when_it_is_kept(tmp_path):
    """A process that is killed right after keeping a line has not lost it."""
    program = (
        "import os, signal, sys; from longflow.journal import Answer, Journal\n"
        "journal = Journal(sys.argv[1]); journal.add(Answer('k', 'text', 'stop', 1, 1, 0.1, ''))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root)
    assert Journal(tmp_path).answers["k"].text == "text"
