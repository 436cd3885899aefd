"""The transformers engine and its tokenizer, on tiny random models and, marked slow, on a real one."""

from __future__ import annotations

import datetime
import json
import logging
import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers_models import make_entry, make_model
from helpers_server import transformers_serve

from longflow.engines import Completion, Generation, Request, load_engine
from longflow.engines.tokenizers import HuggingFaceTokenizer
from longflow.errors import UserError

ROOT = Path(__file__).resolve().parents[1]

PROMPTS = [
    "the cat sat on the mat",
    "Question: where does the river begin?\nAnswer:",
    "请根据下面的文章回答问题。问题：他住在哪里？\n答案：",
    "half 中文 and half English, 中英文混合。",
    " leading and trailing spaces  ",
    "\n\n",
    "emoji 🙂 and U+FFFD � and a tab\t",
    "<s>a text that begins with its own BOS",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
    "x",
    "def main(): return {1: [2, 3]}",
    "the sea " * 90,
]


def reference_loop(folder: Path, prompts: list[str], max_new_tokens: int, special_tokens: bool = True) -> list[str]:
    """What LV-Eval's and LongBench's scripts do with a rendered prompt, written from their description."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = []
    for prompt in prompts:
        inputs = tokenizer(prompt, truncation=False, return_tensors="pt", add_special_tokens=special_tokens)
        output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)[0]
        texts.append(tokenizer.decode(output[inputs.input_ids.shape[-1] :], skip_special_tokens=True))
    return texts


def make_requests(prompts: list[str], generation: Generation, special_tokens: bool = True) -> list[Request]:
    return [Request(str(i), text, special_tokens, generation, f"rec-{i}") for i, text in enumerate(prompts)]


def run(entry: dict[str, Any], requests: list[Request]) -> list[Completion]:
    engine = load_engine("transformers", entry, entry["path"])
    found = list(engine.generate(requests))
    engine.close()
    assert [completion.key for completion in found] == [request.key for request in requests]
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("bos"), seed=1, bos=True)


@pytest.mark.parametrize("special_tokens", [True, False])
@pytest.mark.parametrize("model", ["plain", "with_bos"])
def test_text_equals_the_reference_loop(model: str, special_tokens: bool, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(model)
    expected = reference_loop(folder, PROMPTS, 24, special_tokens)
    found = run(make_entry(folder), make_requests(PROMPTS, Generation(24), special_tokens))
    assert [completion.text for completion in found] == expected
    assert len(set(expected)) > 6, "the random model should not say the same to everything"


def test_an_empty_prompt_is_answered_from_bos_and_fails_without_one(plain: Path, with_bos: Path) -> None:
    (answered,) = run(make_entry(with_bos), make_requests([""], Generation(8)))
    assert [answered.text] == reference_loop(with_bos, [""], 8)
    assert answered.prompt_tokens == 1
    (failed, after) = run(make_entry(plain), make_requests(["", "x"], Generation(8)))
    assert (failed.finish_reason, failed.text) == ("error", "")
    assert "no tokens" in (failed.error or "")
    assert after.error is None


def test_a_model_with_sampling_settings_is_greedy_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "max_length": 4096}
    folder = make_model(tmp_path, generation=settings)
    expected = reference_loop(folder, PROMPTS[:4], 16)
    capfd.readouterr()
    caplog.clear()
    with warnings.catch_warnings(), caplog.at_level(logging.INFO):
        warnings.simplefilter("error")
        found = run(make_entry(folder), make_requests(PROMPTS[:4], Generation(16)))
    assert [completion.text for completion in found] == expected
    assert "".join(capfd.readouterr()) == ""
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"loading {folder} (float32, cpu)"
    assert re.fullmatch(r"loaded in \d+\.\d s", lines[1])
    assert len(lines) == 2


def test_settings_of_the_generation_config_that_greedy_heeds_are_kept(tmp_path: Path) -> None:
    folder = make_model(tmp_path, generation={"repetition_penalty": 1.5})
    expected = reference_loop(folder, PROMPTS[:4], 24)
    found = run(make_entry(folder), make_requests(PROMPTS[:4], Generation(24)))
    assert [completion.text for completion in found] == expected


def test_finish_reasons_and_token_counts(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    tokenizer = HuggingFaceTokenizer.load(str(folder))
    (open_ended,) = run(make_entry(folder), make_requests(["the cat"], Generation(12)))
    assert (open_ended.finish_reason, open_ended.answer_tokens) == ("length", 12)
    assert open_ended.prompt_tokens == len(tokenizer.encode("the cat", True))
    assert open_ended.seconds is not None

    # Make a token that this model says on its way one of two end tokens: it must stop there, the token not in the text.
    ids = greedy_ids(folder, "the cat", 12)
    end = next(index for index in range(3, 12) if ids[index] not in ids[:index])
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] = [1, ids[end]]
    (folder / "generation_config.json").write_text(json.dumps(settings))
    (stopped,) = run(make_entry(folder), make_requests(["the cat"], Generation(12)))
    assert (stopped.finish_reason, stopped.answer_tokens) == ("stop", end + 1)
    (just,) = run(make_entry(folder), make_requests(["the cat"], Generation(end + 1)))
    assert (just.finish_reason, just.answer_tokens) == ("stop", end + 1)
    (cut,) = run(make_entry(folder), make_requests(["the cat"], Generation(end)))
    assert (cut.finish_reason, cut.answer_tokens) == ("length", end)


def test_an_answer_may_have_to_have_a_token_and_may_end_at_a_line_end(tmp_path: Path) -> None:
    """LongBench's samsum: a line end is an end, and the first token is none. The loop here is the reference's."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = make_model(tmp_path, seed=3)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    newline = tokenizer.encode("\n", add_special_tokens=False)[-1]
    # Make the line end likely, so that it comes first in some answers and later in others.
    with torch.no_grad():
        model.lm_head.weight[newline] *= 3
    model.save_pretrained(folder)
    expected, stopped = [], 0
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")
        length = inputs.input_ids.shape[-1]
        ends = [tokenizer.eos_token_id, newline]
        output = model.generate(**inputs, max_new_tokens=12, do_sample=False, min_length=length + 1, eos_token_id=ends)[
            0
        ]
        expected.append(tokenizer.decode(output[length:], skip_special_tokens=True))
        stopped += int(output[-1]) in ends
    assert stopped > 0
    generation = Generation(12, min_new_tokens=1, stop_newline=True)
    found = run(make_entry(folder), make_requests(PROMPTS, generation))
    assert [completion.text for completion in found] == expected
    assert sum(completion.finish_reason == "stop" for completion in found) == stopped


def greedy_ids(folder: Path, prompt: str, count: int) -> list[int]:
    """Greedy continuation by plain forward passes over the whole text, without generate."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(prompt)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    start = len(ids)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return [int(token) for token in ids[start:]]


def test_text_equals_plain_forward_passes(plain: Path) -> None:
    tokenizer = HuggingFaceTokenizer.load(str(plain))
    (found,) = run(make_entry(plain), make_requests([PROMPTS[1]], Generation(16)))
    assert found.text == tokenizer.decode(greedy_ids(plain, PROMPTS[1], 16))


def test_what_exceeds_the_window_fails_with_the_numbers_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = make_model(tmp_path, window=100)
    tokenizer = HuggingFaceTokenizer.load(str(folder))
    fits = tokenizer.decode(tokenizer.encode("the sea " * 200, False)[:80])
    length = len(tokenizer.encode(fits, True))
    found = run(make_entry(folder), make_requests([fits + " x", fits, "x"], Generation(100 - length)))
    assert [completion.finish_reason for completion in found] == ["error", "length", "length"]
    too_long = len(tokenizer.encode(fits + " x", True))
    assert found[0].prompt_tokens == too_long
    for number in (too_long, 100 - length, 100):
        assert re.search(rf"\b{number}\b", found[0].error or "")
    (told,) = run(make_entry(folder, window=50), make_requests([fits], Generation(4)))
    assert "window of 50 tokens" in (told.error or "")


def test_overrides_reach_the_model_and_its_window(tmp_path: Path) -> None:
    folder = make_model(tmp_path, window=64)
    request = make_requests(["the sea " * 30], Generation(8))
    (refused,) = run(make_entry(folder), request)
    assert refused.finish_reason == "error"
    linear = {"rope_scaling": {"type": "linear", "factor": 4.0}, "max_position_embeddings": 256}
    (scaled,) = run(make_entry(folder, config_overrides=linear), request)
    (plain,) = run(make_entry(folder, config_overrides={"max_position_embeddings": 256}), request)
    assert scaled.error is None
    assert scaled.text != plain.text

    # The same by hand: a model whose own config says what the overrides say.
    by_hand = tmp_path / "by_hand"
    shutil.copytree(folder, by_hand)
    config = json.loads((by_hand / "config.json").read_text())
    theta = config["rope_parameters"]["rope_theta"]
    config["rope_parameters"] = {"rope_type": "linear", "factor": 4.0, "rope_theta": theta}
    config["max_position_embeddings"] = 256
    (by_hand / "config.json").write_text(json.dumps(config))
    assert [scaled.text] == reference_loop(by_hand, ["the sea " * 30], 8)

    with pytest.raises(UserError, match=r"no key 'max_position_embedings'.*'max_position_embeddings'"):
        run(make_entry(folder, config_overrides={"max_position_embedings": 256}), request)


def test_sampling_is_seeded_by_the_request(plain: Path) -> None:
    def sample(seed: int, prompts: list[str] = PROMPTS[:3]) -> list[str]:
        generation = Generation(24, temperature=0.7, top_p=0.95, seed=seed)
        return [completion.text for completion in run(make_entry(plain), make_requests(prompts, generation))]

    first = sample(1)
    assert sample(1) == first
    assert sample(2) != first
    assert sample(1, PROMPTS[2:3]) == first[2:], "what came before in the run must not matter"


def test_a_list_of_messages_fails_alone(plain: Path) -> None:
    bad = Request("m", [{"role": "user", "content": "x"}], True, Generation(4), "rec-m")
    found = run(make_entry(plain), [bad, *make_requests(["x"], Generation(4))])
    assert found[0].finish_reason == "error"
    assert found[1].error is None


def test_the_model_is_loaded_only_if_there_is_a_request(plain: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert run(make_entry(plain), []) == []
        engine = load_engine("transformers", make_entry(plain), str(plain))
        tokenizer = engine.tokenizer()
        assert tokenizer is not None
        assert tokenizer.encode("x", False)
    assert not caplog.records


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config.json": None}, "config.json"),
        ({"model.safetensors": None}, "safetensors"),
        ({"model.safetensors": b"torn"}, "cannot be loaded"),
        ({"config.json": b'{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}'}, "T5"),
        ({"config.json": b'{"model_type": "no-such-model"}'}, "no-such-model"),
        ({"adapter_config.json": b"{}"}, "peft"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_one_line_with_its_folder(
    plain: Path, tmp_path: Path, change: dict[str, bytes | None], words: str
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(plain, folder)
    for name, content in change.items():
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        run(make_entry(folder), make_requests(["x"], Generation(4)))
    assert str(folder) in str(caught.value)
    assert words in str(caught.value)


def test_weights_that_are_missing_are_not_made_up(plain: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "partial"
    shutil.copytree(plain, folder)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"1 of its weights .*model\.layers\.1\.mlp\.up_proj\.weight"):
        run(make_entry(folder), make_requests(["x"], Generation(4)))


def test_flash_attention_that_is_not_installed_is_said(plain: Path) -> None:
    pytest.importorskip("transformers")
    try:
        import flash_attn  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("flash_attn is installed")
    with pytest.raises(UserError, match=r"flash_attention_2 is not installed.*sdpa"):
        run(make_entry(plain, attention="flash_attention_2"), make_requests(["x"], Generation(4)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_not_there_is_said(plain: Path) -> None:
    with pytest.raises(UserError, match="gpu: 1 asked for, but 0 visible"):
        run(make_entry(plain, gpu=1), make_requests(["x"], Generation(4)))


def test_tokenizer_of_its_own_path(plain: Path, with_bos: Path) -> None:
    engine = load_engine("transformers", make_entry(plain, tokenizer=str(with_bos)), str(plain))
    tokenizer = engine.tokenizer()
    assert tokenizer is not None
    assert tokenizer.encode("x", True)[0] == 0


def test_encode_and_decode_say_what_the_library_says(with_bos: Path, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import AutoTokenizer

    ours, library = HuggingFaceTokenizer.load(str(with_bos)), AutoTokenizer.from_pretrained(with_bos)
    for text in [*PROMPTS, "", "long " * 5000]:
        for special in (True, False):
            ids = ours.encode(text, special)
            if len(text) < 5000:
                assert ids == library(text, add_special_tokens=special)["input_ids"]
            assert ours.decode(ids) == library.decode(ids, skip_special_tokens=True)
    assert "longer than" not in caplog.text


def test_decode_cleans_spaces_only_where_the_tokenizer_does(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({"[UNK]": 0, "good": 1, ".": 2, "[SEP]": 3}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    for clean, expected in ((True, "good."), (False, "good .")):
        library = PreTrainedTokenizerFast(
            tokenizer_object=inner, unk_token="[UNK]", sep_token="[SEP]", clean_up_tokenization_spaces=clean
        )
        assert HuggingFaceTokenizer(library, "words").decode([1, 2, 3]) == expected


def test_chat_wraps_one_user_message_with_the_templates_options(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if think is defined and not think %}<no thoughts>{% endif %}"
        "{% if add_generation_prompt %}[answer]{% endif %}"
    )
    tokenizer = HuggingFaceTokenizer.load(str(make_model(tmp_path, chat_template=template)))
    assert tokenizer.chat(" 你好 \n", {}) == "<s>[user] 你好 \n[answer]"
    assert tokenizer.chat("x", {"think": False}) == "<s>[user]x<no thoughts>[answer]"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ date_string }}", "03 Feb 2021"),
        ("{% if not date_string is defined %}today{% endif %}{{ strftime_now('%d %b %Y') }}", "03 Feb 2021"),
        ("{{ strftime_now('%Y-%m-%d') }}", "2021-02-03"),
        ("{{ strftime_now('%H:%M, %A') }}", "00:00, Wednesday"),
    ],
)
def test_no_template_prints_todays_date(tmp_path: Path, template: str, expected: str) -> None:
    folder = make_model(tmp_path, chat_template=template)
    tokenizer = HuggingFaceTokenizer.load(str(folder), chat_date="2021-02-03")
    assert tokenizer.chat("x", {}) == expected
    engine = load_engine("transformers", make_entry(folder, chat_date="2021-02-03"), str(folder))
    assert engine.tokenizer().chat("x", {}) == expected  # type: ignore[union-attr]

    # The library's own clock is left as it was.
    today = tokenizer.inner.apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False, chat_template="{{ strftime_now('%Y') }}"
    )
    assert today == str(datetime.date.today().year)


def test_chat_without_a_template_or_with_one_that_refuses(tmp_path: Path) -> None:
    none = HuggingFaceTokenizer.load(str(make_model(tmp_path / "none", chat_template=None)))
    with pytest.raises(UserError, match=r"no chat template.*chat: none.*reference:NAME"):
        none.chat("x", {})
    refusing = make_model(tmp_path / "refusing", chat_template="{{ raise_exception('no user messages here') }}")
    with pytest.raises(UserError, match="no user messages here"):
        HuggingFaceTokenizer.load(str(refusing)).chat("x", {})
    with pytest.raises(UserError, match="chat_date"):
        HuggingFaceTokenizer.load(str(refusing), chat_date="26 Jul 2024")


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=str(tmp_path)):
        HuggingFaceTokenizer.load(str(tmp_path), local_files_only=True)


# --- one's own class: the example of docs/engines.md ------------------------------------------------------------------


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# lastwords\.py\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "lastwords.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = {"engine": "lastwords:LastWords", "options": {"words": 2}}
    engine = load_engine(entry["engine"], entry, None)  # type: ignore[arg-type]
    found = list(engine.generate(make_requests(["one two three", "", "four"], Generation(1))))
    assert [completion.text for completion in found] == ["three", "", "four"]
    assert [completion.finish_reason for completion in found] == ["length", "stop", "stop"]
    assert engine.tokenizer() is None
    engine.close()

    from longflow.models import resolve

    found_model = resolve(entry, tmp_path)
    assert found_model["identity"] == {"engine": "lastwords:LastWords", "options": {"words": 2}, "version": "1"}


# --- a real model -----------------------------------------------------------------------------------------------------

REAL_PROMPTS = [
    "What is the capital of France?",
    "Read this: Mira Tollan was born in Quaybridge in 1911 and kept bees. Question: where was Mira Tollan born?",
    "Name three colours.",
    "请用一句话介绍你自己。",
]


@pytest.mark.slow
def test_real_model_equals_the_reference_loop(smollm2: Path) -> None:
    tokenizer = HuggingFaceTokenizer.load(str(smollm2))
    prompts = [tokenizer.chat(prompt, {}) for prompt in REAL_PROMPTS]
    expected = reference_loop(smollm2, prompts, 32, special_tokens=False)
    found = run(make_entry(smollm2), make_requests(prompts, Generation(32), special_tokens=False))
    assert [completion.text for completion in found] == expected
    assert found[0].text == "The capital of France is Paris."
    assert found[0].finish_reason == "stop"


def requests_of(api: str, prompts: list[str]) -> list[Request]:
    """The requests that the prediction loop makes for an endpoint: messages for a chat, else texts."""
    plain = make_requests(prompts, Generation(24))
    if api != "chat":
        return plain
    return [replace(each, prompt=[{"role": "user", "content": str(each.prompt)}]) for each in plain]


@pytest.mark.slow
def test_a_real_server_gives_the_text_of_the_local_engine(smollm2: Path, tmp_path: Path) -> None:
    """`transformers serve` on loopback, through the openai engine, chat and completions."""
    tokenizer = HuggingFaceTokenizer.load(str(smollm2))
    prompts = [tokenizer.chat(prompt, {}) for prompt in REAL_PROMPTS]
    local = run(make_entry(smollm2), make_requests(prompts, Generation(24), special_tokens=False))
    with transformers_serve(smollm2, tmp_path) as url:
        entry = {
            "engine": "openai",
            "base_url": url,
            "model": str(smollm2),
            "api": "chat",
            "api_calls": 2,
            "api_key_env": "LONGFLOW_NO_SUCH_KEY",
            "timeout": 120,
            "max_retries": 1,
            "tokenizer": str(smollm2),
            "extra_body": {},
            "max_tokens_field": "max_tokens",
        }
        for api, sent in (("chat", REAL_PROMPTS), ("completions", prompts)):
            engine = load_engine("openai", entry | {"api": api}, None)
            served = {found.key: found for found in engine.generate(requests_of(api, sent))}
            assert [served[found.key].text for found in local] == [found.text for found in local], api
            assert [served[found.key].finish_reason for found in local] == [found.finish_reason for found in local]
        wrong = load_engine("openai", entry | {"model": "no-such-model"}, None)
        with pytest.raises(UserError, match="no-such-model"):
            list(wrong.generate(make_requests(["x"], Generation(4))))
