// Captions over a picture: what a session says as roll-up lines on nothing.
//
// /overlay#session=..&token=..&lines=2&cpl=37: `token` is the session's read_token; a ? does too, and is logged.
// /overlay follows the newest session, and goes to the next when it ends; where keys are set `token` is one (read).
// Also at=top, size=1.2, box=0.8 (0: none, letters with a shadow), names=0, clear=3 (seconds).

import { Captions } from "./captions.js";
import { LATEST, Reader } from "./protocol.js";
import { RollUp } from "./rollup.js";

const TICK_MS = 100;
const SNAPSHOT_MS = 400;
const RESTORED_WORDS = 60;
const NEXT_MS = 2000;
const UNAUTHORIZED = 4401;

const query = new URLSearchParams(location.search);
for (const [name, value] of new URLSearchParams(location.hash.slice(1))) query.set(name, value);

/** A number of the address within its bounds, or what is usual. */
function number(name, usual, least, most) {
  const value = Number.parseFloat(query.get(name) ?? "");
  return Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : usual;
}

const element = document.querySelector("#captions");
const problem = document.querySelector("#problem");
const following = (query.get("session") || LATEST) === LATEST;
const look = {
  lines: Math.round(number("lines", 2, 1, 6)),
  cpl: Math.round(number("cpl", 37, 16, 80)),
  clearMs: number("clear", 3, 1, 600) * 1000,
  names: query.get("names") !== "0",
};
const drawn = new Map();
let captions = new Captions();
let rollup = new RollUp(look);
let snapshot = [];
let seen = null;

function tell(text) {
  problem.textContent = text;
  problem.hidden = text === "";
}

function dress() {
  const box = number("box", 0.8, 0, 1);
  const { style } = document.documentElement;
  style.setProperty("--cpl", String(look.cpl));
  style.setProperty("--scale", String(number("size", 1, 0.3, 3)));
  style.setProperty("--box", String(box));
  document.body.classList.toggle("bare", box < 0.5);
  document.body.classList.toggle("top", query.get("at") === "top");
}

function worded({ word, segment: { id } }) {
  const segment = captions.segments.get(id);
  return { ...word, speaker: segment.speaker, name: captions.nameOf(segment) };
}

/** Another session speaks now: nothing of the last one is on the screen, nor in its captions. */
function restart() {
  captions = new Captions();
  rollup = new RollUp(look);
  drawn.clear();
  element.replaceChildren();
  snapshot = [];
  seen = null;
}

function receive(message) {
  const known = captions.ready?.session;
  if (message.type === "ready" && known && known !== message.session) restart();
  const fresh = captions.receive(message);
  if (message.type === "ready" && seen === null) seen = performance.now();
  if (snapshot) snapshot.push(...fresh);
  else rollup.add(fresh.map(worded));
}

/** What was said before one began to look comes in one go; its last lines are there at once. */
function restore(now) {
  if (!snapshot || seen === null || now - seen < SNAPSHOT_MS) return;
  rollup.add(snapshot.slice(-RESTORED_WORDS).map(worded));
  rollup.restore(now);
  snapshot = null;
}

function draw() {
  const shown = rollup.shown;
  const ids = new Set(shown.map((line) => line.id));
  for (const [id, node] of drawn) {
    if (ids.has(id)) continue;
    node.remove();
    drawn.delete(id);
  }
  for (const { id, mark, speaker, text } of shown) {
    const node = drawn.get(id) ?? create(id, speaker);
    const said = mark ? `${mark} ${text}` : text;
    if (node.textContent !== said) node.firstChild.textContent = said;
  }
}

function create(id, speaker) {
  const node = document.createElement("div");
  node.className = speaker === null ? "line" : `line s${((speaker - 1) % 4) + 1}`;
  node.append(document.createElement("span"));
  element.append(node);
  drawn.set(id, node);
  return node;
}


function begin() {
  const session = query.get("session") || LATEST;
  const token = query.get("token") || (following ? "-" : "");
  if (!token) {
    tell("This address needs token=…: copy it from the page with “Copy overlay link”, or leave session=… out.");
    return;
  }
  const state = (name) => tell(name === "waiting" && seen === null ? "Waiting for the server…" : "");
  const over = ({ code, error }) => {
    const next = following && code !== UNAUTHORIZED;
    tell(error && !next ? `No captions: ${error.message || error.code}` : "");
    if (next) setTimeout(() => reader.open(), NEXT_MS);
  };
  const reader = new Reader({ base: location.href, session, token, on: { message: receive, state, over } });
  addEventListener("online", () => reader.hurry());
  reader.open();
  setInterval(() => {
    const now = performance.now();
    restore(now);
    rollup.tick(now, captions.talking);
    draw();
  }, TICK_MS);
}

dress();
begin();
