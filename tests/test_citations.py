"""What a run is told to cite."""

import re

import pytest

from longflow import benchmarks, citations


def keys(text):
    return re.findall(r"^@\w+\{([^,]+),$", text, re.MULTILINE)


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_has_a_citation_or_needs_none(name):
    cited = any(name in entry.names for entry in citations.entries())
    assert cited != (name in citations.NONE_NEEDED)


@pytest.mark.parametrize(
    ("name", "eprint"), [("lveval", "2402.05136"), ("longbench", "2308.14508"), ("longbench_v2", "2412.15204")]
)
def test_the_papers_of_the_benchmarks(name, eprint):
    assert f"eprint = {{{eprint}}}" in citations.for_run({name: []})


def test_entries_are_for_something_that_exists():
    tables = [benchmarks.load(name) for name in benchmarks.names()]
    known = {*benchmarks.names(), *(dataset for table in tables for dataset in table.tasks)}
    for entry in citations.entries():
        assert entry.names, entry.key
        assert set(entry.names) <= known, entry.key


def test_the_file_is_whole_bibtex():
    text = citations.FILE.read_text(encoding="utf-8")
    assert text.isascii()
    assert text.count("{") == text.count("}")
    assert len(set(keys(text))) == text.count("\n@") == len(citations.entries())
    for entry in citations.entries():
        assert entry.text.count("{") == entry.text.count("}")
        assert "longflow =" not in entry.text
        assert {"title", "year", "url"} <= set(re.findall(r"^  (\w+) = \{.*\},?$", entry.text, re.MULTILINE))


def test_a_data_set_s_own_licence_is_told():
    for dataset, task in benchmarks.load("lveval").tasks.items():
        if task.extra["licence"] != "MIT":
            told = [entry.text for entry in citations.entries() if dataset in entry.names]
            assert any(f"note = {{Licence of this data set: {task.extra['licence']}}}" in text for text in told)


def test_only_what_was_run_is_cited():
    text = citations.for_run({"lveval": ["factrecall_en", "lic_mixup"], "demo": ["needle_en"]})
    assert keys(text) == ["yuan2024lveval", "lveval-lic-mixup"]
    assert keys(citations.for_run({"demo": ["needle_en"]})) == []


def test_two_benchmarks_share_a_source_and_cite_it_once():
    text = citations.for_run({"longbench": ["qasper"], "longbench_e": ["qasper"]})
    assert keys(text) == ["bai2024longbench", "dasigi2021dataset"]


def test_a_benchmark_of_one_s_own_is_left_to_its_owner():
    text = citations.for_run({"contracts": ["qasper"]})
    assert keys(text) == []
    assert "% contracts: declared in the configuration" in text
