// Drives xpyd with openai and @anthropic-ai/sdk, the official Node SDKs, before real vLLM engines: a pair
// with a small model, and one with an embedding model among the decode engines. What they say is nonsense,
// but it is the same each time, and a forced call has the form that its schema asks for.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { ADMIN, DECODE, KEY, PREFILL, URL, call, collect, expect, raises, runAll, same, wait } from "./rig.mjs";

const model = "tiny";
const LONG = "Tell story 22"; // to which it says some 700 tokens
const client = new OpenAI({ baseURL: URL + "/v1", apiKey: KEY, timeout: 120000 });
const claude = new Anthropic({ baseURL: URL, apiKey: KEY, timeout: 120000 });
const once = { maxRetries: 0 };
const schema = { type: "object", properties: { page: { type: "integer", minimum: 1, maximum: 9 } }, required: ["page"], additionalProperties: false };
const functions = [{ type: "function", name: "look_up", description: "looks a page up", parameters: schema, strict: true }];
const tools = [{ type: "function", function: { name: "look_up", description: "looks a page up", parameters: schema, strict: true } }];
const usable = [{ name: "look_up", description: "looks a page up", input_schema: schema, strict: true }];

const user = (content) => [{ role: "user", content }];
const chat = (text, more = {}, options = {}) =>
  client.chat.completions.create({ model, messages: user(text), max_tokens: 12, temperature: 0, ...more }, options);
const respond = (input, more = {}, options = {}, c = client) =>
  c.responses.create({ model, input, max_output_tokens: 12, temperature: 0, ...more }, options);
const asked = (text, more = {}) => ({ model, max_tokens: 12, messages: user(text), temperature: 0, ...more });
const say = (text, more = {}, options = {}, c = claude) => c.messages.create(asked(text, more), options);

/** The sum of the series of a metric that have this label. */
async function series(url, name, label = "") {
  const line = new RegExp(`^${name}(?:\\{[^}]*${label}[^}]*\\})? (\\S+)$`, "gm");
  return [...(await call(url + "/metrics")).matchAll(line)].reduce((sum, m) => sum + Number(m[1]), 0);
}

/** All n completions inside go through a prefill and a decode engine. */
async function onBothLegs(n, run) {
  const taken = (path) => series(ADMIN, "xpyd_decisions_total", path);
  const both = 'path="disaggregated"';
  const [before, beforeBoth] = [await taken(), await taken(both)];
  const result = await run();
  await wait("the decisions are counted", async () => (await taken()) >= before + n); // which may be after the client has its answer
  same([await taken() - before, await taken(both) - beforeBoth], [n, n], "completions, and those on both legs");
  return result;
}

/** No engine has a request or a block in use. Well before a lease of 30 s ends. */
const nothingHeld = () => wait("every block free and every engine idle", async () => {
  const names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"];
  const used = await Promise.all([...PREFILL, ...DECODE].flatMap((e) => names.map((name) => series(e, name))));
  return used.every((n) => n === 0);
}, 20);

function page(name, args) {
  same([name, Object.keys(args)], ["look_up", ["page"]], "call");
  expect(args.page >= 1 && args.page <= 9, `arguments ${JSON.stringify(args)}`);
  return args.page;
}

/** From begin on xpyd refuses with that code. That ends when it has happened, and an attempt of the SDK succeeds. */
async function retried(ask, code, begin, end) {
  const refusals = () => series(ADMIN, "xpyd_request_errors_total", `code="${code}"`);
  await begin();
  const before = await refusals();
  const mended = wait("a refusal", async () => (await refusals()) > before).finally(end);
  const begun = Date.now();
  await Promise.all([ask(), mended]);
  const took = Date.now() - begun;
  const n = await refusals() - before;
  expect(n >= 1 && took >= 1000 * n, `${n} refusals in ${took} ms, want each attempt at least the second later that Retry-After asks for`);
}

// A machine that stalls may need some more attempts than two.
const patient = { maxRetries: 8 };
const asks = [async () => same((await respond("Try again", {}, patient)).status, "incomplete", "status"),
  async () => same((await say("Try again", {}, patient)).stop_reason, "max_tokens", "stop_reason")];

/** Opens streams until there are as many as one client may have. */
async function hold(streams) {
  const err = await raises(OpenAI.RateLimitError, async () => {
    while (streams.length < 12) streams.push(await chat(`Hold ${streams.length}`, { max_tokens: 2000, stream: true, ignore_eos: true }, once));
  });
  same(err.code, "client_limit", "code");
}
const setDecode = (state) => call(`${ADMIN}/backends/${DECODE[0].replace("http://", "")}`, { state }, "PATCH");

await runAll({
  async "chat and its stream"() {
    const [whole, chunks] = await onBothLegs(2, async () => [await chat("Why do clouds float?"), await collect(await chat("Why do clouds float?", { stream: true }))]);
    same(chunks.map((c) => c.choices[0].delta.content ?? "").join(""), whole.choices[0].message.content, "streamed text");
    same(whole.usage.completion_tokens, 12, "completion_tokens");
  },

  async "a tool call"() {
    for (const tool_choice of ["required", { type: "function", function: { name: "look_up" } }]) {
      const answer = await onBothLegs(1, () => chat("Which page?", { tools, tool_choice, parallel_tool_calls: false, max_tokens: 200 }));
      const f = answer.choices[0].message.tool_calls[0].function;
      page(f.name, JSON.parse(f.arguments));
    }
  },

  async "a response and its stream"() {
    const more = { instructions: "be brief" };
    let text = "";
    const [whole, final] = await onBothLegs(2, async () => {
      const whole = await respond("Tell me", more);
      const stream = client.responses.stream({ model, input: "Tell me", max_output_tokens: 12, temperature: 0, ...more });
      for await (const e of stream) if (e.type === "response.output_text.delta") text += e.delta;
      return [whole, await stream.finalResponse()];
    });
    same([whole.status, whole.usage.output_tokens], ["incomplete", 12], "end");
    same([text, final.output_text, final.status], [whole.output_text, whole.output_text, "incomplete"], "text and end of the stream");
  },

  async "a response that calls a function"() {
    for (const tool_choice of ["required", { type: "function", name: "look_up" }]) {
      const body = { model, input: "Which page?", tools: functions, tool_choice, parallel_tool_calls: false, max_output_tokens: 200, temperature: 0 };
      let pieces = "";
      const [whole, final] = await onBothLegs(2, async () => {
        const whole = await client.responses.create(body);
        const stream = client.responses.stream(body);
        for await (const e of stream) if (e.type === "response.function_call_arguments.delta") pieces += e.delta;
        return [whole.output[0], (await stream.finalResponse()).output[0]];
      });
      same([whole.type, final.type, final.arguments], ["function_call", "function_call", pieces], "calls");
      same(page(final.name, JSON.parse(final.arguments)), page(whole.name, JSON.parse(whole.arguments)), "page");
    }
  },

  async "responses that are refused"() {
    const err = await raises(OpenAI.BadRequestError, () => respond("hi", { kv_transfer_params: { a: 1 } }));
    same([err.code, err.param], ["unsupported_parameter", "kv_transfer_params"], "error");
    await raises(OpenAI.BadRequestError, () => respond("word ".repeat(3000)));
    await raises(OpenAI.NotFoundError, () => respond("hi", { previous_response_id: "resp_none" }));
    await raises(OpenAI.NotFoundError, () => respond("hi", { model: "none" }));
    await raises(OpenAI.AuthenticationError, () => respond("hi", {}, {}, new OpenAI({ baseURL: URL + "/v1", apiKey: "sk-wrong" })));
    await nothingHeld();
  },

  async "embeddings"() {
    const both = await client.embeddings.create({ model: "embedder", input: ["up", "down"] }); // the SDK asks for base64
    const floats = (await client.embeddings.create({ model: "embedder", input: "down", encoding_format: "float" })).data[0].embedding;
    same([both.data.length, floats.length], [2, 64], "vectors, and numbers of one");
    expect(floats.every((f, i) => Math.abs(f - both.data[1].embedding[i]) < 1e-4), "base64 and floats differ");
    expect(both.data[0].embedding[0] !== both.data[1].embedding[0], "two texts have one vector");
    await raises(OpenAI.NotFoundError, () => client.embeddings.create({ model: "none", input: "hi" }));
  },

  async "a message and its stream"() {
    const more = { system: "be brief" };
    let text = "";
    const [whole, final] = await onBothLegs(2, async () => {
      const whole = await say("Tell me", more, { headers: { "X-Request-Id": "node-message" } });
      const stream = claude.messages.stream(asked("Tell me", more));
      stream.on("text", (piece) => { text += piece; });
      return [whole, await stream.finalMessage()];
    });
    same([whole.stop_reason, whole.usage.output_tokens, whole._request_id], ["max_tokens", 12, "node-message"], "end");
    same([text, final.content[0].text, final.stop_reason], [whole.content[0].text, whole.content[0].text, "max_tokens"], "text and end of the stream");
    const count = await claude.messages.countTokens({ model, messages: user("Tell me"), ...more });
    same(count.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens, "counted tokens");
  },

  async "a message that uses a tool"() {
    for (const tool_choice of [{ type: "any", disable_parallel_tool_use: true }, { type: "tool", name: "look_up" }]) {
      const body = asked("Which page?", { tools: usable, tool_choice, max_tokens: 200 });
      let pieces = "";
      const [whole, final] = await onBothLegs(2, async () => {
        const whole = await claude.messages.create(body);
        const stream = claude.messages.stream(body);
        stream.on("inputJson", (piece) => { pieces += piece; });
        return [whole, await stream.finalMessage()];
      });
      same([whole.stop_reason, final.stop_reason, JSON.parse(pieces)], ["tool_use", "tool_use", final.content[0].input], "ends and input");
      same(page(final.content[0].name, final.content[0].input), page(whole.content[0].name, whole.content[0].input), "page");
    }
  },

  async "messages that are refused"() {
    let err = await raises(Anthropic.AuthenticationError, () => say("hi", {}, {}, new Anthropic({ baseURL: URL, apiKey: "sk-wrong" })));
    same(err.error.error.type, "authentication_error", "type");
    err = await raises(Anthropic.BadRequestError, () => say("hi", { kv_transfer_params: { a: 1 } }));
    same(err.error.error.code, "unsupported_parameter", "code");
    await raises(Anthropic.BadRequestError, () => say("word ".repeat(3000)));
    await raises(Anthropic.NotFoundError, () => say("hi", { model: "none" }));
    await nothingHeld();
  },

  async "streams left half way"() {
    for (const begin of [() => respond(LONG, { max_output_tokens: 1500, stream: true }), () => say(LONG, { max_tokens: 1500, stream: true })]) {
      let n = 0;
      for await (const _ of await begin()) if (++n === 8) break;
      same(n, 8, "events");
      await nothingHeld();
    }
  },

  async "calls that time out"() {
    await raises(OpenAI.APIConnectionTimeoutError, () => respond(LONG, { max_output_tokens: 1500 }, { ...once, timeout: 300 }));
    await raises(Anthropic.APIConnectionTimeoutError, () => say(LONG, { max_tokens: 1500 }, { ...once, timeout: 300 }));
    await nothingHeld();
  },

  async "retries a 429"() {
    for (const ask of asks) {
      const streams = [];
      await retried(ask, "client_limit", () => hold(streams), () => streams.forEach((s) => s.controller.abort()));
      await nothingHeld();
    }
  },

  async "retries a 503"() {
    for (const ask of asks) await retried(ask, "decode_unavailable", () => setDecode("drain"), () => setDecode("ready"));
    await nothingHeld();
  },
});
