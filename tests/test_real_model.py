"""The demo on the real model, held against the references' own loop, written out here again."""

import json

import pytest
from helpers_spec import SPEC

from longflow import benchmarks, models, predict
from longflow.jsonio import read_jsonl, write_jsonl

pytestmark = pytest.mark.slow

LIMIT = 700  # cuts the prompts of level 500 and up


@pytest.fixture(scope="module")
def demo_records(tmp_path_factory):
    """Two records of each English set at 250 and 500, and one Chinese one: some are cut at LIMIT, some are not."""
    demo = benchmarks.load("demo")
    options = demo.module.Options()
    folder = tmp_path_factory.mktemp("records")
    made = {}
    for dataset in demo.tasks:
        for length in ("250", "500"):
            task = demo.task(dataset)
            found = demo.module.prepare(task, length, options, demo.module.sources(task, length, options, "resources"))
            rows = [record for _, record in zip(range(1 if task.language == "zh" else 2), found, strict=False)]
            path = folder / f"{dataset}_{length}.jsonl"
            write_jsonl(path, (record.to_row() for record in rows))
            made[dataset, length] = (path, rows)
    return made


def reference_loop(folder, prompts, max_new_tokens):
    """What pred.py and prediction.py do with each prompt: tokenise, cut, wrap, tokenise again, generate, decode."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = []
    for prompt in prompts:
        ids = tokenizer(prompt, truncation=False, return_tensors="pt").input_ids[0]
        if len(ids) > LIMIT:
            half = int(LIMIT / 2)
            head = tokenizer.decode(ids[:half], skip_special_tokens=True)
            prompt = head + tokenizer.decode(ids[-half:], skip_special_tokens=True)
        chat = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        inputs = tokenizer(chat, add_special_tokens=False, truncation=False, return_tensors="pt")
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)[0]
        texts.append(tokenizer.decode(output[inputs.input_ids.shape[-1] :], skip_special_tokens=True))
    return texts


def run(entry, records, task, folder, model, chat="template"):
    """Predictions of these records with an engine, through the library's own loop."""
    spec = {
        **SPEC,
        "model": {**SPEC["model"], "engine": entry["engine"], "chat": chat},
        "prompt": task.prompt,
        "max_prompt_tokens": LIMIT,
        "generation": {**SPEC["generation"], "max_new_tokens": task.max_new_tokens},
    }
    job = predict.Job("cell", str(records), model, entry, spec, str(folder / "journal"))
    predict.run(job, folder / "out.jsonl", folder / "usage.json")
    return list(read_jsonl(folder / "out.jsonl"))


def local_entry(smollm2):
    return {
        "engine": "transformers", "path": str(smollm2), "revision": None, "tokenizer": None, "dtype": "float32",
        "attention": "sdpa", "gpu": 0, "threads": 2, "trust_remote_code": False, "config_overrides": {},
        "chat": "template", "chat_date": "2024-07-26", "window": 8192,
    }  # fmt: skip


def local_answers(smollm2, demo_records, tmp_path):
    """The local engine's rows for all demo records, by cell."""
    entry = local_entry(smollm2)
    resolved = models.resolve(entry, tmp_path)
    found = {}
    for dataset, length in demo_records:
        folder = tmp_path / "local" / f"{dataset}_{length}"
        folder.mkdir(parents=True)
        path, _ = demo_records[dataset, length]
        found[dataset, length] = run(entry, path, benchmarks.load("demo").task(dataset), folder, resolved)
    return found


def test_text_equals_the_reference_loop(smollm2, demo_records, tmp_path):
    rows = local_answers(smollm2, demo_records, tmp_path)
    cut = 0
    for (dataset, length), (_, records) in demo_records.items():
        task = benchmarks.load("demo").task(dataset)
        expected = reference_loop(smollm2, [task.prompt.format(**r.fields) for r in records], task.max_new_tokens)
        assert [row["pred"] for row in rows[dataset, length]] == expected
        cut += sum(row["kept_head"] is not None for row in rows[dataset, length])
    assert cut >= 4


def test_a_real_server_gives_the_same_text(smollm2, demo_records, tmp_path):
    from helpers_server import transformers_serve

    rows = local_answers(smollm2, demo_records, tmp_path)
    with transformers_serve(smollm2, tmp_path) as url:
        entry = {
            "engine": "openai", "api": "chat", "model": str(smollm2), "base_url": url, "api_calls": 2,
            "api_key_env": "NO_SUCH_KEY", "timeout": 300, "max_retries": 2, "tokenizer": str(smollm2),
            "extra_body": {}, "max_tokens_field": "max_tokens", "identity": None, "chat": "template",
            "chat_date": "2024-07-26", "window": 8192,
        }  # fmt: skip
        resolved = models.resolve(entry, tmp_path)
        for (dataset, length), (path, _) in demo_records.items():
            folder = tmp_path / "served" / f"{dataset}_{length}"
            folder.mkdir(parents=True)
            served = run(entry, path, benchmarks.load("demo").task(dataset), folder, resolved)
            for ours, theirs in zip(rows[dataset, length], served, strict=True):
                assert theirs["error"] is None, theirs["error"]
                assert theirs["pred"] == ours["pred"]
                assert theirs["finish_reason"] == ours["finish_reason"]
    assert "served" in json.dumps(resolved["identity"])
