"""Retrieval: the splitter, BM25, embeddings, and the contexts made of what was found."""

import itertools
import json
import math
import os
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from conftest import ROOT
from helpers_hub import FakeHub
from helpers_models import make_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from longflow.engines.tokenizers import HuggingFaceTokenizer
from longflow.errors import UserError
from longflow.records import Record
from longflow.retrieval import RagOptions, moved_spans, rank, retrieve, scores
from longflow.retrieval.chunks import places, sentences, token_windows, words

GOLDEN = json.loads((Path(__file__).parent / "data/golden_vectors.json").read_text(encoding="utf-8"))["splitter"]

# Texts in which everything that the splitter knows comes up often.
TEXTS = st.text(alphabet="ab X1_.。!？；;\n \t中文，é", max_size=60)


def options(retriever="bm25_words", **more):
    return RagOptions(kind="rag", retriever=retriever, **more)


# The splitter


@pytest.mark.parametrize("vector", GOLDEN, ids=range(len(GOLDEN)))
def test_the_splitter_gives_the_reference_s_chunks(vector):
    assert [chunk.content for chunk in sentences(vector["text"], vector["chunk_size"])] == vector["chunks"]
    assert len(words(vector["text"])) == vector["word_len"]


@given(TEXTS, st.integers(1, 6))
def test_chunks_are_the_text_but_for_added_spaces(text, size):
    chunks = sentences(text, size)
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == text
    for chunk in chunks:
        source = text[chunk.start : chunk.end]
        where = places(chunk.content, source)
        assert "".join(chunk.content[place] for place in where) == source
        added = set(range(len(chunk.content))) - set(where)
        assert all(chunk.content[place] == " " for place in added)
        # An added space stands after a separator, at the end or before another one.
        for place in added:
            assert chunk.content[:place].rstrip()[-1:] in set("。？！；.!?;") or "\n" in chunk.content[:place]
            assert chunk.content[place + 1 : place + 2] in {"", *"。？！；.!?;"}


@given(TEXTS, st.integers(1, 6))
def test_only_a_single_sentence_is_longer_than_the_chunk_size(text, size):
    for chunk in sentences(text, size):
        if len(words(chunk.content)) > size:
            assert not set(chunk.content) & set("。？！；.!?;\n")


@given(TEXTS)
def test_words_of_parts_are_those_of_the_whole(text):
    # The reference counts each chunk anew, we add up its pieces.
    assert sum(len(words(chunk.content)) for chunk in sentences(text, 3)) == len(words(text))


# Windows of tokens


class Characters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text, special_tokens):
        assert not special_tokens
        return [ord(character) for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))

    def chat(self, prompt, options):
        raise NotImplementedError


class LowerCase(Characters):
    def encode(self, text, special_tokens):
        return super().encode(text.lower(), special_tokens)


@given(st.text(max_size=50), st.integers(1, 7))
def test_windows_follow_each_other_without_overlap(text, size):
    chunks = token_windows(text, size, Characters())
    assert [chunk.content for chunk in chunks] == [text[i : i + size] for i in range(0, len(text), size)]


def test_a_window_may_end_within_a_character():
    text = "a中文b and so on 中"
    chunks = token_windows(text, 2, HuggingFaceTokenizer(make_tokenizer(), "tiny"))
    assert any("\ufffd" in chunk.content for chunk in chunks)
    for chunk in chunks:
        if chunk.start is not None:
            assert text[chunk.start : chunk.end] == chunk.content.strip("\ufffd")


def test_places_are_unknown_where_the_tokenizer_changes_the_text():
    first, second = token_windows("ABCdef", 3, LowerCase())
    assert (first.content, first.start, first.end) == ("abc", None, None)
    assert (second.content, second.start, second.end) == ("def", 3, 6)


# BM25


def bm25_by_hand(query, documents, k1=1.5, b=0.75, epsilon=0.25):
    """BM25Okapi written from its formula, with rank_bm25's floor: a negative idf becomes epsilon x the mean idf."""
    n = len(documents)
    containing = Counter(token for document in documents for token in set(document))
    idf = {token: math.log((n - df + 0.5) / (df + 0.5)) for token, df in containing.items()}
    floor = epsilon * sum(idf.values()) / len(idf)
    idf = {token: value if value >= 0 else floor for token, value in idf.items()}
    mean = sum(map(len, documents)) / n
    return [
        sum(
            idf.get(token, 0.0)
            * document.count(token)
            * (k1 + 1)
            / (document.count(token) + k1 * (1 - b + b * len(document) / mean))
            for token in query
        )
        for document in documents
    ]


CHUNKS = [
    "The river begins in the hills.",
    "A cat sat on the mat, RIVER or not.",
    "海边的小镇。",
    "Nothing here at all!",
]


def test_bm25_chars_counts_characters_and_tells_case_apart():
    query = "Where does the river begin?"
    found = scores(query, CHUNKS, options("bm25_chars"))
    assert found == pytest.approx(bm25_by_hand(query, CHUNKS))
    assert found != pytest.approx(scores(query.upper(), CHUNKS, options("bm25_chars")))


def test_bm25_words_counts_words_whatever_their_case():
    query = "Where is the River of the 小镇?"
    expected = bm25_by_hand(
        ["where", "is", "the", "river", "of", "the", "小", "镇"],
        [
            ["the", "river", "begins", "in", "the", "hills"],
            ["a", "cat", "sat", "on", "the", "mat", "river", "or", "not"],
            ["海", "边", "的", "小", "镇"],
            ["nothing", "here", "at", "all"],
        ],
    )
    assert scores(query, CHUNKS, options("bm25_words")) == pytest.approx(expected)
    assert rank("小镇", CHUNKS, options("bm25_words"))[0] == 2


@given(st.text(max_size=20), st.lists(TEXTS, max_size=6), st.sampled_from(["bm25_chars", "bm25_words"]))
def test_every_chunk_is_ranked_and_equal_ones_by_their_place(query, chunks, retriever):
    order = rank(query, chunks, options(retriever))
    values = scores(query, chunks, options(retriever))
    assert sorted(order) == list(range(len(chunks)))
    assert all((-values[a], a) < (-values[b], b) for a, b in itertools.pairwise(order))
    assert all(math.isfinite(value) for value in values)


# Embeddings


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    """A random 2-layer BERT with its tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bert")
    tokenizer = make_tokenizer(chat_template=None, window=64)
    tokenizer.pad_token = "</s>"
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    model = BertModel(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def embeddings_one_by_one(folder, texts, limit=64):
    """Token states of single texts, so without any padding."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return [
            model(torch.tensor([tokenizer(text)["input_ids"][:limit]])).last_hidden_state[0].numpy() for text in texts
        ]


def sentence_model(folder, target, *modules, normalize=False, lowercase=False, prompts=None, limit=None):
    """A sentence-transformers folder, written by the library: a transformer and modules (classes with arguments)."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Transformer

    first = Transformer(str(folder), max_seq_length=limit, do_lower_case=lowercase)
    rest = [make() for make in modules] + ([Normalize()] if normalize else [])
    SentenceTransformer(modules=[first, *rest], prompts=prompts, device="cpu").save(str(target))
    return target


def pooling(mode):
    """A maker of a pooling module for vectors of 32 numbers."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    return lambda: Pooling(32, pooling_mode=mode)


def dense():
    """A layer of 32 numbers to 8."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense

    torch.manual_seed(3)
    return Dense(32, 8)


LONG = "the cat sat on the mat near the old mill " * 20
QUESTION = "where does the river begin?"
TO_EMBED = ["the river begins in the hills", LONG, " a book ", "x"]


@pytest.mark.parametrize("similarity", ["inner", "cosine"])
def test_a_plain_model_is_pooled_by_the_mean(encoder_folder, similarity):
    found = scores(QUESTION, TO_EMBED, options("dense", model=str(encoder_folder), similarity=similarity))
    stripped = [text.strip() for text in [QUESTION, *TO_EMBED]]
    question, *vectors = (states.mean(axis=0) for states in embeddings_one_by_one(encoder_folder, stripped))
    norm = np.linalg.norm if similarity == "cosine" else lambda _: 1.0
    expected = [question @ vector / (norm(question) * norm(vector)) for vector in vectors]
    assert found == pytest.approx(expected, rel=1e-4)
    assert found == scores(QUESTION, TO_EMBED, options("dense", model=str(encoder_folder), similarity=similarity))


def test_what_a_sentence_transformers_folder_says_is_followed(encoder_folder, tmp_path):
    folder = sentence_model(encoder_folder, tmp_path / "cls", pooling("cls"), normalize=True, lowercase=True, limit=8)
    found = scores("The River", ["The CAT sat " * 10, "A book"], options("dense", model=str(folder)))
    states = embeddings_one_by_one(folder, ["the river", ("the cat sat " * 10).strip(), "a book"], limit=8)
    question, *vectors = (each[0] / np.linalg.norm(each[0]) for each in states)
    assert found == pytest.approx([question @ vector for vector in vectors], rel=1e-4)


def test_modules_after_the_pooling_are_run(encoder_folder, tmp_path):
    from safetensors.numpy import load_file

    folder = sentence_model(encoder_folder, tmp_path / "dense", pooling("max"), dense)
    found = scores(QUESTION, TO_EMBED, options("dense", model=str(folder)))
    layer = load_file(next((tmp_path / "dense").glob("2_*/model.safetensors")))
    states = embeddings_one_by_one(folder, [text.strip() for text in [QUESTION, *TO_EMBED]])
    question, *vectors = (np.tanh(layer["linear.weight"] @ each.max(axis=0) + layer["linear.bias"]) for each in states)
    assert found == pytest.approx([question @ vector for vector in vectors], rel=1e-4)


def test_a_plain_model_sees_512_tokens(tmp_path):
    import torch
    from transformers import BertConfig, BertModel

    tokenizer = make_tokenizer(chat_template=None, window=1024)
    tokenizer.pad_token = "</s>"
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=1024,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    text = "the cat sat on the mat " * 120
    ids = tokenizer(text)["input_ids"]
    assert len(ids) > 600
    beginning = {count: tokenizer.decode(ids[:count]) for count in (512, 511)}
    assert [len(tokenizer(part)["input_ids"]) for part in beginning.values()] == [512, 511]
    whole, same, shorter = scores("mat", [text, *beginning.values()], options("dense", model=str(tmp_path)))
    assert whole == pytest.approx(same, rel=1e-5)
    assert whole != pytest.approx(shorter, rel=1e-5)


def test_a_model_kept_in_bfloat16_is_run_in_float32(encoder_folder, tmp_path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    AutoModel.from_pretrained(encoder_folder, dtype=torch.bfloat16).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(encoder_folder).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    found = scores(QUESTION, TO_EMBED[:1], options("dense", model=str(tmp_path)))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        question, chunk = (
            model(torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0].mean(dim=0).numpy()
            for text in (QUESTION, TO_EMBED[0])
        )
    assert found == pytest.approx([question @ chunk], rel=1e-5)


def test_prefixes_and_lower_case_come_before_the_model(encoder_folder):
    plain = {"model": str(encoder_folder)}
    assert scores("A", ["B c"], options("dense", **plain, query_prefix="q: ", chunk_prefix="p: ")) == scores(
        "q: A", ["p: B c"], options("dense", **plain)
    )
    assert scores("AB", ["CD"], options("dense", **plain, lowercase=True)) == scores(
        "ab", ["cd"], options("dense", **plain)
    )


def test_the_prompts_that_a_model_brings_are_used_unless_others_are_given(encoder_folder, tmp_path):
    brings = {"query": "ask: ", "document": "read: "}
    folder = str(sentence_model(encoder_folder, tmp_path / "prompts", pooling("mean"), prompts=brings))
    plain = options("dense", model=str(encoder_folder))
    assert scores("A", ["B c"], options("dense", model=folder)) == scores("ask: A", ["read: B c"], plain)
    own = options("dense", model=folder, query_prefix="", chunk_prefix="x ")
    assert scores("A", ["B c"], own) == scores("A", ["x B c"], plain)


def test_a_model_is_loaded_once_and_a_document_embedded_once(encoder_folder, monkeypatch):
    from sentence_transformers import SentenceTransformer

    loads, embedded = [], []

    class Counted(SentenceTransformer):
        def __init__(self, *arguments, **more):
            loads.append(arguments)
            super().__init__(*arguments, **more)

        def encode(self, inputs, **more):
            embedded.append(len(inputs))
            return super().encode(inputs, **more)

    monkeypatch.setattr("sentence_transformers.SentenceTransformer", Counted)
    chosen = options("dense", model=str(encoder_folder), trust_remote_code=True)  # not what another test has loaded
    for question in ("one", "two"):
        scores(question, ["a", "b", "c"], chosen)
    assert len(loads) == 1
    assert embedded == [1, 3, 1]


def test_a_model_that_is_not_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"embedding model .*empty: cannot be loaded"):
        rank("q", ["a"], options("dense", model=str(tmp_path / "empty")))
    with pytest.raises(UserError, match="embedding model nobody/nothing: it was not downloaded, or not whole"):
        rank("q", ["a"], options("dense", model="nobody/nothing"))
    for name in (str(tmp_path / "absent"), "no-such-model"):
        with pytest.raises(UserError, match=f"embedding model {name}: no such folder, and it is not a hub id"):
            rank("q", ["a"], options("dense", model=name))


def scores_of_hub_model(url, cache, offline="0", **more):
    """Scores by the model org/tiny in a process of its own, since the hub's library reads its environment early."""
    code = (
        "import json, sys\n"
        "from longflow.errors import UserError\n"
        "from longflow.retrieval import RagOptions, scores\n"
        "more = json.loads(sys.argv[1])\n"
        "chosen = RagOptions(kind='rag', retriever='dense', model='org/tiny', **more)\n"
        "try: print(json.dumps(scores('the river', ['the cat', 'a book'], chosen)))\n"
        "except UserError as error: print(json.dumps(str(error)))\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(cache), "HF_HUB_OFFLINE": offline}
    environment |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    for name in ("HF_HUB_CACHE", "HF_TOKEN"):
        environment.pop(name, None)
    command = [sys.executable, "-c", code, json.dumps(more)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert "it/s]" not in done.stderr, "no progress bars in logs"
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_hub_model_is_fetched_and_found_again_offline(encoder_folder, tmp_path):
    folder = sentence_model(encoder_folder, tmp_path / "model", pooling("cls"), normalize=True)
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    expected = scores("the river", ["the cat", "a book"], options("dense", model=str(folder)))
    hub = FakeHub(files)
    try:
        assert scores_of_hub_model(hub.url, tmp_path / "cache", revision="v1") == pytest.approx(expected)
        assert scores_of_hub_model(hub.url, tmp_path / "cache", "1", revision="v1") == pytest.approx(expected)
        # What makes it a sentence-transformers model may be missing here and not there.
        (modules,) = (tmp_path / "cache").rglob("snapshots/*/modules.json")
        modules.unlink()
        assert "not whole, and there is no network" in scores_of_hub_model(
            hub.url, tmp_path / "cache", "1", revision="v1"
        )
        hub.files = {name: content for name, content in files.items() if "/" not in name and name != "modules.json"}
        plain = scores("the river", ["the cat", "a book"], options("dense", model=str(encoder_folder)))
        assert scores_of_hub_model(hub.url, tmp_path / "other") == pytest.approx(plain)
    finally:
        hub.close()


@pytest.mark.slow
def test_a_real_small_model_finds_by_meaning(minilm):
    chunks = [
        "He plays the violin in an orchestra.",
        "The automobile needed a new engine.",
        "Bread is baked before dawn.",
        "Her physician prescribed a medicine.",
    ]
    chosen = options("dense", model=str(minilm))
    for question, best in [("Who repaired the car?", 1), ("What did the doctor give her?", 3), ("music", 0)]:
        values = scores(question, chunks, chosen)
        assert rank(question, chunks, chosen)[0] == best
        # Its embeddings are normalised, so that the inner product is the cosine.
        assert all(-1 <= value <= 1 for value in values)


class Embeddings(BaseHTTPRequestHandler):
    """A server whose embeddings are counts of three letters; rows come back in reverse, each with its index."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.headers["Authorization"], body))
        if body["model"] != "small" or any(text == "" for text in body["input"]):
            answer, status = {"error": {"message": f"no model for key {self.headers['Authorization']}"}}, 400
        else:
            rows = [[float(text.count(letter)) for letter in "abc"] for text in body["input"]]
            data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
            answer, status = {"object": "list", "model": "small", "data": data[::-1]}, 200
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Embeddings) as running:
        running.asked = []
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_a_server_gives_embeddings(server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret-key")
    chosen = {"base_url": f"http://127.0.0.1:{server.server_port}/v1", "api_key_env": "MY_KEY"}
    chunks = ["b" * (i % 5) + "a" * (i % 3) for i in range(40)] + ["", "cc"]
    found = scores("ab", chunks, options("dense", model="small", **chosen))
    assert found == [chunk.count("a") + chunk.count("b") for chunk in chunks]
    cosine = scores("ab", ["aaa", "ab"], options("dense", model="small", similarity="cosine", **chosen))
    assert cosine == pytest.approx([1 / math.sqrt(2), 1])
    assert {key for key, _ in server.asked} == {"Bearer secret-key"}
    with pytest.raises(UserError, match=r"embedding model big at http://127.0.0.1:\d+/v1: .*no model") as caught:
        scores("ab", ["b"], options("dense", model="big", **chosen))
    assert "secret-key" not in str(caught.value)


# New contexts

TEXT = "Alpha one two. Beta river hill. Gamma four five. Delta river town! Omega six seven"


def test_the_best_chunks_in_score_order_or_document_order():
    query = "the Delta river"
    context, used = retrieve({"context": TEXT}, query, options(chunk_size=3, top_n=2))
    assert [chunk["index"] for chunk in used] == [3, 1]
    # "the" is in no chunk; "Delta" and "river" are in one, "river" alone in the other.
    assert context == "Delta river town! Beta river hill. "
    assert [chunk["index"] for chunk in used] == rank(
        query, [chunk.content for chunk in sentences(TEXT, 3)], options()
    )[:2]
    in_document, again = retrieve(
        {"context": TEXT}, query, options(chunk_size=3, top_n=2, order="document", separator=" / ")
    )
    assert in_document == " / ".join(chunk["content"] for chunk in used[::-1])
    assert [chunk["index"] for chunk in again] == [1, 3]
    assert [chunk["score"] for chunk in again] == [chunk["score"] for chunk in used[::-1]]


def reference_rag(retrieved, top_n):
    """LongBench v2's context as FACTS has it: the best of them by c_idx ascending, numbered from 1, stripped whole.

    Read from THUDM/LongBench, pred.py: the numbers count from 1, and the context is stripped when it is filled in.
    """
    chosen = sorted(retrieved[:top_n], key=lambda chunk: chunk["c_idx"])
    parts = [
        f"Retrieved chunk {number}: {chunk['content']}" for number, chunk in zip(range(1, 99), chosen, strict=False)
    ]
    return "\n\n".join(parts).strip()


@given(TEXTS, st.text(max_size=10), st.integers(1, 4), st.sampled_from(["sentences", "token_windows"]))
def test_numbered_chunks_are_longbench_v2_s_context(text, query, top_n, splitter):
    chunks = sentences(text, 2) if splitter == "sentences" else token_windows(text, 2, Characters())
    contents = [chunk.content for chunk in chunks]
    chosen = options("bm25_chars", chunk_size=2, top_n=top_n, form="numbered")
    retrieved = [{"c_idx": index, "content": contents[index]} for index in rank(query, contents, chosen)]
    if splitter == "token_windows":
        chosen = chosen.model_copy(update={"splitter": splitter, "tokenizer": "characters"})
    with mock.patch("longflow.retrieval.chunks._tokenizer", return_value=Characters()):
        context, used = retrieve({"context": text}, query, chosen)
    assert context == reference_rag(retrieved, top_n)
    assert [chunk["index"] for chunk in used] == sorted(chunk["c_idx"] for chunk in retrieved[:top_n])


@given(TEXTS, st.text(max_size=10), st.integers(1, 4), st.sampled_from(["joined", "numbered"]))
def test_a_context_tells_where_its_chunks_are(text, query, top_n, form):
    context, used = retrieve({"context": text}, query, options("bm25_chars", chunk_size=2, top_n=top_n, form=form))
    assert len(used) == min(top_n, len(sentences(text, 2)))
    for chunk in used:
        assert context[chunk["at"] :].startswith(chunk["content"])
    json.dumps(used, allow_nan=False)


def test_an_empty_context_stays_empty_and_a_missing_one_is_named():
    assert retrieve({"context": ""}, "q", options()) == ("", [])
    with pytest.raises(UserError, match="'context'"):
        retrieve({"input": "q"}, "q", options())


def test_windows_of_a_named_tokenizer(tmp_path):
    make_tokenizer().save_pretrained(tmp_path)
    text = "the cat sat on the mat. " * 10 + "请根据下面的文章回答问题。" + "the dog read a book. " * 10
    context, used = retrieve(
        {"context": text},
        "文章",
        options(splitter="token_windows", tokenizer=str(tmp_path), chunk_size=16, top_n=3, form="numbered"),
    )
    assert "文章" in context
    assert context.startswith("Retrieved chunk 1: ")
    assert all(text[chunk["start"] : chunk["end"]] == chunk["content"].strip("\ufffd") for chunk in used)


# Evidence


def test_evidence_is_found_again_in_the_new_context():
    # At 12 words a chunk: a first one, one with both keys, where doubled full stops get a space, and a third.
    text = (
        "A long story begins here and has nothing to do with it.. "
        "The key is under the mat.. The key is under the tree. Nobody asks at all. Go on now"
    )

    def span(part):
        return text.index(part), text.index(part) + len(part)

    kept, other, cut, unused = map(span, ["under the mat.. The", "under the tree", "tree. Nobody", "A long"])
    record = Record("1", "1", {"context": text}, evidence=(cut, kept), confusing=(unused, other))
    context, used = retrieve(record.fields, "is the key under a mat or a tree", options(chunk_size=12, top_n=1))
    assert context == "The key is under the mat. . The key is under the tree. "
    found, confused = moved_spans(record, used)
    assert [context[a:b] for a, b in found] == ["under the mat. . The"]
    assert [context[a:b] for a, b in confused] == ["under the tree"]


@given(TEXTS, st.data(), st.sampled_from([options("bm25_chars", chunk_size=3, top_n=2, separator="\n"), None]))
def test_a_moved_span_has_the_same_text(text, data, chosen):
    first = data.draw(st.integers(0, max(0, len(text) - 1)))
    last = data.draw(st.integers(first, len(text)))
    record = Record("1", "1", {"context": text}, evidence=((first, last),))
    chosen = chosen or options("bm25_words", chunk_size=3, top_n=100, form="numbered")
    context, used = retrieve(record.fields, "a 中", chosen)
    found, _ = moved_spans(record, used)
    inside = any(chunk["start"] <= first < last <= chunk["end"] for chunk in used)
    assert len(found) == inside
    for a, b in found:
        remaining = iter(context[a:b])
        assert all(character in remaining for character in text[first:last])
        assert len(context[a:b].replace(" ", "")) == len(text[first:last].replace(" ", ""))


def test_a_span_in_a_changed_text_is_left_out():
    record = Record("1", "1", {"context": "ABC"}, evidence=((0, 2),))
    used = [{"index": 0, "score": 0.0, "content": "abc", "start": None, "end": None, "at": 0}]
    assert moved_spans(record, used) == ((), ())


# Options


@pytest.mark.parametrize(
    ("wrong", "key", "message"),
    [
        ({"retriever": "dense"}, "model", "dense needs a model"),
        ({"model": "some/model"}, "model", "has no use for a model"),
        ({"splitter": "token_windows"}, "tokenizer", "needs a tokenizer"),
        ({"tokenizer": "gpt2"}, "tokenizer", "has no use for a tokenizer"),
        ({"base_url": "http://here/v1"}, "base_url", "has no use for a server"),
        ({"retriever": "dense", "model": "m", "base_url": "here"}, "base_url", "http"),
        ({"form": "numbered", "order": "score"}, "order", "document"),
        ({"form": "numbered", "separator": " "}, "separator", "with form: numbered"),
        ({"top_n": 0}, "top_n", "greater than"),
        ({"chunk_size": "200"}, "chunk_size", "integer"),
        ({"retriever": "bm25"}, "retriever", "bm25_chars"),
        ({"topn": 3}, "topn", "Extra"),
    ],
)
def test_a_wrong_option_is_named(wrong, key, message):
    with pytest.raises(ValidationError) as caught:
        options(**wrong)
    fault = caught.value.errors()[0]
    assert fault["loc"] == (key,)
    assert message in fault["msg"]


def test_the_spec_tells_what_changes_a_context():
    here = options("dense", model="m", base_url="http://here/v1", api_key_env="A")
    there = options("dense", model="m", base_url="http://there/v1", api_key_env="B", gpu=1)
    assert here.spec() == there.spec()
    assert here.spec() != options("dense", model="m").spec()
    assert options(form="numbered").spec() == options(form="numbered", order="document").spec()
    assert len({json.dumps(options(top_n=n).spec()) for n in range(1, 5)}) == 4


def test_a_model_trained_anew_in_its_old_place_is_noticed(encoder_folder, tmp_path):
    import shutil

    import torch
    from transformers import AutoModel

    folder = sentence_model(encoder_folder, tmp_path / "model", pooling("mean"), dense)

    def spec():
        return options("dense", model=str(folder)).spec()

    first = spec()
    assert spec() == first
    shutil.copytree(folder, tmp_path / "copy")
    assert options("dense", model=str(tmp_path / "copy")).spec()["files"] == first["files"]
    for file in folder.rglob("*"):
        os.utime(file, (10**9, 10**9))
    assert spec() == first
    (folder / "README.md").write_text("More words.")
    assert spec() == first
    (pooling_file,) = folder.glob("1_*/config.json")
    pooling_file.write_text(pooling_file.read_text().replace("mean", "max"))
    other_pooling = spec()
    assert other_pooling != first
    (layer,) = folder.glob("2_*/model.safetensors")
    content = bytearray(layer.read_bytes())
    content[-1] ^= 1
    layer.write_bytes(content)
    other_layer = spec()
    assert other_layer != other_pooling
    model = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        model.encoder.layer[0].output.dense.bias += 1
    model.save_pretrained(folder)
    assert spec()["files"] != other_layer["files"]
    # What a server runs is not in a folder here, whatever its name there.
    served = options("dense", model=str(folder), base_url="http://here/v1").spec()
    assert served["files"] == {"model": None, "tokenizer": None}


def test_a_torn_model_is_named_when_the_run_is_planned(encoder_folder, tmp_path):
    import shutil

    folder = shutil.copytree(encoder_folder, tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"model\.safetensors: torn"):
        options("dense", model=str(folder)).spec()


def test_a_changed_tokenizer_of_windows_is_noticed(tmp_path):
    make_tokenizer().save_pretrained(tmp_path)
    chosen = options(splitter="token_windows", tokenizer=str(tmp_path))
    first = chosen.spec()
    assert first["files"]["tokenizer"] == chosen.spec()["files"]["tokenizer"]
    make_tokenizer(bos=True).save_pretrained(tmp_path)
    assert chosen.spec() != first
    assert options(splitter="token_windows", tokenizer="gpt2").spec()["files"]["tokenizer"] is None


def test_every_option_is_described():
    assert all(field.description for field in RagOptions.model_fields.values())


def test_importing_loads_nothing_heavy():
    code = (
        "import sys, longflow.retrieval\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'numpy', 'rank_bm25', 'openai', 'tiktoken'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
