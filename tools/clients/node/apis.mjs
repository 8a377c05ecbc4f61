// Drives the responses API with openai and Anthropic's with @anthropic-ai/sdk, the official SDKs.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { KEY, URL, cause, collect, expect, fault, legs, nothingHeld, raises, retried, same, timesOut } from "./rig.mjs";

const MODEL = "sim";
const client = new OpenAI({ baseURL: URL + "/v1", apiKey: KEY });
const claude = new Anthropic({ baseURL: URL, apiKey: KEY });
const named = (id) => ({ headers: { "X-Request-Id": id } });
const respond = (input, tokens = 12, more = {}, options = {}) =>
  client.responses.create({ model: MODEL, input, max_output_tokens: tokens, ...more }, options);
const ask = (content, tokens = 12) => ({ model: MODEL, max_tokens: tokens, messages: [{ role: "user", content }] });
const TOWN = { type: "object", properties: { town: { type: "string" } }, required: ["town"], additionalProperties: false };
const FUNCTIONS = [{ type: "function", name: "weather", description: "of a town", parameters: TOWN, strict: true }];
const FUNCTION_CHOICES = ["required", { type: "function", name: "weather" }];
const USABLE = [{ name: "weather", description: "of a town", input_schema: TOWN }];
const USE_CHOICES = [{ type: "any" }, { type: "tool", name: "weather" }];
const once = { maxRetries: 0 };
const longPrompt = (n, word) => `${n} ` + word.repeat(16000); // computing it takes longer than 300 ms, unless another check had it

/** The argument of a call, which the engines make up: words. */
function town(name, args) {
  same([name, Object.keys(args), args.town.split(" ").length], ["weather", ["town"], 3], "call");
  return args.town;
}

export const apiChecks = {
  async "a response"() {
    const answer = await respond("Hello", 12, { instructions: "be brief" }, named("node-response"));
    same([answer.status, answer.usage.output_tokens, answer.output_text.split(" ").length], ["incomplete", 12, 12], "end");
    same(await legs("node-response"), [1, 1], "prefill and decode legs");
  },

  async "a streamed response"() {
    const whole = await respond("Tell me");
    const stream = client.responses.stream({ model: MODEL, input: "Tell me", max_output_tokens: 12 }, named("node-response-stream"));
    let text = "";
    for await (const e of stream) if (e.type === "response.output_text.delta") text += e.delta;
    const final = await stream.finalResponse();
    same([text, final.output_text, final.status], [whole.output_text, whole.output_text, "incomplete"], "text and end");
    same(await legs("node-response-stream"), [1, 1], "prefill and decode legs");
  },

  async "a response that calls a function"() {
    for (const [i, tool_choice] of FUNCTION_CHOICES.entries()) {
      const body = { model: MODEL, input: "Weather in Rome?", tools: FUNCTIONS, tool_choice };
      const whole = await client.responses.create(body, named(`node-call-${i}`));
      same([whole.status, whole.output.map((o) => o.type)], ["completed", ["function_call"]], "end");
      same(await legs(`node-call-${i}`), [1, 1], "prefill and decode legs");
      const stream = client.responses.stream(body, named(`node-call-stream-${i}`));
      const pieces = [];
      for await (const e of stream) if (e.type === "response.function_call_arguments.delta") pieces.push(e.delta);
      const call = (await stream.finalResponse()).output[0];
      expect(pieces.length > 3, `${pieces.length} pieces of the arguments`);
      same(call.arguments, pieces.join(""), "accumulated arguments");
      same(town(call.name, JSON.parse(call.arguments)), town(whole.output[0].name, JSON.parse(whole.output[0].arguments)), "town");
      same(await legs(`node-call-stream-${i}`), [1, 1], "prefill and decode legs");
      const turns = [{ role: "user", content: "Weather in Rome?" }, { type: "function_call", call_id: call.call_id, name: call.name, arguments: call.arguments },
        { type: "function_call_output", call_id: call.call_id, output: "Rain" }];
      same((await respond(turns, 12, { tools: FUNCTIONS })).output[0].type, "message", "the answer to the function's result");
    }
    const err = await raises(OpenAI.BadRequestError, () => respond("Weather?", 12, { tools: FUNCTIONS, tool_choice: { type: "function", name: "news" } }));
    expect(err.message.includes("tool_choice"), `message ${err.message}`);
  },

  async "responses that are refused"() {
    let err = await raises(OpenAI.BadRequestError, () => respond("hi", 12, { kv_transfer_params: { a: 1 } }));
    same([err.code, err.param], ["unsupported_parameter", "kv_transfer_params"], "error");
    err = await raises(OpenAI.BadRequestError, () => respond("hi", 12, { background: true }));
    same([err.code, err.param], ["unsupported_parameter", "background"], "error");
    await raises(OpenAI.NotFoundError, () => respond("hi", 12, { previous_response_id: "resp_none" }));
    await raises(OpenAI.NotFoundError, () => respond("hi", 12, { model: "none" }));
    const stranger = new OpenAI({ baseURL: URL + "/v1", apiKey: "sk-wrong" });
    err = await raises(OpenAI.AuthenticationError, () => stranger.responses.create({ model: MODEL, input: "hi" }));
    same(err.code, "invalid_api_key", "code");
  },

  async "a response is tried again"() {
    await retried(429, "node-response-429", async (id) => same((await respond("Try again", 12, {}, named(id))).status, "incomplete", "status"));
    await retried(503, "node-response-503", async (id) =>
      same((await collect(await respond("Try again", 12, { stream: true }, named(id)))).at(-1).type, "response.completed", "last event"));
  },

  async "a response left half way"() {
    let n = 0;
    for await (const _ of await respond("A long story", 1000, { stream: true })) if (++n === 8) break;
    await nothingHeld();
  },

  async "a response that times out while the prompt is computed"() {
    await timesOut(OpenAI.APIConnectionTimeoutError, "node-hasty-response",
      (id, n) => respond(longPrompt(n, "tell "), 8, {}, { ...once, ...named(id), timeout: 300 }));
  },

  async "a response that breaks off"() {
    for (const marker of ["[[D:die@8]]", "[[D:cut@8]]", "[[D:error-done@8]]"]) {
      let n = 0;
      const err = await raises(OpenAI.APIError, async () => {
        for await (const _ of await respond(marker, 100, { stream: true })) n++;
      });
      expect(n >= 6, `${marker}: ${n} events before the error`);
      same(err.code, "decode_failed", marker + " code");
    }
    await nothingHeld();
  },

  async "a certificate for another name before messages"() {
    const elsewhere = new Anthropic({ baseURL: URL.replace("127.0.0.1", "localhost"), apiKey: KEY, maxRetries: 0 });
    const err = await raises(Anthropic.APIConnectionError, () => elsewhere.messages.create(ask("hi")));
    same(cause(err).code, "ERR_TLS_CERT_ALTNAME_INVALID", "the cause");
  },

  async "a message"() {
    const answer = await claude.messages.create({ ...ask("Hello"), system: "be brief" }, named("node-message"));
    same([answer.stop_reason, answer.usage.output_tokens, answer.content[0].type], ["max_tokens", 12, "text"], "end");
    same(answer._request_id, "node-message", "request id");
    same(await legs("node-message"), [1, 1], "prefill and decode legs");
    const count = await claude.messages.countTokens({ model: MODEL, messages: ask("Hello").messages });
    expect(count.input_tokens > 0, `counted ${JSON.stringify(count)}`);
  },

  async "a streamed message"() {
    const whole = await claude.messages.create(ask("Tell me"));
    const stream = claude.messages.stream(ask("Tell me"), named("node-message-stream"));
    let text = "";
    stream.on("text", (piece) => { text += piece; });
    const final = await stream.finalMessage();
    same([text, final.content[0].text, final.stop_reason], [whole.content[0].text, whole.content[0].text, "max_tokens"], "text and end");
    same(await legs("node-message-stream"), [1, 1], "prefill and decode legs");
  },

  async "a message that uses a tool"() {
    for (const [i, tool_choice] of USE_CHOICES.entries()) {
      const body = { ...ask("Weather in Rome?", 200), tools: USABLE, tool_choice };
      const whole = await claude.messages.create(body, named(`node-use-${i}`));
      same([whole.stop_reason, whole.content.map((b) => b.type)], ["tool_use", ["tool_use"]], "end");
      same(await legs(`node-use-${i}`), [1, 1], "prefill and decode legs");
      const stream = claude.messages.stream(body, named(`node-use-stream-${i}`));
      const pieces = [];
      stream.on("inputJson", (piece) => pieces.push(piece));
      const final = await stream.finalMessage();
      expect(pieces.length > 3, `${pieces.length} pieces of the input`);
      same([JSON.parse(pieces.join("")), final.stop_reason], [final.content[0].input, "tool_use"], "accumulated input and end");
      const used = final.content[0];
      same(town(used.name, used.input), town(whole.content[0].name, whole.content[0].input), "town");
      same(await legs(`node-use-stream-${i}`), [1, 1], "prefill and decode legs");
      const messages = [{ role: "user", content: "Weather in Rome?" }, { role: "assistant", content: [{ type: "tool_use", id: used.id, name: used.name, input: used.input }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: used.id, content: "Rain" }] }];
      const answer = await claude.messages.create({ model: MODEL, max_tokens: 8, messages, tools: USABLE });
      same([answer.stop_reason, answer.content[0].type], ["max_tokens", "text"], "the answer to the tool's result");
    }
    const err = await raises(Anthropic.BadRequestError,
      () => claude.messages.create({ ...ask("Weather?"), tools: USABLE, tool_choice: { type: "tool", name: "news" } }));
    expect(err.message.includes("tool_choice"), `message ${err.message}`);
  },

  async "sixteen streamed messages at once"() {
    const ends = await Promise.all(Array.from({ length: 16 }, async (_, i) => (await claude.messages.stream(ask(`Tell story ${i}`, 20)).finalMessage()).stop_reason));
    same(ends, Array(16).fill("max_tokens"), "stop reasons");
  },

  async "a message to busy engines"() {
    await fault("status=503");
    const err = await raises(Anthropic.ServiceUnavailableError, () => claude.messages.create(ask("Try"), once)).finally(() => fault(""));
    same(err.error.error.type, "overloaded_error", "type");
  },

  async "a message is tried again"() {
    await retried(429, "node-message-429", async (id) => same((await claude.messages.create(ask("Try again"), named(id))).stop_reason, "max_tokens", "stop_reason"));
    await retried(503, "node-message-503", async (id) =>
      same((await collect(await claude.messages.create({ ...ask("Try again"), stream: true }, named(id)))).at(-1).type, "message_stop", "last event"));
  },

  async "no retry of a message after two burnt prefills"() {
    const err = await raises(Anthropic.InternalServerError, () => claude.messages.create(ask("[[D:rst]]"), named("node-message-burnt")));
    same([err.status, err.error.error.code], [502, "decode_failed"], "error");
    same(await legs("node-message-burnt"), [2, 2], "prefill and decode legs");
    await nothingHeld();
  },

  async "too many messages at once"() {
    const streams = await Promise.all(Array.from({ length: 20 }, (_, i) => claude.messages.create({ ...ask(`Hold ${i}`, 1000), stream: true })));
    const err = await raises(Anthropic.RateLimitError, () => claude.messages.create(ask("one more"), once))
      .finally(() => streams.forEach((s) => s.controller.abort()));
    same([err.status, err.error.error.type, err.headers.get("retry-after")], [429, "rate_limit_error", "1"], "error");
    await nothingHeld();
  },

  async "a message that times out while the prompt is computed"() {
    await timesOut(Anthropic.APIConnectionTimeoutError, "node-hasty-message",
      (id, n) => claude.messages.create(ask(longPrompt(n, "note "), 8), { ...once, ...named(id), timeout: 300 }));
  },

  async "messages that are refused"() {
    const stranger = new Anthropic({ baseURL: URL, apiKey: "sk-wrong" });
    const err = await raises(Anthropic.AuthenticationError, () => stranger.messages.create(ask("hi")));
    same([err.status, err.error.error.type], [401, "authentication_error"], "error");
    const wrong = await raises(Anthropic.BadRequestError, () => claude.messages.create({ ...ask("hi"), kv_transfer_params: { a: 1 } }));
    same(wrong.error.error.code, "unsupported_parameter", "code");
    const bearer = new Anthropic({ baseURL: URL, authToken: KEY, apiKey: null });
    same((await bearer.messages.create(ask("hi"))).stop_reason, "max_tokens", "with a bearer token");
    const unknown = await raises(Anthropic.NotFoundError, () => claude.messages.create({ ...ask("hi"), model: "none" }));
    expect(unknown.message.includes("`none` does not exist"), `message ${unknown.message}`);
  },

  async "a message that breaks off"() {
    for (const marker of ["[[D:die@6]]", "[[D:cut@6]]", "[[D:error-done@6]]"]) {
      let n = 0, said = "";
      try {
        for await (const _ of await claude.messages.create({ ...ask(marker, 100), stream: true })) n++;
      } catch (err) {
        expect(err instanceof Anthropic.APIError, `${marker}: ${err}`);
        said = JSON.stringify(err.error) + err.message;
      }
      expect(said.includes("decode_failed"), `${marker}: ${n} events, then ${said || "no error"}`);
    }
    await nothingHeld();
  },

  async "a message left half way"() {
    const stream = await claude.messages.create({ ...ask("A long story", 1000), stream: true });
    let n = 0;
    for await (const _ of stream) if (++n === 8) break;
    await nothingHeld();
  },
};
