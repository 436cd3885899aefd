"""What the errors of an OpenAI-compatible server mean: what may pass, what will not, what is about one prompt only."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import openai

LONGEST_RETRY_AFTER = 600.0
"""Seconds that a server may ask for; one that asks for more has no room for this run, which ends."""

Hide = Callable[[str], str]
"""Takes the API key out of a text. Always before the text is cut: half a key is one too."""

# The words of OpenAI, Azure, vLLM, SGLang, llama.cpp, TGI, Mistral, Groq, Gemini and Anthropic for a prompt that does
# not fit, or for a prompt and an answer that together do not.
_LENGTH = re.compile(
    r"context.{0,3}(length|window|size)|maximum (model|context|prompt|sequence) len|request too large"
    r"|(prompt|input|inputs|messages?|string|payload|content)\b.{0,80}\btoo (long|large)"
    r"|too many (input |prompt )?tokens"
    r"|\btokens?\b.{0,80}(exceed|maximum|longer than|limit|<=|>)"
    r"|(exceed|maximum|longer than|reduce).{0,80}\b(tokens?|length)\b"
)
_LENGTH_CODES = ("context_length_exceeded", "string_above_max_length")

LIMIT_FIELDS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The two names of the limit of an answer, each with the other."""
_NOT_KNOWN = re.compile(
    r"unsupported|not supported|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|invalid p"
)


def brief(body: object, hide: Hide) -> str:
    """The server's words out of an error body: its message if it has one, on one line, cut after 300 characters."""
    text = " ".join(hide(_message(body)).split())
    return text if len(text) <= 300 else text[:297] + "..."


def _message(body: object) -> str:
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or inner
        body = inner
    return body if isinstance(body, str) else str(body)


def words(error: Exception, hide: Hide) -> str:
    """What went wrong on one line: status and the server's own words, without the key."""
    if isinstance(error, openai.APIStatusError):
        status = f"HTTP {error.status_code}: {brief(error.body or error.message, hide)}"
        return f"refused because of length: {status}" if is_about_length(error) else status
    if isinstance(error, openai.APIConnectionError) and (cause := error.__cause__) is not None:
        return f"{error.message.rstrip('.')} ({_named(cause, hide)})"
    return _named(error, hide)


def _named(error: BaseException, hide: Hide) -> str:
    """Class and message of an exception on one line."""
    text = brief(str(error), hide)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_about_length(error: Exception, model: str = "") -> bool:
    """Whether a server refuses one prompt because it, or it with its answer, is too long.

    `model` is not looked for words in: a model may be called long-context.
    """
    if not isinstance(error, openai.APIStatusError) or error.status_code not in (400, 413, 422, 429, 500):
        return False
    if error.code in _LENGTH_CODES or error.status_code == 413:
        return True
    said = re.sub(_name(model), "", _said(error)) if model else _said(error)
    if error.status_code == 429:  # more tokens in one request than a minute allows: waiting does not help
        return "request too large" in said
    if error.status_code == 500:  # older servers let it come to this
        return "context" in said and _LENGTH.search(said) is not None
    return _LENGTH.search(said) is not None


def wants_other_limit_field(error: Exception, used: str) -> bool:
    """Whether a server refuses a request because the limit of the answer goes by its other name there."""
    if not isinstance(error, openai.APIStatusError) or error.status_code not in (400, 422) or is_about_length(error):
        return False
    said = _said(error)
    return used in said and (LIMIT_FIELDS[used] in said or _NOT_KNOWN.search(said) is not None)


def is_fatal(error: Exception, model: str) -> bool:
    """Whether every further request would fail in the same way."""
    if not isinstance(error, openai.APIStatusError):
        return False
    said = _said(error)
    if error.status_code in (401, 404):
        return True
    if error.status_code == 403:  # some providers answer 403 to a single prompt that they find unfit
        return "moderation" not in said and "flagged" not in said
    if error.status_code == 429 and (error.code == "insufficient_quota" or "insufficient_quota" in said):
        return True
    if error.status_code in (429, 503) and (retry_after(error) or 0.0) > LONGEST_RETRY_AFTER:
        return True
    if error.status_code in (400, 422):  # servers that answer 400 for a model that they do not have name it
        named = re.search(_name(model), said) is not None
        return error.code == "model_not_found" or (named and not is_about_length(error, model))
    return False


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, openai.APIStatusError):
        passing = error.status_code in (408, 409, 425, 429) or error.status_code >= 500
        return passing and not is_about_length(error)
    # No answer, half an answer, or one that is not JSON.
    return isinstance(error, openai.APIConnectionError | openai.APIResponseValidationError | json.JSONDecodeError)


def nobody_listens(error: Exception) -> bool:
    """Whether no connection came about: refused, no such host, or no reply to the attempt."""
    names = ("ConnectError", "ConnectTimeout", "UnsupportedProtocol")
    return isinstance(error, openai.APIConnectionError) and type(error.__cause__).__name__ in names


def retry_after(error: Exception) -> float | None:
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


def _said(error: openai.APIStatusError) -> str:
    """The server's words in lower case."""
    return _message(error.body or error.message).lower()


def _name(model: str) -> str:
    """A pattern of a model's name, which in "too small" is no name."""
    return rf"(?<![\w.-]){re.escape(model.lower())}(?![\w-])"
