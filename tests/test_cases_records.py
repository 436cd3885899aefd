"""Real records through a real small model on the CPU, in every setting, as a user runs them: through the workflow.

The records (LongBench's multi_news, multifieldqa_zh and passage_retrieval_zh; LongBench v2) are read from ../shared, of
which nothing is copied here. There are fewer of them than the benchmarks have, so the files are filled up with what is
not run: `limit` takes the first ones.
"""

import hashlib
import itertools
import json
import re

import pytest

from longflow import benchmarks
from longflow.engines.tokenizers import HuggingFaceTokenizer
from longflow.jsonio import dump_line, read_json, read_jsonl
from longflow.prompts import render, truncate_middle
from longflow.retrieval.chunks import sentences
from longflow.turns import pieces

pytestmark = pytest.mark.slow

LIMIT = 500  # tokens of a prompt: less than any of these records has
ANSWER = 8
PIECE = 2000  # words of a piece to summarise
DATASETS = ("multi_news", "multifieldqa_zh", "passage_retrieval_zh")
V2 = "longbench_v2"


def settings(minilm, smollm2):
    """Settings by name; LongBench's own retrieval, and LongBench v2's with small models."""
    windows = {"splitter": "token_windows", "chunk_size": 128, "tokenizer": str(smollm2), "form": "numbered"}
    dense = {"kind": "rag", "retriever": "dense", "model": str(minilm), "similarity": "cosine"}
    return {
        "blind": {"kind": "no_context"},
        "bm25": {"kind": "rag", "retriever": "bm25_chars", "chunk_size": 100, "top_n": 2},
        "dense": {**dense, "chunk_size": 60, "top_n": 3},
        "windows": {**dense, **windows, "top_n": 4},
        "thought": {"kind": "cot", "max_new_tokens": 16},
        "compressed": {"kind": "summary", "piece_words": PIECE, "max_new_tokens": ANSWER},
    }


def sources(shared, folder):
    """Folders with a clone's prompt files, LongBench's records and LongBench v2's, and the real records in them."""
    given = {name: read_json(shared / f"reference/{name}_tasks.json")["tasks"] for name in ("longbench", V2)}
    clone, records = folder / "clone", folder / "data"
    for part in (clone / "LongBench/config", clone / "prompts", records):
        part.mkdir(parents=True)
    prompts = {name: task["prompt"] for name, task in given["longbench"].items()}
    text = json.dumps(prompts, ensure_ascii=False, indent=4)
    (clone / "LongBench/config/dataset2prompt.json").write_text(text, encoding="utf-8")
    for name, task in given[V2].items():
        (clone / f"prompts/{name}.txt").write_text(task["prompt"], encoding="utf-8")
        prompts[name] = task["prompt"]
    real = {name: list(read_jsonl(shared / f"cases/records/longbench/{name}.jsonl")) for name in DATASETS}
    for name, rows in real.items():
        n = benchmarks.load("longbench").task(name).n
        rest = [{**rows[0], "context": "", "_id": str(i)} for i in range(n - 1)]
        text = "".join(map(dump_line, [rows[0], *rest]))
        (records / f"{name}.jsonl").write_text(text, encoding="utf-8")
    real[V2] = sorted(read_json(shared / "cases/records/longbench_v2_19.json"), key=lambda row: len(row["context"]))
    first = real[V2][0]
    others = read_jsonl(shared / "cases/records/longbench_v2_503_nocontext.jsonl")
    rest = [{**row, "context": ""} for row in others if row["_id"] != first["_id"]]
    (records / "data.json").write_text(json.dumps([first, *rest]), encoding="utf-8")
    return clone, records, real, prompts


@pytest.fixture(scope="module")
def ran(tmp_path_factory, smollm2, minilm):
    """The finished run: its folder, the real records and the reference's prompts."""
    from conftest import SHARED, Workflow

    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent: the reference material is not part of the repository")
    folder = tmp_path_factory.mktemp("records")
    clone, records, real, prompts = sources(SHARED, folder)
    common = {"source": str(records), "prompts_from": str(clone)}
    made = settings(minilm, smollm2)
    run = {
        "run": {"benchmarks": ["longbench", V2], "models": ["small"], "limit": 1, "settings": ["full", *made]},
        "benchmarks": {
            "longbench": {**common, "datasets": list(DATASETS), "max_new_tokens": dict.fromkeys(DATASETS, ANSWER)},
            V2: {**common, "max_new_tokens": {V2: ANSWER}},
        },
        "models": {
            "small": {
                "engine": "transformers",
                "path": str(smollm2),
                "chat": "template",
                "max_prompt_tokens": LIMIT,
                "batch": 1,
            }
        },
        "settings": made,
    }
    Workflow(folder, run).run("tables")
    return folder, real, prompts


CELLS = [
    *(("longbench", name, "full") for name in DATASETS),
    *(("longbench", "multifieldqa_zh", name) for name in ("blind", "bm25", "dense", "windows")),
    *((V2, V2, name) for name in ("full", "blind", "bm25", "dense", "windows")),
]

TURNED = [
    (V2, V2, "thought"),
    *(("longbench", name, "compressed") for name in ("multi_news", "multifieldqa_zh")),
    (V2, V2, "compressed"),
]
"""Cells whose records take several calls."""


def test_each_setting_has_the_cells_that_it_makes_sense_for(ran):
    folder, _, _ = ran
    found = {path.relative_to(folder / "results/scores").parts for path in folder.glob("results/scores/**/full.json")}
    assert found == {(benchmark, "small", setting, name, "full.json") for benchmark, name, setting in CELLS + TURNED}


def reference_prompt(prompts, benchmark, name, setting, row, context):
    """The prompt as the reference fills it in: format, or LongBench v2's chain of replacements of stripped values.

    A context of chunks that are joined is LongBench's, which strips nothing; LongBench v2 has numbered ones only.
    """
    if benchmark == "longbench":
        return prompts[name].format(**{**row, "context": context})
    prompt = prompts[{"blind": "0shot_no_context", "full": "0shot"}.get(setting, "0shot_rag")]
    values = {"$DOC$": context, "$Q$": row["question"]}
    values |= {f"$C_{letter}$": row[f"choice_{letter}"] for letter in "ABCD"}
    for placeholder, value in values.items():
        joined = placeholder == "$DOC$" and setting in ("bm25", "dense")
        prompt = prompt.replace(placeholder, value if joined else value.strip())
    return prompt


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(("benchmark", "name", "setting"), CELLS)
def test_real_records_go_through_the_real_model(ran, smollm2, benchmark, name, setting):
    folder, real, prompts = ran
    row = real[name][0]
    kind = f"records/{benchmark}" if setting == "full" else f"retrieved/{benchmark}/{setting}"
    record = next(iter(read_jsonl(folder / f"resources/{kind}/{name}/full.jsonl")))
    context = record["context"]
    check_context(setting, context, row["context"].strip() if benchmark == V2 else row["context"])

    text, _ = render(record["template"], record)
    assert sha256(text) == sha256(reference_prompt(prompts, benchmark, name, setting, row, context))

    (prediction,) = read_jsonl(folder / f"results/predictions/{benchmark}/small/{setting}/{name}/full.jsonl")
    tokenizer = HuggingFaceTokenizer.load(str(smollm2), local_files_only=True)
    rule = "middle_joined" if benchmark == V2 else "middle"
    cut = truncate_middle(text, LIMIT, tokenizer, rule)
    assert prediction["error"] is None
    assert prediction["prompt_tokens"] == cut.tokens
    assert (prediction["kept_head"], prediction["kept_tail"]) == (cut.kept_head, cut.kept_tail)
    assert prediction["sent_tokens"] == len(tokenizer.encode(tokenizer.chat(cut.text, {}), special_tokens=False))
    assert 0 < prediction["answer_tokens"] <= ANSWER
    assert isinstance(prediction["pred"], str)
    if setting == "full":
        assert cut.tokens > LIMIT
        assert 0 < cut.kept_head < len(text)
        assert prediction["sent_tokens"] < LIMIT + 60  # the wrapper, and what tokenising the seam anew brings

    score = read_json(folder / f"results/scores/{benchmark}/small/{setting}/{name}/full.json")
    assert (score["n"], score["n_expected"]) == (1, 1)
    assert 0 <= score["score"] <= 100
    (line,) = read_jsonl(folder / f"results/scores/{benchmark}/small/{setting}/{name}/full.jsonl")
    assert line["id"] == prediction["id"] == record["id"]


def check_context(setting, context, whole):
    """What a setting makes of a context, as far as it can be told from the texts."""
    if setting == "full":
        assert context == whole
    elif setting == "blind":
        assert context == ""
    elif setting == "windows":
        parts = re.split(r"(?:^|\n\n)Retrieved chunk (\d): ", context)
        assert parts[0] == ""
        assert parts[1::2] == ["1", "2", "3", "4"]
        places = [whole.find(part.strip("\ufffd").strip()) for part in parts[2::2]]
        assert -1 not in places
        assert places == sorted(places)
    else:
        # The best chunks of the reference's splitter, joined in the order of their scores, whatever that is here.
        size, count = {"bm25": (100, 2), "dense": (60, 3)}[setting]
        inside = [chunk.content for chunk in sentences(whole, size) if chunk.content in context]
        assert context in {"".join(chosen) for chosen in itertools.permutations(inside, count)}


@pytest.mark.parametrize(("benchmark", "name", "setting"), TURNED)
def test_real_records_are_answered_in_turns(ran, benchmark, name, setting):
    folder, real, _ = ran
    (prediction,) = read_jsonl(folder / f"results/predictions/{benchmark}/small/{setting}/{name}/full.jsonl")
    usage = read_json(folder / f"results/usage/{benchmark}/small/{setting}/{name}/full.json")
    assert prediction["error"] is None
    assert (usage["records"], usage["failed"]) == (1, 0)
    if setting == "thought":
        assert usage["calls"] == 2
        assert prediction["response_cot"]
        # The second prompt has the thoughts and not the document, so nothing had to be cut.
        assert prediction["kept_head"] is None
        return
    context = real[name][0]["context"]
    found = pieces(context.strip() if benchmark == V2 else context, PIECE)
    if not found:
        assert (usage["calls"], prediction["context_summary"]) == (1, None)
        return
    head = "段落摘要" if name.endswith("_zh") else "Paragraph Summary"
    assert 2 <= usage["calls"] <= len(found) + 1  # two pieces may read alike once they are cut
    assert prediction["context_summary"].startswith(f"{head}1 : ")
    assert f"{head}{len(found)} : " in prediction["context_summary"]
