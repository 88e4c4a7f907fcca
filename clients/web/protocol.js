// The native protocol from a browser: a stream that survives its connections, and a reader of somebody else's.

import { Kept } from "./kept.js";
import { BROKEN, Line } from "./line.js";

const BUFFERED = 256 * 1024;
const SILENCE_MS = 20_000;
const READER_SILENCE_MS = 90_000;

/** In place of a session: the one that began last, of those that live. */
export const LATEST = "latest";

/** The address of a websocket on the server at `base` (http, https or the page's own location). */
export function socketAddress(base, path) {
  const url = new URL(path, base);
  url.protocol = url.protocol === "https:" || url.protocol === "wss:" ? "wss:" : "ws:";
  return url.href;
}

/**
 * One session. Audio is kept until the server need not have it again; a connection that is lost is made anew and
 * the session goes on. `on` hears `message(m)`, `state(name)` (connecting, live, waiting) and, once, `over({error,
 * receipt, code})`. `token()` gives, perhaps later, a key or single-use token for `start`, or nothing.
 */
export class Stream {
  #line;
  #kept;
  #start;
  #token;
  #on;
  #ready = null;
  #here = false;
  #seq = 0;
  #error = null;
  #receipt = null;
  #pump = null;

  constructor({ base, start, token = () => undefined, on, WebSocket }) {
    const { sample_rate: rate = 16_000, channels = 1 } = start.audio ?? {};
    this.#kept = new Kept({ rate, channels });
    this.#start = start;
    this.#token = token;
    this.#on = on;
    this.#line = new Line({
      address: () => socketAddress(base, this.#ready ? "/v1/stream?resume=1" : "/v1/stream"),
      first: () => this.#first(),
      message: (message) => this.#receive(message),
      closed: (code) => this.#closed(code),
      failed: (error) => this.#finish({ code: 0, error: { code: "unauthorized", message: error.message } }),
      waiting: () => this.#on.state("waiting"),
      silenceMs: SILENCE_MS,
      ...(WebSocket ? { WebSocket } : {}),
    });
  }

  /** What the server said of the session; null before it did. */
  get ready() {
    return this.#ready;
  }

  /** Bytes that the server has not acknowledged. */
  get waiting() {
    return this.#kept.bytes;
  }

  /** Connect; once more, with another token, where the first was refused. */
  open() {
    this.#error = null;
    this.#on.state("connecting");
    this.#line.connect();
  }

  /** Say an ArrayBuffer of s16le audio in the format of `start`. False: too much waits, nothing was taken. */
  send(data) {
    if (this.#kept.full) return false;
    this.#kept.add({ data });
    this.#say();
    return true;
  }

  /** Make all so far final; answered by `flushed` with this id. */
  flush(id) {
    this.#kept.add({ message: { type: "flush", id } });
    this.#say();
  }

  /** No more audio comes. */
  end() {
    this.#kept.add({ message: { type: "end" } });
    this.#say();
  }

  /** The network is back. */
  hurry() {
    this.#line.hurry();
  }

  /** Leave at once; the server ends the session. */
  close() {
    clearTimeout(this.#pump);
    this.#line.close();
  }

  async #first() {
    if (this.#ready) {
      const { session, token } = this.#ready;
      const next_sample = this.#kept.firstSample;
      return { type: "resume", session, token, last_seq: this.#seq, next_sample };
    }
    const token = await this.#token();
    return { type: "start", ...this.#start, ...(token ? { token } : {}) };
  }

  #receive(message) {
    this.#seq = Math.max(this.#seq, message.seq);
    if (message.type === "ready") this.#begin(message);
    else if (message.type === "ack") this.#kept.forget(message.durable);
    else if (message.type === "flushed") this.#kept.answered(message.id);
    else if (message.type === "end") this.#receipt = message.receipt;
    else if (message.type === "error") this.#error = message;
    this.#on.message(message);
    this.#say();
  }

  #begin(ready) {
    if (ready.resumed) this.#kept.rewind(ready.next_sample ?? 0);
    this.#ready = ready;
    this.#here = true;
    this.#line.settle();
    this.#on.state("live");
  }

  #say() {
    clearTimeout(this.#pump);
    while (this.#here && this.#line.open) {
      if (this.#line.buffered > BUFFERED) {
        this.#pump = setTimeout(() => this.#say(), 20);
        return;
      }
      const item = this.#kept.next();
      if (!item) return;
      this.#line.send(item.data ?? JSON.stringify(item.message));
    }
  }

  #closed(code) {
    this.#here = false;
    if (this.#ready && !this.#error && BROKEN.has(code) && !(this.#receipt && code === 1000)) return true;
    this.#finish({ code, error: this.#error });
    return false;
  }

  #finish({ code, error }) {
    const lost = code === 1000 && this.#receipt ? null : { code: `close_${code}`, message: "" };
    this.#on.over({ code, error: error ?? lost, receipt: this.#receipt });
  }
}

/**
 * Reads a session that somebody else speaks in, from its beginning, over as many connections as it takes. `on` as
 * with `Stream`. `token` is the session's `read_token`; for `LATEST` a key with the scope `read`, or anything where the
 * server has none.
 */
export class Reader {
  #line;
  #seq = 0;
  #error = null;

  constructor({ base, session, token, on, WebSocket }) {
    this.#line = new Line({
      address: () => socketAddress(base, `/v1/sessions/${encodeURIComponent(session)}/events`),
      // Which session is the newest may have changed meanwhile.
      first: () => ({ type: "read", token, after: session === LATEST ? 0 : this.#seq }),
      message: (message) => {
        this.#seq = Math.max(this.#seq, message.seq);
        if (message.type === "error") this.#error = message;
        if (message.type === "ready") {
          this.#line.settle();
          on.state("live");
        }
        on.message(message);
      },
      closed: (code) => {
        // A server that cannot be reached yet may be there later; who reads has nothing to lose by asking.
        if (!this.#error && BROKEN.has(code)) return true;
        on.over({ code, error: this.#error });
        return false;
      },
      waiting: () => on.state("waiting"),
      silenceMs: READER_SILENCE_MS,
      ...(WebSocket ? { WebSocket } : {}),
    });
  }

  /** Connect; once more, where it is over. */
  open() {
    this.#error = null;
    this.#line.connect();
  }

  hurry() {
    this.#line.hurry();
  }

  close() {
    this.#line.close();
  }
}
