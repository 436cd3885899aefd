"""The plan of a run: its formula, its counts, what it refuses; held against real models, journals and records."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_models import make_model
from hypothesis import given
from hypothesis import strategies as st

from longflow import benchmarks, cells, config, jobs, models, predict
from longflow.errors import UserError
from longflow.plan import memory, plan, shared, tokens
from longflow.plan.light import LightTokenizer
from longflow.records import Record
from longflow.retrieval import RagOptions
from longflow.settings import NoContext

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30

LLAMA_3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
BF16 = memory.Way("bfloat16", gpus=1, chunk=0, offload=False, eager=False, lookup=0)


def shape(**changes):
    return memory.shape_of_config({**LLAMA_3_8B, **changes}, "config.json", 2)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_known_sizes_of_llama_3_8b():
    made = shape()
    assert made.weights / 2 == pytest.approx(8.03e9, rel=0.001)  # its published number of parameters
    assert made.kv(256, 2) == 256 * 128 * 1024  # 128 KiB a token in bfloat16
    need = memory.need(made, BF16, 16384, 0)
    assert need.activations == 16384 * 136 * 1024


def test_kv_of_known_models():
    """KV bytes of a token in bfloat16, from the models' published shapes."""
    llama_2 = {"num_attention_heads": 32, "num_key_value_heads": 32}
    qwen = {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    chatglm = {
        "num_layers": 28,
        "num_hidden_layers": None,
        "num_key_value_heads": None,
        "kv_channels": 128,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
    }
    for changes, kib in ((llama_2, 512), (qwen, 56), (chatglm, 28)):
        assert shape(**changes).kv(256, 2) == 256 * kib * 1024


def test_answers_side_by_side_have_caches_of_their_own():
    made, way = shape(), memory._with(BF16, merge=65_536)
    token = made.kv(256, 2) // 256
    single = {prompt: memory.need(made, BF16, prompt, 64).kv for prompt in (960, 16_320, 32_704, 130_000)}
    beside = {prompt: memory.need(made, way, prompt, 64).kv for prompt in single}
    assert beside[960] == single[960] + 16 * 1024 * token  # no more than 16
    assert beside[16_320] == single[16_320] + 65_536 * token
    assert beside[32_704] == single[32_704] + 65_536 * token
    assert beside[130_000] == single[130_000]  # by itself
    available = memory.need(made, BF16, 16_320, 64).total
    assert "decode: single" in memory.remedies(made, way, 16_320, 64, available)


def test_sliding_layers_keep_their_window():
    kinds = ["sliding_attention", "full_attention"] * 16
    made = shape(layer_types=kinds, sliding_window=1024)
    one = 2 * 8 * 128 * 2
    assert made.kv(4096, 2) == 16 * one * (1024 + 4096)


def test_mixture_of_experts_weighs_all_and_computes_some():
    mixtral = shape(num_local_experts=8, num_experts_per_tok=2, vocab_size=32000)
    assert mixtral.weights / 2 == pytest.approx(46.7e9, rel=0.01)  # Mixtral 8x7B has these sizes, and 46.7 B parameters
    assert mixtral.intermediate == 2 * 14336


def test_what_config_does_not_say_is_named():
    with pytest.raises(UserError, match=r"config\.json: says no num_hidden_layers"):
        shape(num_hidden_layers=None)


def test_weights_come_from_the_files(tmp_path):
    folder = make_model(tmp_path / "m")
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    values = sum(parameter.numel() for parameter in model.parameters())
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        assert memory.shape_of(folder, {"dtype": dtype}).weights == values * size
    (folder / "model.safetensors").unlink()
    assert memory.shape_of(folder, {"dtype": "float32"}).weights == pytest.approx(values * 4, rel=0.01)
    model.to(torch.float32).save_pretrained(folder, safe_serialization=True)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:40])
    with pytest.raises(UserError, match=r"model\.safetensors: torn"):
        memory.shape_of(folder, {"dtype": "float32"})


def test_kv_cache_is_what_the_engine_holds(tmp_path):
    from longflow.engines import Generation, Request, load_engine

    folder = make_model(tmp_path / "m")
    entry = config.parse(run_on({"m": {"engine": "transformers", "path": str(folder), "chat": "none"}})).runnable("m")
    engine = load_engine("transformers", entry.entry(), str(folder))
    (done,) = engine.generate([Request("k", "the cat sat on the mat " * 20, False, Generation(8), "r")])
    planned = memory.shape_of(folder, entry.entry()).kv(done.prompt_tokens + 8, 4)
    assert engine._decoder.cache_bytes() == planned


@given(
    st.integers(1, 100_000),
    st.sampled_from([0, 256, 4096]),
    st.booleans(),
    st.integers(1, 8),
    st.integers(12, 200).map(lambda gib: gib * GIB),
)
def test_what_is_said_to_help_helps(prompt, chunk, offload, count, available):
    """Each remedy, done as it says, makes the prompt fit; and no fewer GPUs do."""
    made = shape()
    way = memory._with(BF16, chunk=chunk, offload=offload, gpus=count)
    if memory.need(made, way, prompt, 64).total <= available:
        return
    for remedy in memory.remedies(made, way, prompt, 64, available):
        tokens_now, changes = prompt, {}
        for part in remedy.replace(" with ", ",").replace(" and ", ",").split(","):
            key, value = part.split(": ")
            if key == "max_prompt_tokens":
                tokens_now = int(value)
            else:
                name = {"prefill_chunk": "chunk", "gpu": "gpus", "kv_offload": "offload"}[key]
                changes[name] = True if value == "true" else int(value)
        changed = memory._with(way, **changes)
        assert memory.need(made, changed, tokens_now, 64).total <= available
        if list(changes) == ["gpus"] and changes["gpus"] > 1:
            fewer = memory._with(changed, gpus=changes["gpus"] - 1)
            assert memory.need(made, fewer, prompt, 64).total > available


# --- shared beginnings ------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=8))
def test_shared_blocks_are_those_of_the_tree_of_beginnings(prompts):
    """All blocks but the distinct beginnings need not be computed again."""
    blocks = [shared.of_text("".join("ab"[x] for x in p), 1, 100) for p in prompts]
    distinct = {tuple(p[:n]) for p in prompts for n in range(1, len(p) + 1)}
    assert sum(shared.common(blocks)) == sum(map(len, prompts)) - len(distinct)


def test_the_last_token_is_never_shared():
    ids = list(range(128))
    assert shared.common([shared.of_ids(ids), shared.of_ids(ids)]) == [1]


# --- tokens -----------------------------------------------------------------------------------------------------------


def run_on(entries, **changes):
    """A run of the demo: two data sets, English and Chinese, two records each."""
    demo = {"datasets": ["singlehop_en", "singlehop_zh"], "lengths": ["250", "500"], "records": 2}
    return {
        "run": {"benchmarks": ["demo"], "models": list(entries), **changes.pop("run", {})},
        "benchmarks": {"demo": {**demo, **changes.pop("demo", {})}},
        "models": entries,
        **changes,
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "tiny", window=32768)


def entry(folder, **changes):
    return {"engine": "transformers", "path": str(folder), "chat": "template", **changes}


def reference_tokens(folder, limit=None):
    """Tokens of the demo run's prompts by the tokenizer alone, cut as the references cut."""
    from transformers import AutoTokenizer

    from longflow.benchmarks.demo import Options

    tokenizer = AutoTokenizer.from_pretrained(folder)
    demo, options, found = benchmarks.load("demo"), Options(records=2), {}
    for dataset in ("singlehop_en", "singlehop_zh"):
        for length in ("250", "500"):
            task = demo.task(dataset)
            total = 0
            for record in demo.module.prepare(task, length, options, demo.module.sources(task, length, options, "")):
                text = task.prompt.format(**record.fields)
                ids = tokenizer(text)["input_ids"]
                if limit is not None and len(ids) > limit:
                    halves = ids[: limit // 2], ids[-(limit // 2) :]
                    text = "".join(tokenizer.decode(half, skip_special_tokens=True) for half in halves)
                message = [{"role": "user", "content": text}]
                sent = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
                total += len(tokenizer(sent, add_special_tokens=False)["input_ids"])
            found[f"demo/m/full/{dataset}/{length}"] = total
    return found


def planned(folder, configuration, monkeypatch, **options):
    monkeypatch.chdir(folder)
    return plan.make(config.parse(configuration), plan.Options(**options))


@pytest.mark.parametrize("limit", [None, 400])
def test_exact_tokens_are_those_of_the_tokenizer(tmp_path, tiny, monkeypatch, limit):
    changes = {} if limit is None else {"max_prompt_tokens": limit}
    made = planned(tmp_path, run_on({"m": entry(tiny, **changes)}), monkeypatch, exact=True)
    truth = reference_tokens(tiny, limit)
    assert {name: cell["to_prefill"] for name, cell in made["cells"].items()} == truth
    model = made["models"]["m"]
    assert (model["basis"], model["error"], model["prompt_tokens"]) == (["counted"], 0, sum(truth.values()))
    assert model["truncated"] == (0 if limit is None else 8)
    assert not (tmp_path / "results/journal").exists()  # a plan writes nothing but itself


@pytest.mark.parametrize("limit", [None, 400])
def test_estimates_are_within_the_error_they_state(tmp_path, tiny, monkeypatch, limit):
    changes = {} if limit is None else {"max_prompt_tokens": limit}
    made = planned(tmp_path, run_on({"m": entry(tiny, **changes)}), monkeypatch)
    for name, truth in reference_tokens(tiny, limit).items():
        cell = made["cells"][name]
        assert cell["basis"] == "records"
        assert abs(cell["to_prefill"] - truth) <= max(cell["error"], 0.02) * truth
        assert abs(cell["to_prefill"] - truth) <= 0.1 * truth
    assert made["models"]["m"]["truncated"] == (0 if limit is None else 8)


def test_long_texts_are_sampled(tmp_path, tiny, monkeypatch):
    both = run_on({"m": entry(tiny)}, demo={"lengths": ["4000"]})
    exact = planned(tmp_path, both, monkeypatch, exact=True)["cells"]
    estimated = planned(tmp_path, both, monkeypatch)["cells"]
    for name, cell in estimated.items():
        truth = exact[name]["to_prefill"]
        assert abs(cell["to_prefill"] - truth) <= min(0.1, cell["error"]) * truth


def test_without_records_the_table_says_how_long_texts_are(tiny):
    """LV-Eval's levels count words and characters, and its records are nowhere here."""
    given = run_on({"m": entry(tiny, window=40000)})
    given["run"]["benchmarks"] = ["lveval"]
    given["benchmarks"] = {"lveval": {"datasets": ["factrecall_en", "factrecall_zh"], "lengths": ["16k"]}}
    made = config.parse(given)
    light = LightTokenizer.load(str(tiny))
    for cell in cells.cells(made):
        job = job_of(made, cell)
        found = tokens.of_cell(made, cell, job, None, light, True)
        assert found.basis == "table"
        rate, _ = tokens.rate_of(cell.dataset[-2:], light)
        context = 16000 * (rate if cell.dataset.endswith("zh") else rate * tokens.WORD)
        limit = job.spec["max_prompt_tokens"]
        mean = found.to_prefill / found.calls
        assert found.calls == found.records == benchmarks.load("lveval").task(cell.dataset).n
        assert min(context, limit) <= mean <= limit + 60


def job_of(made, cell):
    files = cells.Files(made)
    known = {"identity": {}, "location": None, "window": None}
    spec = json.loads(cells.predict_spec(made, cell))
    return plan.Job(
        name=cell.name,
        records=files.records_of(cell),
        model=known,
        entry=made.runnable(cell.model).entry(),
        spec=spec,
        journal=files.journal_of(cell),
    )


def test_the_table_agrees_with_records(tiny):
    """Said from the level alone, the demo's tokens are within the stated error of those counted from its records."""
    made = config.parse(run_on({"m": entry(tiny)}, demo={"lengths": ["1000"]}))
    light = LightTokenizer.load(str(tiny))
    for cell in cells.cells(made):
        told = tokens._from_table(made, cell, job_of(made, cell), light)
        seen = tokens.of_cell(made, cell, job_of(made, cell), None, light, True)
        assert (told.basis, seen.basis, told.calls) == ("table", "records", seen.calls)
        assert abs(told.to_prefill - seen.to_prefill) <= told.error * seen.to_prefill
        assert told.longest[0] >= seen.longest[0]


def test_settings_shorten_the_context():
    made = config.parse(run_on({"m": {"engine": "a:B", "chat": "none", "window": 32768}}))
    cell = next(iter(cells.cells(made)))
    task = benchmarks.load("demo").task(cell.dataset)
    assert tokens.characters(cell, task, NoContext(kind="no_context")) == 0
    rag = RagOptions(kind="rag", retriever="bm25_words", top_n=2, chunk_size=50)
    assert tokens.characters(cell, task, rag) == round(100 * tokens.WORD)


# --- the journal, repeats, turns --------------------------------------------------------------------------------------


def answer(made, limit=None):
    """Run the cells of a run, as the workflow would, and return what they counted."""
    files = cells.Files(made)
    for name in made.run.models:
        Path(files.model(name)).parent.mkdir(parents=True, exist_ok=True)
        models.save(models.resolve(made.runnable(name).entry(), Path(files.model(name)).parent), files.model(name))
    for cell in list(cells.cells(made))[:limit]:
        source = tokens.records_of(made, cell)
        path = Path(files.records_of(cell))
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [record.to_row() for record in source()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        job = jobs.job(made, cell, str(path), files.model(cell.model), json.loads(cells.predict_spec(made, cell)))
        predict.run(job, files.predictions(cell), files.usage(cell))


def test_what_the_journal_answers_is_not_planned_again(tmp_path, tiny, monkeypatch):
    given = run_on({"m": entry(tiny)})
    monkeypatch.chdir(tmp_path)
    before = plan.make(config.parse(given), plan.Options(exact=True))
    made = config.parse(given)
    answer(made, 2)
    for exact in (True, False):
        after = plan.make(made, plan.Options(exact=exact))
        for number, (name, cell) in enumerate(after["cells"].items()):
            done = number < 2
            assert cell["in_journal"] == (2 if done else 0)
            assert cell["calls"] == 2
            if done:
                used = json.loads(Path(f"results/usage/{name}.json").read_text())
                assert cell["to_prefill"] == 0
                assert cell["prompt_tokens"] == used["prompt_tokens"] == before["cells"][name]["to_prefill"]
    hours = after["models"]["m"]["hours"]
    assert hours["basis"] == "measured"
    assert hours["cells_measured"] == 2
    # The rate is that of the cells of the same length.
    used = [json.loads(path.read_text()) for path in sorted(Path("results/usage").rglob("*.json"))]
    rate = sum(each["generation_seconds"] for each in used) / sum(each["prompt_tokens"] for each in used)
    expected = sum(cell["to_prefill"] for cell in after["cells"].values()) * rate
    assert hours["hours"] * 3600 == pytest.approx(expected, rel=0.05, abs=0.2)


def test_repeats_and_summaries_are_more_calls(tmp_path, tiny, monkeypatch):
    changes = {"settings": {"short": {"kind": "summary", "piece_words": 100, "max_new_tokens": 30}}}
    given = run_on(
        {"m": entry(tiny, temperature=0.5)},
        run={"settings": ["full", "short"]},
        demo={"datasets": ["singlehop_en"], "lengths": ["250"], "repeats": 3},
        **changes,
    )
    made = planned(tmp_path, given, monkeypatch, exact=True)["cells"]
    full, short = made["demo/m/full/singlehop_en/250"], made["demo/m/short/singlehop_en/250"]
    assert (full["records"], full["calls"]) == (2, 6)
    assert short["calls"] == 2 * 3 * (2 + 1)  # two pieces of a context of 250 words, then the answer
    assert short["answer_tokens_at_most"] == 2 * 3 * (2 * 30 + 20)
    assert short["error"] > 0  # how long the summaries will be is not known


def test_questions_about_one_document_share_it(tmp_path, tiny, monkeypatch):
    words = " ".join(f"word{n}" for n in range(400))
    rows = [{"input": f"What is {n}?", "context": words, "answers": ["x"]} for n in range(3)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {"path": "docs.jsonl", "metric": "qa_f1_score", "prompt": "{context} {input}", "max_new_tokens": 5}
    given = {
        "run": {"benchmarks": ["own"], "models": ["m"]},
        "benchmarks": {"own": {"datasets_from": {"docs": {**own, "language": "en", "category": "QA"}}}},
        "models": {"m": entry(tiny, prefill_chunk=128)},
    }
    for exact in (True, False):
        made = planned(tmp_path, given, monkeypatch, exact=exact)["models"]["m"]
        share = made["shared_tokens"] / made["to_prefill"]
        assert 0.6 < share <= 2 / 3
        assert made["reused_tokens"] % 128 == 0
        assert made["shared_tokens"] - 2 * 128 <= made["reused_tokens"] <= made["shared_tokens"]


# --- what is said, and what is refused --------------------------------------------------------------------------------


def command(folder, given, *arguments):
    (folder / "run.yaml").write_text(json.dumps(given))
    whole = [sys.executable, "-m", "scripts.plan", "-d", str(folder), "--configfile", str(folder / "run.yaml")]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return subprocess.run([*whole, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_cell_that_cannot_fit_is_refused_with_what_helps(tmp_path, tiny):
    given = run_on({"m": entry(tiny, gpu=1)}, demo={"datasets": ["singlehop_en"]})
    done = command(tmp_path, given, "--gpu-memory", "1.001")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2  # one line for each cell
    assert "error: demo/m/full/singlehop_en/500: a prompt of" in done.stderr
    assert "what makes it fit: " in done.stderr
    assert "max_prompt_tokens: " in done.stderr
    written = json.loads((tmp_path / "results/plan.json").read_text())
    assert [each["cell"] for each in written["refused"]] == [
        "demo/m/full/singlehop_en/250",
        "demo/m/full/singlehop_en/500",
    ]
    enough = command(tmp_path, given, "--gpu-memory", "8")
    assert enough.returncode == 0, enough.stderr
    assert "1 of 8 GiB needed: enough" in enough.stdout


@pytest.mark.slow
def test_a_job_with_too_little_memory_is_refused(tmp_path, tiny):
    given = run_on({"m": entry(tiny, mem_mb=200)}, demo={"datasets": ["singlehop_en"], "lengths": ["250"]})
    done = command(tmp_path, given)
    assert done.returncode == 2
    assert "a job has 0.2 GiB" in done.stderr


@pytest.mark.slow
def test_limit_and_wrapper_beyond_the_window_are_refused(tmp_path, tiny):
    given = run_on({"m": entry(tiny, window=600, max_prompt_tokens=578)}, demo={"datasets": ["singlehop_en"]})
    done = command(tmp_path, given, "--exact")
    assert done.returncode == 2
    assert "exceed the model's window of 600" in done.stderr


def test_money_and_hours(tmp_path, monkeypatch):
    server = {
        "engine": "openai",
        "model": "x",
        "base_url": "http://127.0.0.1:9/v1",
        "chat": "template",
        "window": 32768,
    }
    given = run_on({"m": {**server, "price": {"input": 2, "output": 10}}})
    made = planned(tmp_path, given, monkeypatch, prefill_rate=100, decode_rate=10)["models"]["m"]
    prompt, most = made["to_prefill"], made["answer_tokens_at_most"]
    assert most == 4 * 20 + 4 * 16
    assert made["money"]["at_most"] == pytest.approx((2 * prompt + 10 * most) / 1e6, abs=1e-4)
    assert made["hours"]["hours"] == pytest.approx((prompt / 100 + most / 10) / 3600, rel=0.01)
    none = planned(tmp_path, given, monkeypatch)["models"]["m"]
    assert none["hours"] is None
    assert none["memory_mb"] is None


@pytest.mark.slow
def test_nothing_is_made_up_about_a_model_that_is_not_here(tmp_path):
    done = command(tmp_path, run_on({"m": entry("org/absent", window=32768)}), "--exact")
    assert done.returncode == 0, done.stderr
    assert "its need cannot be told (org/absent is not here" in done.stdout
    assert "not counted: " in done.stdout
    assert "no rate known" in done.stdout


def test_predictions_made_elsewhere_take_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "singlehop_en_250.jsonl").write_text("{}\n")
    made = planned(tmp_path, run_on({"m": {"engine": "imported", "path": str(folder)}}), monkeypatch)
    assert made["models"] == {"m": {"engine": "imported", "cells": 1}}


def test_light_tokenizer_is_the_models_own(tiny, tmp_path):
    from longflow.engines.tokenizers import HuggingFaceTokenizer

    light, own = LightTokenizer.load(str(tiny)), HuggingFaceTokenizer.load(str(tiny), local_files_only=True)
    text = own.chat("Where does he live? 他住在哪里？", {})
    assert light.chat("Where does he live? 他住在哪里？", {}) == text
    assert light.encode(text, False) == own.encode(text, False)
    assert LightTokenizer.load(str(tmp_path)) is None
    copied = Path(shutil.copytree(tiny, tmp_path / "torn"))
    (copied / "tokenizer.json").write_text("{")
    assert LightTokenizer.load(str(copied)) is None


def test_records_of_a_setting_without_context(tmp_path, tiny, monkeypatch):
    given = run_on({"m": entry(tiny)}, run={"settings": ["full", "blind"]}, settings={"blind": {"kind": "no_context"}})
    monkeypatch.chdir(tmp_path)
    made = config.parse(given)
    blind = next(cell for cell in cells.cells(made) if cell.setting == "blind")
    found = list(tokens.records_of(made, blind)())
    assert len(found) == 2
    assert all(isinstance(record, Record) and record.fields["context"] == "" for record in found)
