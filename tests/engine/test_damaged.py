"""Marked-up outputs that differ from decode to decode, damaged: through parser, guards and a session."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.contract import Capabilities, Finish, Hypothesis, Priority, RecognitionTask, Word
from engine.guards import TokenGuard
from engine.policies.moss_td import MossTdServing
from engine.policies.serving import Reply
from engine.policies.verdict import judged
from tests.support.virtual import run

from .traces import RATE, Heard, Speaker, Trace, play

CHINESE = "今天天气很好我们去公园走路明早再说吧他从北京来过三次都没见到那位老师"
ENGLISH = " ".join(f"w{number}" for number in range(60))
MIXED = " ".join(f"w{number} {char}" for number, char in enumerate(CHINESE[:20]))
TALKS = {
    "english": Trace("english", ENGLISH, 22.0),
    "chinese": Trace("chinese", CHINESE, 9.0, "zh"),
    "mixed": Trace("mixed", MIXED, 14.0, "zh"),
}
MOSS = MossTdServing()


def written(words: list[Word], start: int, dice: random.Random, damage: float) -> str:
    """`words` as the model writes them this time: other segments, other times, and what it damages."""
    out, at = "", 0
    while at < len(words):
        part = words[at : at + dice.randint(3, 9)]
        at += len(part)
        begin, end = (
            (place - start) / RATE + dice.uniform(-0.25, 0.25) for place in (part[0].start, part[-1].end)
        )
        number = dice.randint(1, 3)
        tag = dice.choice([f"[S{number:02d}]", f"[s{number}]", f"[ S{number:03d} ]"])
        text = "".join(f" {word.text}" if word.space else word.text for word in part).strip()
        marks = [f"[{max(begin, 0.0):.2f}]", tag, f"[{max(end, 0.0):.2f}]"]
        marks = ["" if dice.random() < damage else mark for mark in marks]
        if dice.random() < damage:
            marks[2] = dice.choice(["[999.0]", "[0.01]", f"[{end + 4.5:.1f}]"])
        out += marks[0] + marks[1] + text + marks[2]
        # A mark is all that stands between two segments; where it is lost, space is.
        out += "" if marks[2] or not text.isascii() else " "
    return out + dice.choice(["", "", "[", "[S0", "[12.", "<|im_end|>"])


@dataclass
class Damaged:
    """An engine whose every output is written anew."""

    speaker: Speaker
    dice: random.Random
    damage: float
    outputs: list[str]

    @property
    def capabilities(self) -> Capabilities:
        facts = MOSS.facts
        return Capabilities(
            "t", "t", facts.native_s, forced_prefix=False, speaker_tags=True, tries=facts.tries
        )

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        words, _ = self.speaker.says()
        text = written(words, task.start, self.dice, self.damage)
        self.outputs.append(text)
        ask = MOSS.ask(task, None)
        assert TokenGuard(ask.guard).feed((), text) is None, "nothing of this is a loop"
        reply = Reply((), text)
        return judged(task, reply, MOSS.read(task, ask, reply))[0]

    async def close(self) -> None:
        pass


def heard(trace: Trace, seed: int, damage: float) -> tuple[Heard, list[str]]:
    speaker = Speaker(trace, continues=False)
    engine = Damaged(speaker, random.Random(seed), damage, [])
    return run(play(engine, speaker)), engine.outputs


@pytest.mark.parametrize("name", TALKS)
@given(seed=st.integers(0, 2**32), damage=st.sampled_from([0.0, 0.15]))
@example(seed=58, damage=0.15)
@example(seed=125135, damage=0.15)
@settings(max_examples=25)
def test_no_word_is_lost_or_comes_twice(name: str, seed: int, damage: float) -> None:
    trace = TALKS[name]
    found, outputs = heard(trace, seed, damage)
    assert found.words == [word.text for word in trace.words()], outputs
    assert not found.gaps


LOOPS = (
    "哈哈哈哈" * 60,
    "ha " * 200,
    "[1.00][S01]好的。[2.00]" * 60,
    "[1.00][S01]ha[2.00][2.00][S02]ha[3.00]" * 40,
)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_is_stopped_long_before_its_end_and_is_no_success(loop: str) -> None:
    audio = TALKS["english"].audio()
    task = RecognitionTask("t", "s", audio, 0, Priority.FINAL)
    ask = MOSS.ask(task, None)
    guard = TokenGuard(ask.guard)
    text = "[0.00][S01]so it began[1.00]" + loop
    stopped = next(end for end in range(0, len(text), 4) if guard.feed((), text[:end]) is not None)
    assert stopped < len(text) * 3 / 4
    reply = Reply((), text[:stopped], alarm=TokenGuard(ask.guard).feed((), text[:stopped]))
    assert judged(task, reply, MOSS.read(task, ask, reply))[0].finish is Finish.LOOP
    assert not re.search(r"\[|S0", "".join(word.text for word in MOSS.read(task, ask, reply).words))
