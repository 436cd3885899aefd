"""The models: files, tokenizers, prompts, windows, servers."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shlex
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from longflow import models
from longflow.config import Config
from longflow.doctor.check import Check, Checks, size_words
from longflow.engines import Tokenizer, engine_class, load_engine
from longflow.errors import UserError
from longflow.plan.found import Found, find, tokenizer_folder
from longflow.prompts import wrap
from longflow.settings import longest_call

SERVER_TIMEOUT = 10.0
"""Seconds for a server to tell which models it has."""


def model(config: Config, name: str) -> Checks:
    """The files, tokenizer, prompts and server of a model."""
    entry, key = config.runnable(name).entry(), f"models.{name}"
    try:
        found = find(config, name)
        yield from files_of(key, entry, found)
    except UserError as error:
        yield Check("problem", f"{key}: files", str(error))
        return
    if entry["engine"] == "openai":
        yield from server(key, entry)
    yield from prompts_of(config, name, found)


def files_of(key: str, entry: dict[str, Any], found: Found) -> Checks:
    """Whether a model's files are here, whole and readable."""
    what = f"{key}: files"
    if entry["engine"] == "openai":
        return
    if ":" in entry["engine"]:
        engine_class(entry["engine"])  # raises for one that cannot be imported
    if found.folder is None:
        if entry.get("path") or entry["engine"] == "transformers":
            yield Check("cannot be told", what, f"{found.why}; where there is network: snakemake download")
        return
    if ":" in entry["engine"]:
        yield Check("ok", what, f"{found.folder} is there; what it has to hold only {entry['engine']} knows")
        return
    models.folder_digest(found.folder)  # reads what is loaded later: headers, sizes, and samples of every tensor
    weights = models.weight_files(found.folder)
    size = sum(file.stat().st_size for file in weights)
    yield Check("ok", what, f"{found.folder}: {len(weights)} files of weights, {size_words(size)}")
    if (Path(found.folder) / "adapter_config.json").is_file() and importlib.util.find_spec("peft") is None:
        yield Check("problem", what, "it has an adapter, which needs the package peft; install it")
    flash = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}.get(entry["attention"])
    if flash is not None and importlib.util.find_spec(flash) is None:
        yield Check(
            "problem",
            f"{key}.attention",
            f"{entry['attention']} is not installed here; install it, or choose attention: sdpa",
        )


def prompts_of(config: Config, name: str, found: Found) -> Checks:
    """Whether prompts can be wrapped, begin with one BOS, and fit into the window with their answers."""
    entry, key = config.runnable(name).entry(), f"models.{name}"
    what = f"{key}.chat"
    chat, sent = str(entry["chat"]), "a prompt"
    own_class = ":" in entry["engine"]
    messages = entry.get("api") == "chat" and not own_class
    try:
        tokenizer = load_engine(entry["engine"], entry, found.folder).tokenizer() if own_class else _here(entry, found)
        if tokenizer is None:
            without = own_class or (entry["engine"] == "openai" and not entry.get("tokenizer"))
            yield Check(
                "cannot be told",
                what,
                "there is no tokenizer, so prompts are sent whole and not counted here"
                if without
                else "the tokenizer is not here yet",
            )
            return
        if messages:
            yield Check("ok", what, "the server wraps prompts itself")
            around = 0
        else:
            wrapped = wrap("", chat, tokenizer, entry["chat_options"], messages=False)
            around = wrapped.tokens(tokenizer) or 0
            ids = wrap(sent, chat, tokenizer, entry["chat_options"], messages=False)
            yield _beginning(what, chat, tokenizer, ids.prompt, ids.special_tokens)
    except UserError as error:
        yield Check("problem", what, str(error))
        return
    yield from _window(config, name, found, around)


def _here(entry: dict[str, Any], found: Found) -> Tokenizer | None:
    """The tokenizer of a model, if its files are here. Raises UserError if they are, and cannot be loaded."""
    from longflow.engines.tokenizers import HuggingFaceTokenizer

    folder = tokenizer_folder(entry, found)
    if folder is None:
        return None
    return HuggingFaceTokenizer.load(
        folder,
        trust_remote_code=bool(entry.get("trust_remote_code")),
        local_files_only=True,
        chat_date=str(entry["chat_date"]),
    )


def _beginning(what: str, chat: str, tokenizer: Any, prompt: Any, special_tokens: bool) -> Check:
    """Whether a prompt begins with the tokenizer's BOS twice: once as text, and once more as it is tokenised."""
    ids = tokenizer.encode(prompt, special_tokens) if isinstance(prompt, str) else list(prompt)
    inner = getattr(tokenizer, "inner", None)  # a tokenizer of one's own does not tell its BOS
    bos = getattr(inner, "bos_token_id", None)
    if inner is None:
        return Check("ok", what, f"{chat.splitlines()[0][:40]}; the engine's own tokenizer wraps a prompt")
    if bos is None or ids[:2] != [bos, bos]:
        return Check(
            "ok", what, f"{chat.splitlines()[0][:40]}; prompts begin with {'one' if ids[:1] == [bos] else 'no'} BOS"
        )
    if chat.startswith("reference:"):
        return Check("ok", what, f"{chat}; prompts begin with two BOS, as the reference's do")
    return Check(
        "problem",
        what,
        f"prompts begin with two BOS: {inner.bos_token!r} stands in the text and the tokenizer adds one; "
        "leave it out of the text",
    )


def _window(config: Config, name: str, found: Found, around: int) -> Checks:
    """Whether prompt limit, chat wrapper, answer and reasoning fit into the window, benchmark by benchmark."""
    entry = config.runnable(name)
    window = entry.window or (found.model or {}).get("window")
    if window is None and found.folder is not None and (Path(found.folder) / "config.json").is_file():
        window = models.window(found.folder, getattr(entry, "config_overrides", {}))
    for benchmark in config.run.benchmarks:
        what = f"models.{name}: window for {benchmark}"
        limits = [config.prompt_limit(name, benchmark, setting)[0] for setting in config.run.settings]
        answer = max(config.max_new_tokens(benchmark, dataset) for dataset in config.datasets(benchmark))
        thoughts = entry.reasoning.max_tokens if entry.reasoning else 0
        if window is None or limits[0] is None:
            yield Check("cannot be told", what, "the window is not known, or prompts are sent whole")
            continue
        calls = [max(answer, longest_call(config.settings.get(setting))) for setting in config.run.settings]
        most = max((limit or 0) + call for limit, call in zip(limits, calls, strict=True))
        limit = max(limit or 0 for limit in limits)
        total = most + around + thoughts
        parts = f"{limit} of prompt, {around} of wrapper, {answer} of answer" + (
            f", {thoughts} of reasoning" if thoughts else ""
        )
        if total > window:
            yield Check(
                "problem",
                what,
                f"{parts} exceed {window} tokens; set max_prompt_tokens to {limit - (total - window)} or less",
            )
        else:
            yield Check("ok", what, f"{parts} fit into {window} tokens")


def server(key: str, entry: dict[str, Any]) -> Checks:
    """The API key, and whether the server answers and has the model."""
    variable = str(entry["api_key_env"])
    secret = os.environ.get(variable, "").strip()
    if secret or entry.get("base_url") or entry.get("serve"):
        said = "is set" if secret else "is not set, which one's own server may not mind"
        yield Check("ok", f"{key}.api_key_env", f"{variable} {said}")
    else:
        yield Check("problem", f"{key}.api_key_env", f"{variable} is not set; export it with the API key")
        return
    if entry.get("serve"):
        yield _program(f"{key}.serve", str(entry["serve"]))
        return
    url = str(entry.get("base_url") or "https://api.openai.com/v1").rstrip("/")
    yield _ask(f"{key}: server", url, secret, str(entry["model"]))


def _program(key: str, command: str) -> Check:
    """Whether the program that a shell command begins with is here, as far as that is told without a shell."""
    try:
        words = shlex.split(command.replace("{port}", "0"))
    except ValueError as error:
        return Check("problem", key, f"{command!r} is no command for a shell ({error}); mend its quotes")
    words = list(itertools.dropwhile(lambda word: "=" in word, words))  # NAME=value before it
    if not words or words[0] in ("cd", "exec", "export", "source", ".") or set("();&|") & set(words[0]):
        return Check("cannot be told", key, "what the shell makes of it is seen when the server starts")
    if shutil.which(words[0]) is None:
        return Check("problem", key, f"there is no program {words[0]!r} here; install it or mend PATH")
    return Check("ok", key, f"{words[0]} is here; the server starts with the job")


def _ask(what: str, url: str, secret: str, model: str) -> Check:
    """Ask a server which models it has."""
    shown = urlsplit(url)
    place = f"{shown.hostname}:{shown.port}" if shown.port else str(shown.hostname)
    try:
        request = urllib.request.Request(f"{url}/models", headers={"Authorization": f"Bearer {secret or 'none'}"})
        # A proxy is right for the world and wrong for a server on this machine.
        handlers = [urllib.request.ProxyHandler({})] if shown.hostname in ("127.0.0.1", "localhost", "::1") else []
        with urllib.request.build_opener(*handlers).open(request, timeout=SERVER_TIMEOUT) as answer:
            listed = [str(each.get("id")) for each in json.loads(answer.read())["data"] if isinstance(each, dict)]
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return Check("problem", what, f"{place} refuses the key (HTTP {error.code}); set the right one")
        return Check("cannot be told", what, f"{place} answers, but does not tell its models (HTTP {error.code})")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, ValueError) and not isinstance(error, OSError):
            return Check("cannot be told", what, f"{place}: what it answers is not a list of models ({reason})")
        return Check("problem", what, f"{place} does not answer ({reason}); start the server, or mend base_url")
    except (KeyError, TypeError, AttributeError):
        return Check("cannot be told", what, f"{place} answers, but not with a list of models")
    if model in listed:
        return Check("ok", what, f"{place} has {model}")
    if not listed:
        return Check("cannot be told", what, f"{place} answers, but lists no models")
    return Check("problem", what, f"{place} has no {model}; it has {', '.join(listed[:5])}: mend model:")
