// Drives xpyd with the official Node SDK, openai, and asserts what its user sees.
import OpenAI from "openai";
import { DECODE, KEY, URL, VICTIM, VICTIM_PID, attempts, call, expect, fault, legs, nothingHeld, raises, runAll, same, wait } from "./rig.mjs";

const model = "sim";
const client = new OpenAI({ baseURL: URL + "/v1", apiKey: KEY });
const once = { maxRetries: 0 };
const tools = [{ type: "function", function: {
  name: "weather", description: "of a town",
  parameters: { type: "object", properties: { town: { type: "string" } }, required: ["town"] } } }];

const messages = (text) => [{ role: "system", content: "Be brief." }, { role: "user", content: text }];
const chat = (text, more, options, c = client) =>
  c.chat.completions.create({ model, messages: messages(text), max_tokens: 8, ...more }, options);
const longStory = { max_tokens: 1000, stream: true };
const named = (id) => ({ headers: { "X-Request-Id": id } });

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** Reads n events and leaves the stream open. */
async function readSome(stream, n = 5) {
  const events = stream[Symbol.asyncIterator]();
  for (let i = 0; i < n; i++) expect(!(await events.next()).done, "the stream ended early");
  return events;
}

const drain = async (events) => { while (!(await events.next()).done); };

/** The engines are busy until xpyd has said so once; the SDK's second attempt succeeds. */
async function retried(status, id) {
  const before = await attempts();
  await fault(`status=${status}`);
  const mended = wait("a first attempt", async () => (await attempts()) > before).finally(() => fault(""));
  const begun = Date.now();
  const answer = await chat("Try again", {}, named(id));
  const took = Date.now() - begun;
  await mended;
  same(answer.choices[0].finish_reason, "length", "finish_reason");
  same(await attempts() - before, 2, "attempts");
  expect(took >= 1000, `${took} ms for both, want the second at least the second later that Retry-After asks for`);
  same(await legs(id), [3, 3], "prefill and decode legs: two rounds fail, one succeeds");
}

await runAll({
  "models": async () => same((await collect(await client.models.list())).map((m) => m.id), [model], "models"),

  "chat and its stream": async () => {
    const ask = { model, messages: messages("Why do clouds float?") }; // no limit: it ends by itself
    const whole = await client.chat.completions.create(ask);
    same(whole.choices[0].finish_reason, "stop", "finish_reason");
    same(whole.usage.completion_tokens, 64, "completion_tokens");
    expect(whole._request_id, "no request id");
    const deltas = [];
    const stream = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
    stream.on("content", (delta) => deltas.push(delta));
    const final = await stream.finalChatCompletion();
    expect(deltas.length >= 64, `${deltas.length} deltas`);
    same(deltas.join(""), whole.choices[0].message.content, "streamed text");
    same(final.choices[0].message.content, whole.choices[0].message.content, "accumulated text");
    same(final.choices[0].finish_reason, "stop", "finish_reason of the stream");
    same(final.usage.completion_tokens, 64, "completion_tokens of the stream");
  },

  "completion and its stream": async () => {
    const ask = { model, prompt: "Once upon a time", max_tokens: 16 };
    const whole = await client.completions.create(ask);
    const chunks = await collect(await client.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } }));
    same(chunks.map((c) => c.choices[0]?.text ?? "").join(""), whole.choices[0].text, "streamed text");
    same(chunks.at(-2).choices[0].finish_reason, "length", "finish_reason");
    same(chunks.at(-1).usage.completion_tokens, 16, "completion_tokens");
  },

  "several choices": async () => {
    const answer = await chat("Two, please", { n: 2, temperature: 1 });
    same(answer.choices.map((c) => c.index), [0, 1], "choices");
  },

  "sixteen streams at once": async () => {
    const ends = await Promise.all(Array.from({ length: 16 }, async (_, i) => {
      const chunks = await collect(await chat(`Tell story ${i}`, { max_tokens: 20, stream: true }));
      return chunks.at(-1).choices[0].finish_reason;
    }));
    same(ends, Array(16).fill("length"), "finish_reasons");
  },

  "tools reach the engines": async () => {
    const answer = await chat("Weather in Rome?", { tools, tool_choice: "none" });
    same(answer.choices[0].finish_reason, "length", "finish_reason");
    // The engines were started without a tool-call parser, and say so: they saw the tools.
    for (const tool_choice of ["auto", "required", { type: "function", function: { name: "weather" } }]) {
      const err = await raises(OpenAI.BadRequestError, () => chat("Weather in Rome?", { tools, tool_choice }));
      expect(err.message.includes("tool-call-parser"), `message ${err.message}`);
    }
  },

  "bad requests": async () => {
    let err = await raises(OpenAI.BadRequestError, () => chat("hi", { kv_transfer_params: { a: 1 } }));
    same([err.status, err.code, err.param], [400, "unsupported_parameter", "kv_transfer_params"], "error");
    err = await raises(OpenAI.BadRequestError, () => chat("hi", { temperature: -1 }));
    same([err.status, err.type], [400, "BadRequestError"], "the engine's error");
    err = await raises(OpenAI.BadRequestError, () => chat("word ".repeat(40000)));
    expect(err.message.includes("maximum context length"), `message ${err.message}`);
  },

  "wrong key, model and route": async () => {
    const stranger = new OpenAI({ baseURL: URL + "/v1", apiKey: "sk-wrong" });
    let err = await raises(OpenAI.AuthenticationError, () => chat("hi", {}, {}, stranger));
    same([err.status, err.code], [401, "invalid_api_key"], "error");
    err = await raises(OpenAI.NotFoundError, () => chat("hi", { model: "none" }));
    expect(err.message.includes("`none` does not exist"), `message ${err.message}`);
    err = await raises(OpenAI.NotFoundError, () => client.embeddings.create({ model, input: "hi" }));
    same(err.code, "unknown_route", "code");
  },

  "too much at once": async () => {
    const streams = await Promise.all(Array.from({ length: 20 }, (_, i) => chat(`Hold ${i}`, longStory)));
    const err = await raises(OpenAI.RateLimitError, () => chat("one more", {}, once))
      .finally(() => streams.forEach((s) => s.controller.abort()));
    same([err.status, err.code, err.headers.get("retry-after")], [429, "client_limit", "1"], "error");
    await nothingHeld();
  },

  "retries a 429": () => retried(429, "node-429"),
  "retries a 503": () => retried(503, "node-503"),

  "no retry after two burnt prefills": async () => {
    const before = await attempts();
    const err = await raises(OpenAI.InternalServerError, () => chat("[[D:rst]]", {}, named("node-burnt")));
    same([err.status, err.code], [502, "decode_failed"], "error");
    same(await attempts() - before, 1, "attempts");
    same(await legs("node-burnt"), [2, 2], "prefill and decode legs");
    await nothingHeld();
  },

  "a stream left half way": async () => {
    let events = 0;
    for await (const _ of await chat("A long story", longStory)) if (++events === 5) break;
    await nothingHeld();
  },

  "a call that times out while the prompt is computed": async () => {
    await raises(OpenAI.APIConnectionTimeoutError,
      () => chat("word ".repeat(16000), {}, { ...once, ...named("node-hasty"), timeout: 300 }));
    await nothingHeld();
    same(await legs("node-hasty"), [1, 0], "prefill and decode legs");
  },

  "a stream that breaks off": async () => {
    // The engine's own error event passes as it is, then the stream breaks off.
    for (const [marker, code] of [["[[D:die@6]]", "decode_failed"], ["[[D:die@6:rst]]", "decode_failed"],
      ["[[D:cut@6]]", "decode_failed"], ["[[D:error-done@6]]", 500]]) {
      const events = await readSome(await chat(marker, longStory));
      const err = await raises(OpenAI.APIError, () => drain(events));
      same(err.code, code, `${marker} code`);
    }
    await nothingHeld();
  },

  "an answer that breaks off is tried again": async () => {
    const answer = await chat("Short [[decode-0:die]]");
    same(answer.choices[0].finish_reason, "length", "finish_reason");
  },

  "xpyd dies in mid stream": async () => {
    const c = new OpenAI({ baseURL: VICTIM + "/v1", apiKey: KEY, maxRetries: 0 });
    const events = await readSome(await chat("A long story", longStory, {}, c));
    process.kill(VICTIM_PID, "SIGKILL");
    await raises(TypeError, () => drain(events)); // of fetch: the SDK does not wrap it
    await raises(OpenAI.APIConnectionError, () => chat("Still there?", {}, {}, c));
    await nothingHeld();
  },

  "engines die in mid stream and come back": async () => {
    const events = await readSome(await chat("A long story", longStory));
    await Promise.all(DECODE.map((e) => call(e + "/sim/restart", {})));
    const err = await raises(OpenAI.APIError, () => drain(events));
    same(err.code, "decode_failed", "code");
    same((await chat("Again")).choices[0].finish_reason, "length", "finish_reason after it");
  },
});
