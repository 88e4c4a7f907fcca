"""Playing audio: every byte once and in order, every message stamped, every loss named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clients.aio import Refused
from clients.audio import AudioError
from clients.participants import with_tracks
from clients.play import Arrival, Pace, Playback, play
from streaming.wire.messages import Audio, End, Ended, Error, Start, Track

from .build import ready, receipt, segment, session, words
from .scripted import Peer, Scripted, scripted

pytestmark = pytest.mark.e2e

MAX = Pace(speed=None)


def ignore(playback: Playback, arrival: Arrival) -> None:
    pass


async def faithful(peer: Peer) -> None:
    """Hears all of it, then tells a whole session about it."""
    await peer.hear()
    messages = session("one two three four", 0)
    await peer.say(*messages[:-1])
    await peer.hear_all()
    await peer.say(Ended(6, receipt(len(peer.audio) // 2, 4)))


async def played(script: Any, pieces: Any, pace: Pace = MAX) -> tuple[Playback, list[Arrival], Scripted]:
    playback, arrivals = Playback("x"), []

    def listen(_: Playback, arrival: Arrival) -> None:
        arrivals.append(arrival)

    async with scripted(script) as server:
        await play(playback, server.url, Start(), pieces, pace, listen)
    return playback, arrivals, server


@pytest.mark.parametrize("pace", [MAX, Pace(packet_s=0.02, speed=20)])
async def test_every_byte_arrives_once_and_in_order(pace: Pace) -> None:
    data = bytes(range(250)) * 128
    pieces = [data[at : at + 777] for at in range(0, len(data), 777)]
    playback, arrivals, server = await played(faithful, pieces, pace)
    assert server.peers[0].audio == data
    assert playback.sent == len(data) // 2
    assert playback.faults() == []
    assert [a.message.seq for a in arrivals] == [1, 2, 3, 4, 5, 6]
    assert [a.at_s for a in arrivals] == sorted(a.at_s for a in arrivals)


async def test_a_split_changes_no_figure_of_when_text_came_and_was_final() -> None:
    said = words("one two three four")

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1), segment(2, 1, 1, said, final=True, speaker=1))
        await peer.say(segment(3, 1, 2, said[:2], final=True, speaker=1))
        await peer.say(segment(4, 2, 1, said[2:], first_word=2, final=True, speaker=2))
        await peer.hear_all()
        await peer.say(Ended(5, receipt(len(peer.audio) // 2, 4)))

    playback, arrivals, _ = await played(script, [bytes(640)])
    assert playback.faults() == []
    came, shortened = arrivals[1].at_s, arrivals[2].at_s
    assert playback.committed_s == [came] * 4
    assert playback.first_text_s == {1: came}
    assert playback.final_s == {3: came, 1: shortened}


async def test_a_sample_of_all_tracks_counts_once_and_lasts_as_long_as_one() -> None:
    playback = Playback("x")
    start = with_tracks(Start(), [Track("Ann"), Track(), Track()])
    data = bytes(range(240)) * 16  # 640 samples of three tracks: 40 ms

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.hear_all()
        await peer.say(Ended(2, receipt(len(peer.audio) // 6, 0)))

    async with scripted(script) as server:
        await play(playback, server.url, start, [data], Pace(packet_s=0.02), ignore)
    assert server.peers[0].heard[0] == start
    assert server.peers[0].audio == data
    assert [len(m.data) for m in server.peers[0].heard if isinstance(m, Audio)] == [320 * 6] * 2
    assert (playback.sent, playback.faults()) == (640, [])
    assert playback.ended_sending_s is not None
    assert playback.ended_sending_s >= 0.04


async def test_arrivals_are_kept_by_word_and_segment() -> None:
    playback, arrivals, _ = await played(faithful, [bytes(64)])
    at = {arrival.message.seq: arrival.at_s for arrival in arrivals}
    assert playback.committed_s == [at[4], at[4], at[5], at[5]]
    assert (playback.first_text_s, playback.final_s) == ({1: at[2]}, {3: at[5]})
    assert len(playback.committed_s) == len(playback.captions.transcript) == 4
    assert playback.finished_s is not None


async def test_packets_leave_when_they_have_been_spoken() -> None:
    # Four packets of 20 ms at speed 1: the last one cannot leave before the 80 ms have passed.
    playback, _, _ = await played(faithful, [bytes(4 * 640)], Pace(packet_s=0.02))
    assert playback.ended_sending_s is not None
    assert playback.ended_sending_s > 0.079  # a timer may fire a hair early


async def test_a_receipt_for_other_audio_is_a_fault() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.hear_all()
        await peer.say(Ended(2, receipt(99, 0)))

    playback, _, _ = await played(script, [bytes(64)])
    assert playback.faults() == ["the receipt covers 99 of 32 samples sent"]


async def test_a_stream_that_ends_before_its_audio_is_a_fault() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.hear()
        await peer.say(
            Ended(2, receipt(3200, 0)),
            Error(3, "restarting", "the server shuts down", retry_after_ms=0),
        )

    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(6400)

    playback, _, _ = await played(script, endless(), Pace(speed=100))
    cut, *others = playback.faults()
    assert cut == "the server ended the stream: the server shuts down (restarting)"
    assert any("before all of the audio was sent" in fault for fault in others)


async def test_a_receipt_alone_does_not_stand_for_audio_never_sent() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        sent = await peer.hear()
        assert isinstance(sent, Audio)
        await peer.say(Ended(2, receipt(len(sent.data) // 2, 0)))

    playback, _, _ = await played(script, [bytes(3200)] * 1_000_000, Pace(speed=1.0))
    assert playback.faults() == ["the stream ended at 0.10 s, before all of the audio was sent"]


async def test_a_gap_is_a_fault_with_its_cause() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.hear_all()
        await peer.say(Ended(2, receipt(32_000, 0, gap=16_000)))

    playback, _, _ = await played(script, [bytes(64_000)])
    assert playback.faults() == ["gap from 1.00 to 2.00 s: overload"]


async def test_a_lost_connection_is_noted_and_what_came_is_kept() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1), segment(2, 1, 1, words("one two")))
        await peer.hear()
        await peer.socket.close(1012, "restart")

    playback, _, _ = await played(script, [bytes(6400)] * 1000)
    assert playback.captions.committed == "one two"
    assert "1012" in (playback.failure or "")


async def test_an_error_mid_stream_is_read_though_sending_fails_first() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.hear()
        await peer.say(Error(2, "too_long", "a session lasts 8 hours"))

    playback, _, _ = await played(script, [bytes(6400)] * 2000)
    assert playback.faults() == ["the server ended the stream: a session lasts 8 hours (too_long)"]


async def test_a_refused_stream_is_an_error_of_the_call() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(Error(1, "no", "not you"))

    with pytest.raises(Refused):
        await played(script, [b""])


async def test_a_file_that_breaks_keeps_its_beginning() -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(64)
        raise AudioError("x.mp3: broke off")

    playback, _, server = await played(faithful, broken())
    assert playback.sent == 32
    assert isinstance(server.peers[0].heard[-1], End)
    assert playback.faults() == ["x.mp3: broke off"]


@pytest.mark.parametrize("wrong", [{"packet_s": 0.0}, {"packet_s": 3.0}, {"speed": 0.0}, {"speed": 1000.0}])
def test_a_pace_nobody_can_mean_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"packets|times real time"):
        Pace(**wrong)
