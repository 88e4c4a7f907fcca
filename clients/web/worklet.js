// Runs in the audio thread: every input is a channel; batches of 40 ms go to the page.

import { Batcher } from "./pcm.js";

class Tap extends AudioWorkletProcessor {
  constructor({ processorOptions: { channels, frames } }) {
    super();
    this.on = true;
    this.batcher = new Batcher(channels, frames, (batch) => this.port.postMessage(batch, [batch.pcm]));
    this.port.onmessage = () => {
      this.batcher.flush();
      this.port.postMessage({ last: true });
      this.on = false;
    };
  }

  process(inputs) {
    if (this.on) this.batcher.push(inputs.map((input) => input[0]), 128);
    return this.on;
  }
}

registerProcessor("seamscribe-tap", Tap);
