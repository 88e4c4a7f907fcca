"""vosk-server's protocol: one answer to each piece of audio."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from streaming.dialects.dialect import Handshake, Ignored
from streaming.dialects.vosk import WAY, Vosk
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Audio, AudioFormat, End, Flush, Flushed, Start
from tests.support.foreign import meet, segment
from tests.support.sound import expected, s16, speech
from tests.support.world import World, serving


def asked(dialect: Vosk) -> Any:
    """The answer to a piece of audio."""
    *_, answer = dialect.hear(b"\0\0")
    assert isinstance(answer, str)
    return json.loads(answer)


def test_a_file_as_vosks_own_client_sends_it() -> None:
    """Lock step: nothing more is sent before the answer is there."""

    async def body(world: World) -> None:
        met = meet(world, WAY.open(Handshake("id")))
        audio, answers = s16(speech("xxx....xx...")), []
        met.channel.say('{ "config" : { "sample_rate" : 16000 } }')
        for start in range(0, len(audio), 6400):
            met.channel.say(audio[start : start + 6400])
            await asyncio.sleep(0.2)
            answers.append(json.loads(met.channel.sent[-1]))
            assert len(met.channel.sent) == len(answers)
        met.channel.say('{"eof" : 1}')
        await world.all_done()
        answers.append(json.loads(met.channel.sent[-1]))
        assert len(met.channel.sent) == len(answers)
        assert met.channel.closed == (1000, "")
        assert any(answer.get("partial") for answer in answers)
        results = [answer for answer in answers if "partial" not in answer]
        words = [word for answer in results for word in answer.get("result", ())]
        assert [word["word"] for word in words] == expected("xxx....xx...")
        assert " ".join(answer["text"] for answer in results if answer["text"]) == " ".join(
            word["word"] for word in words
        )
        assert words[0] == {"conf": 0.9, "start": 0.05, "end": 0.45, "word": "zero"}

    serving(body)


def test_configuration_and_what_is_not_known_of_it() -> None:
    config = {"sample_rate": 8000.0, "phrase_list": ["Ada", 7], "words": False, "max_alternatives": 1, "x": 1}
    dialect = Vosk()
    assert list(dialect.hear(json.dumps({"config": config}))) == [
        Ignored(("x",)),
        Start(audio=AudioFormat(sample_rate=8000), hotwords=("Ada",)),
    ]
    assert list(dialect.hear(json.dumps({"config": config}))) == [Ignored(("config",))]
    list(dialect.say(segment(1, ["Hello", "there"], final=True)))
    assert asked(dialect) == {"alternatives": [{"confidence": 1.0, "text": "Hello there"}]}
    assert next(iter(Vosk().hear(b"\0\0"))) == Start(audio=AudioFormat(sample_rate=8000))
    for name in ("sample_rate", "max_alternatives"):
        with pytest.raises(ProtocolError, match="config: "):
            list(Vosk().hear(json.dumps({"config": {name: "x"}})))


def test_partials_and_results_hold_each_word_once() -> None:
    dialect = Vosk()
    assert [type(one) for one in dialect.hear(b"\0\0")] == [Start, Audio, str]
    assert asked(dialect) == {"partial": ""}
    list(dialect.say(segment(1, ["a"], partial=" b")))
    assert asked(dialect) == {"partial": "a b"}
    list(dialect.say(segment(1, ["a", "b"], final=True)))
    list(dialect.say(segment(2, [], first=2, partial="c")))
    assert asked(dialect)["text"] == "a b"
    assert asked(dialect) == {"partial": "c"}
    # Two people had spoken: words that were told move to a segment of their own.
    list(dialect.say(segment(1, ["a"], final=True)))
    list(dialect.say(segment(3, ["b"], first=1, final=True)))
    assert asked(dialect) == {"partial": "c"}
    list(dialect.say(segment(2, ["c"], first=2, final=True)))
    assert asked(dialect)["text"] == "c"


def test_reset_and_eof_are_answered_and_the_rest_is_known_to_be_nothing() -> None:
    dialect = Vosk()
    assert list(dialect.hear('{"reset" : 1}')) == [Ignored(("reset",))]
    list(dialect.hear(b"\0\0"))
    (flush,) = dialect.hear('{"reset" : 1}')
    assert isinstance(flush, Flush)
    list(dialect.say(segment(1, ["a"], final=True)))
    (answer,) = dialect.say(Flushed(9, flush.id, 0))
    assert isinstance(answer, str)
    assert json.loads(answer)["text"] == "a"
    assert list(dialect.hear('{"eof" : 1}')) == [End()]
    assert list(dialect.hear('{"what": 1}')) == [Ignored(("what",))]
    assert [type(one) for one in Vosk().hear('{"eof" : 1}')] == [Start, End]


@pytest.mark.parametrize("rate", ["0", "7999", "1e300", '"nan"', '"inf"', "9" * 40, "-16000"])
def test_a_rate_that_cannot_be_is_refused_by_name(rate: str) -> None:
    with pytest.raises(ProtocolError, match=r"config\.sample_rate: .* use 8000 to 48000"):
        list(Vosk().hear(f'{{"config": {{"sample_rate": {rate}}}}}'))
