"""The fate of records, on hand-labelled examples in both languages: real files in, rows and a summary out."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longflow import anatomy, benchmarks, score
from longflow.anatomy import fate, slices
from longflow.anatomy.language import main_script
from longflow.anatomy.refusal import refusal
from longflow.errors import UserError
from longflow.jsonio import read_jsonl, write_jsonl
from longflow.prompts import render
from longflow.records import Prediction, Record, question_id

EXAMPLES = Path(__file__).parent / "data" / "fate"
TEMPLATE = "Read this.\n\n{context}\n\nQuestion: {input}\nAnswer:"


def spec_for(metric, language, **changes):
    """The spec of a cell that is asked questions about texts."""
    return {
        "benchmark": "demo",
        "model": "mine",
        "setting": "full",
        "dataset": "made_up",
        "length": "1k",
        "metric": metric,
        "language": language,
        "category": "single-hop QA",
        "n_expected": 1,
        "answers": "first",
        "prompt": TEMPLATE,
        "marks": {"asked": True, "hop": "single", "language": language, "confusing_facts": True},
        **changes,
    }


def record_of(example, name, language):
    """An example's record, its evidence placed in its context."""
    context = example.get("context", "A short text about something else. It has two sentences.")
    spans = [(context.index(text), context.index(text) + len(text)) for text in example.get("evidence", [])]
    # Many labelled examples ask the same question, and each has answers without context of its own.
    dataset = name if "note" in example else "made_up"
    return Record(
        id=name,
        question_id=question_id(dataset, example["question"], example["answers"]),
        fields={
            "input": example["question"],
            "context": context,
            "answers": example["answers"],
            "answer_keywords": example.get("keyword"),
            "confusing_facts": example.get("facts"),
            "length": len(context),
            "language": language,
        },
        evidence=tuple(spans),
    )


def prediction_of(example, record):
    """An example's prediction, as if its cut had been the truncation's."""
    prompt, start = render(TEMPLATE, record.fields)
    kept = {}
    if "cut" in example:
        at = prompt.index(example["cut"])
        kept = {"kept_head": at, "kept_tail": len(prompt) - at - len(example["cut"])}
    closed = {"reasoning_closed": example["reasoning_closed"]} if "reasoning_closed" in example else {}
    return Prediction(
        pred=example["pred"],
        record=record,
        prompt_tokens=100,
        context_start=start,
        finish_reason=example.get("finish", "stop"),
        error=example.get("error"),
        extra=closed,
        **kept,
    )


def dissect(folder, examples, metric, language, records=True, change=None):
    """The rows and the summary of examples that share a metric, by way of the files of a real cell."""
    made = [record_of(example, f"{i:04d}", language) for i, example in enumerate(examples)]
    write_jsonl(folder / "records.jsonl", (record.to_row() for record in made))
    rows = [prediction_of(example, record).to_row() for example, record in zip(examples, made, strict=True)]
    write_jsonl(folder / "predictions.jsonl", map(change, rows) if change else rows)
    spec = spec_for(metric, language)
    score.run(folder / "predictions.jsonl", spec, folder / "scores.json", folder / "scores.jsonl")
    blind = [
        {"question_id": record.question_id, "score": value, "rotation": example.get("rotations", [0] * 9)[i]}
        for example, record in zip(examples, made, strict=True)
        for i, value in enumerate(example.get("blind", []))
    ]
    write_jsonl(folder / "blind.jsonl", blind)
    summary = anatomy.run(
        folder / "predictions.jsonl",
        folder / "scores.jsonl",
        folder / "records.jsonl" if records else None,
        folder / "blind.jsonl" if blind else None,
        spec,
        folder / "rows.jsonl",
        folder / "summary.json",
    )
    return list(read_jsonl(folder / "rows.jsonl")), summary


def groups():
    """The examples by language and metric."""
    found = {}
    for language in ("en", "zh"):
        for example in read_jsonl(EXAMPLES / f"{language}.jsonl"):
            found.setdefault((language, example["metric"]), []).append(example)
    return found


GROUPS = groups()


def wanted(example):
    """The flags that an example was labelled with, by state; whoever was not asked blind is not known of."""
    flags = {name: state for state in ("yes", "partly", "unknown") for name in example.get(state, [])}
    return flags if "blind" in example else {"known": "unknown", **flags}


@pytest.mark.parametrize(("language", "metric"), GROUPS)
def test_hand_labelled_examples_get_their_labels_and_flags(tmp_path, language, metric):
    examples = GROUPS[language, metric]
    rows, summary = dissect(tmp_path, examples, metric, language)
    wrong = []
    for example, row in zip(examples, rows, strict=True):
        flags = {name: flag["state"] for name, flag in row["flags"].items() if flag["state"] != "no"}
        if (row["label"], flags) != (example["label"], wanted(example)):
            found = f"{row['label']} {row['score']} {flags}"
            wrong.append(f"{example['note']}: {found}, wanted {example['label']} {wanted(example)}")
    assert not wrong, "\n".join(wrong)
    assert {name: n for name, n in summary["labels"].items() if n} == Counter(example["label"] for example in examples)


def test_there_are_enough_examples_in_both_languages_and_of_every_label():
    examples = {language: list(read_jsonl(EXAMPLES / f"{language}.jsonl")) for language in ("en", "zh")}
    assert len(examples["en"]) >= 50
    assert len(examples["zh"]) >= 40
    assert {example["label"] for some in examples.values() for example in some} == set(fate.LABELS)


PAIR = [
    {"question": "Who built it?", "answers": ["Gottfried Amsel"], "pred": "Gottfried Amsel", "blind": [0.0]},
    {"question": "Who mended it?", "answers": ["Ines Calloway"], "pred": "Ludwig Bertram", "blind": [1.0]},
]


def test_scores_are_read_and_not_changed_and_the_same_files_give_the_same_bytes(tmp_path):
    rows, _ = dissect(tmp_path, PAIR, "qa_f1_score", "en")
    first = [(tmp_path / name).read_bytes() for name in ("rows.jsonl", "summary.json", "scores.jsonl")]
    assert [row["score"] for row in rows] == [line["score"] for line in read_jsonl(tmp_path / "scores.jsonl")]
    dissect(tmp_path, PAIR, "qa_f1_score", "en")
    assert first == [(tmp_path / name).read_bytes() for name in ("rows.jsonl", "summary.json", "scores.jsonl")]


def test_without_the_records_what_needs_the_context_cannot_be_told(tmp_path):
    cut = {**PAIR[1], "context": "He said that Ines Calloway mended it. The end.", "cut": "Ines Calloway"}
    rows, summary = dissect(tmp_path, [PAIR[0], cut], "qa_f1_score", "en", records=False)
    assert [row["flags"]["evidence_cut"]["state"] for row in rows] == ["no", "unknown"]
    assert all(row["position"]["before"] is None and not row["excerpts"] for row in rows)
    assert summary["placed"] == {"before": 0, "after": 0}


def test_rows_made_elsewhere_need_no_more_than_the_reference_writes(tmp_path):
    wanted = ("pred", "answers", "gold_ans", "input", "all_classes", "length")
    rows, _ = dissect(
        tmp_path, PAIR, "qa_f1_score", "en", records=False, change=lambda row: {key: row[key] for key in wanted}
    )
    assert [row["label"] for row in rows] == ["right", "wrong"]
    unknown = {name for name, flag in rows[0]["flags"].items() if flag["state"] == "unknown"}
    assert unknown == {"evidence_cut", "bait", "ran_out"}


def test_a_row_without_an_answer_is_a_failure(tmp_path):
    rows, _ = dissect(
        tmp_path,
        PAIR,
        "qa_f1_score",
        "en",
        records=False,
        change=lambda row: {"input": row["input"], "answers": row["answers"], "error": "no connection"},
    )
    assert {row["label"] for row in rows} == {"failed"}
    assert rows[0]["flags"]["failed"]["why"] == "no connection"
    assert rows[0]["score"] is None


def test_doubles_that_the_scorer_left_out_are_left_out_and_several_answers_to_a_record_are_all_there(tmp_path):
    dissect(tmp_path, PAIR, "qa_f1_score", "en")
    rows = list(read_jsonl(tmp_path / "predictions.jsonl"))
    again = [{**row, "repeat": i} for row in rows for i in range(2)]
    for name, written, rule, n in (("doubled", [*rows, *rows], "distinct", 2), ("repeated", again, "all", 4)):
        spec = spec_for("qa_f1_score", "en", rows=rule)
        write_jsonl(tmp_path / f"{name}.jsonl", written)
        score.run(tmp_path / f"{name}.jsonl", spec, tmp_path / "s.json", tmp_path / "s.jsonl")
        made = anatomy.cell(
            tmp_path / f"{name}.jsonl", tmp_path / "s.jsonl", tmp_path / "records.jsonl", tmp_path / "blind.jsonl", spec
        )
        assert len(list(made)) == n
        assert made.summary()["n"] == n


def test_files_that_do_not_belong_together_are_refused_by_name(tmp_path):
    dissect(tmp_path, PAIR, "qa_f1_score", "en")
    lines = list(read_jsonl(tmp_path / "scores.jsonl"))
    write_jsonl(tmp_path / "scores.jsonl", [{**line, "id": f"other{i}"} for i, line in enumerate(lines)])
    files = [tmp_path / name for name in ("predictions.jsonl", "scores.jsonl", "records.jsonl")]
    with pytest.raises(UserError, match=r"scores\.jsonl: has a score of record other0"):
        list(anatomy.cell(*files, None, spec_for("qa_f1_score", "en")))
    write_jsonl(tmp_path / "scores.jsonl", lines)
    write_jsonl(tmp_path / "records.jsonl", list(read_jsonl(tmp_path / "records.jsonl"))[:1])
    with pytest.raises(UserError, match=r"records\.jsonl: has no record 0001"):
        list(anatomy.cell(*files, None, spec_for("qa_f1_score", "en")))


def test_the_two_by_two_and_the_score_on_what_was_not_known(tmp_path):
    known = {"question": "Who sang?", "answers": ["Marta Holm"], "pred": "Marta Holm", "blind": [0.9]}
    half = {"question": "Who ran?", "answers": ["Piers Haldane"], "pred": "Piers and Adela", "blind": [0.1]}
    unasked = {"question": "Who slept?", "answers": ["Hamo Quillan"], "pred": "Hamo Quillan"}
    rows, summary = dissect(tmp_path, [*PAIR, known, half, unasked], "qa_f1_score", "en")
    assert summary["two_by_two"] == {
        "right": {"right": 1, "wrong": 1},
        "wrong": {"right": 1, "wrong": 1},
        "unknown": {"right": 1, "wrong": 0},
    }
    # right: 1; half: one of two words (Piers, of "Piers and Adela" and "Piers Haldane"): precision 1/3, recall 1/2.
    assert summary["not_known"]["n"] == 2
    assert summary["not_known"]["total"] == pytest.approx(1 + 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
    assert [row["flags"]["known"]["state"] for row in rows] == ["no", "yes", "yes", "no", "unknown"]


def test_positions_fill_the_bins_and_slices_have_the_records_they_should(tmp_path):
    filler = "Gulls cried over the wall. " * 10
    examples = [
        {
            "question": "Who built it?",
            "answers": ["Amsel"],
            "pred": pred,
            "context": filler[: 27 * i] + "Amsel built it. " + filler[27 * i :],
        }
        for i, pred in ((0, "Amsel"), (5, "Amsel"), (10, "Drossel"))
    ]
    examples[1]["cut"] = "Amsel built"
    rows, summary = dissect(tmp_path, examples, "qa_f1_score", "en")
    before, after = (summary["positions"][when] for when in ("before", "after"))
    assert [part["n"] for part in before] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert [part["total"] for part in before] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert sum(part["n"] for part in after) == summary["placed"]["after"] == 2
    assert summary["slices"]["truncated"] == {"no": {"n": 2, "total": 1.0}, "yes": {"n": 1, "total": 1.0}}
    assert summary["slices"]["evidence_cut"] == {"no": {"n": 2, "total": 1.0}, "yes": {"n": 1, "total": 1.0}}
    assert rows[1]["flags"]["evidence_cut"]["state"] == "yes"
    assert rows[1]["position"]["after"] is None


def cell_summary(dataset, length, n, total, **marks):
    """A summary with `n` records of which the first bin holds all."""
    part = {"n": n, "total": total}
    nothing = {"n": 0, "total": 0.0}
    return {
        "dataset": dataset,
        "length": length,
        "marks": marks,
        "labels": {**dict.fromkeys(fate.LABELS, 0), "right": n},
        "slices": {"truncated": {"no": part}},
        "positions": {"before": [part] + [nothing] * 9, "after": [nothing] * 10},
        "two_by_two": None,
        "not_known": None,
    }


def test_cells_are_put_together_by_the_mean_of_their_means():
    cells = [
        cell_summary("a", "16k", 10, 5.0, hop="single", confusing_facts=True),
        cell_summary("b", "16k", 30, 3.0, hop="single", confusing_facts=False),
        cell_summary("c", "16k", 0, 0.0, hop="multi", confusing_facts=True),
        cell_summary("a", "32k", 10, 1.0, hop="single", confusing_facts=True),
    ]
    found = slices.by_slice(cells)
    assert found["table: hop"]["single"]["16k"] == {"score": pytest.approx(30), "n": 40, "datasets": 2}
    assert found["table: hop"]["multi"]["16k"] == {"score": None, "n": 0, "datasets": 0}
    assert found["table: confusing_facts"]["yes"] == {
        "16k": {"score": 50.0, "n": 10, "datasets": 1},
        "32k": {"score": 10.0, "n": 10, "datasets": 1},
    }
    assert set(found["table: keyword_replacement"]) == {"not marked"}
    assert slices.by_label(cells)["16k"]["right"] == 40
    assert slices.heat_map(cells)["16k"][0] == {"score": pytest.approx(30), "n": 40, "datasets": 2}
    assert slices.histogram(cells)["a"][0] == 20
    assert slices.two_by_two(cells) == {}


def test_the_tables_say_what_a_data_set_is_marked_as():
    tasks = benchmarks.load("lveval").tasks
    marked = {name: anatomy.marks(task) for name, task in tasks.items()}
    multi = {name for name, found in marked.items() if found["hop"] == "multi"}
    assert multi == {"hotpotwikiqa_mixup", "loogle_CR_mixup", "loogle_MIR_mixup", "lic_mixup", "dureader_mixup"}
    assert {name for name, found in marked.items() if not found["keyword_replacement"]} == {
        "loogle_SD_mixup",
        "loogle_CR_mixup",
        "loogle_MIR_mixup",
        "lic_mixup",
        "dureader_mixup",
    }
    other = anatomy.marks(benchmarks.load("longbench").task("gov_report"))
    assert (other["hop"], other["confusing_facts"], other["asked"]) == (None, None, False)


@given(st.text(max_size=200), st.sampled_from(["qa_f1_score", "qa_f1_zh_score", "choice", "rouge_score"]))
def test_any_text_has_flags_and_a_label(text, metric):
    language = "zh" if "zh" in metric else "en"
    row = {"pred": text, "input": "谁 who?", "answers": ["Amsel 林"], "confusing_facts": [text[:50], "Drossel"]}
    case = fate.Case(row, {"score": 0.0, "flags": []}, ["Amsel 林"], None, metric, language, asked=True)
    found = fate.flags(case)
    assert set(found) == set(fate.FLAGS)
    assert all(flag.state in fate.STATES for flag in found.values())
    assert fate.label(case, found) in fate.LABELS


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("沈砚秋", "han"),
        ("Sundermere", "latin"),
        ("1984", None),
        ("DNA", None),
        ("それは", "other"),
        ("沈砚秋設計者です", "other"),
        ("Москва", "other"),
    ],
)
def test_scripts(text, script):
    assert main_script(text) == script


# Made up, in the words that models use.
REFUSALS = [
    "The provided context does not contain the answer.",
    "The text doesn't specify who built it.",
    "I don't know.",
    "I am unable to find the answer in the text.",
    "There is not enough information to answer.",
    "It is not mentioned in the given passages.",
    "None of the passages mention a builder.",
    "Unanswerable",
    "The builder is the teacher of Gottfried Amsel. However, his name is not given in the text.",
    "文中没有给出建造者的名字。",
    "根据所给的文章，无法确定是谁。",
    "抱歉，我无法从文中找到答案。",
    "不知道",
]
ANSWERS = [
    "The witness did not mention the letter.",
    "He could not see the tower from there.",
    "No one knows the builder of the first tower, which fell in 1702.",
    "Unknown Pleasures",
    "Amsel. The text does not say when.",
    "Amsel (Note: the passage does not state this).",
    "The court said that the contract was not clear.",
    "他没有提供证据。",
    "阿姆塞尔。文章没有提到年份。",
    "无法打开的那扇门",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_are_recognised(text):
    assert refusal(text) is not None


@pytest.mark.parametrize("text", ANSWERS)
def test_answers_are_not_taken_for_refusals(text):
    assert refusal(text) is None


def test_real_predictions_of_many_kinds_get_labels(shared, tmp_path):
    """Every row of a benchmark's worth of real predictions is labelled, and labels follow the scores."""
    folder = shared / "cases" / "longbench" / "mistral"
    for dataset in ("hotpotqa", "multifieldqa_zh", "triviaqa", "lsht", "passage_count"):
        task = benchmarks.load("longbench").task(dataset)
        best = {"answers": "best", "clean": task.extra.get("clean"), "marks": anatomy.marks(task), "prompt": None}
        spec = spec_for(task.metric, task.language, category=task.category, benchmark="longbench", **best)
        source = folder / f"{dataset}.jsonl"
        score.run(source, spec, tmp_path / "s.json", tmp_path / "s.jsonl")
        made = anatomy.cell(source, tmp_path / "s.jsonl", None, None, spec)
        rows = list(made)
        assert len(rows) == len(list(read_jsonl(source)))
        assert sum(made.summary()["labels"].values()) == len(rows)
        for row in rows:
            assert (row["label"] == "right") == (row["score"] >= fate.RIGHT)
