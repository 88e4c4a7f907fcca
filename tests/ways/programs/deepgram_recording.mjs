// @deepgram/sdk 5 on a recording: URL KEY FILE SPEED. Prints what each way to ask answers.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { DeepgramClient } = createRequire(`${process.env.WAYS}/node-deepgram/`)("@deepgram/sdk");
const [url, key, file] = process.argv.slice(2);
const client = new DeepgramClient({ apiKey: key, environment: { base: url, production: url, agent: url, agentRest: url } });
const say = (kind, content) => console.log(JSON.stringify([kind, content]));

const samples = readFileSync(file);
const header = Buffer.alloc(44);
header.write("RIFF", 0);
header.writeUInt32LE(36 + samples.length, 4);
header.write("WAVEfmt ", 8);
[16, 0x00010001, 16000, 32000, 0x00100002].forEach((value, at) => header.writeUInt32LE(value, 16 + 4 * at));
header.write("data", 36);
header.writeUInt32LE(samples.length, 40);
const recording = Buffer.concat([header, samples]);
const { media } = client.listen.v1;

say("smart", await media.transcribeFile(recording, { model: "nova-3", smart_format: true, utterances: true }));
try {
  await media.transcribeUrl({ url: `${url}/healthz`, model: "nova-3" }, { maxRetries: 0 });
} catch (error) {
  say("url", { status: error.statusCode, body: error.body });
}
