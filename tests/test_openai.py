"""The openai engine against a real HTTP server on loopback that answers, stalls and fails by rule."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_models import make_model
from helpers_server import LENGTH_WORDS, FakeServer

from longflow.engines import Completion, Generation, Request, load_engine
from longflow.engines import openai as engine_module
from longflow.engines.tokenizers import TiktokenTokenizer
from longflow.errors import UserError
from longflow.pricing import cost

ROOT = Path(__file__).resolve().parents[1]
KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "FIRST_DELAY", 0.05)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def make_entry(url: str | None, **changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "engine": "openai",
        "base_url": url,
        "model": "small",
        "api": "chat",
        "api_calls": 1,
        "api_key_env": "OPENAI_API_KEY",
        "timeout": 10,
        "max_retries": 3,
        "tokenizer": None,
        "extra_body": {},
        "max_tokens_field": "max_tokens",
    }
    return entry | changes


def make_request(prompt: Any, generation: Generation | None = None, key: str | None = None) -> Request:
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    return Request(key or text, prompt, True, generation or Generation(32), f"rec-{text}")


def collect(completions: Iterator[Completion]) -> tuple[list[str], Exception | None]:
    """The keys that came, and the exception that ended them."""
    found = []
    try:
        for completion in completions:
            found.append(completion.key)
    except Exception as error:
        return found, error
    return found, None


def run(url: str | None, prompts: list[str], **changes: Any) -> dict[str, Completion]:
    """Answer the prompts and return the completions by prompt; none is lost and none comes twice."""
    engine = load_engine("openai", make_entry(url, **changes), None)
    # As the prediction loop does: a chat gets messages, completions a text.
    chat = changes.get("api", "chat") == "chat"
    sent = [make_request([{"role": "user", "content": prompt}] if chat else prompt, key=prompt) for prompt in prompts]
    found = list(engine.generate(sent))
    engine.close()
    assert sorted(completion.key for completion in found) == sorted(prompts)
    return {completion.key: completion for completion in found}


def test_chat_sends_the_messages_and_the_settings() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one two"}]
    with FakeServer() as server:
        engine = load_engine("openai", make_entry(server.url, extra_body={"top_k": 5}), None)
        (found,) = engine.generate([make_request(messages, Generation(8, seed=7))])
    assert server.requests[0]["path"] == "/v1/chat/completions"
    assert server.requests[0]["key"] == KEY
    assert server.requests[0]["body"] == {
        "model": "small",
        "messages": messages,
        "max_tokens": 8,
        "temperature": 0.0,
        "seed": 7,
        "top_k": 5,
    }
    assert (found.text, found.finish_reason, found.error) == ("answer to one two", "stop", None)
    assert (found.prompt_tokens, found.answer_tokens) == (2, 4)
    assert found.seconds is not None
    assert found.seconds > 0


def test_completions_sends_the_text_as_it_is() -> None:
    with FakeServer() as server:
        found = run(server.url, [" 原文 \n"], api="completions")
    assert server.requests[0]["path"] == "/v1/completions"
    assert server.requests[0]["body"]["prompt"] == " 原文 \n"
    assert found[" 原文 \n"].text == "answer to  原文 \n"


def test_messages_to_the_completions_api_are_refused() -> None:
    with FakeServer() as server:
        engine = load_engine("openai", make_entry(server.url, api="completions"), None)
        with pytest.raises(UserError, match="api: chat"):
            list(engine.generate([make_request([{"role": "user", "content": "x"}])]))


def test_sampling_settings_and_fields_that_a_server_wants_otherwise() -> None:
    with FakeServer() as server:
        entry = make_entry(server.url, max_tokens_field="max_completion_tokens", extra_body={"temperature": None})
        engine = load_engine("openai", entry, None)
        list(
            engine.generate(
                [make_request([{"role": "user", "content": "x"}], Generation(9, temperature=0.7, top_p=0.9, seed=3))]
            )
        )
    body = server.requests[0]["body"]
    assert (body["max_completion_tokens"], body["top_p"], body["seed"]) == (9, 0.9, 3)
    assert "max_tokens" not in body
    assert "temperature" not in body


def test_an_answer_cut_at_the_limit_says_so() -> None:
    with FakeServer(answer=lambda _: "a b c d") as server:
        engine = load_engine("openai", make_entry(server.url), None)
        (found,) = engine.generate([make_request("x", Generation(3))])
    assert (found.text, found.finish_reason, found.answer_tokens) == ("a b c", "length", 3)


@pytest.mark.parametrize("fault", ["429", "500", "503", "cut", "half", "not json"])
def test_what_may_pass_is_tried_again(fault: str) -> None:
    with FakeServer({"bad": [fault, fault]}) as server:
        found = run(server.url, ["good", "bad"])
    assert found["bad"].text == "answer to bad"
    assert server.prompts() == ["good", "bad", "bad", "bad"]


def test_retry_after_is_honoured() -> None:
    with FakeServer({"bad": ["429"]}) as server:
        run(server.url, ["bad"])
    first, second = (request["time"] for request in server.requests)
    assert 0.4 <= second - first < 2


def test_a_date_in_retry_after_is_honoured() -> None:
    """Two seconds ahead, told to the whole second."""
    with FakeServer({"bad": ["429 date"]}) as server:
        run(server.url, ["bad"])
    first, second = (request["time"] for request in server.requests)
    assert 0.9 <= second - first < 4


def test_a_hanging_server_is_given_up_after_the_timeout_and_asked_again() -> None:
    with FakeServer({"bad": ["hang"]}) as server:
        start = time.monotonic()
        found = run(server.url, ["bad"], timeout=0.3)
        assert time.monotonic() - start < 3
    assert found["bad"].text == "answer to bad"


@pytest.mark.parametrize(
    ("fault", "words"),
    [("500", "HTTP 500: Internal error"), ("hang", "timed out"), ("cut", "Connection error"), ("not json", "JSON")],
)
def test_one_request_that_never_succeeds_fails_alone(fault: str, words: str) -> None:
    with FakeServer({"bad": [fault] * 9}) as server:
        found = run(server.url, ["bad", "good"], max_retries=1, timeout=0.3)
    assert server.prompts() == ["bad", "bad", "good"]
    assert found["good"].text == "answer to good"
    bad = found["bad"]
    assert (bad.text, bad.finish_reason) == ("", "error")
    assert bad.error is not None
    assert words.lower() in bad.error.lower()
    assert "\n" not in bad.error


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("400 length", f"refused because of length: HTTP 400: {LENGTH_WORDS}"),
        ("413", "refused because of length: HTTP 413"),
        ("429 too large", "refused because of length: HTTP 429: Request too large"),
        ("list content", "no text but a list"),
        ("null choice", "neither a message nor a text"),
        ("400", "HTTP 400: Invalid value for 'seed'"),
        ("403 moderation", "HTTP 403: Your input was flagged"),
        ("no choices", "the server's answer has no choices"),
        ("error in 200", "Provider returned error"),
        ("filter", "content_filter"),
    ],
)
def test_what_is_refused_is_not_tried_again(fault: str, words: str) -> None:
    with FakeServer({"bad": [fault] * 9}) as server:
        found = run(server.url, ["bad", "good"])
    assert server.prompts() == ["bad", "good"]
    assert found["bad"].finish_reason == "error"
    assert words in (found["bad"].error or "")
    assert found["good"].error is None


def test_no_content_is_an_empty_answer() -> None:
    with FakeServer({"think": ["null"]}) as server:
        found = run(server.url, ["think"])
    assert (found["think"].text, found["think"].finish_reason, found["think"].error) == ("", "length", None)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("401", "HTTP 401: Incorrect API key provided: ***"),
        ("404 model", "The model `small` does not exist"),
        ("400 model", "This server has 'big', not 'small'"),
        ("quota", "You exceeded your current quota"),
        ("429 long", "Daily limit reached"),
    ],
)
def test_what_every_request_would_meet_ends_the_run(fault: str, words: str) -> None:
    prompts = [f"p{number}" for number in range(50)]
    with FakeServer({"p": [fault] * 99}) as server:
        with pytest.raises(UserError) as caught:
            run(server.url, prompts, api_calls=2)
        assert len(server.requests) <= 4
    assert words in str(caught.value)
    assert server.url in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_run_that_ends_still_gives_what_was_under_way() -> None:
    with FakeServer({"fatal": ["401"]}, delay=0.2) as server:
        engine = load_engine("openai", make_entry(server.url, api_calls=3), None)
        found, error = collect(engine.generate(make_request(text) for text in ["a", "fatal", "b", *"cdefghij"]))
    assert {"a", "b"} <= set(found)
    assert isinstance(error, UserError)
    assert "401" in str(error)


def test_a_run_that_ends_does_not_wait_for_retries() -> None:
    start = time.monotonic()
    faults = {"busy": ["429 half a minute"], "fatal": ["401"]}
    with FakeServer(faults, delay=0.1) as server, pytest.raises(UserError, match="401"):
        run(server.url, ["busy", "x", "fatal"], api_calls=2)
    assert time.monotonic() - start < 10


def test_a_server_that_is_not_there_ends_the_run() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=rf"no server answers at http://127\.0\.0\.1:{port}/v1 after 3 tries") as caught:
        run(f"http://127.0.0.1:{port}/v1", ["x"] * 1, max_retries=2)
    assert KEY not in str(caught.value)


def test_a_server_that_dies_ends_the_run_and_keeps_the_answers() -> None:
    with FakeServer() as server:
        engine = load_engine("openai", make_entry(server.url, max_retries=1), None)

        def requests() -> Iterator[Request]:
            for number in range(100):
                if number == 5:
                    server.die()
                yield make_request(f"p{number}")

        found, error = collect(engine.generate(requests()))
    assert "p0" in found
    assert len(found) < 10
    assert isinstance(error, UserError)
    assert "no server answers" in str(error)


@pytest.mark.parametrize("calls", [1, 4])
def test_concurrency_is_reached_and_bounded(calls: int) -> None:
    with FakeServer(delay=0.05) as server:
        run(server.url, [f"p{number}" for number in range(5 * calls)], api_calls=calls)
        assert server.most_at_once == calls


def test_completions_come_as_they_finish_and_requests_are_taken_as_needed() -> None:
    taken = []

    def requests() -> Any:
        for number in range(40):
            taken.append(number)
            yield make_request("slow" if number == 0 else f"p{number}")

    with FakeServer({"slow": ["late"]}, hang=0.6) as server:
        engine = load_engine("openai", make_entry(server.url, api_calls=4), None)
        found = []
        for completion in engine.generate(requests()):
            found.append(completion.key)
            if len(found) == 1:
                assert len(taken) <= 8
    assert found.index("slow") > 8
    assert len(found) == 40


def test_an_interrupted_run_does_not_wait_for_a_server_that_hangs() -> None:
    code = (
        "import json, sys; from longflow.engines import Generation, Request, load_engine\n"
        "engine = load_engine('openai', json.loads(sys.argv[1]), None)\n"
        "requests = [Request(key, key, True, Generation(8), key) for key in ('slow', 'quick')]\n"
        "for completion in engine.generate(requests): raise KeyboardInterrupt(completion.key)\n"
    )
    with FakeServer({"slow": ["late"]}, hang=120) as server:
        entry = json.dumps(make_entry(server.url, api_calls=2, timeout=300))
        command = [sys.executable, "-c", code, entry]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert result.returncode != 0
    assert "KeyboardInterrupt: quick" in result.stderr


def test_a_missing_key_is_named_and_not_needed_for_ones_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        load_engine("openai", make_entry(None), None)
    with FakeServer() as server:
        assert run(server.url, ["x"])["x"].error is None


def test_a_proxy_of_the_environment_is_not_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    with FakeServer() as server:
        assert run(server.url, ["x"])["x"].error is None


def test_an_address_without_protocol_is_refused() -> None:
    with pytest.raises(UserError, match="http://"):
        load_engine("openai", make_entry("localhost:8000/v1"), None)


def test_tokenizer_of_a_folder_and_none(tmp_path: Any) -> None:
    make_model(tmp_path)
    engine = load_engine("openai", make_entry("http://127.0.0.1:1", tokenizer=str(tmp_path)), None)
    tokenizer = engine.tokenizer()
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode("the cat 你好", True)) == "the cat 你好"
    assert load_engine("openai", make_entry("http://127.0.0.1:1"), None).tokenizer() is None
    missing = load_engine("openai", make_entry("http://127.0.0.1:1", tokenizer="tiktoken:no-such-model"), None)
    with pytest.raises(UserError, match="no-such-model"):
        missing.tokenizer()


def test_tiktoken_takes_special_looking_text_as_text_and_half_characters_as_replacement() -> None:
    import tiktoken

    bytes_only = {bytes([value]): value for value in range(256)}
    special = {"<|endoftext|>": 256}
    encoding = tiktoken.Encoding("bytes", pat_str=r".|\n", mergeable_ranks=bytes_only, special_tokens=special)
    tokenizer = TiktokenTokenizer(encoding)
    assert tokenizer.encode("a<|endoftext|>", True) == list(b"a<|endoftext|>")
    ids = tokenizer.encode("你", False)
    assert ids == list("你".encode())
    assert tokenizer.decode(ids[:2]) == "�"
    with pytest.raises(UserError, match="template"):
        tokenizer.chat("x", {})


def test_a_text_is_continued_even_by_a_model_that_chats_and_may_end_at_a_line() -> None:
    """A benchmark may say that a prompt is not wrapped, and that an answer ends at its first line."""
    with FakeServer() as server:
        entry = make_entry(server.url, max_tokens_field="max_completion_tokens")
        engine = load_engine("openai", entry, None)
        (found,) = engine.generate([make_request("few shots", Generation(5, stop_newline=True))])
    assert found.error is None
    assert server.requests[0]["path"] == "/v1/completions"
    body = server.requests[0]["body"]
    assert (body["prompt"], body["max_tokens"], body["stop"]) == ("few shots", 5, ["\n"])
    assert "max_completion_tokens" not in body


def test_usage_counts_cached_tokens_and_nonsense_counts_as_unknown() -> None:
    faults = {"bare": ["no usage"], "odd": ["odd usage"]}
    with FakeServer(faults) as server:
        found = run(server.url, ["one two three four", "bare", "odd"])
    full, bare, odd = found["one two three four"], found["bare"], found["odd"]
    assert (full.prompt_tokens, full.cached_tokens, full.answer_tokens) == (4, 2, 6)
    for answer in (bare, odd):
        assert (answer.prompt_tokens, answer.cached_tokens, answer.answer_tokens) == (None, None, None)
        assert answer.error is None
    assert (bare.text, odd.text) == ("bare", "odd")


@pytest.mark.parametrize("wanted", ["max_tokens", "max_completion_tokens"])
def test_the_limit_is_sent_under_the_name_that_the_server_wants(wanted: str, caplog: pytest.LogCaptureFixture) -> None:
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}[wanted]
    prompts = [f"p{number}" for number in range(12)]
    with FakeServer(fields=(wanted,)) as server, caplog.at_level("INFO", "longflow"):
        found = run(server.url, prompts, api_calls=3, max_tokens_field=other, max_retries=0)
    assert {answer.text for answer in found.values()} == {f"answer to {prompt}" for prompt in prompts}
    used = [(set(request["body"]) & {"max_tokens", "max_completion_tokens"}).pop() for request in server.requests]
    assert used.count(wanted) == len(prompts)
    assert 1 <= used.count(other) <= 3  # no more than were under way
    assert sum("refuses" in line for line in caplog.messages) == 1
    assert server.requests[-1]["body"][wanted] == 32


def test_a_server_that_refuses_both_names_is_asked_each_once() -> None:
    with FakeServer(fields=()) as server:
        found = run(server.url, ["x"])
    assert len(server.requests) == 2
    assert "not supported" in (found["x"].error or "")


def test_words_about_length_that_name_both_limits_are_no_reason_to_switch() -> None:
    """vLLM's refusal of a prompt that does not fit names the limit by both of its names."""
    said = (
        "'max_tokens' or 'max_completion_tokens' is too large: 32. This model's maximum context length is 4096 tokens"
    )
    faults = {"bad": [(400, {}, {"error": {"message": said}})]}
    with FakeServer(faults) as server:
        found = run(server.url, ["bad", "good"])
    assert [set(request["body"]) & {"max_completion_tokens"} for request in server.requests] == [set(), set()]
    assert "refused because of length" in (found["bad"].error or "")


REFUSALS = {
    "vLLM": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8936 in the "
    "messages, 64 in the completion). Please reduce the length of the messages or completion.",
    "vLLM, completions": "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "SGLang": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000 `inputs` tokens",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "Gemini": "The input token count (1500000) exceeds the maximum number of tokens allowed (1048576).",
}


@pytest.mark.parametrize("said", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("status", [400, 422])
def test_servers_refuse_long_prompts_in_many_words(said: str, status: int) -> None:
    """One failed record, even where the refusal names the model, and the model is named after long contexts."""
    faults = {"bad": [(status, {}, {"error": {"message": f"small-long-context: {said}"}})]}
    with FakeServer(faults) as server:
        found = run(server.url, ["bad", "good"], model="small-long-context")
    assert server.prompts() == ["bad", "good"]
    assert (found["bad"].error or "").startswith("refused because of length: ")


def test_a_400_that_names_a_model_called_long_context_is_about_the_model() -> None:
    faults = {"bad": [(400, {}, {"error": {"message": "there is no long-context-length here"}})] * 9}
    with FakeServer(faults) as server, pytest.raises(UserError, match="no long-context-length"):
        run(server.url, ["bad", "bad2"], model="long-context-length")


@pytest.mark.parametrize("fault", ["400 echo", "500 echo", "echo in 200"])
def test_a_key_that_the_server_echoes_is_shown_nowhere(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not a part of it either, where the server's words are cut."""
    with FakeServer({"bad": [fault] * 9}) as server, caplog.at_level("DEBUG"):
        found = run(server.url, ["bad", "good"], max_retries=1)
    assert server.requests[0]["key"] == KEY
    assert found["bad"].error is not None
    shown = f"{found!r} {caplog.text}"
    assert not any(KEY[: len(KEY) - cut] in shown for cut in range(len(KEY) - 5))


def test_a_key_in_an_answer_is_taken_out() -> None:
    with FakeServer(answer=lambda _: f"Your key {KEY} has no access") as server:
        assert run(server.url, ["x"])["x"].text == "Your key *** has no access"


def test_a_key_with_a_line_end_is_taken_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    with FakeServer(key=KEY) as server:
        assert run(server.url, ["x"])["x"].error is None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-geheim-ü")
    with pytest.raises(UserError, match="OPENAI_API_KEY") as caught:
        load_engine("openai", make_entry(None), None)
    assert "geheim" not in str(caught.value)


def test_a_password_in_the_address_is_not_shown() -> None:
    with FakeServer({"x": ["404 model"]}) as server:
        address = server.url.replace("http://", "http://me:hush@")
        with pytest.raises(UserError, match=r"at http://127\.0\.0\.1") as caught:
            run(address, ["x"])
    assert "hush" not in str(caught.value)


def count_tokens(folder: Path, prompt: Any, special: bool) -> int:
    """Tokens of what a server of this model makes of a prompt, counted with transformers itself."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if isinstance(prompt, str):
        return len(tokenizer(prompt, add_special_tokens=special)["input_ids"])
    return len(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True)["input_ids"])


@pytest.mark.parametrize("chat", [True, False])
def test_a_prompt_that_does_not_fit_the_window_is_not_sent(chat: bool, tmp_path: Path) -> None:
    """Prompt, wrapper and answer may fill the window to the last token, and no more."""
    make_model(tmp_path, bos=True)
    text = "the cat sat on the mat 你好 " * 5
    prompt: Any = [{"role": "user", "content": text}] if chat else text
    tokens = count_tokens(tmp_path, prompt, special=True)
    requests = [Request(str(answer), prompt, not chat, Generation(answer), "rec") for answer in (10, 11)]
    with FakeServer() as server:
        entry = make_entry(
            server.url, tokenizer=str(tmp_path), window=tokens + 10, api="chat" if chat else "completions"
        )
        engine = load_engine("openai", entry, None)
        found = {completion.key: completion for completion in engine.generate(iter(requests))}
        engine.close()
    assert len(server.requests) == 1
    assert found["10"].error is None
    assert f"{tokens} tokens and an answer of 11 exceed the model's window of {tokens + 10}" in (
        found["11"].error or ""
    )


def test_a_tokenizer_without_a_template_counts_the_messages_alone(tmp_path: Path) -> None:
    make_model(tmp_path, chat_template=None)
    content = "the cat sat on the mat " * 20
    tokens = count_tokens(tmp_path, content, special=False)
    with FakeServer() as server:
        for window, sent in ((tokens + 8, 1), (tokens + 7, 1)):
            engine = load_engine("openai", make_entry(server.url, tokenizer=str(tmp_path), window=window), None)
            (found,) = engine.generate([make_request([{"role": "user", "content": content}], Generation(8))])
            engine.close()
            assert len(server.requests) == sent
            assert (found.error is None) == (window == tokens + 8)


def test_the_protocol_of_lv_evals_api_script() -> None:
    """A system message and the prompt, and nothing else: no temperature, no limit, no seed."""
    generation = Generation(16, temperature=0.5, seed=3, stop_newline=True)
    with FakeServer() as server:
        engine = load_engine("openai", make_entry(server.url, protocol="lveval_api"), None)
        prompts = ["unwrapped", [{"role": "user", "content": "a chat"}]]
        found = list(engine.generate(make_request(prompt, generation) for prompt in prompts))
        engine.close()
    assert [answer.error for answer in found] == [None, None]
    for request, text in zip(server.requests, ["unwrapped", "a chat"], strict=True):
        assert request["path"] == "/v1/chat/completions"
        assert request["body"] == {
            "model": "small",
            "messages": [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": text},
            ],
        }
    with pytest.raises(UserError, match="chat: template"):
        load_engine("openai", make_entry(None, protocol="lveval_api", api="completions"), None)


def test_an_engine_answers_several_times_with_one_client() -> None:
    """A job of several cells asks one engine again and again."""
    with FakeServer() as server:
        engine = load_engine("openai", make_entry(server.url, api_calls=2), None)
        for part in range(3):
            found = list(engine.generate(make_request(f"{part} {number}") for number in range(4)))
            assert {answer.key for answer in found} == {f"{part} {number}" for number in range(4)}
        engine.close()
        engine.close()


def test_prices_are_per_million_and_cached_tokens_cost_their_own() -> None:
    price = {"input": 2.5, "cached_input": 1.25, "output": 10.0}
    assert cost(price, 1_000_000, 0, 0) == 2.5
    assert cost(price, 1_000_000, 400_000, 100_000) == pytest.approx(0.6 * 2.5 + 0.4 * 1.25 + 0.1 * 10)
    assert cost({"input": 2.5, "cached_input": None, "output": 10.0}, 1000, 400, 0) == pytest.approx(0.0025)
    assert cost({"input": 1.0, "output": 2.0}, None, None, None) == 0.0


def test_token_ids_are_sent_as_they_are() -> None:
    with FakeServer() as server:
        engine = load_engine("openai", make_entry(server.url, api="completions"), None)
        (found,) = engine.generate([Request("ids", [1, 5, 9], False, Generation(4), "rec")])
        engine.close()
    assert found.error is None
    assert server.requests[0]["path"] == "/v1/completions"
    assert server.requests[0]["body"]["prompt"] == [1, 5, 9]
