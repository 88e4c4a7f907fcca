// What is kept: a list of sessions, their transcripts to read and to save.

import { ask, headers } from "./access.js";
import { Captions, CaptionView, clock } from "./captions.js";
import { save, transcript } from "./exports.js";
import { themed } from "./theme.js";

const $ = (id) => document.getElementById(id);
const view = new CaptionView($("transcript"));
let next = null;
let reading = null;

function alert(text) {
  $("alert").textContent = text;
  $("alert").hidden = text === "";
}

/** Do something that needs a key where keys are set; asks for one as often as it takes. */
async function allowed(act) {
  alert("");
  for (;;) {
    try {
      return await act();
    } catch (error) {
      const refused = error.status === 401 || error.status === 403;
      if (!refused || !(await ask($("access"), error.message))) {
        alert(error.message);
        return undefined;
      }
    }
  }
}

async function page() {
  const query = next ? `&before=${encodeURIComponent(next)}` : "";
  const answer = await fetch(`/v1/sessions?limit=50${query}`, { headers: headers() });
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
  return answer.json();
}

async function list() {
  const found = await allowed(page);
  if (!found) return;
  $("list").append(...found.sessions.map(row));
  next = found.next;
  $("more").hidden = next === null;
  $("none").hidden = $("list").children.length > 0;
}

function row({ session, label, state, started, audio_ms }) {
  const line = document.createElement("tr");
  const began = new Date(started).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  for (const text of [began, clock(audio_ms), state]) line.insertCell().textContent = text;
  line.cells[2].dataset.state = state;
  if (label) line.cells[0].append(Object.assign(document.createElement("small"), { textContent: label }));
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Read";
  button.ariaLabel = `Read the session of ${began}`;
  button.onclick = () => read(session, began, line);
  line.insertCell().append(button);
  return line;
}

async function read(session, began, line) {
  const answer = await allowed(() => transcript(session, "json", headers()));
  if (!answer) return;
  const captions = new Captions();
  for (const segment of (await answer.json()).segments) {
    captions.receive({ ...segment, type: "segment", rev: 1, partial: "", speaker: segment.speaker ?? null });
  }
  view.draw(captions.turns());
  reading = session;
  for (const one of $("list").rows) one.classList.toggle("chosen", one === line);
  $("reading").hidden = false;
  $("read-title").textContent = `Session of ${began}`;
  $("read-title").focus();
}

for (const button of document.querySelectorAll("[data-format]")) {
  const { format } = button.dataset;
  button.onclick = async () => {
    const answer = await allowed(() => transcript(reading, format, headers()));
    if (answer) await save(answer, `transcript.${format}`);
  };
}

$("more").onclick = list;
themed($("theme"));
list();
