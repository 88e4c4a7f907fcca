// The page: what is heard here is said to the server, what it answers is shown.

import { ask, token } from "./access.js";
import { openFile, openLive, SourceError } from "./audio.js";
import { asText, Captions, CaptionView } from "./captions.js";
import { save, transcript } from "./exports.js";
import { Stream } from "./protocol.js";
import { find } from "./search.js";
import { Announcer, Gauges, say, show } from "./status.js";
import { themed } from "./theme.js";

const $ = (id) => document.getElementById(id);
const NEAR_END_PX = 80;

const view = new CaptionView($("transcript"), { rename });
const announcer = new Announcer($("announcer"));
let captions = new Captions();
let source = null;
let stream = null;
let gauges = null;
let drawing = 0;
let lock = null;
/** Something goes on that Start and Stop wait for. The button stays as it is: one that is disabled loses the focus. */
let busy = false;
/** Whether the transcript follows what is said, which it does until somebody scrolls away from its end. */
let pinned = true;

/** What `start` says of how the audio is, and what else was asked for. */
function order({ rate, channels, names }) {
  const hotwords = $("hotwords").value.split(",").map((word) => word.trim()).filter(Boolean);
  const language = $("language").value;
  return {
    audio: { encoding: "pcm_s16le", sample_rate: rate, channels },
    ...(names.length > 0 ? { tracks: names.map((name) => ({ name })) } : {}),
    ...(language ? { language } : { languages: likely() }),
    ...(hotwords.length > 0 ? { hotwords } : {}),
  };
}

/** What the person at this browser reads, and so probably speaks: half a second of speech alone tells no language. */
function likely() {
  const codes = navigator.languages.map((tag) => tag.toLowerCase().split("-")[0]);
  return [...new Set(codes)].filter((code) => /^[a-z]{2,3}$/.test(code)).slice(0, 16);
}

async function begin(kind, file = null) {
  alert("");
  busy = true;
  try {
    source = file ? await openFile(file, end, () => stream?.waiting ?? 0) : await openLive(kind, end);
    captions = new Captions();
    view.draw([]);
    announcer.reset();
    gauges = new Gauges(source);
    stream = new Stream({ base: location.href, start: order(source), token, on: { message, state, over } });
    stream.open();
    $("go").textContent = "Stop";
    lock = await navigator.wakeLock?.request("screen").catch(() => null);
    source.start(hear);
  } catch (error) {
    if (!(error instanceof SourceError)) throw error;
    alert(error.message);
  } finally {
    busy = false;
  }
}

function hear({ pcm, peaks }) {
  gauges.hear(pcm.byteLength, peaks);
  if (!stream.send(pcm)) {
    alert("The server took nothing for too long: what was not sent is not transcribed.");
    end();
  }
}

/** No more audio; what is still to come comes. */
async function end() {
  if (!source) return;
  const ending = source;
  source = null;
  state("ending");
  $("go").textContent = "Start";
  busy = true;
  await ending.stop();
  stream.end();
}

function message(one) {
  const fresh = captions.receive(one);
  if (one.type === "ready") document.querySelector(".tools").hidden = false;
  if (one.type === "gap") say(`Not understood from ${one.start_ms} to ${one.end_ms} ms: ${one.cause}`);
  if (fresh.length > 0) gauges.committed(fresh.at(-1).word.end_ms);
  announcer.hear(fresh, captions);
  drawing ||= requestAnimationFrame(draw);
}

function draw() {
  cancelAnimationFrame(drawing);
  drawing = 0;
  view.draw(captions.turns());
  search();
  follow();
}

function follow() {
  if (pinned) $("transcript").scrollTop = $("transcript").scrollHeight;
}

function state(name) {
  show(name);
  if (name !== "live") return;
  alert("");
}

async function over({ error, receipt }) {
  if (error?.code === "unauthorized" && (await ask($("access"), error.message))) {
    stream.open();
    return;
  }
  lock?.release();
  const stopping = source;
  source = null;
  await stopping?.stop();
  gauges.done();
  announcer.flush();
  $("go").textContent = "Start";
  busy = false;
  draw(); // the last words first: the browser draws its next frame when it likes, a tab behind others none
  show(error ? "failed" : "done", receipt);
  if (error) alert(await reason(error));
}

/** What went wrong, for a person. A browser is not told why a handshake failed; the server says it elsewhere. */
async function reason({ code, message: text }) {
  if (text) return text;
  if (stream.ready) return `The connection to the server was lost (${code}); what was said is kept under Sessions.`;
  try {
    const { reason: why } = await (await fetch("/readyz", { cache: "no-store" })).json();
    return why ? `The server takes nobody now: it is ${why}. Try again later.` : `The server refused (${code}).`;
  } catch {
    return "No server answers: is it running?";
  }
}

async function rename(speaker, name) {
  const { session, token: own } = stream.ready;
  const answer = await fetch(`/v1/sessions/${encodeURIComponent(session)}/speakers/${speaker}`, {
    method: "PUT",
    headers: { authorization: `Bearer ${own}`, "content-type": "application/json" },
    body: JSON.stringify({ name }),
  });
  if (!answer.ok) alert((await answer.text()).trim());
  else {
    captions.receive({ type: "named", speaker, name });
    draw();
  }
}

function alert(text) {
  $("alert").textContent = text;
  $("alert").hidden = text === "";
}

function search() {
  const found = find($("transcript"), $("search").value);
  $("found").textContent = found === null ? "" : `${found} found`;
}

async function copied(button, text) {
  const label = button.textContent;
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  say("Copied");
  setTimeout(() => (button.textContent = label), 1500);
}

$("controls").onsubmit = (event) => {
  event.preventDefault();
  const kind = new FormData(event.target).get("source");
  if (busy) return;
  if (source) end();
  else if (kind !== "file") begin(kind);
  else if ($("file").files[0]) begin("file", $("file").files[0]);
  else $("file").click();
};
$("controls").onchange = ({ target }) => {
  if (target.name === "source") $("file-row").hidden = target.value !== "file";
};
document.body.ondragover = (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
};
document.body.ondragleave = () => document.body.classList.remove("dropping");
document.body.ondrop = (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const [file] = event.dataTransfer.files;
  if (file && !source && !busy) begin("file", file);
};
$("search").oninput = search;
$("copy").onclick = ({ target }) => copied(target, asText(captions.turns()));
$("overlay").onclick = ({ target }) => {
  const { session, read_token } = stream.ready;
  // Behind a #, which no server and no proxy ever sees.
  const query = new URLSearchParams({ session, token: read_token, lines: 2, cpl: 37 });
  return copied(target, new URL(`/overlay#${query}`, location.href).href);
};
$("download").onclick = async () => {
  const format = $("format").value;
  const { session, token: own } = stream.ready;
  try {
    await save(await transcript(session, format, { authorization: `Bearer ${own}` }), `transcript.${format}`);
  } catch (error) {
    alert(error.message);
  }
};
$("transcript").onscroll = ({ target }) => {
  pinned = target.scrollHeight - target.scrollTop - target.clientHeight < NEAR_END_PX;
  $("newest").hidden = pinned;
};
$("newest").onclick = () => {
  pinned = true;
  follow();
};
new ResizeObserver(follow).observe($("transcript"));
addEventListener("online", () => stream?.hurry());
// Nobody can come back to what this page heard: its place is free at once, and overlays go to the next session.
addEventListener("pagehide", () => stream?.close());
addEventListener("beforeunload", (event) => source?.live && event.preventDefault());
themed($("theme"));
