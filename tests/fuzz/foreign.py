"""Other people's protocols, and recordings as browsers and telephones make them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from urllib.parse import urlencode

import msgspec
import numpy as np

from streaming.audio.demux import CHANNELS, FREE_S, LEAST_BYTES, pieces
from streaming.dialects.dialect import Bye, Dialect, Handshake, Ignored
from streaming.dialects.query import Query
from streaming.dialects.ways import WAYS
from streaming.wire.codec import MsgpackCodec
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Start
from tests.support.recordings import KINDS, feeding, tone

from .audio import cut
from .runner import Target

_NUMBERS = (b'"nan"', b'"inf"', b"1e308", b"-1", b"1e-9", b"nan", b"inf", b"9" * 40)
_CODEC = MsgpackCodec()
_QUERY = {
    "encoding": "linear16",
    "sample_rate": "16000",
    "channels": "2",
    "multichannel": "true",
    "language": "en-US",
}
_ASKS = {
    **_QUERY,
    "endpointing": "300",
    "utterance_end_ms": "1000",
    "interim_results": "true",
    "keyterm": "Zoë",
}
FRAMES: dict[str, tuple[bytes, ...]] = {
    "deepgram": (b'{"type":"Finalize","channel":1}', b'{"type":"KeepAlive"}', b'{"type":"CloseStream"}'),
    "kyutai": tuple(
        map(
            msgspec.msgpack.encode,
            ({"type": "Audio", "pcm": [0.1, -0.1]}, {"type": "Marker", "id": 7}, {"type": "Init"}),
        )
    ),
    "openai-realtime": (
        b'{"type":"session.update","session":{"type":"transcription","audio":{"input":{"format":{"type":"audio/pcm",'
        b'"rate":24000},"transcription":{"language":"en-US","keywords":["one"],"delay":"low"},"turn_detection":'
        b'{"type":"server_vad","silence_duration_ms":350}}}}}',
        b'{"type":"transcription_session.update","session":{"input_audio_format":"g711_ulaw","turn_detection":null}}',
        b'{"type":"input_audio_buffer.append","audio":"AAAA"}',
        b'{"type":"input_audio_buffer.commit"}',
    ),
    "vosk": (
        b'{"config":{"sample_rate":16000,"words":true,"phrase_list":["one"],"max_alternatives":1}}',
        b'{"eof" : 1}',
        b'{"reset":1}',
    ),
    "twilio": (
        b'{"event":"start","start":{"callSid":"CA1","tracks":["inbound","outbound"],"customParameters":{"token":"k",'
        b'"language":"en"},"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}}}',
        b'{"event":"media","media":{"track":"inbound","chunk":"1","timestamp":"20","payload":"AAAA"}}',
        b'{"event":"stop","stop":{"callSid":"CA1"}}',
    ),
    "recall": (
        b'{"event":"audio_separate_raw.data","data":{"data":{"buffer":"AAAAAA==","timestamp":{"relative":1.5,'
        b'"absolute":"2026-01-01T00:00:00Z"},"participant":{"id":1,"name":"Ann"}},"bot":{"id":"b"}}}',
        b'{"event":"audio_mixed_raw.data","data":{"data":{"buffer":"AAAAAA==","timestamp":{"relative":1}},"bot":{}}}',
        b'{"event":"participant_events.leave","data":{"data":{"participant":{"id":1,"name":"Ann"}}}}',
    ),
    "attendee": (
        b'{"trigger":"realtime_audio.per_participant","bot_id":"b","data":{"chunk":"AAAA","sample_rate":16000,'
        b'"timestamp_ms":1703123456789,"participant_uuid":"u"}}',
        b'{"trigger":"realtime_audio.mixed","bot_id":"b","data":{"chunk":"AAAA","sample_rate":8000}}',
    ),
    "acs": (
        b'{"kind":"AudioMetadata","audioMetadata":{"subscriptionId":"s","encoding":"PCM","sampleRate":24000}}',
        b'{"kind":"AudioData","audioData":{"timestamp":"2026-01-01T00:00:00.5Z","participantRawID":"p","data":"AAAA"}}',
    ),
}


def _checked(dialect: Dialect, frames: list[str | bytes]) -> object:
    """What is said to the session is read there like a client's own words (see `bridge`)."""
    said = [*dialect.greet()]
    for frame in frames:
        said += dialect.hear(frame)
    for one in said:
        if isinstance(one, str | bytes | Bye | Ignored):
            continue
        assert _CODEC.decode(_CODEC.encode_client(one)) == one
    starts = [one for one in said if isinstance(one, Start)]
    assert len(starts) <= 1
    return said


def _frames(name: str) -> Callable[[bytes, Random], object]:
    (way,) = (way for way in WAYS if way.name == name)
    query = Query.parse(urlencode(_QUERY))

    def run(case: bytes, choices: Random) -> object:
        dialect = way.open(Handshake("id", query=query if name == "deepgram" else Query()))
        text = case.decode("utf-8", "replace")
        frames: list[str | bytes] = [text, case, text]
        return _checked(dialect, frames[choices.randrange(3) :])

    return run


def _query(case: bytes, choices: Random) -> object:
    (way,) = (way for way in WAYS if way.name == "deepgram")
    query = Query.parse(case.decode("latin-1"))
    return _checked(way.open(Handshake("id", query=query)), [])


def _recording(case: bytes, choices: Random) -> object:
    """Some audio, or a refusal; never more than its bytes are worth."""
    found = list(pieces(feeding(*filter(None, cut(case, choices))), choices.choice((1, 1, 1, 2))))
    seconds = sum(len(piece.samples) / piece.rate for piece in found)
    assert seconds <= FREE_S + len(case) / LEAST_BYTES + 1
    for piece in found:
        assert np.isfinite(piece.samples).all()
        assert piece.samples.shape[1] <= CHANNELS
        assert len(piece.samples) <= piece.rate, "more than a second in one piece"
    return found


TARGETS = (
    *(Target(way.name, FRAMES[way.name], _frames(way.name), (ProtocolError,), 0.5, _NUMBERS) for way in WAYS),
    Target(
        "deepgram query",
        [urlencode(_QUERY).encode(), urlencode(_ASKS).encode()],
        _query,
        (ProtocolError,),
        0.5,
        _NUMBERS,
    ),
    Target("recordings", [tone(kind, 0.3)[:4096] for kind in KINDS], _recording, (ProtocolError,), 0.1),
)
