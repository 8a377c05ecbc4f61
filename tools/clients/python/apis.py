"""Drives the responses API with openai and Anthropic's with anthropic, the official SDKs."""

import anthropic
import openai
from rig import KEY, URL, check, expect, fault, legs, nothing_held, raises, same

MODEL = "sim"
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY)
claude = anthropic.Anthropic(base_url=URL, api_key=KEY)
claude_once = claude.with_options(max_retries=0)


def named(request_id):
    return {"X-Request-Id": request_id}


def respond(text, tokens=12, **more):
    return client.responses.create(model=MODEL, input=text, max_output_tokens=tokens, **more)


def say(c, text, tokens=12, **more):
    return c.messages.create(model=MODEL, max_tokens=tokens, messages=[{"role": "user", "content": text}], **more)


@check
def a_response():
    answer = respond("Hello", instructions="be brief", extra_headers=named("py-response"))
    same((answer.status, answer.incomplete_details.reason, answer.usage.output_tokens), ("incomplete", "max_output_tokens", 12), "end")
    expect(len(answer.output_text.split()) == 12, f"text {answer.output_text!r}")
    same(legs("py-response"), (1, 1), "prefill and decode legs")
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": answer.output_text}, {"role": "user", "content": "And?"}]
    expect(respond(turns).output_text, "no text in a second turn")


@check
def a_streamed_response():
    whole = respond("Tell me", instructions="be brief")
    with client.responses.stream(model=MODEL, input="Tell me", instructions="be brief", max_output_tokens=12,
                                 extra_headers=named("py-response-stream")) as stream:
        events = list(stream)
        final = stream.get_final_response()
    same("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text, "streamed text")
    same((final.output_text, final.status, events[-1].type), (whole.output_text, "incomplete", "response.completed"), "end")
    same([e.sequence_number for e in events], list(range(len(events))), "sequence numbers")
    same(legs("py-response-stream"), (1, 1), "prefill and decode legs")


@check
def responses_that_are_refused():
    err = raises(openai.BadRequestError, lambda: respond("hi", extra_body={"kv_transfer_params": {"a": 1}}))
    same((err.code, err.param), ("unsupported_parameter", "kv_transfer_params"), "error")
    err = raises(openai.BadRequestError, lambda: respond("hi", background=True))
    same((err.code, err.param), ("unsupported_parameter", "background"), "error")
    raises(openai.NotFoundError, lambda: respond("hi", previous_response_id="resp_none"))


@check
def a_response_that_breaks_off():
    for marker in ("[[D:die@8]]", "[[D:cut@8]]", "[[D:error-done@8]]"):
        got = []
        err = raises(openai.APIError, lambda: got.extend(respond(marker, 100, stream=True)))
        expect(len(got) >= 6, f"{marker}: {len(got)} events before the error")
        same(err.code, "decode_failed", marker + " code")
    nothing_held()


@check
def a_response_left_half_way():
    stream = respond("A long story", 1000, stream=True)
    for _ in range(8):
        next(stream)
    stream.close()
    nothing_held()


@check
def a_message():
    answer = say(claude, "Hello", system="be brief", extra_headers=named("py-message"))
    same((answer.stop_reason, answer.usage.output_tokens, answer.content[0].type), ("max_tokens", 12, "text"), "end")
    expect(answer._request_id == "py-message", f"request id {answer._request_id!r}")
    same(legs("py-message"), (1, 1), "prefill and decode legs")
    count = claude.messages.count_tokens(model=MODEL, system="be brief", messages=[{"role": "user", "content": "Hello"}])
    same(count.input_tokens, answer.usage.input_tokens + answer.usage.cache_read_input_tokens, "counted tokens")


@check
def a_streamed_message():
    whole = say(claude, "Tell me")
    with claude.messages.stream(model=MODEL, max_tokens=12, messages=[{"role": "user", "content": "Tell me"}],
                                extra_headers=named("py-message-stream")) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    same((text, final.content[0].text, final.stop_reason), (whole.content[0].text, whole.content[0].text, "max_tokens"), "text and end")
    same(final.usage.output_tokens, 12, "output tokens")
    same(legs("py-message-stream"), (1, 1), "prefill and decode legs")


@check
def messages_that_are_refused():
    stranger = anthropic.Anthropic(base_url=URL, api_key="sk-wrong")
    err = raises(anthropic.AuthenticationError, lambda: say(stranger, "hi"))
    same((err.status_code, err.body["error"]["type"]), (401, "authentication_error"), "error")
    bearer = anthropic.Anthropic(base_url=URL, auth_token=KEY)
    same(say(bearer, "hi").stop_reason, "max_tokens", "with a bearer token")
    err = raises(anthropic.BadRequestError, lambda: say(claude, "hi", extra_body={"kv_transfer_params": {"a": 1}}))
    same((err.body["error"]["type"], err.body["error"]["code"]), ("invalid_request_error", "unsupported_parameter"), "error")
    err = raises(anthropic.NotFoundError, lambda: claude.messages.create(model="none", max_tokens=1, messages=[{"role": "user", "content": "hi"}]))
    expect("`none` does not exist" in err.message, f"message {err.message!r}")


@check
def a_message_to_busy_engines():
    fault("status=503")
    try:
        err = raises(anthropic.ServiceUnavailableError, lambda: say(claude_once, "Try"))
    finally:
        fault("")
    same(err.body["error"]["type"], "overloaded_error", "type")
    same(say(claude, "Try again").stop_reason, "max_tokens", "stop_reason")


@check
def a_message_that_breaks_off():
    for marker in ("[[D:die@6]]", "[[D:cut@6]]", "[[D:error-done@6]]"):
        got = []
        try:
            got.extend(say(claude_once, marker, 100, stream=True))
        except anthropic.APIError as err:
            expect("decode_failed" in str(err.body), f"{marker}: {err!r} {err.body!r}")
        else:
            expect(False, f"{marker}: no error after {len(got)} events")
        expect(len(got) >= 5, f"{marker}: {len(got)} events before the error")
    nothing_held()


@check
def a_message_left_half_way():
    with claude.messages.stream(model=MODEL, max_tokens=1000, messages=[{"role": "user", "content": "A long story"}]) as stream:
        for _ in range(8):
            next(stream)
    nothing_held()
