"""Where the evidence stands and what truncation keeps of it, held against brute force and the demo's builder."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longflow import benchmarks
from longflow.anatomy import evidence as ev
from longflow.prompts import render, truncate_middle
from longflow.records import Record

TEMPLATE = "Read:\n{context}\nQ: {input}\nA:"


class Characters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text, special_tokens):
        return [ord(character) for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


def record(context, spans=(), confusing=(), **fields):
    return Record("r", "q", {"input": "who?", "context": context, **fields}, tuple(spans), tuple(confusing))


def sent(made, limit, rule="middle"):
    """The row of a record whose prompt is cut to a limit, and the text that was sent."""
    prompt, start = render(TEMPLATE, made.fields)
    cut = truncate_middle(prompt, limit, Characters(), rule)
    return {"kept_head": cut.kept_head, "kept_tail": cut.kept_tail, "context_start": start}, cut.text


# Every character of such a context is another one, so that what was sent of it can be read off.
CONTEXTS = st.integers(1, 60).map(lambda n: "".join(chr(0x4E00 + i) for i in range(n)))


@given(CONTEXTS, st.integers(2, 90), st.sampled_from(["middle", "middle_joined"]))
def test_what_was_kept_is_what_was_sent(context, limit, rule):
    made = record(context)
    row, text = sent(made, limit, rule)
    kept, _ = ev.kept_part(row, made, TEMPLATE)
    assert "".join(c for c in text if c in context) == context[: kept.head] + context[kept.tail :]


@given(CONTEXTS, st.integers(2, 90), st.data())
def test_a_span_is_cut_as_far_as_its_characters_were_not_sent(context, limit, data):
    start = data.draw(st.integers(0, len(context) - 1))
    span = (start, data.draw(st.integers(start + 1, len(context))))
    made = record(context, [span])
    row, text = sent(made, limit)
    kept, why = ev.kept_part(row, made, TEMPLATE)
    found = ev.find(made, [], "", "zh")
    there = sum(character in text for character in context[span[0] : span[1]])
    expected = "no" if there == span[1] - span[0] else "partly" if there else "yes"
    assert ev.cut_away(found, kept, why)[0] == expected


@given(CONTEXTS, st.integers(2, 90), st.data())
def test_a_position_after_truncation_is_that_in_the_text_sent(context, limit, data):
    at = data.draw(st.integers(0, len(context) - 1))
    made = record(context, [(at, at + 1)])
    row, text = sent(made, limit)
    kept, _ = ev.kept_part(row, made, TEMPLATE)
    place = ev.position(ev.find(made, [], "", "zh"), kept, len(context))
    assert place.before == pytest.approx((at + 0.5) / len(context), abs=1e-4)
    left = [character for character in text if character in context]
    if context[at] in left:
        assert place.after == pytest.approx((left.index(context[at]) + 0.5) / len(left), abs=1e-4)
    else:
        assert place.after is None


@given(st.lists(st.sampled_from(["ant", "Ant", "an", "giant", "ants", "ANT", "12ant", "-", ".", "bee"]), max_size=30))
def test_a_keyword_is_found_where_it_stands_as_a_word(parts):
    context = " ".join(parts)
    exact = [m.span() for m in re.finditer(r"(?<![A-Za-z0-9])ant(?![A-Za-z0-9])", context)]
    any_case = [m.span() for m in re.finditer(r"(?i)(?<![a-z0-9])ant(?![a-z0-9])", context)]
    found = ev.find(record(context), ["ant"], "", "en")
    assert list(found.pieces) == (exact or any_case)


@given(st.text(max_size=60))
def test_folding_leaves_every_character_in_its_place(text):
    folded = ev.fold(text)
    assert len(folded) == len(text)
    assert all(new == old or new == " " or old.lower() == new for old, new in zip(text, folded, strict=True))


def test_of_several_places_the_one_counts_that_has_the_question_around_it():
    filler = "Nothing to see here at all. " * 30
    context = f"Paris is large. {filler}The mill keeper's sister moved to Paris in spring. {filler}Paris again."
    found = ev.find(record(context), ["Paris"], "Where did the sister of the mill keeper move?", "en")
    assert len(found.pieces) == 3
    assert context[found.main[0] - 9 : found.main[1]] == "moved to Paris"


def test_of_equal_places_the_first_counts_and_one_that_was_sent_is_enough():
    made = record("Amsel came. Then it rained for a week. Amsel left.")
    found = ev.find(made, ["Amsel"], "who?", "en")
    assert found.main == (0, 5)
    length = len(made.fields["context"])
    for head, tail, state in ((20, length, "no"), (0, 20, "no"), (2, length - 2, "yes"), (2, 30, "no")):
        assert ev.cut_away(found, ev.Kept(head, tail, length), "")[0] == state


def test_a_keyword_that_stands_everywhere_says_nothing_and_the_next_is_sought():
    context = "blue " * 200 + "The door was painted green by Ines."
    assert ev.find(record(context), ["blue"], "", "en").how is None
    found = ev.find(record(context), ["blue", "green"], "", "en")
    assert [context[a:b] for a, b in found.pieces] == ["green"]


@pytest.mark.parametrize("keyword", ["Yes", "no", "是", "the", "of the", "7", "", "。"])
def test_what_says_nothing_is_not_sought(keyword):
    context = "Yes, no, the 7 of the 是 and so on. "
    assert ev.find(record(context), [keyword], "", "en").how is None


def test_words_of_a_keyword_are_sought_where_most_of_them_are():
    filler = "Lamps burned on the quay all night long. " * 20
    context = f"A silver coin. {filler}Its bands, crimson and broad, lie below the silver moon. {filler}"
    found = ev.find(record(context), ["crimson and silver bands"], "", "en")
    assert found.how == "words"
    assert "crimson" in context[slice(*found.main)]
    assert "silver moon" in context[found.main[0] : found.main[1] + 5]


def test_excerpts_are_windows_of_the_context_with_the_evidence_in_them():
    filler = "Gulls cried over the harbour wall. " * 40
    evidence, bait = "The bridge was built by Gottfried Amsel.", "The other was built by Nikolaus Drossel."
    context = f"{filler}{evidence} {filler}{bait} {filler}"
    spans = [(context.index(evidence), context.index(evidence) + len(evidence))]
    lure = [(context.index(bait), context.index(bait) + len(bait))]
    made = record(context, spans, lure)
    found = ev.find(made, ["Gottfried Amsel"], "", "en")
    kept = ev.Kept(spans[0][0] + 10, len(context) - 20, len(context))
    shown = ev.excerpts(made, found, kept)
    assert [(part["kind"], part["kept"]) for part in shown] == [("evidence", False), ("confusing", False)]
    for part, marked in zip(shown, ["Gottfried Amsel", bait], strict=True):
        assert len(part["text"]) <= ev.WINDOW
        assert part["text"] == context[part["start"] : part["start"] + len(part["text"])]
        assert part["text"][slice(*part["mark"])] == marked
    everywhere = ev.excerpts(record("Amsel. " * 9), ev.find(record("Amsel. " * 9), ["Amsel"], "", "en"), None)
    assert len(everywhere) == ev.EXCERPTS
    assert {part["kept"] for part in everywhere} == {None}


def test_what_was_sent_cannot_be_told_of_another_template_or_of_imported_rows():
    made = record("words " * 50)
    row, _ = sent(made, 60)
    assert ev.kept_part(row, made, "Other text, other length: {context} {input}")[0] is None
    assert ev.kept_part(row, made, None)[0] is None
    assert ev.kept_part({"pred": "x"}, made, TEMPLATE)[0] is None
    assert ev.kept_part(row, record(""), TEMPLATE)[0] is None
    brought = record(made.fields["context"], template=TEMPLATE)
    assert ev.kept_part(row, brought, None)[0] == ev.kept_part(row, made, TEMPLATE)[0]


def demo_records():
    """The demo's records at one level: their builder knows where the evidence is."""
    demo = benchmarks.load("demo")
    options = demo.module.Options()
    for task in demo.tasks.values():
        sources = demo.module.sources(task, "1000", options, "unused")
        for made in demo.module.prepare(task, "1000", options, sources):
            yield task, made


def test_a_keyword_is_found_in_the_evidence_that_the_builder_knows():
    checked = 0
    for task, made in demo_records():
        blind = Record(made.id, made.question_id, made.fields)
        keyword = made.fields["answer_keywords"] or made.fields["answers"][0]
        found = ev.find(blind, [keyword, *made.fields["answers"]], made.fields["input"], task.language)
        assert found.how is not None, made.id
        assert any(a <= found.main[0] and found.main[1] <= b for a, b in made.evidence), made.id
        checked += 1
    assert checked == sum(task.n for task in benchmarks.load("demo").tasks.values())
