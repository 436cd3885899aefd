"""The openai engine: any server that speaks OpenAI's protocol, hosted or one's own, through the real client.

Requests run side by side up to `api_calls`. What may pass by waiting is tried again; what will not is one failed
request, or the end of the run where every further request would meet the same.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Iterable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import openai

from longflow.engines import Completion, Request, Tokenizer
from longflow.engines.tokenizers import CHAT_DATE, load_tokenizer, one_line
from longflow.errors import UserError

log = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
FIRST_DELAY = 0.5
"""Seconds before the first retry; doubled with each further one, less up to a quarter by chance."""
LONGEST_DELAY = 60.0
"""Seconds between two tries at most, unless the server asks for more with Retry-After."""
LONGEST_RETRY_AFTER = 600.0
"""Seconds that a server may ask for; one that asks for more has no room for this run, which ends."""

_FINISH = {"length": "length", "max_tokens": "length", "model_length": "length"}
"""Finish reasons that mean "cut at the limit"; every other one (stop, eos, end_turn, none at all) is "stop"."""


class OpenAIEngine:
    """A model behind an OpenAI-compatible server.

    Args:
        entry: the model's entry; the keys read are base_url, model, api, api_calls, api_key_env, timeout, max_retries,
            tokenizer, extra_body, max_tokens_field and chat_date (docs/engines.md describes them).
        location: not used; the model's files are the server's.
    """

    def __init__(self, entry: dict[str, Any], location: str | None) -> None:
        self._entry = entry
        self._url = str(entry.get("base_url") or OPENAI_URL)
        if not self._url.startswith(("http://", "https://")):
            raise UserError(f"model {entry['model']}: base_url {self._url!r} must begin with http:// or https://")
        self._key = self._api_key()
        self._client: openai.OpenAI | None = None
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

        Raises UserError if the run cannot go on: no server there, the key refused, the model or address not known,
        the quota used up. What other requests in flight still bring is yielded before.
        """
        workers = max(1, int(self._entry.get("api_calls") or 1))
        todo: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[Completion | BaseException] = queue.SimpleQueue()
        self._stop.clear()
        self._client = self._make_client()
        for number in range(workers):
            # Daemons, unlike the threads of concurrent.futures: an interrupted run does not wait for a server that
            # hangs.
            threading.Thread(target=self._work, args=(todo, done), name=f"openai-{number}", daemon=True).start()
        waiting = iter(requests)
        pending = 0
        fatal: BaseException | None = None
        try:
            while True:
                # Twice as many as run at once: a worker that is done finds the next one rendered. Not all of them:
                # prompts are long and there are thousands.
                while fatal is None and pending < 2 * workers and (request := next(waiting, None)) is not None:
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
                    self._stop.set()  # what is in flight may end, but nothing is tried again
                    pending -= _drain(todo)
            if fatal is not None:
                raise fatal
        finally:
            self._stop.set()
            _drain(todo)
            for _ in range(workers):
                todo.put(None)
            if pending == 0:
                self.close()

    def _work(
        self, todo: queue.SimpleQueue[Request | None], done: queue.SimpleQueue[Completion | BaseException]
    ) -> None:
        while (request := todo.get()) is not None:
            try:
                done.put(self._answer(request))
            except BaseException as error:
                done.put(error)

    def close(self) -> None:
        """Close the connections."""
        self._stop.set()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _api_key(self) -> str:
        name = str(self._entry.get("api_key_env") or "OPENAI_API_KEY")
        key = os.environ.get(name)
        if key:
            return key
        if self._entry.get("base_url"):
            return "none"  # one's own server asks for none, and the client wants some
        raise UserError(f"model {self._entry['model']}: the environment variable {name} with the API key is not set")

    def _make_client(self) -> openai.OpenAI:
        seconds = float(self._entry.get("timeout") or 600)
        timeout = openai.Timeout(seconds, connect=min(seconds, 30.0))
        # A proxy that the environment names is right for the world and wrong for a server on this machine.
        http_client = openai.DefaultHttpxClient(trust_env=False, timeout=timeout) if _is_here(self._url) else None
        # The client's own retries are off: it cannot tell a used-up quota from a busy server, and reports nothing.
        return openai.OpenAI(
            api_key=self._key, base_url=self._url, timeout=timeout, max_retries=0, http_client=http_client
        )

    def _answer(self, request: Request) -> Completion:
        """One request with its retries. Raises UserError where no further request can succeed."""
        start = time.perf_counter()
        tries = int(self._entry.get("max_retries") or 0) + 1
        for attempt in range(1, tries + 1):
            try:
                return self._completion(request, self._send(request), time.perf_counter() - start)
            except UserError:
                raise
            except Exception as error:
                reason = self._words(error)
                if self._is_fatal(error):
                    raise UserError(f"model {self._entry['model']} at {self._url}: {reason}") from error
                again = attempt < tries and _is_transient(error)
                if not again or self._stop.is_set():
                    if isinstance(error, openai.APIConnectionError) and _nobody_listens(error):
                        raise UserError(
                            f"model {self._entry['model']}: no server answers at {self._url} after {attempt} tries "
                            f"({reason}); is it running?"
                        ) from error
                    break
                delay = _delay(attempt, error)
                log.warning("request %s: %s; trying again in %.1f s", request.name, reason, delay)
                if self._stop.wait(delay):
                    break
        log.warning("request %s failed: %s", request.name, reason)
        return Completion(request.key, "", "error", error=reason)

    def _send(self, request: Request) -> Any:
        assert self._client is not None
        generation = request.generation
        body: dict[str, Any] = {
            "model": self._entry["model"],
            str(self._entry.get("max_tokens_field") or "max_tokens"): generation.max_new_tokens,
            "temperature": generation.temperature,
        }
        if generation.temperature > 0:
            body["top_p"] = generation.top_p
        if generation.seed is not None:
            body["seed"] = generation.seed
        if generation.stop_newline:
            body["stop"] = ["\n"]
        extra = dict(self._entry.get("extra_body") or {})
        for key in [key for key, value in extra.items() if value is None]:  # null takes a field out
            body.pop(key, None)
            del extra[key]
        # A text is sent to be continued even by a model that chats: a benchmark may say that a prompt is not wrapped.
        if not isinstance(request.prompt, str):
            if self._entry.get("api", "chat") != "chat":
                raise UserError(f"model {self._entry['model']}: api: completions takes texts, not messages (api: chat)")
            messages = request.prompt
            return self._client.chat.completions.create(messages=messages, extra_body=extra, **body)  # type: ignore[arg-type]
        body.setdefault("max_tokens", generation.max_new_tokens)
        body.pop("max_completion_tokens", None)  # only chats have that name for it
        return self._client.completions.create(prompt=request.prompt, extra_body=extra, **body)

    def _completion(self, request: Request, answer: Any, seconds: float) -> Completion:
        usage = getattr(answer, "usage", None)
        counts = {
            "prompt_tokens": getattr(usage, "prompt_tokens", None),
            "answer_tokens": getattr(usage, "completion_tokens", None),
        }
        choices = getattr(answer, "choices", None)
        if not choices:
            said = getattr(answer, "error", None) or (answer if isinstance(answer, str) else "")
            words = f"the server's answer has no choices {self._hide_key(_brief(said))}".rstrip()
            return Completion(request.key, "", "error", error=words, **counts)
        choice = choices[0]
        if choice.finish_reason == "content_filter":
            words = "the server withheld the answer (finish_reason content_filter)"
            return Completion(request.key, "", "error", error=words, **counts)
        message = getattr(choice, "message", None)
        # No content: a reasoning model that was cut before it began to answer. An empty answer, not a failure.
        text = (getattr(choice, "text", None) if message is None else message.content) or ""
        return Completion(request.key, text, _FINISH.get(choice.finish_reason, "stop"), **counts, seconds=seconds)

    def _words(self, error: Exception) -> str:
        """What went wrong on one line: status and the server's own words, without the key."""
        if isinstance(error, openai.APIStatusError):
            return self._hide_key(f"HTTP {error.status_code}: {_brief(error.body or error.message)}")
        if isinstance(error, openai.APIConnectionError) and error.__cause__ is not None:
            return self._hide_key(f"{error.message.rstrip('.')} ({one_line(error.__cause__)})")
        return self._hide_key(one_line(error))

    def _hide_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key != "none" else text

    def _is_fatal(self, error: Exception) -> bool:
        """Whether every further request would fail in the same way."""
        if not isinstance(error, openai.APIStatusError):
            return False
        words = _brief(error.body or error.message).lower()
        if error.status_code in (401, 404):
            return True
        if error.status_code == 403:  # some providers answer 403 to a single prompt that they find unfit
            return "moderation" not in words and "flagged" not in words
        if error.status_code == 429 and (error.code == "insufficient_quota" or "insufficient_quota" in words):
            return True
        if error.status_code in (429, 503) and (_retry_after(error) or 0.0) > LONGEST_RETRY_AFTER:
            return True
        if error.status_code in (400, 422):  # servers that answer 400 for a model that they do not have name it
            about_length = any(word in words for word in ("context", "length", "too long", "tokens"))
            return error.code == "model_not_found" or (str(self._entry["model"]).lower() in words and not about_length)
        return False


def _drain(todo: queue.SimpleQueue[Request | None]) -> int:
    """Take out what no worker has taken yet; how many these were."""
    count = 0
    with contextlib.suppress(queue.Empty):
        while True:
            todo.get_nowait()
            count += 1
    return count


def _is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 425, 429) or error.status_code >= 500
    # No answer, half an answer, or one that is not JSON.
    return isinstance(error, openai.APIConnectionError | openai.APIResponseValidationError | json.JSONDecodeError)


def _nobody_listens(error: openai.APIConnectionError) -> bool:
    """Whether no connection came about: refused, no such host, or no reply to the attempt."""
    return type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout", "UnsupportedProtocol")


def _delay(attempt: int, error: Exception) -> float:
    """Seconds to wait after a failed try: what Retry-After says, else exponential with jitter."""
    asked = _retry_after(error)
    if asked is not None:
        return asked
    return min(FIRST_DELAY * 2.0 ** (attempt - 1), LONGEST_DELAY) * (1 - 0.25 * random.random())


def _retry_after(error: Exception) -> float | None:
    """Seconds that the server asks to wait (its header gives seconds or a date), or None."""
    value = error.response.headers.get("retry-after") if isinstance(error, openai.APIStatusError) else None
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None


def _brief(body: object) -> str:
    """The server's words out of an error body: its message if it has one, on one line, cut after 300 characters."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or inner
        body = inner
    text = " ".join((body if isinstance(body, str) else str(body)).split())
    return text if len(text) <= 300 else text[:297] + "..."


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
