"""The reducer shows the newest state and notices every broken promise."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.captions import Captions
from streaming.wire.messages import Ack, Ended, Error, Segment, ServerMessage, Word

from .build import ready, receipt, segment, session, words


def reduced(messages: list[ServerMessage]) -> Captions:
    captions = Captions()
    for message in messages:
        captions.receive(message)
    return captions


def test_a_reader_sees_committed_text_then_what_may_change() -> None:
    messages = session("one two three four", 32_000)
    captions = reduced(messages[:4])
    assert captions.committed == "one two"
    assert captions.partial == " three four"
    assert not captions.ended
    captions = reduced(messages)
    assert captions.committed == "one two three four"
    assert captions.partial == ""
    assert captions.ended
    assert captions.acknowledged == 16_000
    assert captions.faults == []


def test_a_partial_of_a_new_segment_stands_apart_where_the_script_has_spaces() -> None:
    said = words("one two")
    captions = reduced(
        [ready(), segment(2, 1, 1, said, final=True), segment(3, 2, 1, (), partial="three", first_word=2)]
    )
    assert captions.committed + captions.partial == "one two three"
    chars = tuple(Word(c, i, i + 1, space=False) for i, c in enumerate("你好"))
    captions = reduced(
        [ready(), segment(2, 1, 1, chars, final=True), segment(3, 2, 1, (), partial="吗", first_word=2)]
    )
    assert captions.committed + captions.partial == "你好吗"


SAID = words("one two three four")


@pytest.mark.parametrize(
    ("later", "fault"),
    [
        ([segment(3, 1, 2, SAID[:1])], "took committed words back"),
        ([segment(3, 1, 2, (*SAID[:1], Word("too", 500, 900), SAID[2]))], "changed committed word 1"),
        ([segment(3, 1, 2, (SAID[0], Word("two", 520, 900)))], "changed committed word 1"),
        ([segment(3, 1, 1, SAID[:2])], "follows rev 1"),
        ([segment(4, 1, 2, SAID[:2])], "seq 4 follows 2"),
        ([segment(2, 1, 2, SAID[:2])], "seq 2 follows 2"),
        ([segment(3, 1, 2, SAID[:2], final=True), segment(4, 1, 3, SAID[:3])], "after the final one"),
        ([segment(3, 2, 1, SAID[:1], first_word=1)], "changed committed word 1"),
        ([segment(3, 2, 1, SAID[:1], first_word=3)], "skips to word 3"),
        ([segment(3, 1, 2, SAID[:2], first_word=1)], "moved its first word"),
        ([segment(3, 1, 2, SAID[:2], final=True, partial=" three")], "still has a partial"),
        ([segment(3, 1, 2, SAID[:2], partial=" thr\ufffd")], "broken character"),
        ([msgspec.structs.replace(segment(3, 1, 2, SAID[:2]), text="one")], "differs from its words"),
        ([Ack(3, 800), Ack(4, 799)], "ack went back"),
        ([ready(3)], "a second ready"),
        ([Error(3, "x", "y"), Ack(4, 5)], "after the last one"),
        ([Error(3, "x", "y"), Error(4, "x", "y")], "after the last one"),
        ([Ended(3, receipt(800, 2)), Ack(4, 5)], "after the last one"),
        ([Ended(3, receipt(800, 2)), Ended(4, receipt(800, 2))], "after the last one"),
        ([Ended(3, receipt(800, 2)), Error(4, "x", "y"), Ack(5, 5)], "after the last one"),
        ([Ended(3, receipt(800, 3))], "counts 3 words, 2 came"),
    ],
)
def test_each_broken_promise_is_a_fault(later: list[ServerMessage], fault: str) -> None:
    captions = reduced([ready(), segment(2, 1, 1, SAID[:2]), *later])
    assert any(fault in found for found in captions.faults), captions.faults


def test_an_error_may_follow_the_receipt() -> None:
    captions = reduced([ready(), Ended(2, receipt(800, 0)), Error(3, "restarting", "the server shuts down")])
    assert captions.faults == []
    assert captions.error is not None
    assert captions.receipt is not None


def spoil(field: str, value: int) -> Callable[[], ServerMessage]:
    return lambda: Ended(2, msgspec.structs.replace(receipt(800, 0), **{field: value}))


@pytest.mark.parametrize("field", ["samples", "text_samples", "silence_samples", "gap_samples"])
def test_a_receipt_that_does_not_add_up_is_a_fault(field: str) -> None:
    assert reduced([ready(), Ended(2, receipt(800, 0))]).faults == []
    assert reduced([ready(), spoil(field, 799)()]).faults


def test_a_receipt_with_a_hole_is_a_fault() -> None:
    whole = receipt(800, 0, gap=100)
    holed = msgspec.structs.replace(whole, spans=whole.spans[1:])
    assert any("hole" in fault for fault in reduced([ready(), Ended(2, holed)]).faults)


def test_revised_words_are_counted_one_by_one() -> None:
    changed = (SAID[0], Word("zwei", 500, 900), Word("drei", 1000, 1400), SAID[3])
    captions = reduced([ready(), segment(2, 1, 1, SAID), segment(3, 1, 2, changed)])
    assert captions.revised == 2
    assert captions.committed == "one two three four"  # the first version is what was promised


def test_words_taken_back_count_as_revised() -> None:
    captions = reduced([ready(), segment(2, 1, 1, SAID), segment(3, 1, 2, SAID[:1])])
    assert captions.revised == 3


def test_faults_are_bounded() -> None:
    captions = Captions()
    for _ in range(1000):
        captions.receive(Ack(7, 1))
    assert len(captions.faults) == 100


@st.composite
def kept_promises(draw: st.DrawFn) -> list[ServerMessage]:
    """A well-behaved stream: segments one after the other, words committed bit by bit."""
    messages: list[ServerMessage] = [ready(1)]
    count = at = 0
    for id in range(1, draw(st.integers(0, 4)) + 1):
        said = words(" ".join(draw(st.lists(st.sampled_from(["a", "bc", "d."]), max_size=6))), at)
        steps = sorted(draw(st.lists(st.integers(0, len(said)), max_size=4)))
        for rev, step in enumerate(steps, 1):
            messages.append(segment(len(messages) + 1, id, rev, said[:step], first_word=count, partial=" x"))
        messages.append(segment(len(messages) + 1, id, len(steps) + 1, said, first_word=count, final=True))
        count += len(said)
        at += 500 * len(said) + 700
    return [*messages, Ended(len(messages) + 1, receipt(1600, count))]


@given(kept_promises())
def test_a_stream_that_keeps_its_promises_has_no_fault(messages: list[ServerMessage]) -> None:
    captions = Captions()
    before: list[Word] = []
    for message in messages:
        captions.receive(message)
        assert captions.transcript[: len(before)] == before
        before = list(captions.transcript)
    assert captions.faults == []
    assert captions.revised == 0
    assert captions.partial == ""


@given(kept_promises(), st.data())
def test_a_lost_or_doubled_message_is_noticed(messages: list[ServerMessage], data: st.DataObject) -> None:
    index = data.draw(st.integers(1, len(messages) - 1))
    twice = [*messages[: index + 1], *messages[index:]]
    assert reduced(twice).faults
    if index < len(messages) - 1:
        assert reduced([*messages[:index], *messages[index + 1 :]]).faults


@given(kept_promises(), st.data())
def test_one_changed_committed_word_is_noticed(messages: list[ServerMessage], data: st.DataObject) -> None:
    later = [
        i for i, m in enumerate(messages) if isinstance(m, Segment) and m.rev > 1 and _known(messages, i)
    ]
    if not later:
        return
    index = data.draw(st.sampled_from(later))
    message = messages[index]
    assert isinstance(message, Segment)
    spoiled = (Word("other", message.words[0].start_ms, message.words[0].end_ms), *message.words[1:])
    messages[index] = segment(
        message.seq, message.id, message.rev, spoiled, first_word=message.first_word, final=message.final
    )
    assert reduced(messages).revised == 1


def _known(messages: list[ServerMessage], index: int) -> bool:
    """Whether the message before already committed this segment's first word."""
    before, now = messages[index - 1], messages[index]
    return (
        isinstance(before, Segment)
        and isinstance(now, Segment)
        and before.id == now.id
        and bool(before.words)
    )
