"""What a client keeps is said again from the sample on that the server names, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clients.kept import Kept, Told
from streaming.audio.splice import Splice
from streaming.wire.messages import Alive, Audio, AudioFormat, End, Flush, Hotwords, Name, Presence


def said(kept: Kept, most: int = 1 << 30) -> list[object]:
    messages: list[object] = []
    while len(messages) < most and (message := kept.next()) is not None:
        messages.append(message)
    return messages


def test_flushes_and_the_end_keep_their_place() -> None:
    kept = Kept(AudioFormat(), 100)
    for message in (Audio(b"aabb"), Flush("f"), Audio(b"ccdd"), Flush("g"), End()):
        kept.add(message)
    assert len(said(kept)) == 5
    assert kept.done
    kept.answered("g")
    kept.rewind(3)
    assert said(kept) == [Flush("f"), Audio(b"dd"), End()]
    kept.answered("f")
    kept.forget(3)
    assert kept.first_sample == 3
    kept.rewind(4)
    assert said(kept) == [End()]


def test_what_is_told_is_kept_until_audio_behind_it_has_arrived() -> None:
    kept = Kept(AudioFormat(), 100)
    told: list[Told] = [Name(1, "Ann"), Hotwords(("Ada",)), Presence("x")]
    for message in (Audio(b"aa"), told[0], Audio(b"bb"), told[1], Alive(), told[2]):
        kept.add(message)
    assert len(said(kept)) == 6
    kept.forget(1)
    kept.rewind(1)
    assert said(kept) == [told[0], Audio(b"bb"), *told[1:]]
    kept.forget(2)
    kept.rewind(2)
    assert said(kept) == told[1:]
    kept.add(Audio(b"cc"))
    said(kept)
    kept.forget(3)
    kept.rewind(3)
    assert said(kept) == []


def test_what_was_told_before_audio_that_arrived_is_not_told_again() -> None:
    """Somebody else may have named the speaker anew since."""
    kept = Kept(AudioFormat(), 100)
    for message in (Audio(b"aa"), Name(1, "Ann"), Audio(b"bb"), Name(1, "Bob")):
        kept.add(message)
    said(kept)
    kept.rewind(2)
    assert said(kept) == [Name(1, "Bob")]


def test_it_is_bounded() -> None:
    kept = Kept(AudioFormat(channels=2), 8)
    kept.add(Audio(bytes(8)))
    assert kept.full
    said(kept)
    kept.forget(1)
    assert kept.full  # a packet is forgotten whole
    kept.forget(2)
    assert not kept.full


def test_room_is_made_where_the_server_has_it_and_no_more_than_needed() -> None:
    kept = Kept(AudioFormat(), 80)
    for _ in range(8):
        kept.add(Audio(bytes(10)))
    said(kept, 7)
    kept.spare(5 * 5)
    assert (kept.full, kept.first_sample) == (False, 4 * 5)
    kept.spare(7 * 5)
    assert kept.first_sample == 4 * 5, "there is room"


@given(
    st.sampled_from([8000, 11_025, 16_000, 44_100, 48_000]),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 4), st.booleans()), max_size=30),
)
def test_both_ends_of_a_session_agree_on_every_sample(
    rate: int, channels: int, steps: list[tuple[int, int, bool]]
) -> None:
    kept = Kept(AudioFormat(sample_rate=rate, channels=channels), 1 << 20)
    splice, data, got = Splice(2 * channels, rate), b"", b""
    for size, sent, cut in steps:
        piece = bytes((len(data) + index) % 251 for index in range(size))
        data += piece
        kept.add(Audio(piece))
        for message in said(kept, sent):
            assert isinstance(message, Audio)
            got += splice.take(message.data)
        kept.forget(splice.next_sample)
        if cut:
            splice.rejoin()
            assert kept.first_sample <= splice.next_sample
            kept.rewind(splice.next_sample)
    for message in said(kept):
        assert isinstance(message, Audio)
        got += splice.take(message.data)
    assert got == data[: len(data) // (2 * channels) * 2 * channels]
