"""Fixed token traces give exactly the same tasks and events on every adapter, transport and policy."""

from __future__ import annotations

import pytest

from engine.contract import Capabilities, Priority, RecognitionTask

from .adapters import MODELS, TRANSPORTS, Fake, locally, parts, plain
from .real import needs_weights
from .traces import TRACES, Heard, Speaker, Trace, play

pytestmark = needs_weights("base")  # its vocabulary
traces = pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)


async def on_sglang(trace: Trace, model: str, transport: str) -> Heard:
    found = MODELS[model]
    speaker = Speaker(trace, continues=found.continues)
    async with TRANSPORTS[transport](found, speaker) as engine:
        return await play(engine, speaker)


async def by_the_fake(trace: Trace) -> Heard:
    speaker = Speaker(trace)
    capabilities = Capabilities("fake", "trace", max_window_s=30.0)
    return await play(Fake(speaker, capabilities), speaker)


def test_the_traces_do_cut_characters() -> None:
    for trace in TRACES:
        speaker = Speaker(trace)
        speaker.begin(whole(trace), 0)
        found = parts(plain, speaker)
        assert any("\N{REPLACEMENT CHARACTER}" in part.text for part in found) == (not trace.text.isascii())
        assert found[-1].finish == (trace.ends or ("stop",))[0]
        assert ("\N{REPLACEMENT CHARACTER}" in found[-1].text) == (trace.ends[:1] == ("length",))


def whole(trace: Trace) -> RecognitionTask:
    return RecognitionTask("t", "s", trace.audio(), 0, Priority.FINAL)


@traces
@pytest.mark.parametrize("model", MODELS)
async def test_every_transport_gives_the_same_events(trace: Trace, model: str) -> None:
    heard = [await on_sglang(trace, model, transport) for transport in TRANSPORTS]
    for other in heard[1:]:
        assert other.tasks == heard[0].tasks
        assert other.events == heard[0].events
    assert heard[0].gaps <= {trace.gap}
    assert "\N{REPLACEMENT CHARACTER}" not in repr(heard[0].events)


@traces
async def test_the_embedded_engine_gives_the_events_of_sglang(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = Speaker(trace)
    async with locally(speaker, monkeypatch) as engine:
        heard = await play(engine, speaker)
    other = await on_sglang(trace, "whisper", "http")
    assert heard.tasks == other.tasks
    assert heard.events == other.events


@traces
@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if model.continues])
async def test_policies_and_the_fake_engine_say_the_same(trace: Trace, model: str) -> None:
    """What continues forced words: the same texts in the same steps, and all of the words."""
    heard, fake = await on_sglang(trace, model, "memory"), await by_the_fake(trace)
    assert heard.texts() == fake.texts()
    words = [word.text for word in trace.words()]
    assert heard.gaps == ({trace.gap} if trace.gap else set())
    assert heard.words == (words if trace.gap is None else words[: len(heard.words)])


@traces
async def test_a_policy_that_cannot_force_words_leaves_out_what_is_committed(trace: Trace) -> None:
    """By its own time marks: nothing is said twice, nothing is lost."""
    heard = await on_sglang(trace, "moss_td", "memory")
    if trace.gap is None:
        assert heard.words == [word.text for word in trace.words()]
