// How it goes: state, time, delay and levels; and what screen readers are told.

import { clock } from "./captions.js";
import { joined } from "./lines.js";

const $ = (id) => document.getElementById(id);
const STATES = {
  connecting: "Connecting…",
  live: "Listening",
  waiting: "Connection lost: coming back, nothing is lost",
  ending: "Finishing…",
  failed: "Stopped",
};
const SILENT_DB = -60;
const ANNOUNCED = 5;
const ENOUGH_WORDS = 12;

/** Show a state of the stream; with `done`, the receipt. */
export function show(name, receipt = null) {
  $("state").dataset.state = document.body.dataset.state = name;
  $("state").textContent = name === "done" ? account(receipt) : STATES[name];
}

function account({ duration_ms, words, gap_ms }) {
  const gaps = gap_ms > 0 ? `, ${clock(gap_ms)} not understood` : ", nothing missing";
  return `Done: ${clock(duration_ms)}, ${words} words${gaps}`;
}

/** Tell screen readers something beside the captions. */
export function say(text) {
  const line = document.createElement("p");
  line.textContent = text;
  $("announcer").append(line);
}

/** Time, delay and levels of a source. */
export class Gauges {
  #bytes = 0;
  #source;
  #meters;

  constructor(source) {
    this.#source = source;
    const names = source.names.length > 0 ? source.names : ["Level"];
    this.#meters = names.map(() => document.createElement("meter"));
    const labels = names.map((name, index) => {
      const label = document.createElement("label");
      Object.assign(this.#meters[index], { min: SILENT_DB, max: 0, low: -45, high: -6, optimum: -20, value: SILENT_DB });
      label.append(name, this.#meters[index]);
      return label;
    });
    $("levels").replaceChildren(...labels);
    $("time").hidden = false;
    $("time").textContent = clock(0);
    $("delay").hidden = true;
  }

  get #ms() {
    return (this.#bytes / (2 * this.#source.channels * this.#source.rate)) * 1000;
  }

  /** A batch of audio, and the greatest sample of each channel. */
  hear(bytes, peaks) {
    this.#bytes += bytes;
    $("time").textContent = clock(this.#ms);
    peaks.forEach((peak, index) => {
      const level = peak > 0 ? Math.max(SILENT_DB, 20 * Math.log10(peak)) : SILENT_DB;
      this.#meters[index].value = level;
      this.#meters[index].style.setProperty("--level", 1 - level / SILENT_DB);
    });
  }

  /** A word was committed that ends at this place of the audio. */
  committed(endMs) {
    if (!this.#source.live) return;
    $("delay").hidden = false;
    $("delay").textContent = `${(Math.max(0, this.#ms - endMs) / 1000).toFixed(1)} s behind`;
  }

  done() {
    $("levels").replaceChildren();
    $("time").hidden = true;
    $("delay").hidden = true;
  }
}

/** Committed words for screen readers, in pieces worth reading out: nothing that may change, nothing twice. */
export class Announcer {
  #element;
  #words = [];
  #who = null;

  constructor(element) {
    this.#element = element;
  }

  reset() {
    this.#words = [];
    this.#who = null;
    this.#element.replaceChildren();
  }

  hear(fresh, captions) {
    for (const { word, segment } of fresh) {
      const who = captions.nameOf(segment);
      if (who !== null && who !== this.#who) {
        this.flush();
        this.#words.push({ text: `${who}:` });
        this.#who = who;
      }
      this.#words.push(word);
      if (this.#words.length >= ENOUGH_WORDS || /[.!?。！？]$/u.test(word.text)) this.flush();
    }
    if (!captions.talking) this.flush();
  }

  flush() {
    if (this.#words.length === 0) return;
    say(joined(this.#words));
    this.#words = [];
    while (this.#element.children.length > ANNOUNCED) this.#element.firstChild.remove();
  }
}
