// Server messages to what a reader sees, and a small view of it for any page.
//
//   import { embed } from "https://captions.example/web/captions.js";
//   embed(document.querySelector("#captions"), { base: "https://captions.example", session, token });

import { columns, spaced } from "./lines.js";
import { Reader } from "./protocol.js";

/** The present state of one session; feed it every message. Pure. The counterpart of clients/captions.py. */
export class Captions {
  /** Newest revision of each segment by id. */
  segments = new Map();
  names = new Map();
  /** Who came or left, by id. */
  participants = new Map();
  gaps = [];
  ready = null;
  receipt = null;
  error = null;
  /** Counts the changes. */
  version = 0;
  #words = new Map();

  /** Takes the next message; returns the segment's words that were not known, as `{word, segment}`. */
  receive(message) {
    this.version += 1;
    if (message.type === "segment") return this.#segment(message);
    if (message.type === "speaker") this.#revise(message);
    else if (message.type === "named") this.names.set(message.speaker, message.name);
    else if (message.type === "participant") this.participants.set(message.id, message);
    else if (message.type === "gap") this.gaps.push(message);
    else if (message.type === "ready") this.ready = message;
    else if (message.type === "end") this.receipt = message.receipt;
    else if (message.type === "error") this.error = message;
    return [];
  }

  /** Whether somebody is in the middle of something. */
  get talking() {
    return [...this.segments.values()].some((segment) => !segment.final && segment.partial);
  }

  /** How the speaker of a segment is called, on one line; null while nobody knows. */
  nameOf(segment) {
    const name = (this.names.has(segment.speaker) ? this.names.get(segment.speaker) : segment.name) || null;
    if (name) return name.replace(/[\p{C}\p{Z}]+/gu, " ").trim();
    return segment.speaker === null ? null : `Speaker ${segment.speaker}`;
  }

  /** Segments in order of time. */
  ordered() {
    const place = (s) => [s.start_ms, s.track ?? 0, s.first_word, s.id];
    return [...this.segments.values()].sort((a, b) => compare(place(a), place(b)));
  }

  /** What each says without another between: `{key, speaker, name, start_ms, text, partial}`, in order. */
  turns() {
    const turns = [];
    for (const segment of this.ordered()) {
      const said = segment.text.trim();
      if (!said && (segment.final || !segment.partial)) continue;
      const name = this.nameOf(segment);
      let turn = turns.at(-1);
      if (!turn || turn.speaker !== segment.speaker || turn.name !== name) {
        turn = { key: segment.id, speaker: segment.speaker, name, start_ms: segment.start_ms, text: "", partial: "" };
        turns.push(turn);
      }
      if (said) turn.text += (turn.text && spaced(segment.words[0]) ? " " : "") + said;
      turn.partial += partialOf(segment, turn.text + turn.partial);
    }
    return turns;
  }

  #segment(segment) {
    const known = this.segments.get(segment.id);
    if (known && segment.rev <= known.rev) return [];
    this.segments.set(segment.id, segment);
    const track = segment.track ?? 0;
    const count = this.#words.get(track) ?? 0;
    const fresh = segment.words.slice(Math.max(0, count - segment.first_word));
    if (fresh.length > 0) this.#words.set(track, segment.first_word + segment.words.length);
    return fresh.map((word) => ({ word, segment }));
  }

  #revise({ segment, rev, speaker, name }) {
    const known = this.segments.get(segment);
    if (known && rev > known.rev) this.segments.set(segment, { ...known, rev, speaker, name });
  }
}

function compare(a, b) {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : a[at] - b[at];
}

/** What may still change of a segment, as it stands behind the text `before`. */
function partialOf(segment, before) {
  if (segment.final || !segment.partial) return "";
  // A segment without words yet cannot say whether its script has spaces.
  const wide = (text, at) => columns([...text].at(at) ?? "") === 2;
  const touches = segment.words.length > 0 || !before || (wide(before, -1) && wide(segment.partial, 0));
  return touches ? segment.partial : ` ${segment.partial.trimStart()}`;
}

/** The transcript as text, who speaks before what is said where anybody is known. */
export function asText(turns) {
  const named = turns.some((turn) => turn.name);
  const lines = turns.filter((turn) => turn.text);
  return lines.map(({ name, text }) => (named ? `${name ?? "Unknown"}: ${text}` : text)).join("\n");
}

/** Minutes and seconds of the audio clock, hours where there are any. */
export function clock(ms) {
  const [hours, minutes, seconds] = [3_600_000, 60_000, 1000].map((unit) => Math.floor(ms / unit));
  const two = (number) => String(number % 60).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
}

/**
 * Draws turns into an element, touching only what changed. Text that may still change is a span of class
 * `partial`, which screen readers are not told. With `rename(speaker, name)` names can be changed.
 */
export class CaptionView {
  #element;
  #rename;
  #drawn = new Map();

  constructor(element, { rename = null } = {}) {
    this.#element = element;
    this.#rename = rename;
  }

  draw(turns) {
    const keys = new Set(turns.map((turn) => turn.key));
    for (const [key, { node }] of this.#drawn) {
      if (keys.has(key)) continue;
      node.remove();
      this.#drawn.delete(key);
    }
    let place = this.#element.firstChild;
    for (const turn of turns) {
      const { node } = this.#update(turn);
      if (node === place) place = place.nextSibling;
      else this.#element.insertBefore(node, place);
    }
  }

  #update(turn) {
    const drawn = this.#drawn.get(turn.key) ?? this.#create(turn);
    const { node, name, text, partial, was } = drawn;
    if (was.name !== turn.name || was.speaker !== turn.speaker) {
      name.textContent = turn.name ?? "";
      name.hidden = turn.name === null;
      name.dataset.speaker = turn.speaker ?? "";
      node.className = turn.speaker === null ? "turn" : `turn s${((turn.speaker - 1) % 8) + 1}`;
    }
    if (was.text !== turn.text) text.textContent = turn.text;
    if (was.partial !== turn.partial) partial.textContent = turn.text ? turn.partial : turn.partial.trimStart();
    drawn.was = turn;
    return drawn;
  }

  #create(turn) {
    const node = make("article", "turn");
    const head = make("header", "");
    const name = make(this.#rename ? "button" : "span", "speaker");
    const time = make("time", "", clock(turn.start_ms));
    const body = make("p", "");
    const text = make("span", "text");
    const partial = make("span", "partial");
    partial.ariaHidden = "true";
    name.hidden = true;
    if (this.#rename) {
      name.type = "button";
      name.title = "Rename";
      name.onclick = () => this.#ask(name);
    }
    head.append(name, time);
    body.append(text, partial);
    node.append(head, body);
    const drawn = { node, name, text, partial, was: { name: null, speaker: null, text: "", partial: "" } };
    this.#drawn.set(turn.key, drawn);
    return drawn;
  }

  #ask(name) {
    const form = make("form", "rename");
    const field = make("input", "");
    const close = () => {
      form.replaceWith(name);
      name.focus();
    };
    field.value = name.textContent;
    field.maxLength = 64;
    field.required = true;
    field.ariaLabel = `New name of ${name.textContent}`;
    field.onkeydown = (event) => {
      if (event.key === "Escape") close();
    };
    form.onsubmit = (event) => {
      event.preventDefault();
      close();
      this.#rename(Number(name.dataset.speaker), field.value.trim());
    };
    form.append(field, make("button", "", "Save"));
    name.replaceWith(form);
    field.focus();
    field.select();
  }
}

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

/** Live captions of a session in any page's element; returns what closes them. `token`: its `read_token`. */
export function embed(element, { base, session, token }) {
  const captions = new Captions();
  const view = new CaptionView(element);
  const message = (one) => {
    captions.receive(one);
    view.draw(captions.turns());
  };
  const reader = new Reader({ base, session, token, on: { message, state() {}, over() {} } });
  reader.open();
  return () => reader.close();
}
