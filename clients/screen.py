"""Captions in a terminal: text that may change dim, known speakers in colours, a progress line a stream.

Everything here goes to standard error, so that standard output holds the transcript alone. Without a
terminal each finished segment is one line. In a terminal what was shown is erased at the end, where the
transcript follows; of a playback that breaks off it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streaming.wire.messages import Ack, Segment
from streaming.wire.render import speaker_name

from .play import Arrival, Playback

_REFRESHES = 8
_TAIL_WORDS = 60
_NAME = 28
"""Columns of a stream's name."""
_FEW_STREAMS = 3
"""So many streams get several caption lines each; more get one."""

EXPOSED_S = 60.0
"""More audio than this is not on the server's disk while that fails: an engine at its limit explains half."""

COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#F0E442")
"""Of speakers by number, in turn: those of Okabe and Ito, which people tell apart who see few colours. Names
stand beside them, for nothing may depend on colour alone."""


class Screen:
    """Shows playbacks while they run; use it as a context manager and as their listener."""

    def __init__(
        self, playbacks: Sequence[Playback], lengths_s: Sequence[float | None], console: Console | None = None
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._rows = list(zip(playbacks, lengths_s, strict=True))
        self._live = Live(
            get_renderable=self._render,
            console=self._console,
            refresh_per_second=_REFRESHES,
            transient=True,
        )
        self._printed: dict[tuple[str, int], int] = {}
        self._exposed: set[str] = set()

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.transient = kind is None
            self._live.stop()

    def hear(self, playback: Playback, arrival: Arrival) -> None:
        """Take note of a message; a terminal is drawn on its own beat instead."""
        message = arrival.message
        if self._console.is_terminal:
            return
        if isinstance(message, Ack):
            self._tell_exposed(playback)
        if not isinstance(message, Segment):
            return
        # By word, for a split shows the words of a finished segment again, as another one.
        end = message.first_word + len(message.words)
        printed = (playback.name, message.track or 0)
        if message.final and message.words and end > self._printed.get(printed, 0):
            self._printed[printed] = end
            named = f"{playback.name} " if len(self._rows) > 1 else ""
            who = speaker_name(message)
            said = f"{who}: {message.text.strip()}" if who else message.text.strip()
            line = f"{named}{clock(message.start_ms / 1000)} {said}"
            self._console.print(line, markup=False, soft_wrap=True)

    def _tell_exposed(self, playback: Playback) -> None:
        """One line when the server's disk fails, one when it is back."""
        exposed, told = exposure(playback), playback.name in self._exposed
        if exposed and not told:
            self._exposed.add(playback.name)
            self._console.print(f"{playback.name}: {exposed}: it goes on all the same", markup=False)
        elif told and not exposed:
            self._exposed.discard(playback.name)
            self._console.print(f"{playback.name}: the server's disk is back", markup=False)

    def _render(self) -> RenderableType:
        many = len(self._rows) > _FEW_STREAMS
        parts: list[RenderableType] = []
        for playback, length_s in self._rows:
            parts.append(_progress(playback, length_s, self._console.width))
            parts.append(_captions(playback, self._console.width, lines=1 if many else 4))
        return Group(*parts)


def _progress(playback: Playback, length_s: float | None, width: int) -> RenderableType:
    """Name, bar and figures; what does not fit goes in this order: bar, end of the figures."""
    total = f" / {clock(length_s)}" if length_s else ""
    delay = commit_delay_s(playback)
    behind = f"  {delay:.1f} s behind the speaker" if delay is not None else ""
    exposed = exposure(playback)
    figures = f"{clock(playback.sent_s)}{total}{behind}{f'  {exposed}' if exposed else ''}"
    name = (
        playback.name
        if len(playback.name) <= _NAME
        else f"{playback.name[: _NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
    bar_width = min(24, width - len(name) - len(figures) - 4)
    if bar_width < 6:
        return Text.assemble((name, "bold"), " ", figures, no_wrap=True, overflow="ellipsis")
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=length_s, completed=playback.sent_s, width=bar_width, pulse=length_s is None)
    row.add_row(Text(name, style="bold", no_wrap=True), bar, Text(figures, no_wrap=True))
    return row


def _captions(playback: Playback, width: int, *, lines: int) -> Text:
    """The newest text that fits: its end matters, so the beginning is what is left out."""
    text = Text("\n").join(
        coloured(turn.speaker, turn.name, turn.text, turn.partial)
        for turn in playback.captions.turns(_TAIL_WORDS)
    )
    wrapped = text.wrap(Console(width=max(20, width), stderr=True), max(20, width - 1))
    return Text("\n").join(wrapped[-lines:]) if wrapped else Text("")


def coloured(speaker: int | None, name: str | None, text: str, partial: str = "") -> Text:
    """What one person says, in the speaker's colour; of a person whom nobody knows in none."""
    colour = colour_of(speaker)
    shown = Text()
    if name:
        shown.append(f"{name}: ", style=f"bold {colour}")
    shown.append(text, style=colour)
    return shown.append(partial.lstrip() if name and not text else partial, style=f"dim italic {colour}")


def colour_of(speaker: int | None) -> str:
    """The style of a speaker by number from 1; none for nobody known."""
    return "" if speaker is None else COLOURS[(speaker - 1) % len(COLOURS)]


def commit_delay_s(playback: Playback) -> float | None:
    """How long after its end the newest committed word came, by the service's own times."""
    if not playback.committed_s:
        return None
    return playback.committed_s[-1] - playback.captions.transcript[-1].end_ms / 1000


def exposure(playback: Playback) -> str:
    """Empty as long as the server's disk keeps up."""
    seconds = playback.captions.exposed_s
    return f"the newest {seconds:.0f} s are not on the server's disk" if seconds > EXPOSED_S else ""


def clock(seconds: float) -> str:
    """Minutes and seconds, hours where there are any."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes:02}:{whole % 60:02}"
