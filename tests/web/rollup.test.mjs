import assert from "node:assert/strict";
import { test } from "node:test";

import { columns } from "../../clients/web/lines.js";
import { RollUp } from "../../clients/web/rollup.js";

const said = (text, speaker = null) =>
  text.split(" ").map((one) => ({ text: one, speaker, name: speaker === null ? null : `Speaker ${speaker}` }));
const texts = (rollup) => rollup.shown.map(({ mark, text }) => (mark ? `${mark} ${text}` : text));

test("words are appended, and a line leaves at the top", () => {
  const rollup = new RollUp({ lines: 2, cpl: 10 });
  rollup.add(said("one two three"));
  rollup.tick(0);
  assert.deepEqual(texts(rollup), ["one two", "three"]);
  rollup.add(said("four five"));
  rollup.tick(2000, true);
  assert.deepEqual(texts(rollup), ["three four", "five"]);
});

test("a line stays as long as it takes to read", () => {
  const rollup = new RollUp({ lines: 1, cpl: 20 });
  rollup.add(said("a b c d e"));
  rollup.tick(0);
  rollup.add(said("something_quite_long"));
  rollup.tick(1499);
  assert.deepEqual(texts(rollup), ["a b c d e"]);
  rollup.tick(1500);
  assert.deepEqual(texts(rollup), ["something_quite_long"]);
  rollup.add(said("x_________________x"));
  rollup.tick(2499);
  assert.deepEqual(texts(rollup), ["something_quite_long"]);
  rollup.tick(2500);
  assert.deepEqual(texts(rollup), ["x_________________x"]);
});

test("whoever is more than two screens behind is hurried, and still sees every line", () => {
  const rollup = new RollUp({ lines: 2, cpl: 10 });
  rollup.add(said(Array.from({ length: 40 }, (_, n) => `word${n}`).join(" ")));
  const seen = new Set();
  for (let now = 0; now < 20_000; now += 100) {
    rollup.tick(now, true);
    for (const line of texts(rollup)) seen.add(line);
  }
  assert.equal(seen.size, 40);
  const [held, hurried] = [5, 39].map((n) => {
    const one = new RollUp({ lines: 2, cpl: 10 });
    one.add(said(Array.from({ length: n }, (_, i) => `word${i}`).join(" ")));
    one.tick(0);
    one.tick(300);
    return texts(one);
  });
  assert.deepEqual([held, hurried], [["word0", "word1"], ["word2", "word3"]]);
});

test("a new speaker has a new line and a mark, one nobody knows has not", () => {
  const rollup = new RollUp({ lines: 4, cpl: 37 });
  rollup.add([...said("Good morning."), ...said("Hello.", 1), ...said("Right.", 1), ...said("What?"), ...said("No.", 2)]);
  rollup.tick(0);
  assert.deepEqual(texts(rollup), ["Good morning.", ">> Speaker 1: Hello. Right. What?", ">> Speaker 2: No."]);
  assert.deepEqual(rollup.shown.map(({ speaker }) => speaker), [null, 1, 2]);
});

test("without names there are no marks", () => {
  const rollup = new RollUp({ names: false });
  rollup.add([...said("Hello.", 1), ...said("No.", 2)]);
  rollup.tick(0);
  assert.deepEqual(texts(rollup), ["Hello. No."]);
});

test("the last words go after a while, not while somebody talks, and not before they could be read", () => {
  const rollup = new RollUp({ clearMs: 2000, cpl: 42 });
  rollup.add(said("one two"));
  rollup.tick(0);
  rollup.tick(2000, true);
  assert.equal(rollup.shown.length, 1);
  rollup.tick(2000);
  assert.equal(rollup.shown.length, 0);
  rollup.add(said("a b c d e f g h i j"));
  rollup.tick(10_000);
  rollup.tick(12_999);
  assert.equal(rollup.shown.length, 1);
  rollup.tick(13_000);
  assert.equal(rollup.shown.length, 0);
  rollup.add(said("stuck"));
  rollup.tick(20_000, true);
  rollup.tick(30_000, true);
  assert.equal(rollup.shown.length, 0);
});

test("what was said before is there at once", () => {
  const rollup = new RollUp({ lines: 2, cpl: 16 });
  rollup.add(said("so it was said long before anybody looked"));
  rollup.restore(0);
  assert.deepEqual(texts(rollup), ["long before", "anybody looked"]);
});

test("shown lines never change, nothing is lost, no line is too wide", () => {
  let seed = 7;
  const draw = (most) => (seed = (seed * 48_271) % 2_147_483_647) % most;
  for (let round = 0; round < 50; round += 1) {
    const rollup = new RollUp({ lines: 1 + draw(3), cpl: 16 + draw(30) });
    const seen = new Map();
    const all = [];
    for (let now = 0; now < 60_000; now += 100) {
      if (now < 30_000 && draw(8) === 0) {
        const speaker = draw(4) || null;
        const words = said(Array.from({ length: 1 + draw(6) }, () => "w".repeat(1 + draw(9)) + all.length).join(" "), speaker);
        rollup.add(words);
        all.push(...words.map(({ text }) => text));
      }
      rollup.tick(now, draw(2) === 0);
      assert.ok(rollup.shown.length <= rollup.lines);
      for (const { id, mark, text } of rollup.shown) {
        assert.ok(text.startsWith(seen.get(id) ?? ""), "a shown line changed");
        assert.ok(columns(`${mark} ${text}`.trim()) <= rollup.cpl || !text.includes(" "));
        seen.set(id, text);
      }
    }
    assert.equal([...seen.values()].join(" "), all.join(" "));
    assert.deepEqual(rollup.shown, []);
  }
});
