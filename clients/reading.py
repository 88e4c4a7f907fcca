"""What a session says, to whoever reads along: over as many connections as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote, urlsplit, urlunsplit

from websockets import Subprotocol
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from streaming.wire.codec import JsonCodec
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Error, Read, Ready, ServerMessage

from .dialing import ClientError, Direct, Refused, Unreachable, on_loopback, remedy_of, stream_url

_COME_BACK = frozenset({1001, 1006, 1011, 1012, 1013})
_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_OPEN_S = 10.0


async def read(
    url: str, session: str, *, token: str | None = None, key: str | None = None
) -> AsyncIterator[ServerMessage]:
    """All messages of a session, the old ones as their newest states; ends with it. `token` is its read
    token, `key` one with the scope `read`. Raises `ClientError`."""
    try:
        parts = urlsplit(stream_url(url))
    except ValueError as error:
        raise Unreachable(str(error), code="url", retryable=False) from None
    path = f"/v1/sessions/{quote(session, safe='')}/events"
    address = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    codec, after, tries = JsonCodec(), 0, 0
    met, why = False, None
    while True:
        try:
            async with _opened(address, codec, after, key) as socket:
                if token is not None:
                    await socket.send(codec.encode_client(Read(token, after)))
                async for frame in socket:
                    message = codec.decode_server(frame)
                    after, tries = max(after, message.seq), 0
                    met = met or isinstance(message, Ready)
                    why = message if isinstance(message, Error) else None
                    yield message
                return
        except InvalidStatus as error:
            status = error.response.status_code
            if status not in (502, 503, 504) or tries >= len(_PAUSES_S):
                raise Refused(
                    f"reading was refused with HTTP {status}{remedy_of(status)}",
                    code=f"http_{status}",
                    retryable=False,
                ) from None
        except ProtocolError as error:
            raise Refused(
                f"the server broke the protocol: {error}", code="protocol", retryable=False
            ) from None
        except ConnectionClosed as error:
            code = error.rcvd.code if error.rcvd else 1006
            if met and why is not None and code not in _COME_BACK:
                return  # the session itself ended so
            if code not in _COME_BACK or tries >= len(_PAUSES_S):
                text = why.message if why is not None else f"reading ended with close code {code}"
                raise ClientError(text, code=f"close_{code}", retryable=False) from None
        except (OSError, TimeoutError, InvalidHandshake):
            if tries >= len(_PAUSES_S):
                raise Unreachable(f"no server answers at {url}", code="unreachable", retryable=True) from None
        await asyncio.sleep(_PAUSES_S[tries])
        tries += 1


def _opened(address: str, codec: JsonCodec, after: int, key: str | None) -> Direct:
    return Direct(
        f"{address}?after={after}" if key else address,
        subprotocols=[Subprotocol(codec.name)],
        additional_headers={"Authorization": f"Bearer {key}"} if key else None,
        open_timeout=_OPEN_S,
        max_size=1 << 24,
        proxy=None if on_loopback(address) else True,
    )
