"""Retrieval: the splitter, BM25, embeddings, and the contexts made of what was found."""

import itertools
import json
import math
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
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


def copy_with(folder, target, **files):
    """A copy of a model's folder with further JSON files; __ in a name stands for /."""
    import shutil

    shutil.copytree(folder, target)
    for name, value in files.items():
        path = target / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))
    return target


def modules(*kinds):
    return [{"path": f"{i}_{k}" if i else "", "type": f"sentence_transformers.models.{k}"} for i, k in enumerate(kinds)]


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
    folder = copy_with(
        encoder_folder,
        tmp_path / "cls",
        modules=modules("Transformer", "Pooling", "Normalize"),
        **{"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}},
        sentence_bert_config={"max_seq_length": 8, "do_lower_case": True},
    )
    found = scores("The River", ["The CAT sat " * 10, "A book"], options("dense", model=str(folder)))
    states = embeddings_one_by_one(folder, ["the river", ("the cat sat " * 10).strip(), "a book"], limit=8)
    question, *vectors = (each[0] / np.linalg.norm(each[0]) for each in states)
    assert found == pytest.approx([question @ vector for vector in vectors], rel=1e-4)


def test_prefixes_and_lower_case_come_before_the_model(encoder_folder):
    plain = {"model": str(encoder_folder)}
    assert scores("A", ["B c"], options("dense", **plain, query_prefix="q: ", chunk_prefix="p: ")) == scores(
        "q: A", ["p: B c"], options("dense", **plain)
    )
    assert scores("AB", ["CD"], options("dense", **plain, lowercase=True)) == scores(
        "ab", ["cd"], options("dense", **plain)
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"modules": modules("Transformer", "Pooling", "Dense")}, "module Dense is not supported"),
        (
            {"modules": modules("Transformer", "Pooling"), "1_Pooling__config": {"pooling_mode_max_tokens": True}},
            r"pooling \(max_tokens\) is not supported",
        ),
        ({"modules": modules("Transformer", "Pooling")}, r"pooling \(not given\) is not supported"),
    ],
)
def test_a_model_that_would_be_run_wrongly_is_refused(encoder_folder, tmp_path, files, message):
    # Its first module that is not supported counts, so give the others what they need.
    files = {"1_Pooling__config": {"pooling_mode_mean_tokens": True}, **files} if "Dense" in message else files
    folder = copy_with(encoder_folder, tmp_path / "odd", **files)
    with pytest.raises(UserError, match=message):
        rank("q", ["a"], options("dense", model=str(folder)))


def test_a_model_that_is_not_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"embedding model .*empty: cannot be loaded"):
        rank("q", ["a"], options("dense", model=str(tmp_path / "empty")))
    with pytest.raises(UserError, match="embedding model nobody/nothing"):
        rank("q", ["a"], options("dense", model="nobody/nothing"))


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


def test_numbered_chunks_stand_in_document_order():
    context, _ = retrieve({"context": TEXT}, "the Delta river", options(chunk_size=3, top_n=2, form="numbered"))
    chunks = [chunk.content for chunk in sentences(TEXT, 3)]
    assert context == f"Retrieved chunk 1: {chunks[1]}\n\nRetrieved chunk 2: {chunks[3]}"


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


def test_every_option_is_described():
    assert all(field.description for field in RagOptions.model_fields.values())


def test_importing_loads_nothing_heavy():
    code = (
        "import sys, longflow.retrieval\n"
        "heavy = {'torch', 'transformers', 'numpy', 'rank_bm25', 'openai', 'tiktoken'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
