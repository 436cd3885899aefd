"""The same run gives the same bytes: in another folder, at another time, on one core or two, in batches or not."""

import datetime
import re
import socket

import pytest
from conftest import Workflow, small_run

pytestmark = pytest.mark.slow

EQUAL = {
    "predictions",
    "scores",
    "tables",
    "leaderboard",
    "leaderboard.csv",
    "plots",
    "anatomy",
    "analysis",
    "CITATIONS.bib",
}
"""What in the results has to be equal, byte by byte."""

NOT_EQUAL = {
    "usage",
    "provenance.json",
    "logs",
    "benchmarks",
    "report.html",
    "journal",
    "shards",
    "batches",
    "plan.json",
}
"""Where time, host and versions are; and the journal, in which answers stand as they came."""


def two_models():
    """A run of two models, each also with retrieval, with everything that it ends in."""
    merged = small_run()
    merged["run"].update(models=["standin", "other"], settings=["full", "rag"])
    merged["settings"] = {"rag": {"kind": "rag", "retriever": "bm25_words", "chunk_size": 40, "top_n": 2}}
    merged["benchmarks"]["demo"].update(datasets=["needle_en"], records=4)
    return merged


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The run as it is first made."""
    workflow = Workflow(tmp_path_factory.mktemp("first"), two_models())
    jobs = workflow.run(PYTHONHASHSEED="1").jobs
    return workflow, jobs


def made(folder):
    """The bytes of all files that have to be equal, by name; files that nobody has classed are an error."""
    found = {}
    for path in sorted((folder / "results").rglob("*")):
        name = path.relative_to(folder / "results")
        kind = name.parts[0].removesuffix(".spec")
        if path.is_file() and kind not in NOT_EQUAL:
            assert kind in EQUAL, name
            found[str(name)] = path.read_bytes()
    for kind in ("records", "retrieved"):
        for path in sorted((folder / "resources" / kind).rglob("*.jsonl")):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def differing(one, other):
    """The names of files that one has and the other lacks, or that differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def test_the_run_ends_in_everything(first):
    workflow, jobs = first
    assert jobs["predict"] == jobs["score"] == 8
    names = made(workflow.folder)
    for kind in EQUAL:
        assert any(name.split("/")[0] == kind for name in names), kind
    for suffix in (".svg", ".png", ".csv", ".json", ".jsonl"):
        assert any(name.endswith(suffix) for name in names), suffix


def test_on_one_core_in_another_folder_at_another_time(first, tmp_path):
    again = Workflow(tmp_path / "elsewhere 在别处", two_models())
    again.folder.mkdir()
    again.run(cores=1, PYTHONHASHSEED="2", TZ="Asia/Shanghai", COLUMNS="40")
    assert differing(made(first[0].folder), made(again.folder)) == []
    assert again.counted() == {"loads": 8, "requests": 32}


def test_in_batches_and_in_shards(first, tmp_path):
    merged = two_models()
    merged["models"]["standin"]["batch"] = 2
    merged["models"]["other"]["shards"] = 2
    again = Workflow(tmp_path, merged)
    run = again.run(PYTHONHASHSEED="3")
    assert run.jobs["predict_shard"] == 8
    assert sum(number for name, number in run.jobs.items() if name.startswith("predict_batch")) == 2
    assert differing(made(first[0].folder), made(again.folder)) == []


def test_time_host_and_place_are_in_none_of_these_files(first):
    workflow, _ = first
    today = datetime.date.today()
    place, host = str(workflow.folder), rf"\b{re.escape(socket.gethostname())}\b"
    dates = [f"{today:%Y-%m-%d}", f"{today:%d %b %Y}", f"{today:%d.%m.%Y}"]
    for name, content in made(workflow.folder).items():
        assert [word for word in (place, *dates) if word.encode() in content] == [], name
        # A short name may well be in a picture's pixels.
        assert name.endswith(".png") or not re.search(host.encode(), content), name
    usage = [path.read_text() for path in (workflow.folder / "results/usage").rglob("*.json")]
    assert len(usage) == 8
    assert all(f"{today:%Y-%m-}" in text and socket.gethostname() in text for text in usage)
