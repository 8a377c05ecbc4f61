// Drives xpyd with the official Node SDK, openai, and asserts what its user sees.
import OpenAI from "openai";
import { apiChecks } from "./apis.mjs";
import { DECODE, KEY, URL, VICTIM, VICTIM_PID, call, cause, collect, expect, legs, nothingHeld, raises, refusals, retried, runAll, same, timesOut } from "./rig.mjs";

const model = "sim";
const client = new OpenAI({ baseURL: URL + "/v1", apiKey: KEY });
const once = { maxRetries: 0 };
const tools = [{ type: "function", function: {
  name: "weather", description: "of a town",
  parameters: { type: "object", properties: { town: { type: "string" } }, required: ["town"] } } }];
const aFunction = (name) => ({ type: "function", function: { name } });
// This is how a call ends. vLLM says "stop" for a function that tool_choice names.
const forced = [["required", "tool_calls"], [aFunction("weather"), "stop"]];

const messages = (text) => [{ role: "system", content: "Be brief." }, { role: "user", content: text }];
const chat = (text, more, options, c = client) =>
  c.chat.completions.create({ model, messages: messages(text), max_tokens: 8, ...more }, options);
const longStory = { max_tokens: 1000, stream: true };
const named = (id) => ({ headers: { "X-Request-Id": id } });

/** Reads n events and leaves the stream open. */
async function readSome(stream, n = 5) {
  const events = stream[Symbol.asyncIterator]();
  for (let i = 0; i < n; i++) expect(!(await events.next()).done, "the stream ended early");
  return events;
}

const drain = async (events) => { while (!(await events.next()).done); };

/** The argument of a call, which the engines make up: words. */
function town(call) {
  same([call.type, call.function.name], ["function", "weather"], "call");
  expect(call.id, "no id");
  const args = JSON.parse(call.function.arguments);
  same(Object.keys(args), ["town"], "arguments");
  expect(args.town.split(" ").length === 3, `arguments ${call.function.arguments}`);
  return args.town;
}

const tryAgain = async (id) => same((await chat("Try again", {}, named(id))).choices[0].finish_reason, "length", "finish_reason");

await runAll({
  ...apiChecks,
  "models": async () => same((await collect(await client.models.list())).map((m) => m.id), [model], "models"),

  "a certificate for another name": async () => {
    // The certificate is for 127.0.0.1. All other checks use that, so they trust it and its CA.
    const c = new OpenAI({ baseURL: URL.replace("127.0.0.1", "localhost") + "/v1", apiKey: KEY, maxRetries: 0 });
    const err = await raises(OpenAI.APIConnectionError, () => chat("hi", {}, {}, c));
    same(cause(err).code, "ERR_TLS_CERT_ALTNAME_INVALID", "the cause");
    expect(URL.startsWith("https://"), URL);
  },

  "without TLS": async () => {
    const plain = new OpenAI({ baseURL: VICTIM + "/v1", apiKey: KEY });
    const whole = await chat("Over plain HTTP", { max_tokens: 16 }, {}, plain);
    const chunks = await collect(await chat("Over plain HTTP", { max_tokens: 16, stream: true }, {}, plain));
    same(chunks.map((c) => c.choices[0].delta.content ?? "").join(""), whole.choices[0].message.content, "streamed text");
  },

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

  "embeddings": async () => {
    const both = await client.embeddings.create({ model, input: ["up", "down"] }); // the SDK asks for base64
    same(both.data.map((d) => d.index), [0, 1], "indices");
    const floats = (await client.embeddings.create({ model, input: "down", encoding_format: "float" })).data[0].embedding;
    same(floats.length, 8, "numbers of a vector");
    expect(floats.every((f, i) => Math.abs(f - both.data[1].embedding[i]) < 1e-6), "base64 and floats differ");
    expect(both.data[0].embedding[0] !== both.data[1].embedding[0], "two texts have one vector");
    const err = await raises(OpenAI.NotFoundError, () => client.embeddings.create({ model: "none", input: "hi" }));
    expect(err.message.includes("`none` does not exist"), `message ${err.message}`);
  },

  "a transcription": async () => {
    const sound = () => OpenAI.toFile(Buffer.from("RIFF".repeat(50000)), "a.wav");
    const heard = await client.audio.transcriptions.create({ model, file: await sound() });
    same(heard.text.trim().split(/\s+/).length, 4, "words");
    same((await client.audio.translations.create({ model, file: await sound() })).text, heard.text, "the translation");
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

  "tools that are not called": async () => {
    for (const tool_choice of ["none", "auto"]) {
      const { finish_reason, message } = (await chat("Weather in Rome?", { tools, tool_choice })).choices[0];
      same([finish_reason, message.tool_calls ?? null], ["length", null], tool_choice);
    }
    const err = await raises(OpenAI.BadRequestError, () => chat("Weather in Rome?", { tools, tool_choice: aFunction("news") }));
    expect(err.message.includes("does not match any"), `message ${err.message}`);
  },

  "a tool call": async () => {
    for (const [i, [tool_choice, reason]] of forced.entries()) {
      const answer = await chat("Weather in Rome?", { tools, tool_choice, max_tokens: 200 }, named(`node-tool-${i}`));
      const { finish_reason, message } = answer.choices[0];
      same([message.tool_calls.length, finish_reason], [1, reason], "calls and finish_reason");
      town(message.tool_calls[0]);
      same(await legs(`node-tool-${i}`), [1, 1], "prefill and decode legs");
    }
  },

  "a tool call in a stream": async () => {
    for (const [i, [tool_choice, reason]] of forced.entries()) {
      const ask = { model, messages: messages("Weather in Rome?"), tools, tool_choice };
      const whole = await client.chat.completions.create(ask);
      const pieces = [];
      const done = [];
      const stream = client.chat.completions.stream(ask, named(`node-tool-stream-${i}`));
      stream.on("tool_calls.function.arguments.delta", (e) => pieces.push(e.arguments_delta));
      stream.on("tool_calls.function.arguments.done", (e) => done.push([e.index, e.name, e.arguments]));
      const { finish_reason, message } = (await stream.finalChatCompletion()).choices[0];
      expect(pieces.length > 3, `${pieces.length} pieces of the arguments`);
      same(done, [[0, "weather", pieces.join("")]], "done events");
      same([message.tool_calls.length, finish_reason], [1, reason], "calls and finish_reason");
      same(message.tool_calls[0].function.arguments, pieces.join(""), "accumulated arguments");
      same(town(message.tool_calls[0]), town(whole.choices[0].message.tool_calls[0]), "town");
      same(await legs(`node-tool-stream-${i}`), [1, 1], "prefill and decode legs");
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
    err = await raises(OpenAI.NotFoundError, () => client.moderations.create({ model, input: "hi" }));
    same(err.code, "unknown_route", "code");
  },

  "too much at once": async () => {
    const streams = await Promise.all(Array.from({ length: 20 }, (_, i) => chat(`Hold ${i}`, longStory)));
    const err = await raises(OpenAI.RateLimitError, () => chat("one more", {}, once))
      .finally(() => streams.forEach((s) => s.controller.abort()));
    same([err.status, err.code, err.headers.get("retry-after")], [429, "client_limit", "1"], "error");
    await nothingHeld();
  },

  "retries a 429": () => retried(429, "node-429", tryAgain),
  "retries a 503": () => retried(503, "node-503", tryAgain),

  "no retry after two burnt prefills": async () => {
    const before = await refusals();
    const err = await raises(OpenAI.InternalServerError, () => chat("[[D:rst]]", {}, named("node-burnt")));
    same([err.status, err.code], [502, "decode_failed"], "error");
    same(await refusals() - before, 1, "refusals");
    same(await legs("node-burnt"), [2, 2], "prefill and decode legs");
    await nothingHeld();
  },

  "a stream left half way": async () => {
    let events = 0;
    for await (const _ of await chat("A long story", longStory)) if (++events === 5) break;
    await nothingHeld();
  },

  "a call that times out while the prompt is computed": async () => {
    await timesOut(OpenAI.APIConnectionTimeoutError, "node-hasty",
      (id, n) => chat(`${n} ` + "word ".repeat(16000), {}, { ...once, ...named(id), timeout: 300 }));
  },

  "a stream that breaks off": async () => {
    // The proxy sends one error event, in place of the engine's own if there was one, and then the
    // stream breaks off.
    for (const marker of ["[[D:die@6]]", "[[D:die@6:rst]]", "[[D:cut@6]]", "[[D:error-done@6]]"]) {
      const events = await readSome(await chat(marker, longStory));
      const err = await raises(OpenAI.APIError, () => drain(events));
      same(err.code, "decode_failed", `${marker} code`);
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
    await raises(TypeError, () => drain(events)); // from fetch, which the SDK does not wrap
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
