// Samples of the audio thread to batches of s16le with their levels. Pure.

/** Interleaves channels and hands out `frames` of them at a time: `{pcm, peaks}`, the peaks from 0 to 1. */
export class Batcher {
  #at = 0;

  constructor(channels, frames, give) {
    Object.assign(this, { channels, frames, give });
    this.#empty();
  }

  /** One block: for each channel its samples from -1 to 1, or nothing where it is silent. */
  push(blocks, length) {
    for (let i = 0; i < length; i += 1) {
      for (let channel = 0; channel < this.channels; channel += 1) {
        const sample = blocks[channel]?.[i] ?? 0;
        this.peaks[channel] = Math.max(this.peaks[channel], Math.abs(sample));
        const at = 2 * (this.#at * this.channels + channel);
        this.view.setInt16(at, Math.max(-32_768, Math.min(32_767, Math.round(sample * 32_768))), true);
      }
      this.#at += 1;
      if (this.#at === this.frames) this.flush();
    }
  }

  /** Hand out what there is. */
  flush() {
    if (this.#at === 0) return;
    const pcm = this.view.buffer.slice(0, 2 * this.#at * this.channels);
    this.give({ pcm, peaks: this.peaks });
    this.#empty();
  }

  #empty() {
    this.#at = 0;
    this.view = new DataView(new ArrayBuffer(2 * this.frames * this.channels));
    this.peaks = new Array(this.channels).fill(0);
  }
}
