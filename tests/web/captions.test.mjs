import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { asText, Captions, clock } from "../../clients/web/captions.js";
import { columns, fill } from "../../clients/web/lines.js";

const vectors = (name) => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), "utf8"));
const word = (text) => (text.startsWith(" ") ? { text: text.trim() } : { text, space: false });

for (const [text, width] of Object.entries(vectors("lines").columns)) {
  test(`columns of ${JSON.stringify(text)}`, () => assert.equal(columns(text), width));
}

for (const { name, words, limit, lines } of vectors("lines").fill) {
  test(`lines: ${name}`, () => assert.deepEqual(fill(words.map(word), limit), lines));
}

for (const { name, messages, turns } of vectors("captions")) {
  test(`captions: ${name}`, () => {
    const captions = new Captions();
    for (const message of messages) captions.receive(message);
    const shown = captions.turns().map(({ speaker, name: who, text, partial }) => ({ speaker, name: who, text, partial }));
    assert.deepEqual(shown, turns);
  });
  test(`captions, each message twice: ${name}`, () => {
    const captions = new Captions();
    for (const message of messages) captions.receive(message);
    const fresh = messages.filter(({ type }) => type === "segment").flatMap((message) => captions.receive(message));
    assert.deepEqual(fresh, []);
    assert.equal(captions.turns().map(({ text }) => text).join(), turns.map(({ text }) => text).join());
  });
}

test("committed words are handed out once, whoever shows them", () => {
  const captions = new Captions();
  const [, , , , , , , split] = vectors("captions");
  const fresh = split.messages.flatMap((message) => captions.receive(message)).map(({ word: { text } }) => text);
  assert.deepEqual(fresh, ["Here?", "Yes."]);
});

test("as text, with names where anybody has one", () => {
  const turns = [{ name: "Ada", text: "Hello." }, { name: null, text: "Who?" }, { name: "Bob", text: "" }];
  assert.equal(asText(turns), "Ada: Hello.\nUnknown: Who?");
  assert.equal(asText([{ name: null, text: "Hello." }]), "Hello.");
});

test("the clock", () => {
  assert.deepEqual([0, 59_999, 61_000, 3_725_000].map(clock), ["0:00", "0:59", "1:01", "1:02:05"]);
});
