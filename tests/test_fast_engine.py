"""The engine's own loop: chunks, shared beginnings, guesses, memory. Its text is held against `generate`.

Random small models stand for real ones; what is computed is bit for bit what a prompt alone would get.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_models import make_entry, make_model, make_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longflow.engines import Completion, Generation, Request, load_engine
from longflow.engines.ahead import Ahead, Waiting, as_ids
from longflow.engines.attention import causal_attention
from longflow.engines.decoding import Decoder, common_prefix, guess
from longflow.engines.together import Together
from longflow.errors import UserError

ROOT = Path(__file__).resolve().parents[1]

PIECES = [
    "the cat sat on the mat and the dog read a long book about the sea. ",
    "Question: where does the river begin? Answer: in the hills, near the old mill. ",
    "请根据下面的文章回答问题。他住在海边的小镇，养了两只猫。",
    "0123456789 () [] {} <> def main(): return None\n",
    "问题：他住在哪里？\n答案：",
    "half 中文 and half English, 中英文混合。 ",
]


def mixed_prompts(count: int, seed: int) -> list[str]:
    """Prompts of mixed length in both languages; about half begin as another one does."""
    rng = random.Random(seed)
    prompts: list[str] = []
    for _ in range(count):
        start = ""
        if prompts and rng.random() < 0.5:
            other = rng.choice(prompts)
            start = other[: rng.randrange(1, len(other) + 1)]
        prompts.append(start + "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 6))))
    return prompts


def answers(entry: dict[str, Any], prompts: list[str], generation: Generation) -> list[Completion]:
    """The engine's completions in the order of the prompts."""
    engine = load_engine("transformers", entry, entry["path"])
    requests = [Request(str(i), text, False, generation, f"rec-{i}") for i, text in enumerate(prompts)]
    found = {completion.key: completion for completion in engine.generate(requests)}
    engine.close()
    assert len(found) == len(prompts)
    return [found[request.key] for request in requests]


def texts(entry: dict[str, Any], prompts: list[str], generation: Generation) -> list[str]:
    found = answers(entry, prompts, generation)
    assert [completion.error for completion in found] == [None] * len(prompts)
    return [completion.text for completion in found]


def reference_loop(folder: Path, prompts: list[str], max_new_tokens: int) -> list[str]:
    """LV-Eval's and LongBench's loop on ready prompts, written from their description."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)[0]
        found.append(tokenizer.decode(output[inputs.input_ids.shape[-1] :], skip_special_tokens=True))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("small"), seed=5, window=4096)


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunk", "lookup", "more"),
    [
        *[(16, 4, {}), (64, 0, {}), (0, 3, {})],
        *[(chunk, 2, {"decode": "merged", "merge_tokens": tokens}) for chunk, tokens in ((16, 900), (0, 65_536))],
    ],
)
def test_sixty_prompts_of_both_languages_equal_the_reference_loop(
    folder: Path, chunk: int, lookup: int, more: dict[str, Any]
) -> None:
    prompts = mixed_prompts(64, seed=chunk)
    expected = reference_loop(folder, prompts, 24)
    found = texts(make_entry(folder, prefill_chunk=chunk, prompt_lookup=lookup, **more), prompts, Generation(24))
    assert found == expected
    assert len(set(expected)) > 32


def greedy(model: Any, ids: np.ndarray, count: int, end: int) -> list[int]:
    """`generate` of the library on ready ids."""
    tokens = torch.from_numpy(ids.astype(np.int64))[None]
    mask = torch.ones_like(tokens)
    output = model.generate(
        input_ids=tokens, attention_mask=mask, max_new_tokens=count, do_sample=False, eos_token_id=end
    )
    return [int(token) for token in output[0, len(ids) :]]


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """A random model in float32 and, with the same weights, in bfloat16; grouped heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        initializer_range=0.4,
        pad_token_id=0,
    )
    single = LlamaForCausalLM(config).eval()
    half = LlamaForCausalLM(config).eval()
    half.load_state_dict(single.state_dict())
    return {"float32": single, "bfloat16": half.to(torch.bfloat16)}


def own(model: Any) -> Any:
    from longflow.engines import attention

    attention.register()
    model.set_attn_implementation(attention.NAME)
    return model


ids_list = st.lists(st.integers(1, 6), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    beginnings=st.lists(ids_list, min_size=1, max_size=3),
    tails=st.lists(st.tuples(st.integers(0, 2), ids_list), min_size=1, max_size=6),
    chunk=st.integers(0, 20),
    lookup=st.integers(0, 5),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_any_prompts_in_any_order_give_the_text_of_each_alone(
    models: dict[str, Any],
    beginnings: list[list[int]],
    tails: list[tuple[int, list[int]]],
    chunk: int,
    lookup: int,
    dtype: str,
) -> None:
    model = models[dtype]
    prompts = [as_ids([*beginnings[which % len(beginnings)], *tail]) for which, tail in tails]
    ends = frozenset([49])
    model.set_attn_implementation("sdpa")
    expected = [greedy(model, ids, 12, 49) for ids in prompts]
    job = Decoder(own(model), chunk=chunk, lookup=lookup)
    for ids, library in zip(prompts, expected, strict=True):
        alone = Decoder(model, chunk=chunk, lookup=lookup)
        reused = job.reusable(ids)
        assert reused == (min(common_prefix(job.cached, ids), len(ids) - 1) // chunk * chunk if chunk else 0)
        found = job.answer(ids, 12, ends)
        assert found == alone.answer(ids, 12, ends)
        for layer, other in zip(job._cache.layers, alone._cache.layers, strict=True):
            # To the bit, in every dtype: the keys and values of the whole prompt.
            assert torch.equal(layer.keys[:, : len(ids)], other.keys[:, : len(ids)])
            assert torch.equal(layer.values[:, : len(ids)], other.values[:, : len(ids)])
        if dtype == "float32":
            assert found == library


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompts=st.lists(ids_list, min_size=1, max_size=7),
    chunk=st.integers(0, 20),
    most=st.lists(st.integers(1, 14), min_size=7, max_size=7),
    least=st.integers(0, 3),
    penalty=st.sampled_from([1.0, 1.4]),
    lookup=st.integers(0, 4),
    room=st.sampled_from([20, 80, 10_000]),
    beginning=st.one_of(st.just([]), ids_list),
)
def test_answers_on_their_way_together_are_those_of_each_alone(
    models: dict[str, Any],
    prompts: list[list[int]],
    chunk: int,
    most: list[int],
    least: int,
    penalty: float,
    lookup: int,
    room: int,
    beginning: list[int],
) -> None:
    """Of any lengths, whether they end early or late, and with what a model's settings make of the scores."""
    model, ends = own(models["float32"]), frozenset([49, 7])
    given_ = [(as_ids(beginning + ids), count) for ids, count in zip(prompts, most, strict=False)]
    alone = [Decoder(model, chunk=chunk, penalty=penalty).answer(*each, ends, least) for each in given_]
    together: Together[int] = Together(model, room, 4, chunk, lookup, penalty)
    done = [each for index, one in enumerate(given_) for each in together.add(index, *one, ends, least)]
    done += together.finish()
    assert [each.writing.answer for each in sorted(done, key=lambda each: each.item)] == alone
    assert together.abandon() == []


def test_long_prompts_come_singly_and_the_longest_first(folder: Path) -> None:
    prompts = [PIECES[0] * count for count in (1, 9, 2, 3, 40)]
    entry = make_entry(folder, prefill_chunk=64, decode="merged", merge_tokens=400)
    single = texts({**entry, "decode": "single"}, prompts, Generation(8))
    engine = load_engine("transformers", entry, str(folder))
    requests = [Request(str(i), text, False, Generation(8), str(i)) for i, text in enumerate(prompts)]
    began = time.perf_counter()
    found = list(engine.generate(requests))
    tokens = {each.key: each.prompt_tokens for each in found}
    assert tokens["4"] > 200 > tokens["1"]
    assert found[0].key == "4"  # by itself
    assert {each.key for each in found} == set(tokens)
    assert sum(each.seconds for each in found) <= time.perf_counter() - began  # no second is counted twice
    assert [completion.text for completion in sorted(found, key=lambda each: each.key)] == single


def test_what_is_on_its_way_is_answered_before_the_source_s_error_is_raised(folder: Path) -> None:
    def source() -> Iterator[Request]:
        yield from requests_of(mixed_prompts(6, seed=4))
        raise UserError("record 7 is bad")

    engine = load_engine("transformers", make_entry(folder, decode="merged"), str(folder))
    completions = engine.generate(source())
    assert len({next(completions).key for _ in range(6)}) == 6
    with pytest.raises(UserError, match="record 7 is bad"):
        next(completions)


def test_where_a_pass_over_several_fails_each_is_answered_by_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = mixed_prompts(6, seed=8)
    entry = make_entry(folder, prefill_chunk=32, decode="merged")
    single = texts({**entry, "decode": "single"}, prompts, Generation(8))

    def short_of_memory(*_: Any) -> None:
        raise torch.OutOfMemoryError("no room beside the others")

    passes = itertools.count()
    real = Together._forward

    def sometimes(*arguments: Any) -> Any:
        return short_of_memory() if next(passes) % 7 == 5 else real(*arguments)

    monkeypatch.setattr(Together, "_forward", sometimes)
    assert texts(entry, prompts, Generation(8)) == single
    assert "could not be answered together (OutOfMemoryError: no room beside the others)" in caplog.text
    monkeypatch.setattr(Together, "_forward", short_of_memory)
    assert texts(entry, prompts, Generation(8)) == single


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_order_and_company_change_no_text(folder: Path, dtype: str) -> None:
    prompts = mixed_prompts(24, seed=3)
    entry = make_entry(folder, dtype=dtype, prefill_chunk=32, prompt_lookup=4)
    together = texts(entry, prompts, Generation(16))
    assert texts(entry, prompts[::-1], Generation(16))[::-1] == together
    assert texts({**entry, "share_prefixes": False}, prompts, Generation(16)) == together
    assert [texts(entry, [prompt], Generation(16))[0] for prompt in prompts[:6]] == together[:6]


ARCHITECTURES: dict[str, tuple[str, dict[str, Any], bool]] = {
    # name: (configuration class, settings, whether the own loop takes it)
    "llama": ("LlamaConfig", {"num_key_value_heads": 2}, True),
    "qwen2": ("Qwen2Config", {"num_key_value_heads": 2}, True),
    "qwen3": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 16}, True),
    "mistral": ("MistralConfig", {"num_key_value_heads": 2, "sliding_window": None}, True),
    "mixtral": ("MixtralConfig", {"num_key_value_heads": 2, "num_local_experts": 4, "sliding_window": None}, True),
    "olmo2": ("Olmo2Config", {}, True),
    "gpt_neox": ("GPTNeoXConfig", {}, True),
    "gpt2": ("GPT2Config", {"n_positions": 512}, True),
    "yarn": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 1e4,
                "original_max_position_embeddings": 64,
            }
        },
        True,
    ),
    "dynamic": ("LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, False),
    "sliding": ("MistralConfig", {"num_key_value_heads": 2, "sliding_window": 24}, False),
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 24, "num_key_value_heads": 2}, False),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures_and_what_is_left_to_the_library(tmp_path: Path, name: str) -> None:
    import transformers

    kind, special, taken = ARCHITECTURES[name]
    tokenizer = make_tokenizer(window=512)
    config = getattr(transformers, kind)(
        **{
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 512,
            "initializer_range": 0.3,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": None,
            **special,
        }
    )
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    prompts = mixed_prompts(8, seed=1)
    entry = make_entry(tmp_path, prefill_chunk=16, prompt_lookup=3)
    assert texts(entry, prompts, Generation(12)) == reference_loop(tmp_path, prompts, 12)
    assert texts({**entry, "decode": "merged"}, prompts, Generation(12)) == reference_loop(tmp_path, prompts, 12)
    engine: Any = load_engine("transformers", entry, str(tmp_path))
    list(engine.generate([Request("0", "x", False, Generation(1), "x")]))
    assert (engine._decoder is not None) == taken


def test_a_generation_config_with_more_than_is_heeded_goes_to_the_library(tmp_path: Path) -> None:
    for settings_ in ({"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.3}):
        folder = make_model(tmp_path / next(iter(settings_)), seed=2, generation=settings_)
        prompts = mixed_prompts(6, seed=9)
        entry = make_entry(folder, prefill_chunk=16, prompt_lookup=4)
        assert texts(entry, prompts, Generation(24)) == reference_loop(folder, prompts, 24)


# --- parts ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 40),
    past=st.integers(0, 50),
    heads=st.sampled_from([(4, 4), (6, 2), (3, 1)]),
    scale=st.sampled_from([None, 0.3]),
)
def test_attention_is_the_softmax_over_what_a_token_may_see(
    tokens: int, past: int, heads: tuple[int, int], scale: float | None
) -> None:
    torch.manual_seed(tokens * 100 + past)
    query = torch.randn(1, heads[0], tokens, 16)
    key, value = torch.randn(2, 1, heads[1], past + tokens, 16)
    found = causal_attention(query, key, value, scale)
    keys, values = (t.double().repeat_interleave(heads[0] // heads[1], 1) for t in (key, value))
    weights = query.double() @ keys.transpose(2, 3) * (scale or 16**-0.5)
    hidden = torch.ones(tokens, past + tokens, dtype=torch.bool).triu(past + 1)
    expected = weights.masked_fill(hidden, -torch.inf).softmax(-1) @ values
    torch.testing.assert_close(found.double(), expected, atol=2e-6, rtol=1e-5)


@given(text=st.lists(st.integers(0, 3), min_size=1, max_size=40), most=st.integers(0, 5))
def test_a_guess_is_what_followed_the_last_tokens_before(text: list[int], most: int) -> None:
    found = [int(token) for token in guess(as_ids(text), most)]
    assert len(found) <= most

    def followed(count: int) -> list[list[int]]:
        tail = text[-count:]
        ends = range(count, len(text))
        return [text[end : end + most] for end in ends if text[end - count : end] == tail and len(text) > count]

    expected = followed(3) or followed(2)
    assert found == (expected[-1] if expected and most else [])


def test_guesses_save_passes_of_the_model_and_change_no_token() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    # Weights as small as these make a model that repeats itself.
    torch.manual_seed(0)
    shape = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = own(LlamaForCausalLM(LlamaConfig(vocab_size=50, initializer_range=0.02, **shape)).eval())
    passes: list[int] = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    counts, found = [], []
    for lookup in (0, 4):
        passes.clear()
        found.append(Decoder(model, chunk=16, lookup=lookup).answer(as_ids([7, 8, 9] * 6), 60, frozenset()))
        counts.append(len(passes))
    assert found[0] == found[1]
    assert counts[0] == 2 + 59
    assert counts[1] < counts[0] * 0.6


# --- reading ahead ----------------------------------------------------------------------------------------------------


def waiting(request: Request) -> Waiting:
    return Waiting(request.key, request.name, request.generation, as_ids([ord(c) for c in str(request.prompt)]))


def requests_of(prompts: list[str]) -> list[Request]:
    return [Request(prompt, prompt, False, Generation(4), prompt) for prompt in prompts]


def drain(ahead: Ahead, cached: list[str]) -> list[str]:
    taken = []

    def shared(ids: Any) -> int:
        return common_prefix(as_ids([ord(c) for c in cached[-1]]), ids) if cached else 0

    while (each := ahead.take(shared)) is not None:
        taken.append(each.key)
        cached.append(each.key)
    return taken


def test_prompts_that_share_a_beginning_come_together() -> None:
    prompts = ["aaa1", "bbb1", "aaa2", "ccc", "bbb2", "aab3", "aaa3"]
    with Ahead(requests_of(prompts), waiting) as ahead:
        assert ahead.start()
        ahead._thread.join(10)  # all are at hand
        assert drain(ahead, []) == ["aaa1", "aaa2", "aaa3", "aab3", "bbb1", "bbb2", "ccc"]


def test_an_error_of_the_source_is_raised_after_what_came_before() -> None:
    def source() -> Iterator[Request]:
        yield from requests_of(["a", "b", "c"])
        raise UserError("record d is torn")

    with Ahead(source(), waiting) as ahead:
        ahead.start()
        assert [getattr(ahead.take(lambda ids: 0), "key", None) for _ in range(3)] == ["a", "b", "c"]
        with pytest.raises(UserError, match="record d"):
            ahead.take(lambda ids: 0)

    def broken() -> Iterator[Request]:
        raise UserError("no record at all")
        yield

    with pytest.raises(UserError, match="no record at all"), Ahead(broken(), waiting) as ahead:
        ahead.start()


def test_the_source_never_runs_while_the_caller_is_at_work_and_no_further_ahead_than_allowed() -> None:
    at_work, mistakes, made = threading.Event(), [], []

    def source() -> Iterator[Request]:
        for request in requests_of([f"{i:04d}" for i in range(60)]):
            for _ in range(3):
                if at_work.is_set():
                    mistakes.append(request.key)
                time.sleep(0.0005)
            made.append(request.key)
            yield request

    done = 0
    with Ahead(source(), waiting, most=5) as ahead:
        ahead.start()
        while ahead.take(lambda ids: 0) is not None:
            done += 1
            with ahead.caller():
                at_work.set()
                time.sleep(0.002)
                at_work.clear()
            assert len(made) <= done + 5 + 1
    assert done == 60
    assert not mistakes


def test_a_caller_that_leaves_early_ends_the_thread(folder: Path) -> None:
    taken = []

    def source() -> Iterator[Request]:
        for request in requests_of(mixed_prompts(400, seed=4)):
            taken.append(request.key)
            yield request

    engine = load_engine("transformers", make_entry(folder), str(folder))
    found = engine.generate(source())
    next(found)
    found.close()  # type: ignore[attr-defined]
    count = len(taken)
    time.sleep(0.2)
    assert len(taken) == count
    assert count < 400


# --- what is refused, and memory --------------------------------------------------------------------------------------


def test_what_is_not_available_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match=r"kv_offload: true needs a GPU"):
        texts(make_entry(folder, kv_offload=True), ["x"], Generation(2))


LIMITED = """
import json, resource, sys
from longflow.engines import Generation, Request, load_engine
entry, texts, room = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
engine = load_engine("transformers", entry, entry["path"])
requests = [Request(str(i), text, True, Generation(8), f"rec-{i}") for i, text in enumerate(texts)]
for number, request in enumerate(requests):
    for each in engine.generate([request]):
        print(json.dumps([each.text, each.finish_reason, each.error, each.note]), flush=True)
    if number == 0:
        used = 1024 * int(open("/proc/self/status").read().split("VmSize:")[1].split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
"""


def limited(entry: dict[str, Any], prompts: list[str], room: int) -> list[list[Any]]:
    """Answers of a process that after its first prompt may take only `room` bytes more than it has."""
    command = [sys.executable, "-c", LIMITED, json.dumps(entry), json.dumps(prompts), str(room)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_short_memory_means_a_smaller_chunk_and_then_a_failed_record(tmp_path: Path) -> None:
    """Eager attention, whose scores take chunk x length: 9,000 tokens at once want gigabytes, in chunks they do not."""
    folder = make_model(tmp_path, window=40000)
    entry = make_entry(folder, attention="eager", threads=1)
    long = "the sea " * 4500
    warm, rescued, small = limited(entry, ["the cat", long, "the cat"], 700_000_000)
    assert (rescued[1], rescued[2]) == ("length", None)
    assert rescued[3].startswith("memory was short: computed with prefill_chunk ")
    assert small == warm
    assert warm[3] is None
    chunk = int(rescued[3].split()[-1])
    (alone,) = answers({**entry, "prefill_chunk": chunk}, [long], Generation(8))
    assert (rescued[0], alone.note) == (alone.text, None)


def test_a_prompt_whose_cache_does_not_fit_fails_alone_and_says_what_it_needs(tmp_path: Path) -> None:
    folder = make_model(tmp_path, window=40000, config={"num_key_value_heads": 4, "head_dim": 1024})
    entry = make_entry(folder, threads=1, prefill_chunk=256)
    warm, huge, small = limited(entry, ["the cat", "the sea " * 4500, "the cat"], 400_000_000)
    assert huge[1] == "error"
    assert huge[2].startswith("out of memory with a prompt of ")
    tokens = int(huge[2].split(" tokens")[0].split()[-1])
    mebibytes = 2 * 2 * 4 * 1024 * 4 * (tokens + 8) / 2**20
    assert f"its KV cache alone takes {mebibytes:,.0f} MiB" in huge[2]
    assert "\n" not in huge[2]
    assert small == warm


# --- a real model, and the scripts ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_real_model_equals_the_reference_loop_on_shared_documents(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    from perf import made_up

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    groups = [*made_up.shared(tokenizer, 2, 300, 700), *made_up.needles(tokenizer, 400, 3)]
    prompts = [prompt for group in groups for prompt in group]
    prompts += [
        made_up.wrapped(tokenizer, "他住在海边的小镇，养了两只猫。" * 12, q) for q in ("他住在哪里？", "他养了什么？")
    ]
    entry = make_entry(smollm2, prefill_chunk=256, prompt_lookup=4)
    assert texts(entry, prompts, Generation(24)) == reference_loop(smollm2, prompts, 24)


@pytest.mark.slow
def test_the_gpu_script_runs_its_small_shapes_on_a_cpu() -> None:
    command = ["bash", "perf/gpu.sh", "--small"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("matmul peak", "Llama-3-8B", "Qwen2.5-7B", "shared prefixes", "x the reference loop", "peak memory"):
        assert words in done.stdout
