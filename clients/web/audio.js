// Where audio comes from: a microphone, what a tab or the system plays, both side by side, or a file.
//
// A source is `{rate, channels, names, live, start(hear), stop()}`: `hear({pcm, peaks})` is given batches of s16le;
// `start` calls nothing before it returns, `stop` resolves once the last batch was given.

import { Batcher } from "./pcm.js";

const RATE = 16_000;
const BATCH_S = 0.04;
const MAX_FILE_BYTES = 500 * 1024 * 1024;
const WAITING_BYTES = 20 * RATE * 2;

/** What somebody can do something about. */
export class SourceError extends Error {}

/** Open a source of `kind` (microphone, tab, both); `ended()` is called when the browser ends it. */
export async function openLive(kind, ended) {
  if (!navigator.mediaDevices) throw new SourceError("Audio needs https, or http on localhost: open the page there.");
  const streams = [];
  try {
    if (kind !== "microphone") streams.push(await tab());
    if (kind !== "tab") streams.unshift(await microphone(kind === "both"));
    return await tapped(streams, kind, ended);
  } catch (error) {
    streams.forEach(silence);
    throw explained(error);
  }
}

async function microphone(echoes) {
  // What a loudspeaker plays would be heard twice; else the room is wanted as it is.
  const audio = { echoCancellation: echoes, noiseSuppression: false, autoGainControl: true };
  return navigator.mediaDevices.getUserMedia({ audio });
}

async function tab() {
  // No browser shares sound alone: a picture comes along, as little of it as can be.
  const stream = await navigator.mediaDevices.getDisplayMedia({
    video: { frameRate: 1 },
    audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    systemAudio: "include",
  });
  if (stream.getAudioTracks().length > 0) return stream;
  silence(stream);
  throw new SourceError("No sound was shared: choose a tab or the screen again, and tick “share audio”.");
}

function silence(stream) {
  for (const track of stream.getTracks()) track.stop();
}

function explained(error) {
  if (error instanceof SourceError) return error;
  const remedies = {
    NotAllowedError: "The browser was not allowed to listen: allow it in the address bar, then start again.",
    NotFoundError: "There is no microphone: plug one in, then start again.",
    NotReadableError: "The microphone is used by something else: close that, then start again.",
    NotSupportedError: "This browser cannot share sound: use Chrome or Edge, or the microphone.",
  };
  return new SourceError(remedies[error.name] ?? `The sound cannot be used: ${error.message}`);
}

async function tapped(streams, kind, ended) {
  const { context, nodes } = await graph(streams);
  await context.audioWorklet.addModule(new URL("./worklet.js", import.meta.url));
  const channels = streams.length;
  const tap = new AudioWorkletNode(context, "seamscribe-tap", {
    numberOfInputs: channels,
    numberOfOutputs: 0,
    channelCount: 1,
    channelCountMode: "explicit",
    processorOptions: { channels, frames: Math.round(context.sampleRate * BATCH_S) },
  });
  for (const track of streams.flatMap((stream) => stream.getAudioTracks())) track.onended = ended;
  return {
    rate: context.sampleRate,
    channels,
    names: kind === "both" ? ["Microphone", "Tab"] : [],
    live: true,
    start(hear) {
      tap.port.onmessage = ({ data }) => data.pcm && hear(data);
      nodes.forEach((node, index) => node.connect(tap, 0, index));
      return context.resume();
    },
    async stop() {
      const { onmessage } = tap.port;
      const last = new Promise((resolve) => {
        tap.port.onmessage = (event) => (event.data.last ? resolve() : onmessage?.(event));
        setTimeout(resolve, 500); // an audio thread that is gone answers nobody
      });
      tap.port.postMessage("stop");
      await last;
      streams.forEach(silence);
      await context.close();
    },
  };
}

async function graph(streams) {
  // The browser resamples to 16 kHz where it can; where a device insists on its own rate, the server does.
  for (const options of [{ sampleRate: RATE }, {}]) {
    const context = new AudioContext(options);
    try {
      return { context, nodes: streams.map((stream) => context.createMediaStreamSource(stream)) };
    } catch (error) {
      await context.close();
      if (!options.sampleRate) throw error;
    }
  }
  throw new SourceError("The sound cannot be used.");
}

/** A file's sound, as fast as the server takes it; `waiting()` tells how many bytes it has yet to take. */
export async function openFile(file, ended, waiting) {
  if (file.size > MAX_FILE_BYTES) {
    throw new SourceError("The file is too large for a browser: use `seamscribe replay FILE`.");
  }
  let sound;
  try {
    sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new SourceError(`${file.name} holds no sound that this browser can read: try WAV, MP3, M4A, FLAC or Ogg.`);
  }
  const mono = mixed(sound);
  let stopped = false;
  return {
    rate: RATE,
    channels: 1,
    names: [],
    live: false,
    seconds: sound.duration,
    async start(hear) {
      const batcher = new Batcher(1, RATE / 4, hear);
      for (let at = 0; at < mono.length && !stopped; at += RATE) {
        batcher.push([mono.subarray(at, at + RATE)], Math.min(RATE, mono.length - at));
        while (waiting() > WAITING_BYTES && !stopped) await new Promise((next) => setTimeout(next, 50));
      }
      batcher.flush();
      if (!stopped) ended();
    },
    async stop() {
      stopped = true;
    },
  };
}

function mixed(sound) {
  const channels = Array.from({ length: sound.numberOfChannels }, (_, index) => sound.getChannelData(index));
  return channels[0].map((_, at) => channels.reduce((sum, channel) => sum + channel[at], 0) / channels.length);
}
