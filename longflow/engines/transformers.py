"""The transformers engine: `generate` of the transformers library, one request after another.

Texts equal those of the references' own loops (LV-Eval prediction.py, LongBench pred.py: tokenise, `generate` with
batch size 1 and do_sample=False, decode the new ids without special tokens) in float32. Batch size 1 is not laziness:
padding switches off the causal attention kernels and costs more than batches of long prompts bring.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from longflow.engines import Completion, Generation, Request
from longflow.engines.tokenizers import CHAT_DATE, HuggingFaceTokenizer, one_line
from longflow.errors import UserError, nearest
from longflow.models import merged_config, window_of

log = logging.getLogger(__name__)

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
"""Settings of a model's generation_config.json that only sampling heeds; set without sampling they give warnings."""

_OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "status_alloc_failed")
"""How torch words a RuntimeError for memory that it did not get, on the CPU and from CUDA's libraries."""


class TransformersEngine:
    """A causal language model of the transformers library, on the CPU or on one or several GPUs.

    Args:
        entry: the model's entry; the keys read are path, tokenizer, dtype, attention, gpu, threads, window,
            trust_remote_code, config_overrides and chat_date (docs/engines.md describes them).
        location: the folder with the model's files. Nothing is fetched from anywhere.

    The model is loaded at the first request. Requests are answered in the order given.
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
        """Answer the requests one by one.

        A request that does not fit into the model's window or into memory, or that fails in another way, gives a
        completion with finish reason "error"; the others go on. Raises UserError if the model cannot be loaded or the
        GPU was lost.
        """
        for request in requests:
            if self._model is None:
                self._load()
            yield self._answer(request)

    def close(self) -> None:
        """Let the model go and give its memory back."""
        self._model = None
        _free_memory()

    def _answer(self, request: Request) -> Completion:
        start = time.perf_counter()
        length = None
        try:
            if not isinstance(request.prompt, str):
                raise TypeError("the transformers engine takes a text, not a list of messages")
            prompt_ids = self.tokenizer().encode(request.prompt, request.special_tokens)
            length = len(prompt_ids)
            reason = self._refusal(length, request.generation.max_new_tokens)
            if reason is None:
                new_ids = self._generate(prompt_ids, request.generation)
                text = self.tokenizer().decode(new_ids)
        except UserError:
            raise
        except Exception as error:
            full = _is_out_of_memory(error)
            if not full and _is_gpu_lost(error):
                raise UserError(
                    f"request {request.name}: the GPU can be used no more ({one_line(error)}); run again, what was "
                    "answered is kept"
                ) from error
            reason = f"out of memory with a prompt of {length} tokens ({one_line(error)})" if full else one_line(error)
        if reason is not None:
            # Only here, with the exception and the tensors that its traceback held gone, can memory be given back.
            _free_memory()
            log.warning("request %s: %s", request.name, reason)
            return Completion(request.key, "", "error", prompt_tokens=length, error=reason)
        ends = self._ends(request.generation)
        stopped = len(new_ids) < request.generation.max_new_tokens or new_ids[-1] in ends
        return Completion(
            request.key,
            text,
            "stop" if stopped else "length",
            prompt_tokens=length,
            answer_tokens=len(new_ids),
            seconds=time.perf_counter() - start,
        )

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
    def _generate(self, prompt_ids: list[int], generation: Generation) -> list[int]:
        """The ids that the model adds to a prompt: at most max_new_tokens, the last one an eos id if it stopped."""
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
        input_ids = torch.tensor([prompt_ids], dtype=torch.long, device=self._model.device)
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
