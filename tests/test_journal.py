"""The journal: nothing kept is lost, nothing torn is believed."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longflow.errors import UserError
from longflow.journal import COMPACTED, FORMAT, TAKEN, Answer, Journal, Rendering, dump, parse, segments

QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)

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
    cached_tokens=counts,
    note=st.none() | texts,
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


@QUIET
@given(st.lists(lines, max_size=5), st.randoms(use_true_random=False))
def test_segments_read_alike_however_they_came_into_the_folder(tmp_path_factory, parts, random):
    """The order of their names decides, not which was written, copied or touched last."""
    names = [f"host-{number}-0000000{number}.jsonl" for number in range(len(parts))]
    in_order = [item for part in parts for item in part]
    folder = fresh(tmp_path_factory)
    shuffled = list(zip(names, parts, strict=True))
    random.shuffle(shuffled)
    for name, part in shuffled:
        (folder / name).write_bytes(b"".join(map(dump, part)))
        os.utime(folder / name, (random.randint(1, 10**9),) * 2)
    read = Journal(folder)
    assert (read.answers, read.renderings) == first_wins(in_order)
    assert read.dropped == 0


@QUIET
@given(lines, st.data())
def test_damage_anywhere_costs_the_lines_it_touches_and_no_others(tmp_path_factory, items, data):
    """Bytes that were overwritten, as a disk may do it: every line that was not touched is read as it was."""
    folder = fresh(tmp_path_factory)
    whole = b"".join(map(dump, items))
    start = data.draw(st.integers(0, len(whole)))
    garbage = data.draw(st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"\0")))
    (folder / "a.jsonl").write_bytes(whole[:start] + garbage + whole[start + len(garbage) :])
    kept, at = [], 0
    for item in items:
        end = at + len(dump(item))
        if end <= start or at > start + len(garbage):
            kept.append(item)
        at = end
    read = Journal(folder)
    expected = first_wins(kept)
    assert expected[0].keys() <= read.answers.keys()
    assert expected[1].keys() <= read.renderings.keys()


@QUIET
@given(st.binary(max_size=300) | st.recursive(st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_no_line_whatever_makes_the_reader_fail(junk):
    raw = junk if isinstance(junk, bytes) else json.dumps(junk).encode()
    for line in (raw + b"\n").splitlines(keepends=True):
        with contextlib.suppress(UserError):  # a later format, which may come about by chance
            parse(line, "x")


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
        {**VALID, "v": True},
        {**VALID, "v": 0},
        {**VALID, "v": "1"},
        {**VALID, "kind": ["rendering"]},
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


ANSWER = {
    "v": FORMAT, "kind": "completion", "key": "k", "text": "t", "finish_reason": "stop", "prompt_tokens": 1,
    "answer_tokens": 1, "seconds": 0.5, "libraries": "x",
}  # fmt: skip


def test_a_line_without_the_fields_that_came_later_is_read(tmp_path):
    """Written out as the first format had it."""
    (tmp_path / "x.jsonl").write_text(json.dumps(ANSWER) + "\n")
    read = Journal(tmp_path)
    assert read.answers == {"k": Answer("k", "t", "stop", 1, 1, 0.5, "x", None, None)}
    # and a line in which they say nothing is written as it was then
    assert json.loads(dump(read.answers["k"])) == ANSWER


def test_fields_that_came_later_are_kept(tmp_path):
    write(tmp_path, [Answer("k", "t", "stop", 9, 1, 0.5, "x", cached_tokens=8, note="in two chunks")])
    assert Journal(tmp_path).answers["k"].cached_tokens == 8
    assert Journal(tmp_path).answers["k"].note == "in two chunks"


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,  # deeper than Python can follow
        b'{"v": 1, "kind": "completion", "seconds": ' + b"9" * 5000 + b"}",  # a number longer than Python reads
        json.dumps({**ANSWER, "seconds": float("nan")}).encode(),
        json.dumps(ANSWER).replace("0.5", "1e999").encode(),
        json.dumps(ANSWER).replace("0.5", "1" + "0" * 400).encode(),
        json.dumps({**ANSWER, "cached_tokens": "8"}).encode(),
        json.dumps(ANSWER).encode("utf-16"),
        b"\0" * 4096,
        b"\xff\xfe",
    ],
)
def test_what_no_writer_wrote_is_dropped(tmp_path, line):
    (tmp_path / "x.jsonl").write_bytes(line + b"\n" + json.dumps({**ANSWER, "key": "ours"}).encode() + b"\n")
    assert list(Journal(tmp_path).answers) == ["ours"]


def test_a_line_cut_at_its_end_is_torn_even_if_it_is_json(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps(ANSWER))
    assert Journal(tmp_path).answers == {}
    assert Journal(tmp_path).dropped == 1


def test_compacted_segments_are_read_first_and_those_about_to_go_last(tmp_path):
    def line(text):
        return dump(Answer("k", text, "stop", 1, 1, 0.1, ""))

    for name, text in (("a.jsonl", "a"), ("a.jsonl" + TAKEN, "taken"), (COMPACTED + "z.jsonl", "compacted")):
        (tmp_path / name).write_bytes(line(text))
    (tmp_path / ".b.jsonl.tmp").write_bytes(line("half written"))
    assert [path.name for path in segments(tmp_path)] == [COMPACTED + "z.jsonl", "a.jsonl", "a.jsonl" + TAKEN]
    assert Journal(tmp_path).answers["k"].text == "compacted"


def test_a_writer_whose_segment_is_taken_away_begins_another(tmp_path):
    folder = tmp_path / "cell"
    with Journal(folder) as journal:
        journal.add(Answer("1", "one", "stop", 1, 1, 0.1, ""))
        (segment,) = segments(folder)
        segment.unlink()
        journal.add(Answer("2", "two", "stop", 1, 1, 0.1, ""))
        assert list(Journal(folder).answers) == ["2"]
        shutil.rmtree(folder)
        journal.add(Answer("3", "three", "stop", 1, 1, 0.1, ""))
        assert list(Journal(folder).answers) == ["3"]
        assert list(journal.answers) == ["1", "2", "3"]


def as_nobody(function):
    """What a function returns or says as a user without rights; it runs in a child of this process."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                said = function()
            except UserError as error:
                said = str(error)
            os.write(send, said.encode())
        finally:
            os._exit(0)
    os.close(send)
    with open(receive, encoding="utf-8") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(os.getuid() != 0, reason="another user can only be had as root")
@pytest.mark.parametrize(
    ("mode", "file_mode", "said"),
    [
        (0o777, 0o644, "1 kept"),
        (0o555, 0o644, "1 {folder}: the journal cannot be written (Permission denied)"),
        (0o711, 0o644, "{folder}: the journal cannot be read (Permission denied)"),
        (0o777, 0o600, "{folder}/x.jsonl: the journal cannot be read (Permission denied)"),
    ],
)
def test_lost_permissions_are_named_and_nothing_is_taken_for_empty(mode, file_mode, said):
    with tempfile.TemporaryDirectory() as top:  # pytest's own folders let no other user in
        os.chmod(top, 0o755)
        folder = Path(top) / "cell"
        folder.mkdir()
        (folder / "x.jsonl").write_text(json.dumps(ANSWER) + "\n")
        os.chmod(folder / "x.jsonl", file_mode)
        os.chmod(folder, mode)

        def read_and_write():
            journal = Journal(folder)
            try:
                journal.add(Answer("new", "text", "stop", 1, 1, 0.1, ""))
            except UserError as error:
                return f"{len(journal.answers)} {error}"
            return f"{len(journal.answers) - 1} kept"

        assert as_nobody(read_and_write).startswith(said.format(folder=folder))


def test_a_journal_that_is_a_file_is_named(tmp_path):
    (tmp_path / "cell").write_text("")
    with pytest.raises(UserError, match=r"cell: the journal cannot be read \(Not a directory\)"):
        Journal(tmp_path / "cell")


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
        assert read.dropped == 0  # of the line that did not fit no part is left

        # The same writer goes on when there is room again, and no line of it is spoilt by the one that failed.
        with Journal(disk / "cell") as journal:
            with pytest.raises(UserError):
                fill(journal)
            subprocess.run(["mount", "-o", "remount,size=256k", disk], check=True)
            journal.add(Answer("late", "text", "stop", 1, 1, 0.1, ""))
        assert Journal(disk / "cell").answers["late"].text == "text"
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
