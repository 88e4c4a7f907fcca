import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { Kept } from "../../clients/web/kept.js";
import { pauseMs } from "../../clients/web/line.js";
import { Batcher } from "../../clients/web/pcm.js";
import { Reader, socketAddress, Stream } from "../../clients/web/protocol.js";

let sockets = [];
let open = [];

class Socket {
  constructor(url, protocols) {
    Object.assign(this, { url, protocols, readyState: 0, bufferedAmount: 0, sent: [], closed: null });
    sockets.push(this);
  }

  send(data) {
    assert.equal(this.readyState, 1, "said to nobody");
    this.sent.push(typeof data === "string" ? JSON.parse(data) : [...new Int16Array(data)]);
  }

  close(code) {
    this.readyState = 3;
    this.closed = code ?? 1005;
  }

  open() {
    this.readyState = 1;
    this.onopen();
  }

  say(message) {
    this.onmessage({ data: JSON.stringify(message) });
  }

  lose(code = 1006) {
    this.readyState = 3;
    this.onclose({ code });
  }
}

const READY = { type: "ready", seq: 1, session: "s", token: "secret", read_token: "r", resume_ms: 60_000 };
const samples = (...values) => new Int16Array(values).buffer;
const turn = () => new Promise((resolve) => setImmediate(resolve));

function streaming(options = {}) {
  const heard = { states: [], messages: [], over: [] };
  const on = {
    state: (name) => heard.states.push(name),
    message: (message) => heard.messages.push(message.type),
    over: (how) => heard.over.push(how),
  };
  const start = { audio: { encoding: "pcm_s16le", sample_rate: 16_000, channels: 1 } };
  const stream = new Stream({ base: "http://host:1/page", start, on, WebSocket: Socket, ...options });
  open.push(stream);
  return { stream, heard };
}

beforeEach(() => (sockets = []));
// Whoever is not told that it is over comes back for ever.
afterEach(() => {
  open.forEach((one) => one.close());
  open = [];
});

test("audio said before the server is ready is said once it is", async () => {
  const { stream, heard } = streaming({ token: async () => "once" });
  stream.open();
  stream.send(samples(1, 2));
  await turn();
  const [socket] = sockets;
  assert.equal(socket.url, "ws://host:1/v1/stream");
  assert.deepEqual(socket.protocols, ["seamscribe.v1.json"]);
  socket.open();
  assert.deepEqual(socket.sent.map((one) => [one.type, one.token]), [["start", "once"]]);
  socket.say(READY);
  assert.deepEqual(socket.sent[1], [1, 2]);
  stream.end();
  assert.equal(socket.sent[2].type, "end");
  socket.say({ type: "end", seq: 2, receipt: { samples: 2 } });
  socket.lose(1000);
  assert.deepEqual(heard.over, [{ code: 1000, error: null, receipt: { samples: 2 } }]);
  assert.deepEqual(heard.states, ["connecting", "live"]);
});

test("a lost connection is made anew, and what was not acknowledged is said again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { stream, heard } = streaming();
  stream.open();
  await turn();
  const [first] = sockets;
  first.open();
  first.say(READY);
  stream.send(samples(1, 2, 3));
  stream.send(samples(4, 5));
  first.say({ type: "ack", seq: 7, sample: 3, durable: 3 });
  first.lose();
  stream.send(samples(6));
  assert.deepEqual(heard.states, ["connecting", "live", "waiting"]);
  t.mock.timers.tick(250);
  await turn();
  const [, second] = sockets;
  assert.equal(second.url, "ws://host:1/v1/stream?resume=1");
  second.open();
  assert.deepEqual(second.sent, [{ type: "resume", session: "s", token: "secret", last_seq: 7, next_sample: 3 }]);
  second.say({ ...READY, seq: 7, resumed: true, next_sample: 4 });
  assert.deepEqual(second.sent.slice(1), [[5], [6]]);
});

test("a connection on which nothing comes is dead", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { stream, heard } = streaming();
  stream.open();
  await turn();
  sockets[0].open();
  sockets[0].say(READY);
  t.mock.timers.tick(19_999);
  assert.equal(heard.states.at(-1), "live");
  t.mock.timers.tick(1);
  assert.equal(heard.states.at(-1), "waiting");
  assert.notEqual(sockets[0].closed, null);
  stream.hurry();
  await turn();
  assert.equal(sockets.length, 2);
});

test("what the server says no to is over, and may be tried with another token", async () => {
  const { stream, heard } = streaming();
  stream.send(samples(1));
  stream.open();
  await turn();
  sockets[0].open();
  sockets[0].say({ type: "error", seq: 0, code: "unauthorized", message: "a key is needed" });
  sockets[0].lose(4401);
  assert.equal(heard.over[0].error.code, "unauthorized");
  stream.open();
  await turn();
  sockets[1].open();
  sockets[1].say(READY);
  assert.deepEqual(sockets[1].sent[1], [1]);
});

test("a server that was never there is not asked for ever", async () => {
  const { stream, heard } = streaming();
  stream.open();
  await turn();
  sockets[0].lose();
  assert.deepEqual(heard.over, [{ code: 1006, error: { code: "close_1006", message: "" }, receipt: null }]);
  // Whoever gives up says so; until then audio is kept for another try.
  assert.equal(stream.send(samples(1)), true);
});

test("a session that another connection took, or that is gone, is over", async () => {
  for (const [code, close] of [["replaced", 4409], ["resume_refused", 4404]]) {
    const { stream, heard } = streaming();
    stream.open();
    await turn();
    const socket = sockets.at(-1);
    socket.open();
    socket.say(READY);
    socket.say({ type: "error", seq: 1, code, message: "no" });
    socket.lose(close);
    assert.equal(heard.over[0].error.code, code);
  }
});

test("nothing is pushed into a socket that does not get rid of what it has", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { stream } = streaming();
  stream.open();
  await turn();
  const [socket] = sockets;
  socket.open();
  socket.say(READY);
  socket.bufferedAmount = 1 << 20;
  stream.send(samples(1));
  assert.equal(socket.sent.length, 1);
  socket.bufferedAmount = 0;
  t.mock.timers.tick(20);
  assert.deepEqual(socket.sent[1], [1]);
});

test("a reader goes on where it was", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const on = { state() {}, message() {}, over: (how) => assert.fail(JSON.stringify(how)) };
  const reader = new Reader({ base: "https://host/overlay?x=1", session: "a/b", token: "r", on, WebSocket: Socket });
  open.push(reader);
  reader.open();
  await turn();
  assert.equal(sockets[0].url, "wss://host/v1/sessions/a%2Fb/events");
  sockets[0].open();
  sockets[0].say({ type: "named", seq: 9, speaker: 1, name: "Ada" });
  sockets[0].lose();
  t.mock.timers.tick(250);
  await turn();
  sockets[1].open();
  assert.deepEqual(sockets[1].sent, [{ type: "read", token: "r", after: 9 }]);
});

test("addresses", () => {
  assert.equal(socketAddress("https://host/deep/page?q", "/v1/stream"), "wss://host/v1/stream");
});

test("pauses grow, are random and bounded", () => {
  assert.deepEqual([0, 1, 2, 9].map((n) => pauseMs(n, () => 1)), [250, 500, 1000, 5000]);
  assert.equal(pauseMs(9, () => 0), 2500);
});

test("kept audio: any cut, any acknowledgement, other rates and channels", () => {
  let seed = 11;
  const draw = (most) => (seed = (seed * 48_271) % 2_147_483_647) % most;
  for (let round = 0; round < 200; round += 1) {
    const [rate, channels] = [[16_000, 1], [48_000, 2], [8_000, 1]][draw(3)];
    const kept = new Kept({ rate, channels });
    const frames = 1 + draw(200);
    for (let at = 0; at < frames; ) {
      const more = Math.min(frames - at, 1 + draw(30));
      const values = Array.from({ length: more * channels }, (_, i) => at * channels + i);
      kept.add({ data: samples(...values) });
      at += more;
    }
    kept.add({ message: { type: "end" } });
    for (let n = draw(20); n > 0; n -= 1) kept.next();
    const had = draw(Math.floor((frames * 16_000) / rate) + 1);
    kept.forget(had);
    assert.ok(kept.firstSample <= had);
    kept.rewind(had);
    const rest = [];
    let item;
    for (item = kept.next(); item?.data; item = kept.next()) rest.push(...new Int16Array(item.data));
    assert.equal(item.message.type, "end");
    const first = Math.ceil((had * rate) / 16_000) * channels;
    assert.deepEqual(rest, Array.from({ length: Math.max(0, frames * channels - first) }, (_, i) => first + i));
  }
});

test("kept audio is bounded, and a flush that was answered is not said again", () => {
  const kept = new Kept({ rate: 16_000, channels: 1, most: 4 });
  kept.add({ data: samples(1) });
  assert.equal(kept.full, false);
  kept.add({ data: samples(2) });
  assert.equal(kept.full, true);
  kept.add({ message: { type: "flush", id: "f" } });
  while (kept.next());
  kept.answered("f");
  kept.rewind(2);
  assert.equal(kept.next(), null);
});

test("samples are batched, clamped and measured", () => {
  const given = [];
  const batcher = new Batcher(2, 3, (batch) => given.push(batch));
  batcher.push([[0, 0.5, -1.5, 0.25], undefined], 4);
  batcher.flush();
  batcher.flush();
  const values = given.map(({ pcm }) => [...new Int16Array(pcm)]);
  assert.deepEqual(values, [[0, 0, 16_384, 0, -32_768, 0], [8192, 0]]);
  assert.deepEqual(given.map(({ peaks }) => peaks), [[1.5, 0], [0.25, 0]]);
});
