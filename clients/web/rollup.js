// Roll-up captions: a few lines, words only ever appended, a line leaves at the top when a new one comes in at
// the bottom. Pure: times are milliseconds that the caller passes in.

import { after, columns, fits, joined } from "./lines.js";

const HOLD_MS = 1000;
const HOLD_PER_WORD_MS = 300;
const HURRIED_MS = 300;
const STUCK_MS = 10_000;

/** What is on the screen: `shown` is its lines, oldest first, each `{id, mark, speaker, text}`. */
export class RollUp {
  #lines = [];
  #queue = [];
  #waiting = 0;
  #speaker = null;
  #ids = 0;
  #last = 0;

  /** `cpl`: columns a line, `clearMs`: how long the last words stay, `names`: whether speakers are marked. */
  constructor({ lines = 2, cpl = 37, clearMs = 3000, names = true } = {}) {
    Object.assign(this, { lines, cpl, clearMs, names });
  }

  get shown() {
    return this.#lines.map(({ id, mark, speaker, words }) => ({ id, mark, speaker, text: joined(words) }));
  }

  /** Committed words to be shown: `{text, space?, speaker, name}`, the latter two null while nobody knows. */
  add(words) {
    for (const word of words) {
      this.#queue.push(word);
      this.#waiting += columns(word.text) + 1;
    }
  }

  /** Show at once all that waits: what was said before one began to look. */
  restore(now) {
    while (this.#queue.length > 0) this.#append(now);
  }

  /** Move on to `now`; `talking`: whether somebody is in the middle of something. */
  tick(now, talking = false) {
    while (this.#queue.length > 0) {
      // More than two screens behind: nothing is dropped, but lines go faster than one likes to read.
      const late = this.#waiting > 2 * this.lines * this.cpl;
      const held = late ? now - this.#lines[0]?.last >= HURRIED_MS : this.#held(this.#lines[0], now);
      if (this.#startsLine(this.#queue[0]) && this.#full && !held) return;
      this.#append(now);
    }
    const quiet = now - this.#last;
    const over = quiet >= this.clearMs && (!talking || quiet >= STUCK_MS);
    if (over && this.#lines.every((line) => this.#held(line, now))) this.#lines = [];
  }

  get #full() {
    return this.#lines.length >= this.lines;
  }

  #held(line, now) {
    return !line || now - line.last >= Math.max(HOLD_MS, HOLD_PER_WORD_MS * line.words.length);
  }

  #changes(word) {
    return this.names && word.speaker !== null && word.speaker !== this.#speaker;
  }

  #startsLine(word) {
    const line = this.#lines.at(-1);
    return !line || this.#changes(word) || !fits(word, line.used, this.cpl);
  }

  #append(now) {
    const word = this.#queue.shift();
    this.#waiting -= columns(word.text) + 1;
    if (this.#startsLine(word)) {
      const mark = this.#changes(word) ? `>> ${word.name}:` : "";
      if (mark) this.#speaker = word.speaker;
      this.#ids += 1;
      this.#lines.push({ id: this.#ids, mark, speaker: this.#speaker, words: [], used: columns(mark), last: now });
      this.#lines.splice(0, this.#lines.length - this.lines);
    }
    const line = this.#lines.at(-1);
    line.words.push(word);
    line.used = after(word, line.used);
    line.last = this.#last = now;
  }
}
