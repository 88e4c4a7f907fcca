// What was said to the server and may have to be said again. Pure. The counterpart of clients/kept.py.

const CLOCK_RATE = 16_000;

/** Audio (s16le) of one session in order, with flushes and the end where they stand. */
export class Kept {
  #said = [];
  #unsaid = [];
  #end = 0;
  #bytes = 0;

  /** `most`: bytes of audio that may wait for their acknowledgement. */
  constructor({ rate, channels, most = 64 * 1024 * 1024 }) {
    this.rate = rate;
    this.stride = 2 * channels;
    this.most = most;
  }

  get full() {
    return this.#bytes >= this.most;
  }

  /** Bytes that were not acknowledged yet. */
  get bytes() {
    return this.#bytes;
  }

  /** Bytes that are still to be sent over the present connection. */
  get unsent() {
    const first = this.#unsaid[0];
    return first ? this.#end - first.at : 0;
  }

  /** The oldest sample, on the 16 kHz clock, that can still be sent. */
  get firstSample() {
    const first = [...this.#said, ...this.#unsaid].find((item) => item.data);
    return Math.ceil(((first ? first.at : this.#end) * CLOCK_RATE) / (this.stride * this.rate));
  }

  /** `data`: an ArrayBuffer of audio, else `message`: something to say once everything before it was said. */
  add({ data = null, message = null }) {
    this.#unsaid.push({ at: this.#end, data, message });
    this.#end += data ? data.byteLength : 0;
    this.#bytes += data ? data.byteLength : 0;
  }

  /** What is to be said now, as it was added; null where nothing waits. */
  next() {
    const item = this.#unsaid.shift();
    if (!item) return null;
    this.#said.push(item);
    return item;
  }

  /** Audio before `sample` (16 kHz clock) need not be sent again. */
  forget(sample) {
    const limit = Math.floor((sample * this.rate) / CLOCK_RATE) * this.stride;
    let done = 0;
    while (done < this.#said.length && this.#said[done].data && end(this.#said[done]) <= limit) {
      this.#bytes -= this.#said[done].data.byteLength;
      done += 1;
    }
    this.#said.splice(0, done);
  }

  /** The oldest flush of this id need not be sent again. */
  answered(id) {
    const index = this.#said.findIndex((item) => item.message?.type === "flush" && item.message.id === id);
    if (index >= 0) this.#said.splice(index, 1);
  }

  /** A new connection: audio goes on with `sample` (16 kHz clock), flushes and the end are said again. */
  rewind(sample) {
    const at = Math.ceil((sample * this.rate) / CLOCK_RATE) * this.stride;
    const items = [...this.#said, ...this.#unsaid];
    this.#said = [];
    this.#unsaid = [];
    for (const item of items) {
      if (!item.data || item.at >= at) this.#unsaid.push(item);
      else if (end(item) <= at) this.#said.push(item);
      else {
        this.#said.push({ ...item, data: item.data.slice(0, at - item.at) });
        this.#unsaid.push({ ...item, at, data: item.data.slice(at - item.at) });
      }
    }
  }
}

function end(item) {
  return item.at + (item.data ? item.data.byteLength : 0);
}
