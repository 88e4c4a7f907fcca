// @deepgram/sdk 5: URL KEY FILE SPEED. Prints each message as JSON, and how it was closed.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { DeepgramClient } = createRequire(`${process.env.WAYS}/node-deepgram/`)("@deepgram/sdk");
const [url, key, file, speed] = process.argv.slice(2);
const socketUrl = url.replace("http", "ws");
const client = new DeepgramClient({
  apiKey: key,
  environment: { base: url, production: socketUrl, agent: socketUrl, agentRest: url },
});
const connection = await client.listen.v1.connect({
  model: "nova-3",
  encoding: "linear16",
  sample_rate: 16000,
  interim_results: "true",
  punctuate: "true",
});
connection.on("message", (message) => console.log(JSON.stringify([message.type, message])));
connection.on("error", (error) => console.log(JSON.stringify(["Error", { message: error.message }])));
connection.on("close", (event) => {
  console.log(JSON.stringify(["Closed", { code: event.code }]));
  process.exit(0);
});
connection.connect();
await connection.waitForOpen();
const audio = readFileSync(file);
for (let at = 0; at < audio.length; at += 3200) {
  connection.sendMedia(audio.subarray(at, at + 3200));
  await new Promise((done) => setTimeout(done, 100 / Number(speed)));
}
connection.sendFinalize({ type: "Finalize" });
connection.sendCloseStream({ type: "CloseStream" });
