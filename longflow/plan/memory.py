"""How much memory a model needs for its longest prompt: the formula, in one place.

In values, times the bytes of the dtype, for a prompt of T tokens of which a chunk of c is computed at a time:

    weights      P                                   parameters: of the weight files' headers, else of config.json
    KV cache     layers x (key + value) x T          key = KV heads x head size; T with the answer, in steps of 256;
                                                     `decode: merged` holds those of `merge_tokens` beside it
    activations  (4 x intermediate + 3 x hidden) x c  what the layer being computed holds; in a process HEAP times that
    attention    query heads x c x T                 only where scores are written down (`attention: eager`); the sdpa
                                                     and flash kernels write none, and the engine builds no mask
    logits       vocabulary x (1 + prompt lookup)    of the last tokens only, and once more as float32
    rest                                             what is there without the model (REST_GPU, REST_CPU, TOKENIZER)

The activations' factor was measured on layers in the shape of Llama-3-8B (136 KiB a token in bfloat16; found were 130
to 151) and holds for SmolLM2 in float32. `perf/plan.py` holds the whole against a real process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longflow.engines import MERGED_MOST
from longflow.errors import UserError
from longflow.jsonio import read_json
from longflow.models import merged_config, weight_files

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
GIB, MIB = 2**30, 2**20

REST_GPU = GIB
"""Bytes on each device that are not the model's: the CUDA context, kernels, buffers of libraries."""

REST_CPU = 315 * MIB
"""Bytes of a process with Python, torch and transformers; measured with torch 2.13 for CPUs on Linux."""

TOKENIZER = 2400
"""Bytes for each entry of a tokenizer's vocabulary: SmolLM2's 49,152 take 111 MiB."""

HEAP = 2
"""Without GPUs activations take up to twice their size: the C library's heap keeps holes where they were, between the
KV buffers of layers. Found at 8k tokens at once: 1.9 times in all 30 layers of SmolLM2, 1.3 times in two of them, and
once with M_MMAP_THRESHOLD fixed at 4 MiB, which leaves no holes."""

KV_STEP = 256
"""The cache grows in steps of so many tokens (`engines/kvcache.py`)."""

OFFLOADED_LAYERS = 2
"""With `kv_offload` the device holds the cache of the layer being computed and of the next one."""

CHUNKS = (4096, 2048, 1024, 512, 256)
"""Chunk sizes that are proposed where the whole prompt at once does not fit."""


@dataclass(frozen=True)
class Shape:
    """What of a model decides its memory. Sizes are numbers of values, `layer_windows` tokens a layer keeps (0: all).

    `hidden_layers` is the length of `layer_windows`. `weights` are bytes in `dtype`.
    """

    weights: int
    hidden: int
    intermediate: int
    heads: int
    key: int
    value: int
    vocabulary: int
    layer_windows: tuple[int, ...]

    def kv(self, tokens: int, size: int) -> int:
        """Bytes of the KV cache of a prompt with its answer, for a dtype of `size` bytes."""
        held = -(-tokens // KV_STEP) * KV_STEP
        return sum(min(held, window) if window else held for window in self.layer_windows) * (
            (self.key + self.value) * size
        )


@dataclass(frozen=True)
class Need:
    """Bytes that a model needs for one prompt: on one device (or in the process, without GPUs), and in the host."""

    weights: int
    kv: int
    activations: int
    attention: int
    logits: int
    rest: int
    host: int = 0

    @property
    def total(self) -> int:
        """The peak on one device."""
        return self.weights + self.kv + self.activations + self.attention + self.logits + self.rest

    def to_json(self) -> dict[str, int]:
        """In MiB, with the total."""
        return {**{name: value // MIB for name, value in asdict(self).items()}, "total": self.total // MIB}

    def words(self) -> str:
        """The large parts, for people."""
        acting = self.activations + self.attention + self.logits
        parts = {"weights": self.weights, "KV cache": self.kv, "activations": acting, "rest": self.rest}
        return ", ".join(f"{name} {gigabytes(value)}" for name, value in parts.items())


@dataclass(frozen=True)
class Way:
    """How a model's entry has it computed."""

    dtype: str
    gpus: int
    chunk: int
    offload: bool
    eager: bool
    lookup: int
    merge: int = 0
    """Tokens of the prompts that are decoded side by side; 0: one by one."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Way:
        """The way of a model's entry, defaults filled in."""
        return cls(
            dtype=str(entry.get("dtype") or "float32"),
            gpus=int(entry.get("gpu") or 0),
            chunk=int(entry.get("prefill_chunk") or 0),
            offload=bool(entry.get("kv_offload")),
            eager=entry.get("attention") == "eager",
            lookup=int(entry.get("prompt_lookup") or 0),
            merge=int(entry.get("merge_tokens") or 0) if entry.get("decode") == "merged" else 0,
        )


def need(shape: Shape, way: Way, prompt: int, answer: int) -> Need:
    """What a prompt of `prompt` tokens with an answer of at most `answer` needs.

    Over several GPUs the layers are dealt out: weights and KV cache are divided, the share rounded up to a
    whole layer; what a layer holds while it is computed is not divided.
    """
    size = DTYPE_BYTES[way.dtype]
    chunk = min(way.chunk or prompt, prompt)
    layers, devices = len(shape.layer_windows), max(1, way.gpus)
    share = -(-layers // devices) / layers
    # What is decoded side by side has caches of its own; a prompt of more than half of that is answered by itself.
    beside = min(prompt + answer, way.merge // 2)
    kv = max(
        shape.kv(prompt + answer, size),
        shape.kv(beside, size) + shape.kv(min(way.merge, MERGED_MOST * beside), size),
    )
    offloaded = way.offload and way.gpus > 0
    return Need(
        weights=int(shape.weights * share),
        kv=kv * min(OFFLOADED_LAYERS, layers) // layers if offloaded else int(kv * share),
        activations=(4 * shape.intermediate + 3 * shape.hidden) * chunk * size * (1 if way.gpus else HEAP),
        attention=shape.heads * chunk * prompt * (2 * size + 4) if way.eager else 0,
        logits=shape.vocabulary * (1 + way.lookup) * (size + 4),
        rest=REST_GPU if way.gpus else REST_CPU + TOKENIZER * shape.vocabulary,
        host=kv if offloaded else 0,
    )


def gpus_needed(shape: Shape, way: Way, prompt: int, answer: int, device: int) -> int | None:
    """The smallest number of GPUs of `device` bytes that hold the prompt, None if no number up to a layer each does."""
    for count in range(1, len(shape.layer_windows) + 1):
        if need(shape, _with(way, gpus=count), prompt, answer).total <= device:
            return count
    return None


def remedies(shape: Shape, way: Way, prompt: int, answer: int, available: int) -> list[str]:
    """What would make a prompt fit that does not, one change at a time, as settings of the model's entry."""

    def fits(other: Way, tokens: int = prompt) -> bool:
        return need(shape, other, tokens, answer).total <= available

    found = []
    chunk = next((size for size in CHUNKS if size < (way.chunk or prompt) and fits(_with(way, chunk=size))), None)
    if chunk is not None:
        found.append(f"prefill_chunk: {chunk}")
    if way.gpus and (count := gpus_needed(shape, way, prompt, answer, available)) is not None:
        found.append(f"gpu: {count}")
    if way.merge and fits(_with(way, merge=0)):
        found.append("decode: single")
    if way.gpus and not way.offload and fits(_with(way, offload=True)):
        found.append("kv_offload: true")
    if way.dtype == "float32" and fits(_with(way, dtype="bfloat16"), prompt):
        found.append("dtype: bfloat16")
    most = _largest(lambda tokens: fits(way, tokens), prompt)
    if most:
        found.append(f"max_prompt_tokens: {most - most % 100 if most > 200 else most}")
    if not found and way.gpus:
        small = _with(way, chunk=CHUNKS[-1], offload=True)
        if (count := gpus_needed(shape, small, prompt, answer, available)) is not None:
            found.append(f"gpu: {count} with prefill_chunk: {CHUNKS[-1]} and kv_offload: true")
    return found


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, 0 if none does; what fits grows no smaller with it."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _with(way: Way, **changes: Any) -> Way:
    return Way(**{**asdict(way), **changes})


def gigabytes(value: int) -> str:
    """Bytes as GiB, for people."""
    return f"{value / GIB:,.1f} GiB"


# --- the shape of a model in a folder ---------------------------------------------------------------------------------


def shape_of(folder: str | Path, entry: Mapping[str, Any]) -> Shape:
    """The shape of the model in a folder, its entry's `config_overrides` and `dtype` heeded.

    Weights are counted by the headers of safetensors files, other files by their size (in config.json's dtype), and by
    the configuration where no weights are here yet. Raises UserError naming what config.json does not say.
    """
    path = Path(folder) / "config.json"
    config = read_json(path)
    if not isinstance(config, dict):
        raise UserError(f"{path}: a JSON object was expected")
    config = merged_config(config, dict(entry.get("config_overrides") or {}))
    size = DTYPE_BYTES[str(entry.get("dtype") or "float32")]
    shape = shape_of_config(config, str(path), size)
    try:
        files = weight_files(folder)
    except UserError:
        return shape
    if "quantization_config" in config:
        return _weighing(shape, sum(file.stat().st_size for file in files))
    if all(file.suffix == ".safetensors" for file in files):
        return _weighing(shape, parameters(files) * size)
    saved = DTYPE_BYTES.get(str(config.get("dtype") or config.get("torch_dtype")), 2)
    return _weighing(shape, sum(file.stat().st_size for file in files) // saved * size)


def parameters(files: Iterable[Path]) -> int:
    """The number of values in safetensors files, by their headers. Raises UserError for a torn file."""
    count = 0
    for file in files:
        try:
            with open(file, "rb") as stream:
                header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
            for name, tensor in header.items():
                if name != "__metadata__":
                    values = 1
                    for length in tensor["shape"]:
                        values *= int(length)
                    count += values
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, AttributeError, MemoryError) as error:
            raise UserError(f"{file}: torn or not a safetensors file; fetch it again") from error
    return count


def shape_of_config(config: Mapping[str, Any], where: str, size: int) -> Shape:
    """The shape that a config.json tells, weights by it too. Raises UserError naming `where` and what is missing."""
    for part in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(part), dict):
            config = {**config, **config[part]}

    def number(*names: str, default: int | None = None) -> int:
        for name in names:
            value = config.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        if default is None:
            raise UserError(f"{where}: says no {names[0]}, so that the model's memory cannot be told")
        return default

    layers = number("num_hidden_layers", "num_layers", "n_layer")
    hidden = number("hidden_size", "n_embd")
    heads = number("num_attention_heads", "n_head")
    head = number("head_dim", "kv_channels", default=hidden // heads)
    # ChatGLM's own names: groups of queries share keys only if multi_query_attention says so.
    groups = number("multi_query_group_num", default=heads) if config.get("multi_query_attention") else heads
    kv_heads = number("num_key_value_heads", default=groups)
    key = value = kv_heads * head
    if "kv_lora_rank" in config:  # compressed for computing only: transformers keeps whole keys and values
        key = heads * (number("qk_nope_head_dim") + number("qk_rope_head_dim"))
        value = heads * number("v_head_dim")
    inner = number("intermediate_size", "ffn_hidden_size", "n_inner", default=4 * hidden)
    vocabulary = number("vocab_size", "padded_vocab_size")
    experts = number("num_local_experts", "num_experts", "n_routed_experts", default=0)
    inner_expert = number("moe_intermediate_size", default=inner)
    active = inner_expert * number("num_experts_per_tok", default=1) if experts else 0
    kinds = config.get("layer_types")
    window = number("sliding_window", default=0)
    if not isinstance(kinds, list) or len(kinds) != layers:
        kinds = ["full_attention"] * layers
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    attention = hidden * (heads * head * 2 + key + value)
    feed_forward = 3 * hidden * (inner_expert * experts if experts else inner)
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return Shape(
        weights=(layers * (attention + feed_forward) + embeddings) * size,
        hidden=hidden,
        intermediate=max(inner, active),
        heads=heads,
        key=key,
        value=value,
        vocabulary=vocabulary,
        layer_windows=windows,
    )


def _weighing(shape: Shape, weights: int) -> Shape:
    return Shape(**{**asdict(shape), "weights": weights, "layer_windows": shape.layer_windows})
