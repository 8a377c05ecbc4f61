// Drives the responses API with openai and Anthropic's with @anthropic-ai/sdk, the official SDKs.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { KEY, URL, expect, legs, nothingHeld, raises, same } from "./rig.mjs";

const MODEL = "sim";
const client = new OpenAI({ baseURL: URL + "/v1", apiKey: KEY });
const claude = new Anthropic({ baseURL: URL, apiKey: KEY });
const named = (id) => ({ headers: { "X-Request-Id": id } });
const respond = (input, tokens = 12, more = {}, options = {}) =>
  client.responses.create({ model: MODEL, input, max_output_tokens: tokens, ...more }, options);
const ask = (content, tokens = 12) => ({ model: MODEL, max_tokens: tokens, messages: [{ role: "user", content }] });

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

  async "messages that are refused"() {
    const stranger = new Anthropic({ baseURL: URL, apiKey: "sk-wrong" });
    const err = await raises(Anthropic.AuthenticationError, () => stranger.messages.create(ask("hi")));
    same([err.status, err.error.error.type], [401, "authentication_error"], "error");
    const wrong = await raises(Anthropic.BadRequestError, () => claude.messages.create({ ...ask("hi"), kv_transfer_params: { a: 1 } }));
    same(wrong.error.error.code, "unsupported_parameter", "code");
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
