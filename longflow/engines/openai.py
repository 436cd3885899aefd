"""The openai engine: any server that speaks OpenAI's protocol, hosted or one's own, through the real client.

Requests run side by side up to `api_calls`. What may pass by waiting is tried again; what will not is one failed
request, or the end of the run where every further request would meet the same (faults.py tells them apart).
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import queue
import random
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import openai

from longflow.engines import Completion, Prompt, Request, Tokenizer, faults
from longflow.engines.serve import SERVE_TIMEOUT, Server
from longflow.engines.tokenizers import CHAT_DATE, load_tokenizer
from longflow.errors import UserError

log = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
FIRST_DELAY = 0.5
"""Seconds before the first retry; doubled with each further one, less up to a quarter by chance."""
LONGEST_DELAY = 60.0
"""Seconds between two tries at most, unless the server asks for more with Retry-After."""

LVEVAL_API = "lveval_api"
"""The protocol of LV-Eval's script for hosted models."""
LVEVAL_SYSTEM = "You are a helpful assistant."
"""Its system message. Source: prediction_gpt.py of infinigence/LVEval @ 63e7ae93."""

WRAPPER_BOUND = 1000
"""Tokens that no chat wrapper has."""

_FINISH = {"length": "length", "max_tokens": "length", "model_length": "length"}
"""Finish reasons that mean "cut at the limit"; every other one (stop, eos, end_turn, none at all) is "stop"."""
_PLACEHOLDERS = ("none", "EMPTY", "dummy", "no-key")
"""What people give as key to servers that ask for none: words, which need no hiding."""

Todo = queue.SimpleQueue[Request | None]
Done = queue.SimpleQueue[Completion | BaseException]


class OpenAIEngine:
    """A model behind an OpenAI-compatible server.

    Args:
        entry: the model's entry; the keys read are base_url, model, api, api_calls, api_key_env, timeout, max_retries,
            tokenizer, window, extra_body, max_tokens_field, protocol, serve, serve_timeout, gpu and chat_date
            (docs/engines.md describes them).
        location: not used; the model's files are the server's.
    """

    def __init__(self, entry: dict[str, Any], location: str | None) -> None:
        self._entry = entry
        self._model = str(entry["model"])
        self._url = str(entry.get("base_url") or OPENAI_URL)
        if not self._url.startswith(("http://", "https://")):
            raise UserError(f"model {self._model}: base_url {_shown(self._url)!r} must begin with http:// or https://")
        if entry.get("serve") and entry.get("base_url"):
            raise UserError(f"model {self._model}: serve starts a server of its own; leave out base_url, or serve")
        self._lveval = entry.get("protocol") == LVEVAL_API
        if self._lveval and entry.get("api", "chat") != "chat":
            raise UserError(f"model {self._model}: protocol: {LVEVAL_API} sends messages; set chat: template")
        self._key = self._api_key()
        self._limit_field = str(entry.get("max_tokens_field") or "max_tokens")
        self._limit_field_switched = False
        self._lock = threading.Lock()
        self._client: openai.OpenAI | None = None
        self._server: Server | None = None
        self._tokenizer: Tokenizer | None = None
        self._stop = threading.Event()

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that the entry names, or None: then prompts are sent as they are."""
        name = self._entry.get("tokenizer")
        if name is not None and self._tokenizer is None:
            self._tokenizer = load_tokenizer(str(name), str(self._entry.get("chat_date") or CHAT_DATE))
        return self._tokenizer

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Answer the requests, at most `api_calls` at a time, in the order in which they finish.

        With `serve` the server is started at the first request and kept until `close`.

        Raises UserError if the run cannot go on: no server there, the key refused, the model or address not known,
        the quota used up. What other requests in flight still bring is yielded before.
        """
        workers = max(1, int(self._entry.get("api_calls") or 1))
        todo: Todo = queue.SimpleQueue()
        done: Done = queue.SimpleQueue()
        # One for each call: what hangs from an earlier one is not to go on because a later one began.
        stop = self._stop = threading.Event()
        waiting = iter(requests)
        started = False
        pending = 0
        fatal: BaseException | None = None
        try:
            while True:
                # Twice as many as run at once: a worker that is done finds the next one rendered. Not all of them:
                # prompts are long and there are thousands.
                while fatal is None and pending < 2 * workers and (request := next(waiting, None)) is not None:
                    if (too_long := self._too_long(request)) is not None:
                        yield too_long
                        continue
                    if not started:
                        self._connect()
                        for number in range(workers):
                            # Daemons, unlike the threads of concurrent.futures: an interrupted run does not wait for
                            # a server that hangs.
                            arguments = (todo, done, stop)
                            threading.Thread(
                                target=self._work, args=arguments, name=f"openai-{number}", daemon=True
                            ).start()
                        started = True
                    todo.put(request)
                    pending += 1
                if pending == 0:
                    break
                found = done.get()
                pending -= 1
                if isinstance(found, Completion):
                    yield found
                elif fatal is None:
                    fatal = found
                    stop.set()  # what is in flight may end, but nothing is tried again
                    pending -= _drain(todo)
            if fatal is not None:
                raise fatal
        finally:
            stop.set()
            _drain(todo)
            for _ in range(workers if started else 0):
                todo.put(None)

    def _work(self, todo: Todo, done: Done, stop: threading.Event) -> None:
        while (request := todo.get()) is not None:
            try:
                done.put(self._answer(request, stop))
            except BaseException as error:
                done.put(error)

    def close(self) -> None:
        """Close the connections, and end the server that was started here."""
        self._stop.set()
        client, self._client = self._client, None
        server, self._server = self._server, None
        try:
            if client is not None:
                client.close()
        finally:
            if server is not None:
                server.stop()

    # --- before the first request -------------------------------------------------------------------------------------

    def _api_key(self) -> str:
        name = str(self._entry.get("api_key_env") or "OPENAI_API_KEY")
        key = os.environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            # As a header it would be refused later, by a message that shows it.
            raise UserError(f"model {self._model}: the environment variable {name} holds characters that no key has")
        if key:
            return key
        if self._entry.get("base_url") or self._entry.get("serve"):
            return "none"  # one's own server asks for none, and the client wants some
        raise UserError(f"model {self._model}: the environment variable {name} with the API key is not set")

    def _connect(self) -> None:
        """Start the server, if it is to be started here, and make the client."""
        if self._entry.get("serve") and self._server is None:
            server = Server(
                str(self._entry["serve"]),
                model=self._model,
                gpu=int(self._entry.get("gpu") or 0),
                timeout=float(self._entry.get("serve_timeout") or SERVE_TIMEOUT),
                key="" if self._key == "none" else self._key,
                hide=self._hide_key,
            )
            self._url = server.start()
            self._server = server
        if self._client is None:
            self._client = self._make_client()

    def _make_client(self) -> openai.OpenAI:
        seconds = float(self._entry.get("timeout") or 600)
        timeout = openai.Timeout(seconds, connect=min(seconds, 30.0))
        # A proxy that the environment names is right for the world and wrong for a server on this machine.
        http_client = None
        if _is_here(self._url):
            # Nor is there anything to verify without TLS; reading all certificates takes longer than a short answer.
            verify: bool | ssl.SSLContext = True
            if self._url.startswith("http://"):
                verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            http_client = openai.DefaultHttpxClient(trust_env=False, timeout=timeout, verify=verify)
        # The client's own retries are off: it cannot tell a used-up quota from a busy server, and reports nothing.
        return openai.OpenAI(
            api_key=self._key, base_url=self._url, timeout=timeout, max_retries=0, http_client=http_client
        )

    def _too_long(self, request: Request) -> Completion | None:
        """The failure of a request that with its answer exceeds the window, or None.

        Counted here, since some servers answer such a prompt with nonsense. A tokenizer without a chat template
        counts the messages alone; what the server adds to them is then not known.
        """
        window = self._entry.get("window")
        tokenizer = self.tokenizer() if window is not None else None
        if window is None or tokenizer is None:
            return None
        answer = request.generation.max_new_tokens
        messages = self._messages(request.prompt)
        if messages is not None:
            text = "\n".join(message["content"] for message in messages)
        elif isinstance(request.prompt, str):
            text = request.prompt
        else:
            return None  # token ids: whoever made them has counted them
        if len(text.encode("utf-8", "replace")) + WRAPPER_BOUND + answer <= int(window):
            return None  # a token is a byte at least: what cannot be too long is not tokenised once more
        if messages is not None:
            with contextlib.suppress(UserError):
                text = tokenizer.chat(text, {})
        tokens = len(tokenizer.encode(text, request.special_tokens and messages is None))
        if tokens + answer <= int(window):
            return None
        reason = (
            f"the prompt of {tokens} tokens and an answer of {answer} exceed the model's window of {window}; "
            f"it was not sent (lower max_prompt_tokens by {tokens + answer - int(window)} or more)"
        )
        log.warning("request %s failed: %s", request.name, reason)
        return Completion(request.key, "", "error", error=reason)

    # --- one request --------------------------------------------------------------------------------------------------

    def _answer(self, request: Request, stop: threading.Event) -> Completion:
        """One request with its retries. Raises UserError where no further request can succeed."""
        start = time.perf_counter()
        tries = int(self._entry.get("max_retries") or 0) + 1
        attempt = 0
        while True:
            field = self._limit_field
            try:
                return self._completion(request, self._send(request, field), time.perf_counter() - start)
            except UserError:
                raise
            except Exception as error:
                if self._switch_limit_field(error, field):
                    continue
                attempt += 1
                reason = faults.words(error, self._hide_key)
                if faults.is_fatal(error, self._model):
                    raise UserError(f"{self._where()}: {reason}") from error
                if isinstance(error, openai.APIConnectionError) and (ended := self._server_ended()):
                    raise UserError(f"the server of model {self._model} {ended}; its answers are kept") from error
                again = attempt < tries and faults.is_transient(error)
                if not again or stop.is_set():
                    if faults.nobody_listens(error) and not stop.is_set():
                        raise UserError(
                            f"model {self._model}: no server answers at {_shown(self._url)} after {attempt} tries "
                            f"({reason}); is it running?"
                        ) from error
                    break
                delay = _delay(attempt, error)
                log.warning("request %s: %s; trying again in %.1f s", request.name, reason, delay)
                if stop.wait(delay):
                    break
        log.warning("request %s failed: %s", request.name, reason)
        return Completion(request.key, "", "error", error=reason)

    def _send(self, request: Request, limit_field: str) -> Any:
        client = self._client
        if client is None:
            raise UserError(f"model {self._model}: the engine was closed")
        extra = dict(self._entry.get("extra_body") or {})
        messages = self._messages(request.prompt)
        if self._lveval:
            extra = {key: value for key, value in extra.items() if value is not None}
            return client.chat.completions.create(model=self._model, messages=messages, extra_body=extra)  # type: ignore[arg-type]
        if messages is not None and self._entry.get("api", "chat") != "chat":
            raise UserError(f"model {self._model}: api: completions takes texts, not messages (api: chat)")
        generation = request.generation
        body: dict[str, Any] = {
            "model": self._model,
            # Only chats have another name for it.
            limit_field if messages else "max_tokens": generation.max_new_tokens,
            "temperature": generation.temperature,
        }
        if generation.temperature > 0:
            body["top_p"] = generation.top_p
        if generation.seed is not None:
            body["seed"] = generation.seed
        if generation.stop_newline:
            body["stop"] = ["\n"]
        for key in [key for key, value in extra.items() if value is None]:  # null takes a field out
            body.pop(key, None)
            del extra[key]
        if messages is not None:
            return client.chat.completions.create(messages=messages, extra_body=extra, **body)  # type: ignore[arg-type]
        # A text is sent to be continued even by a model that chats: a benchmark may say that a prompt is not wrapped.
        return client.completions.create(prompt=request.prompt, extra_body=extra, **body)  # type: ignore[arg-type]

    def _messages(self, prompt: Prompt) -> list[dict[str, str]] | None:
        """The messages of a chat, or None for a text (or token ids) to be continued.

        LV-Eval's script sends every prompt whole as one user message, and nothing else: its answers end by themselves
        and are sampled at the server's own temperature.
        """
        messages = None if isinstance(prompt, str) else [part for part in prompt if isinstance(part, dict)] or None
        if self._lveval:
            text = messages[-1]["content"] if messages else str(prompt)
            return [{"role": "system", "content": LVEVAL_SYSTEM}, {"role": "user", "content": text}]
        return messages

    def _switch_limit_field(self, error: Exception, used: str) -> bool:
        """Whether to send again, with the answer's limit under its other name, since the server refused this one."""
        if not faults.wants_other_limit_field(error, used):
            return False
        with self._lock:
            if not self._limit_field_switched:
                self._limit_field_switched = True
                self._limit_field = faults.LIMIT_FIELDS[used]
                log.info("the server refuses %s: sending %s from now on", used, self._limit_field)
            return self._limit_field != used  # the same after a switch: it refuses both

    def _completion(self, request: Request, answer: Any, seconds: float) -> Completion:
        usage = getattr(answer, "usage", None)
        counts: dict[str, Any] = {
            "prompt_tokens": _count(usage, "prompt_tokens"),
            "answer_tokens": _count(usage, "completion_tokens"),
            "cached_tokens": _count(getattr(usage, "prompt_tokens_details", None), "cached_tokens"),
        }

        def failed(reason: str) -> Completion:
            log.warning("request %s failed: %s", request.name, reason)
            return Completion(request.key, "", "error", error=reason, **counts)

        choices = getattr(answer, "choices", None)
        if not isinstance(choices, list) or not choices:
            said = getattr(answer, "error", None) or (answer if isinstance(answer, str) else "")
            return failed(f"the server's answer has no choices {faults.brief(said, self._hide_key)}".rstrip())
        choice = choices[0]
        finish = getattr(choice, "finish_reason", None)
        if finish == "content_filter":
            return failed("the server withheld the answer (finish_reason content_filter)")
        message = getattr(choice, "message", None)
        if message is None and not isinstance(getattr(choice, "text", None), str):
            return failed("the server's answer has neither a message nor a text")
        # No content: a reasoning model that was cut before it began to answer. An empty answer, not a failure.
        text = (choice.text if message is None else getattr(message, "content", None)) or ""
        if not isinstance(text, str):
            return failed(f"the server's answer is no text but a {type(text).__name__}")
        if len(self._key) >= 16:  # a proxy may put its complaint into an answer; shorter keys may be words
            text = self._hide_key(text)
        reason = _FINISH.get(finish, "stop") if isinstance(finish, str) else "stop"
        return Completion(request.key, text, reason, **counts, seconds=seconds)

    def _where(self) -> str:
        return f"model {self._model} at {_shown(self._url)}"

    def _server_ended(self) -> str | None:
        server = self._server
        return None if server is None else server.ended()

    def _hide_key(self, text: str) -> str:
        return text if self._key in _PLACEHOLDERS else text.replace(self._key, "***")


def _drain(todo: Todo) -> int:
    """Take out what no worker has taken yet; how many these were."""
    count = 0
    with contextlib.suppress(queue.Empty):
        while True:
            todo.get_nowait()
            count += 1
    return count


def _count(usage: object, name: str) -> int | None:
    """A number of tokens out of a server's usage, or None for what is none."""
    value = usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _delay(attempt: int, error: Exception) -> float:
    """Seconds to wait after a failed try: what Retry-After says, else exponential with jitter."""
    asked = faults.retry_after(error)
    if asked is not None:
        return asked
    return min(FIRST_DELAY * 2.0 ** (attempt - 1), LONGEST_DELAY) * (1 - 0.25 * random.random())


def _shown(url: str) -> str:
    """An address for messages, without the password and the query that may be in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
