// openai 6, realtime over TLS, with a secret as a browser has it, then with the key: URL KEY FILE SPEED.
// Prints each event as JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const find = createRequire(`${process.env.WAYS}/node-openai/`);
const { OpenAI } = find("openai");
const { OpenAIRealtimeWS } = find("openai/realtime/ws");
const { OpenAIRealtimeWebSocket } = find("openai/realtime/websocket");
globalThis.WebSocket ??= find("ws").WebSocket; // Node 20 has none of its own
const [url, key, file, speed] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const say = (kind, content) => console.log(JSON.stringify([kind, content]));

const { value } = await client.realtime.clientSecrets.create({ session: { type: "transcription" } });
const visitor = new OpenAI({ baseURL: `${url}/v1`, apiKey: value, dangerouslyAllowBrowser: true });
const page = new OpenAIRealtimeWebSocket({ model: "any", dangerouslyAllowBrowser: true }, visitor);
await new Promise((done) => page.on("event", (event) => (say("secret", event), done())));
page.close();

const realtime = new OpenAIRealtimeWS({ model: "any" }, client);
let last = null;
let spoken = false;
realtime.on("error", (error) => say("error", { message: error.message }));
realtime.on("event", (event) => {
  say("event", event);
  if (spoken && event.type === "input_audio_buffer.committed") last = event.item_id;
  if (event.type === "conversation.item.done" && event.item.id === last) realtime.close();
});
realtime.socket.on("close", () => process.exit(0));
await new Promise((done) => realtime.socket.on("open", done));
const input = {
  format: { type: "audio/pcm", rate: 16000 },
  turn_detection: { type: "server_vad", silence_duration_ms: 500 },
};
realtime.send({ type: "session.update", session: { type: "transcription", audio: { input } } });
const audio = readFileSync(file);
for (let at = 0; at < audio.length; at += 3200) {
  realtime.send({ type: "input_audio_buffer.append", audio: audio.subarray(at, at + 3200).toString("base64") });
  await new Promise((done) => setTimeout(done, 100 / Number(speed)));
}
spoken = true;
realtime.send({ type: "input_audio_buffer.commit" });
