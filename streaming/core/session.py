"""One session, composed: audio and hypotheses in, tasks and events out.

Inputs are the `receive_*` methods; `tasks_to_run`, `tasks_to_cancel` and `events_to_send` drain outputs. At
most one task is wanted at a time; a reply to any other changes nothing.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from engine.contract import (
    FRAME,
    Audio,
    Capabilities,
    Finish,
    Hypothesis,
    Priority,
    RecognitionTask,
    Voice,
    Word,
)

from .continuation import NOTHING, Continuation
from .events import Ended, Event, Flushed
from .gate import Activity, Edge, Paused, SpeechGate, Started
from .hunger import Hunger, Repair
from .judging import DOUBTFUL, LADDER, STUCK, Step, judge
from .language import LanguageTracker
from .plausible import spoken
from .record import Record
from .ring import AudioRing
from .segmenter import Cause, Cut, Segmenter
from .settings import SessionSettings
from .spans import to_samples
from .stabilizer import Stabilizer
from .transcript import Segment

MARGIN = to_samples(0.1)
"""For the packets that bring the audio and the messages that carry the words."""


class Session:
    """The state of one live transcription. Not thread-safe; every method returns at once."""

    def __init__(
        self,
        id: str,
        settings: SessionSettings,
        capabilities: Capabilities,
        *,
        language: str | None = None,
        likely: tuple[str, ...] = (),
        context: str = "",
        hotwords: tuple[str, ...] = (),
        continues: Continuation = NOTHING,
        clock: int | None = None,
    ) -> None:
        """One that `continues` is fed from the sample `clock` on: its own, or an earlier frame."""
        clock = continues.clock if clock is None else clock
        self._id, self._s = id, settings
        self._likely, self._context, self.hotwords = likely, context, hotwords
        self._now = clock  # end of the newest frame that was looked at, samples
        self._ring = AudioRing(clock)
        self._gate = SpeechGate(settings.gate(), clock, floor=continues.settled)
        self._activity = Activity(clock)
        self._record = Record(self._activity, continues)
        self._segments, self._transcript = self._record.segments, self._record.transcript
        window = settings.window(capabilities.max_window_s)
        self._segmenter = Segmenter(window, continues.origin, heard=continues.settled)
        self._stabilizer, self._hunger = Stabilizer(), Hunger(to_samples(settings.starve_s))
        self._language = LanguageTracker(language, continues.language)
        self._task: RecognitionTask | None = None
        self._cut: Cut | None = None
        self._tasks_made = self._attempt = 0
        self._worth = partial(judge, tries=capabilities.tries)
        self._forces = capabilities.forced_prefix
        self._tail_heard = 0  # end of the window whose uncommitted words the stabilizer holds
        self._flushes: deque[tuple[str, int]] = deque()
        self._ending = self._ended = False
        self._to_run: list[RecognitionTask] = []
        self._to_cancel: list[str] = []

    # -- what it tells ---------------------------------------------------------------------------

    @property
    def received(self) -> int:
        """Samples received so far."""
        return self._now

    @property
    def backlog(self) -> int:
        """Speech received but not decoded yet, samples; the shell stops reading above its limit."""
        if not self._segments:
            return 0
        heard = self._cut.start if self._cut is not None and self._cut.final else self._segmenter.heard
        return self._now - max(heard, self._segments[0].start)

    @property
    def settled(self) -> int:
        """Nothing before this sample is to be decoded again, samples: see `Continuation`."""
        if self._segments:
            segment = self._segments[0]
            return segment.words[-1].end if segment.words else segment.start
        reach = to_samples(self._s.onset_s + self._s.pad_s)
        return max(self._record.last_end, self._now - reach, 0)

    @property
    def kept(self) -> int:
        """Samples of audio held in memory."""
        return self._ring.end - self._ring.start

    @property
    def language(self) -> str | None:
        """The language spoken; None while it is not known."""
        return self._language.language

    def tasks_to_run(self) -> list[RecognitionTask]:
        tasks, self._to_run = self._to_run, []
        return tasks

    def tasks_to_cancel(self) -> list[str]:
        """Ids of tasks whose reply is no longer wanted."""
        ids, self._to_cancel = self._to_cancel, []
        return ids

    def events_to_send(self) -> list[Event]:
        return self._record.drain()

    def repairs(self) -> list[Repair]:
        """What came of speech that had brought no text, each time that something was done about it."""
        return self._hunger.repairs()

    def stretch(self, factor: float, *, brief: bool = False) -> None:
        """Load: refresh intervals are multiplied by `factor` (>= 1); `brief`, less is decoded once more."""
        self._segmenter.stretch, self._segmenter.brief = max(1.0, factor), brief

    # -- what it hears ---------------------------------------------------------------------------

    def receive_audio(self, audio: Audio, voices: list[Voice]) -> None:
        """Whole frames (n * FRAME samples) with their n verdicts; raises ValueError otherwise."""
        if len(audio) != FRAME * len(voices):
            raise ValueError(f"{len(audio)} samples do not fit {len(voices)} frames of {FRAME}")
        if self._ending:
            raise ValueError("no audio is taken after the end")
        self._ring.append(audio)
        for voice in voices:
            edge = self._gate.step(voice)
            self._activity.append(voiced=self._gate.voice_end == self._gate.now)
            if edge is not None:
                self._on_edge(edge)
            # Planned frame by frame, so that the packets' sizes make no difference.
            self._now = self._gate.now
            self._plan()
        self._forget()

    def receive_flush(self, id: str) -> None:
        """Make everything received final; `Flushed(id)` follows when it is."""
        self._flushes.append((id, self._now))
        self._stop_speech()
        self._plan()

    def receive_end(self, tail: Audio) -> None:
        """No more audio after `tail` (fewer than FRAME samples, the odd rest); `Ended` follows."""
        if self._ending:
            return
        self._ring.append(tail)
        self._now = self._ring.end
        self._ending = True
        self._stop_speech()
        self._plan()

    def receive_hypothesis(self, task: str, hypothesis: Hypothesis) -> None:
        """The reply to a task; a stale or unknown one changes nothing."""
        if self._task is None or self._cut is None or task != self._task.id:
            return
        cut = self._cut
        self._task = self._cut = None
        voiced = self._activity.voiced(cut.start, cut.end)
        self._language.vote(hypothesis.language, hypothesis.language_probability, voiced, cut.start, cut.end)
        words = spoken(hypothesis.words, self._transcript.end, cut.end)
        if cut.final:
            self._judge(cut, words, hypothesis)
        elif hypothesis.finish is Finish.STOP:
            self._attempt = 0
            unsure = self.language is None and hypothesis.language is not None
            self._refreshed(cut, words, unsure=unsure)
            self._feed(cut, words)
        else:
            self._attempt = min(self._attempt + 1, LADDER - 1)
            self._feed(cut, ())
        self._plan()

    def _judge(self, cut: Cut, words: tuple[Word, ...], reply: Hypothesis) -> None:
        """A final reply: take it, ask again, or take what there is and decode the rest by itself."""
        missed = self._misses(cut, words)
        starving, forced, torn = self._hunger.starving(missed), self._forced(cut), self._record.torn
        judged = self._worth(
            reply, missed, self._attempt, words=bool(words), forced=forced, torn=torn, starving=starving
        )
        if judged.step is Step.AGAIN:
            self._attempt += 1
            if starving:
                self._hunger.repair()
            if self._segments[0].end is None:
                self._send(cut)
            return
        self._attempt, kept = 0, words if judged.keep else ()
        if judged.step is Step.REST:
            end = kept[-1].end if kept else max(self._transcript.end, self._segments[0].start)
            cut = Cut(cut.start, end, Cause.SEAM)
        else:
            self._hunger.finished(missed, words=bool(kept), gap=judged.cause is not None)
        self._finish(cut, kept, cause=judged.cause)
        if judged.step is Step.REST:  # from the last word on: one that a seam cut is heard on neither side
            self._segmenter.origin = max(self._segmenter.origin, self._transcript.end)
        elif cut.cause is Cause.SEAM and not kept:
            self._segmenter.origin = max(self._segmenter.origin, cut.end)

    def _forced(self, cut: Cut) -> bool:
        """Whether a model may be stuck behind words: one that writes windows anew has none forced on it."""
        return self._forces and bool(self._transcript.since(cut.start))

    def _feed(self, cut: Cut, words: tuple[Word, ...]) -> None:
        """Once speech has brought no text for long, finish the window early, along the ladder: what follows
        begins anew. Before that, ask without the words that are forced on it: a model may be stuck there."""
        missed = 0 if self._segments[0].end is not None else self._misses(cut, words)
        if missed >= self._hunger.most:
            self._hunger.repair()
            self._attempt = 1
            self._send(self._segmenter.early(self._ring, cut.end, self._hunger.most))
            return
        if missed >= STUCK and not words and self._forced(cut) and not self._record.torn:
            self._segmenter.origin = self._transcript.end
            self._send(Cut(self._segmenter.origin, self._now, Cause.TICK))

    def receive_failure(self, task: str, cause: str, *, retryable: bool) -> None:
        """The task failed: a refresh is forgotten, a final is tried again or becomes a gap."""
        if self._task is None or self._cut is None or task != self._task.id:
            return
        cut = self._cut
        self._task = self._cut = None
        if cut.final and not retryable:
            self._hunger.finished(self._misses(cut, ()), words=False, gap=True)
            self._finish(cut, (), cause=cause)
        self._plan()

    # -- speech ----------------------------------------------------------------------------------

    def _on_edge(self, edge: Edge) -> None:
        match edge:
            case Started(at):
                if not self._segments:
                    self._segmenter.restart(at, self._record.last_end)
                self._segments.append(Segment(start=at))
            case Paused(at, voice_end):
                self._segments[-1].end = at
                self._segments[-1].voice_end = voice_end

    def _stop_speech(self) -> None:
        if (edge := self._gate.close()) is not None:
            self._on_edge(edge)
            if self._ending:  # the odd rest after the last frame belongs to the speech it ends
                self._segments[-1].end = self._now

    # -- decoding --------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Decide what is to be decoded now, once the inputs changed."""
        while self._segments and self._segments[0].end is not None:
            if self._cut is not None and self._task is not None:
                if self._cut.final or self._cut.end >= self._speech_end():
                    return  # the running decode will do
                self._to_cancel.append(self._task.id)
                self._task = self._cut = None
            if not self._reuse():
                self._send(self._segmenter.final_cut(self._ring, self._last_ended()))
                return
        if self._segments and self._task is None:
            segment = self._segments[0]
            cut = self._segmenter.tick(
                self._ring,
                self._now,
                start=segment.start + to_samples(self._s.pad_s),
                voice_end=self._gate.voice_end,
                shown=bool(segment.words or segment.partial),
            )
            if cut is not None:
                self._send(cut)
        self._settle()

    def _last_ended(self) -> int:
        """End of the last segment in the queue that has one and still fits in one window."""
        ends = [s.end for s in self._segments if s.end is not None]
        return max((e for e in ends if self._segmenter.fits(e)), default=ends[0])

    def _speech_end(self) -> int:
        """What a decode must have heard to be final for the first segment, samples."""
        segment = self._segments[0]
        assert segment.end is not None
        return min(segment.end, segment.voice_end + self._segmenter.tail)

    def _reuse(self) -> bool:
        """Take the newest refresh as final where it already heard the whole speech."""
        end = self._segments[0].end
        if end is None or self._attempt or self._tail_heard < self._speech_end():
            return False
        cut = Cut(self._segmenter.origin, end, Cause.PAUSE)
        words = tuple(w for w in self._stabilizer.tail if w.start + w.end < 2 * end)
        missed = self._misses(cut, words)
        if missed >= DOUBTFUL:
            return False
        self._hunger.finished(missed, words=bool(words), gap=False)
        self._finish(cut, words, cause=None)
        return True

    def _send(self, cut: Cut) -> None:
        """Make the task of a cut; its id is unique and no prefix of another of this session."""
        fresh = not self._segments[0].words and not self._stabilizer.tail
        priority = Priority.FINAL if cut.final else Priority.FIRST if fresh else Priority.REFRESH
        self._tasks_made += 1
        reach = min(to_samples(self._s.context_s), cut.start - self._language.since)
        self._task = RecognitionTask(
            id=f"{self._id}.{self._tasks_made:08d}",
            session=self._id,
            audio=self._ring.copy(cut.start, cut.end),
            start=cut.start,
            priority=priority,
            context=self._transcript.before(cut.start, reach) or self._context,
            prefix=self._transcript.since(cut.start),
            draft=self._stabilizer.tail,
            voiced=self._misses(cut, ()),
            language=self._language.language,
            likely=self._likely,
            detect=self._language.ask(),
            hotwords=self.hotwords,
            attempt=self._attempt,
            hurry=self._segmenter.stretch > 1.0,
        )
        self._cut = cut
        self._segmenter.heard = cut.end
        self._to_run.append(self._task)

    def _misses(self, cut: Cut, words: tuple[Word, ...]) -> int:
        """Voiced samples of a final window after its last word."""
        last = max(words[-1].end if words else 0, self._transcript.end, self._segments[0].start)
        return self._activity.voiced(last, cut.end)

    def _refreshed(self, cut: Cut, words: tuple[Word, ...], *, unsure: bool) -> None:
        """A tick's reply: commit what is safe, show the rest. While it is `unsure` which language is
        spoken, every word counts as doubtful."""
        # A word that would be too old when the next reply comes is committed with this one.
        next_reply = max(self._segmenter.refresh, self._now - cut.end) + MARGIN
        due = self._now - to_samples(self._s.max_delay_s) + next_reply
        stable = self._stabilizer.observe(words, self._s.horizons(cut.end, due, unsure=unsure))
        self._tail_heard = cut.end
        length = to_samples(self._s.segment_s)
        segment = self._record.commit_open(stable, length, now=self._now, language=self.language)
        self._record.show(segment, self._stabilizer.tail, now=self._now, language=self.language)
        self._segmenter.committed(self._ring, self._transcript.end)

    def _finish(self, cut: Cut, words: tuple[Word, ...], *, cause: str | None) -> None:
        """Everything up to `cut.end` is final: `words` are its last ones. With a `cause`, what they do
        not reach is a gap."""
        self._stabilizer.close()
        self._tail_heard = 0
        if cut.cause is Cause.SEAM:
            self._record.split(cut.end)
        while self._segments and self._segments[0].ends_by(cut.end):
            segment = self._segments[0]
            upcoming = self._segments[1] if len(self._segments) > 1 else None
            mine = words
            if upcoming is not None and upcoming.ends_by(cut.end):
                border = (segment.end or 0) + upcoming.start
                mine = tuple(w for w in words if w.start + w.end < border)
            words = words[len(mine) :]
            self._record.commit(segment, mine)
            self._record.close(now=self._now, language=self.language, cause=cause)
        self._segmenter.committed(self._ring, max(self._transcript.end, self._record.last_end))
        if self._segments:
            self._segmenter.restart(self._segments[0].start, self._record.last_end)

    def _settle(self) -> None:
        """Answer flushes and the end once nothing before them is pending."""
        pending = self._record.pending(self._now)
        while self._flushes and self._flushes[0][1] <= pending:
            self._record.tell(Flushed(*self._flushes.popleft()))
        if self._ending and not self._segments and not self._ended:
            self._ended = True
            self._record.tell(Ended(self._record.receipt(self._now)))

    def _forget(self) -> None:
        """Let old audio go, once a packet: frame by frame that took longer than all the rest."""
        pending, speaking = self._record.pending(self._now), bool(self._segments)
        keep = self._segmenter.keep_from(pending, self._record.last_end, speaking=speaking)
        self._ring.evict(keep)
        self._activity.evict(keep)
