// One websocket after another to the same place: opened, watched for silence, opened again with growing, random
// pauses until somebody says that it is over.

const PROTOCOL = "seamscribe.v1.json";
const OPEN_MS = 15_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5_000;

/** Close codes that say nothing against the session: its connection was lost, it may go on over another. */
export const BROKEN = new Set([1001, 1005, 1006, 1011, 1012, 1013]);

/** How long to wait before the attempt number `attempt`, from 0; random, so that not all come at once. */
export function pauseMs(attempt, random = Math.random) {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt) * (0.5 + random() / 2);
}

/**
 * `address()` and `first()` (may be async) give the address and the first message of each connection;
 * `message(m)` hears what comes; `closed(code)` says by returning true that another connection is wanted;
 * `waiting(ms)` is told of each pause before one. A connection on which nothing came for `silenceMs` is dead.
 */
export class Line {
  #options;
  #socket = null;
  #attempt = 0;
  #timer = null;
  #watch = null;
  #turn = 0;

  constructor(options) {
    this.#options = { WebSocket: globalThis.WebSocket, silenceMs: 20_000, ...options };
  }

  get open() {
    return this.#socket !== null && this.#socket.readyState === 1;
  }

  /** Bytes that the browser has not sent yet. */
  get buffered() {
    return this.#socket?.bufferedAmount ?? 0;
  }

  async connect() {
    this.#drop();
    const turn = ++this.#turn;
    const { address, first, WebSocket } = this.#options;
    let hello;
    try {
      hello = JSON.stringify(await first());
    } catch (error) {
      if (turn === this.#turn) this.#options.failed?.(error);
      return;
    }
    if (turn !== this.#turn) return;
    const socket = new WebSocket(address(), [PROTOCOL]);
    this.#socket = socket;
    socket.onopen = () => {
      socket.send(hello);
      this.#listen();
    };
    socket.onmessage = (event) => {
      this.#listen();
      this.#options.message(JSON.parse(event.data));
    };
    socket.onclose = (event) => this.#lost(event.code);
    this.#watch = setTimeout(() => this.#lost(1006), OPEN_MS);
  }

  /** The connection does what it should: the next pause is the shortest again. */
  settle() {
    this.#attempt = 0;
  }

  send(data) {
    this.#socket.send(data);
  }

  /** Do not wait any longer: the network is back. */
  hurry() {
    if (this.#timer !== null) this.connect();
  }

  /** Nothing more comes or goes. */
  close(code = 1000) {
    const socket = this.#socket;
    this.#drop();
    this.#turn += 1;
    if (socket && socket.readyState <= 1) socket.close(code);
  }

  #listen() {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => this.#lost(1006), this.#options.silenceMs);
  }

  #lost(code) {
    const dead = this.#socket;
    this.#drop();
    if (dead && dead.readyState <= 1) dead.close();
    if (!this.#options.closed(code)) return;
    const wait = pauseMs(this.#attempt++);
    this.#timer = setTimeout(() => this.connect(), wait);
    this.#options.waiting?.(wait);
  }

  #drop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#timer = null;
    if (this.#socket) this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket = null;
  }
}
