"""The transformers engine: causal language models of the transformers library, one request after another.

Texts equal those of the references' own loops (LV-Eval prediction.py, LongBench pred.py: tokenise, `generate` with
batch size 1 and do_sample=False, decode the new ids without special tokens) in float32. Batch size 1 is not laziness:
padding switches off the causal attention kernels and costs more than batches of long prompts bring.

Greedy requests to a model whose layers all have full attention are answered by a loop of our own (`decoding.py`), which
computes a prompt in chunks and a shared beginning once; sampled ones, and other models, by the library's `generate`.
Which of the two it is depends on the model and on whether the request samples, never on the prompts.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from longflow.engines import MERGE_TOKENS, MERGED_MOST, Completion, Generation, Request, attention
from longflow.engines.ahead import WINDOW_REQUESTS, Ahead, Waiting, as_ids
from longflow.engines.decoding import Decoder, Ids, heeds
from longflow.engines.kvcache import is_plain
from longflow.engines.together import Answering, Together
from longflow.engines.tokenizers import CHAT_DATE, HuggingFaceTokenizer, one_line
from longflow.errors import UserError, nearest
from longflow.models import merged_config, window_of

log = logging.getLogger(__name__)

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
"""Settings of a model's generation_config.json that only sampling heeds; set without sampling they give warnings."""

_LENGTH_DEPENDENT = ("dynamic", "longrope")
"""RoPE scalings under which a position is encoded otherwise in a longer text: chunks would change the text."""

_SMALLEST_CHUNK = 64
"""Where memory is short a prompt is tried again in chunks of a quarter, down to this many tokens."""

_OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "status_alloc_failed")
"""How torch words a RuntimeError for memory that it did not get, on the CPU and from CUDA's libraries."""


class TransformersEngine:
    """A causal language model of the transformers library, on the CPU or on one or several GPUs.

    Args:
        entry: the model's entry; the keys read are path, tokenizer, dtype, attention, gpu, threads, window,
            trust_remote_code, config_overrides, chat_date, prefill_chunk, share_prefixes, prompt_lookup, kv_offload,
            decode and merge_tokens (docs/engines.md describes them).
        location: the folder with the model's files. Nothing is fetched from anywhere.

    The model is loaded at the first request. Requests are answered in the order given, but those that share a beginning
    come together.
    """

    def __init__(self, entry: dict[str, Any], location: str | None) -> None:
        if location is None:
            raise UserError(f"model {entry.get('path')}: the transformers engine needs a folder with the model's files")
        self._entry = entry
        self._location = location
        self._name = str(entry.get("path") or location)
        self._tokenizer: HuggingFaceTokenizer | None = None
        self._model: Any = None
        self._window: int | None = None
        self._eos: frozenset[int] = frozenset()
        self._top_k: int | None = None
        self._decoder: Decoder | None = None
        self._merging = True
        """Whether the model can answer several prompts at a time; told by the first failure that is not of memory."""

    def tokenizer(self) -> HuggingFaceTokenizer:
        """The model's tokenizer (or the one that its entry names), without loading the model."""
        if self._tokenizer is None:
            self._tokenizer = HuggingFaceTokenizer.load(
                str(self._entry.get("tokenizer") or self._location),
                trust_remote_code=bool(self._entry.get("trust_remote_code", False)),
                local_files_only=True,
                chat_date=str(self._entry.get("chat_date") or CHAT_DATE),
            )
        return self._tokenizer

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Answer the requests one by one, or some side by side, in an order in which shared beginnings meet.

        A request that does not fit into the model's window or into memory, or that fails in another way, gives a
        completion with finish reason "error"; the others go on. Raises UserError if the model cannot be loaded or the
        GPU was lost. `requests` is read ahead in a thread, but never while the caller has a completion in its hands.
        """
        # Those to choose from have to be there before the first is taken where the choice may change a text.
        most = 2 * MERGED_MOST if self._entry.get("decode") == "merged" else WINDOW_REQUESTS
        with Ahead(requests, self._prepare, most) as ahead:
            if not ahead.start():
                return
            if self._model is None:
                self._load()
            together = self._together()
            for completion in self._side_by_side(ahead, together) if together else self._one_by_one(ahead):
                with ahead.caller():
                    yield completion

    def close(self) -> None:
        """Let the model go and give its memory back."""
        self._model = self._decoder = None
        _free_memory()

    def _prepare(self, request: Request) -> Waiting:
        """Tokenise a request. A prompt that cannot be tokenised fails by itself."""
        ids, reason = as_ids([]), None
        try:
            prompt = request.prompt
            if isinstance(prompt, str):
                ids = as_ids(self.tokenizer().encode(prompt, request.special_tokens))
            elif all(isinstance(part, int) for part in prompt):
                ids = as_ids([part for part in prompt if isinstance(part, int)])
            else:
                raise TypeError("the transformers engine takes a text or token ids, not a list of messages")
        except UserError:
            raise
        except Exception as error:
            reason = one_line(error)
        return Waiting(request.key, request.name, request.generation, ids, reason)

    def _shared(self, ids: Ids) -> int:
        """How much of a prompt is in the KV cache already."""
        return 0 if self._decoder is None else self._decoder.reusable(ids)

    def _together(self) -> Together[Waiting] | None:
        """What answers several prompts at a time, where that is asked for and the model does it."""
        if self._entry.get("decode") != "merged":
            return None
        config = self._model.config.get_text_config(decoder=True)
        if self._decoder is None or config._attn_implementation != attention.NAME or self._entry.get("kv_offload"):
            log.warning(
                "%s: decode: merged needs attention: sdpa, plain layers and no kv_offload; answers come singly",
                self._name,
            )
            return None
        room = int(self._entry.get("merge_tokens") or MERGE_TOKENS)
        return Together(self._model, room, MERGED_MOST, **self._loop_settings())

    def _one_by_one(self, ahead: Ahead) -> Iterator[Completion]:
        while (waiting := ahead.take(self._shared)) is not None:
            yield self._answer(waiting)

    def _side_by_side(self, ahead: Ahead, together: Together[Waiting]) -> Iterator[Completion]:
        """Answer several prompts at a time; which ones depends on the requests alone.

        What would fill more than half of `merge_tokens`, what is sampled and what is refused comes by itself.
        """

        def shared(ids: Ids) -> int:
            return max(self._shared(ids), together.reusable(ids))

        def following() -> Waiting | None:
            return ahead.take(shared, longest=True)

        while (waiting := (yield from self._or_finish(together, following))) is not None:
            generation = waiting.generation
            size = len(waiting.ids) + generation.max_new_tokens
            refused = waiting.error or self._refusal(len(waiting.ids), generation.max_new_tokens)
            alone = generation.temperature > 0 or 2 * size > together.room
            if refused or alone or not self._merging:
                yield from self._written(together, together.finish())  # frees their caches
                together.abandon()
                yield self._answer(waiting)
                continue
            if self._decoder is not None:
                self._decoder.forget()  # of what came by itself before
            ends = frozenset(self._ends(generation))
            done = together.add(waiting, waiting.ids, generation.max_new_tokens, ends, generation.min_new_tokens)
            yield from self._written(together, done, waiting)
        yield from self._written(together, together.finish())

    def _written(
        self, together: Together[Waiting], done: Iterator[Answering[Waiting]], new: Waiting | None = None
    ) -> Iterator[Completion]:
        """The completions of answers as they are done. Where a pass fails each of its prompts is answered by itself."""
        while True:
            lost = False
            try:
                each = next(done, None)
            except Exception as error:  # answered by itself, each prompt says what is wrong with it
                reason, lost = one_line(error), _is_gpu_lost(error)
                self._merging = _is_out_of_memory(error)  # a model that cannot do it will not later either
                break
            if each is None:
                return
            completion = self._completion(each.item, each.writing.answer, each.seconds)
            each = None  # its cache has to go before memory is looked for
            yield completion
        alone = together.abandon() + ([] if new is None else [new])
        log.warning("%d prompts could not be answered together (%s); they come singly", len(alone), reason)
        if not lost:
            _free_memory()
        yield from map(self._answer, alone)

    def _or_finish(
        self, together: Together[Waiting], following: Callable[[], Waiting | None]
    ) -> Generator[Completion, None, Waiting | None]:
        """What comes next. If taking it fails, what is on its way is answered before the failure goes on."""
        try:
            return following()
        except Exception:
            yield from self._written(together, together.finish())
            raise

    def _answer(self, waiting: Waiting) -> Completion:
        start = time.perf_counter()
        length, generation = len(waiting.ids), waiting.generation
        reason = waiting.error or self._refusal(length, generation.max_new_tokens)
        new_ids, note = None, None
        for chunk in self._chunks(waiting) if reason is None else ():
            reason, full = None, False
            try:
                new_ids = self._generate(waiting.ids, generation, chunk)
            except UserError:
                raise
            except Exception as error:
                full = _is_out_of_memory(error)
                if not full and _is_gpu_lost(error):
                    raise UserError(
                        f"request {waiting.name}: the GPU can be used no more ({one_line(error)}); run again, what was "
                        "answered is kept"
                    ) from error
                reason = one_line(error)
            if new_ids is not None:
                if chunk is not None:
                    note = f"memory was short: computed with prefill_chunk {chunk}"
                    log.warning("request %s: %s", waiting.name, note)
                break
            # Only here, with the exception and the tensors that its traceback held gone, can memory be given back.
            needs = self._needs(length + generation.max_new_tokens)
            if self._decoder is not None:
                self._decoder.forget()
            _free_memory()
            if not full:
                break
            reason = f"out of memory with a prompt of {length} tokens{needs} ({reason})"
        if new_ids is None:
            log.warning("request %s: %s", waiting.name, reason)
            length_known = None if waiting.error else length
            return Completion(waiting.key, "", "error", prompt_tokens=length_known, error=reason)
        return self._completion(waiting, new_ids, time.perf_counter() - start, note)

    def _completion(self, waiting: Waiting, new_ids: list[int], seconds: float, note: str | None = None) -> Completion:
        stopped = len(new_ids) < waiting.generation.max_new_tokens or new_ids[-1] in self._ends(waiting.generation)
        return Completion(
            waiting.key,
            self.tokenizer().decode(new_ids),
            "stop" if stopped else "length",
            prompt_tokens=len(waiting.ids),
            answer_tokens=len(new_ids),
            seconds=seconds,
            note=note,
        )

    def _chunks(self, waiting: Waiting) -> Iterator[int | None]:
        """The chunk sizes with which a prompt is tried while memory is short: the configured one (None), then less."""
        yield None
        if self._decoder is None or waiting.generation.temperature > 0:
            return
        size = min(int(self._entry.get("prefill_chunk") or 0) or len(waiting.ids), len(waiting.ids))
        while size > _SMALLEST_CHUNK:
            size = max(size // 4, _SMALLEST_CHUNK)
            yield size

    def _needs(self, tokens: int) -> str:
        """What the KV cache of so many tokens takes, for the message about memory; nothing where it is not known."""
        config = self._model.config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
        layers = getattr(config, "num_hidden_layers", None)
        if self._decoder is None or not heads or not layers:
            return ""
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        needed = 2 * layers * heads * size * self._model.dtype.itemsize * tokens
        return f": its KV cache alone takes {needed / 2**20:,.0f} MiB"

    def _ends(self, generation: Generation) -> set[int]:
        """The ids that end an answer: the model's own and, where asked, what the tokenizer makes of a line end.

        LongBench (pred.py at 2e00731f) takes the last id of the encoded line end for samsum.
        """
        ends = set(self._eos)
        if generation.stop_newline:
            ends.add(self.tokenizer().encode("\n", special_tokens=False)[-1])
        return ends

    def _refusal(self, length: int, max_new_tokens: int) -> str | None:
        """Why a prompt of this many tokens is not given to the model, which would babble or crash, or None."""
        if length == 0:
            return "the prompt has no tokens"
        if self._window is not None and length + max_new_tokens > self._window:
            return (
                f"prompt of {length} tokens + answer of up to {max_new_tokens} tokens exceeds the model's window of "
                f"{self._window} tokens"
            )
        return None

    @torch.inference_mode()
    def _generate(self, prompt_ids: Ids, generation: Generation, chunk: int | None) -> list[int]:
        """The ids that the model adds to a prompt: at most max_new_tokens, the last one an eos id if it stopped.

        `chunk` is a smaller chunk than the configured one, for the second try of a prompt for which memory was short.
        """
        if self._decoder is not None and generation.temperature == 0:
            ends = frozenset(self._ends(generation))
            return self._decoder.answer(
                prompt_ids, generation.max_new_tokens, ends, generation.min_new_tokens, chunk=chunk
            )
        settings: dict[str, Any] = {"max_new_tokens": generation.max_new_tokens, "do_sample": False}
        if generation.temperature > 0:
            settings |= {"do_sample": True, "temperature": generation.temperature, "top_p": generation.top_p}
            settings["top_k"] = self._top_k or 0  # 0 = off: the library's own default of 50 is nobody's choice
            if generation.seed is not None:
                torch.manual_seed(generation.seed)
        if generation.min_new_tokens:
            settings["min_new_tokens"] = generation.min_new_tokens
        if generation.stop_newline:
            settings["eos_token_id"] = sorted(self._ends(generation))
        input_ids = torch.from_numpy(prompt_ids).to(self._model.device, torch.long)[None]
        output = self._model.generate(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            return_dict_in_generate=False,
            **settings,
        )
        return [int(token) for token in output[0, len(prompt_ids) :].tolist()]

    def _load(self) -> None:
        import transformers
        from transformers.utils import logging as transformers_logging

        entry, start = self._entry, time.monotonic()
        device, device_map = _placement(int(entry.get("gpu") or 0))
        log.info("loading %s (%s, %s)", self._name, entry["dtype"], device)
        if entry.get("threads"):
            torch.set_num_threads(int(entry["threads"]))
        library: Any = transformers
        bars: Any = transformers_logging
        bars.disable_progress_bar()  # logs are made of lines
        self.tokenizer()
        config = self._config()
        self._check_adapter()
        try:
            model, report = library.AutoModelForCausalLM.from_pretrained(
                self._location,
                config=config,
                dtype=getattr(torch, str(entry["dtype"])),
                attn_implementation=entry["attention"],
                device_map=device_map,
                trust_remote_code=bool(entry.get("trust_remote_code", False)),
                local_files_only=True,
                output_loading_info=True,
            )
        except Exception as error:
            hint = ""
            if isinstance(error, ImportError) and "flash" in str(error).lower():
                hint = f"attention: {entry['attention']} is not installed here (attention: sdpa needs nothing): "
            raise self._unloadable(f"{hint}{one_line(error)}") from error
        missing = sorted(report["missing_keys"])
        if missing and not hasattr(config, "quantization_config"):  # quantised layers have parameters of their own
            raise self._unloadable(f"{len(missing)} of its weights are not in the files, first {missing[0]}")
        elsewhere = {str(place) for place in getattr(model, "hf_device_map", {}).values()} & {"cpu", "disk"}
        if device_map is not None and elsewhere:
            raise self._unloadable(f"it does not fit on {device}; give it more GPUs (gpu:) or a smaller dtype")
        self._take(model)
        log.info("loaded in %.1f s", time.monotonic() - start)

    def _take(self, model: Any) -> None:
        """Keep the model, its own generation settings made ready for greedy and for sampled requests."""
        own = model.generation_config
        eos = own.eos_token_id
        self._eos = frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])
        self._top_k = own.top_k
        for name in _SAMPLING:
            if hasattr(own, name):
                setattr(own, name, None)
        own.max_length = None  # max_new_tokens of the request decides
        self._model = model.eval()
        self._decoder = self._own_loop(model)

    def _own_loop(self, model: Any) -> Decoder | None:
        """The decoder for this model, or None if it has to be left to the library's `generate`.

        It is left to it if its code is its own, if a layer keeps anything but the keys and values of all tokens, if its
        positions depend on the length of the text, or if its generation config asks for more than is heeded here.
        """
        entry, config = self._entry, model.config.get_text_config(decoder=True)
        settings = {name: value for name, value in model.generation_config.to_diff_dict().items() if value is not None}
        scaling = getattr(config, "rope_parameters", None) or {}
        own = (
            type(model).__module__.startswith("transformers.models.")
            and is_plain(model.config)
            and heeds(settings)
            and not any(word in str(scaling) for word in _LENGTH_DEPENDENT)
            and {"cache", "logits_to_keep"} <= set(inspect.signature(model.forward).parameters)
        )
        if entry.get("kv_offload") and not (own and torch.cuda.is_available() and int(entry.get("gpu") or 0)):
            why = "needs a GPU (gpu: 1 or more)" if own else "is not there for models whose layers are not all plain"
            raise UserError(f"model {self._name}: kv_offload: true {why}; set kv_offload: false")
        if not own:
            log.info("%s is answered by the library's generate: no chunks, no shared prefixes", self._name)
            return None
        if entry["attention"] == "sdpa" and model._can_set_attn_implementation():
            attention.register()
            model.set_attn_implementation(attention.NAME)
        return Decoder(model, offload=bool(entry.get("kv_offload")), **self._loop_settings())

    def _loop_settings(self) -> dict[str, Any]:
        return {
            "chunk": int(self._entry.get("prefill_chunk") or 0),
            "lookup": int(self._entry.get("prompt_lookup") or 0),
            "penalty": float(self._model.generation_config.repetition_penalty or 1.0),
            "share": bool(self._entry.get("share_prefixes", True)),
        }

    def _config(self) -> Any:
        """The model's configuration with the entry's overrides; sets the window. Raises UserError."""
        from transformers import AutoConfig, PreTrainedConfig
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

        overrides = self._entry.get("config_overrides") or {}
        try:
            config = AutoConfig.from_pretrained(
                self._location,
                trust_remote_code=bool(self._entry.get("trust_remote_code", False)),
                local_files_only=True,
            )
            raw, _ = PreTrainedConfig.get_config_dict(self._location, local_files_only=True)
        except Exception as error:
            raise self._unloadable(one_line(error)) from error
        if "AutoModelForCausalLM" not in (raw.get("auto_map") or {}) and type(config) not in (
            MODEL_FOR_CAUSAL_LM_MAPPING
        ):
            kind = ", ".join(raw.get("architectures") or []) or raw.get("model_type")
            raise self._unloadable(f"it is no causal language model but {kind}")
        merged = merged_config(raw, overrides)
        self._window = self._entry.get("window") or window_of(merged)
        if not overrides:
            return config
        for key in overrides:
            if key not in raw and key not in ("rope_scaling", "rope_parameters") and not hasattr(config, key):
                raise UserError(
                    f"config_overrides of model {self._name}: its configuration has no key {key!r}; "
                    f"{nearest(key, [*raw, 'rope_parameters'])}"
                )
        try:
            return type(config).from_dict(merged)
        except Exception as error:
            raise UserError(f"config_overrides of model {self._name}: {one_line(error)}") from error

    def _check_adapter(self) -> None:
        """Refuse a model with an adapter where peft is missing: transformers would leave the adapter out silently."""
        if (Path(self._location) / "adapter_config.json").is_file() and importlib.util.find_spec("peft") is None:
            raise self._unloadable("it has an adapter (adapter_config.json), which needs the package peft")

    def _unloadable(self, reason: str) -> UserError:
        where = "" if self._name == self._location else f" from {self._location}"
        return UserError(f"model {self._name} cannot be loaded{where}: {reason}")


def _placement(gpus: int) -> tuple[str, Any]:
    """Where the model goes: words for the log, and transformers' device_map (None: the CPU)."""
    if gpus == 0:
        return "cpu", None
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < gpus:
        raise UserError(
            f"gpu: {gpus} asked for, but {found} visible to this process (CUDA_VISIBLE_DEVICES, nvidia-smi)"
        )
    if gpus == 1:
        return "cuda:0", {"": "cuda:0"}
    return f"{gpus} GPUs", "auto"


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def _is_gpu_lost(error: Exception) -> bool:
    """Whether CUDA reported an error after which this process can use the GPU no more (a failed assertion, say)."""
    lost: Any = getattr(torch, "AcceleratorError", ())
    return isinstance(error, lost)


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
