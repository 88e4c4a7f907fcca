"""A process that dies takes nothing along: its sessions go on in the next one."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.test_resume import CASES, WHOLE, audio, said, start_of
from tests.support.comeback import Comeback
from tests.support.lives import Lives, living

deaths = st.lists(
    st.tuples(
        st.integers(1, 90_000),  # bytes sent before the process dies
        st.integers(0, 5),  # messages lost on their way to the client
        st.sampled_from([0.0, 0.3, 7.0, 100.0]),  # seconds until the client is back
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CASES), deaths, st.sampled_from([0.0, 0.02, 0.1]))
def test_killed_anywhere_a_session_says_what_it_would_have_said(
    case: tuple[int, int], deaths: list[tuple[int, int, float]], lag_s: float
) -> None:
    """P1, P4, P6 over any number of deaths of the server, as the client's own reducer sees it."""
    rate, channels = case
    result: dict[str, Any] = {}

    async def body(world: Lives) -> None:
        world.journal.lag_s = lag_s
        client = Comeback(world, start_of(rate, channels), audio(rate, channels), 2 * channels, rate)
        await client.begin()
        for size, lost, away_s in deaths:
            for _ in range(size // 6400 + 1):
                await client.speak(6400)
            await world.die()
            world.journal.lag_s = lag_s
            ready = await client.come_back(away_s=away_s, lost=lost)
            assert ready.resumed
        await client.end()
        assert client.captions.faults == []
        result.update(said(client.captions))

    living(body)
    assert result["words"] == WHOLE[case]["words"]
    receipt, whole = result["receipt"], WHOLE[case]["receipt"]
    # A resampler that begins anew may be a sample off.
    assert abs(receipt.samples - whole.samples) <= len(deaths)
    assert (receipt.words, receipt.gap_samples) == (whole.words, 0)
    at = 0
    for span in receipt.spans:
        assert span.start == at < span.end
        at = span.end
    assert at == receipt.samples
