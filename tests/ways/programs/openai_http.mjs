// openai 6: URL KEY FILE SPEED. Prints what each way to ask answers.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { OpenAI, toFile } = createRequire(`${process.env.WAYS}/node-openai/`)("openai");
const [url, key, file] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
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
const ask = async (more) =>
  client.audio.transcriptions.create({ file: await toFile(recording, "clip.wav"), model: "any", ...more });

say("json", await ask({}));
say("verbose", await ask({ response_format: "verbose_json", timestamp_granularities: ["word"] }));
say("diarized", await ask({ response_format: "diarized_json" }));
for await (const event of await ask({ stream: true })) say(event.type, event);
try {
  await client.audio.transcriptions.create({ file: await toFile(Buffer.from("<html>"), "a.wav"), model: "any" });
} catch (error) {
  say("no audio", { class: error.constructor.name, status: error.status, param: error.param });
}
