"""Drives the responses API with openai and Anthropic's with anthropic, the official SDKs."""

import asyncio
import json

import anthropic
import openai
from rig import KEY, URL, check, expect, fault, legs, nothing_held, raises, retried, same, times_out

MODEL = "sim"
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY)
claude = anthropic.Anthropic(base_url=URL, api_key=KEY)
claude_once = claude.with_options(max_retries=0)


TOWN = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"], "additionalProperties": False}
FUNCTIONS = [{"type": "function", "name": "weather", "description": "of a town", "parameters": TOWN, "strict": True}]
FUNCTION_CHOICES = ["required", {"type": "function", "name": "weather"}]
USABLE = [{"name": "weather", "description": "of a town", "input_schema": TOWN}]
USE_CHOICES = [{"type": "any"}, {"type": "tool", "name": "weather"}]


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


def town(name, arguments):
    """The argument of a call, which the engines make up: words."""
    same((name, list(arguments)), ("weather", ["town"]), "call")
    expect(len(arguments["town"].split()) == 3, f"arguments {arguments}")
    return arguments["town"]


@check
def a_response_that_calls_a_function():
    for i, choice in enumerate(FUNCTION_CHOICES):
        ask = dict(model=MODEL, input="Weather in Rome?", tools=FUNCTIONS, tool_choice=choice)
        whole = client.responses.create(**ask, extra_headers=named(f"py-call-{i}"))
        same((whole.status, [o.type for o in whole.output]), ("completed", ["function_call"]), "end")
        said = town(whole.output[0].name, json.loads(whole.output[0].arguments))
        same(legs(f"py-call-{i}"), (1, 1), "prefill and decode legs")
        with client.responses.stream(**ask, extra_headers=named(f"py-call-stream-{i}")) as stream:
            events = list(stream)
            final = stream.get_final_response().output[0]
        pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        expect(len(pieces) > 3, f"{len(pieces)} pieces of the arguments")
        same((final.arguments, town(final.name, json.loads(final.arguments))), ("".join(pieces), said), "accumulated call")
        same([e.sequence_number for e in events], list(range(len(events))), "sequence numbers")
        same(legs(f"py-call-stream-{i}"), (1, 1), "prefill and decode legs")
        turns = [{"role": "user", "content": "Weather in Rome?"}, final.model_dump(include={"type", "call_id", "name", "arguments"}),
                 {"type": "function_call_output", "call_id": final.call_id, "output": "Rain"}]
        same(respond(turns, tools=FUNCTIONS).output[0].type, "message", "the answer to the function's result")
    err = raises(openai.BadRequestError, lambda: respond("Weather?", tools=FUNCTIONS, tool_choice={"type": "function", "name": "news"}))
    expect("tool_choice" in err.message, f"message {err.message!r}")


@check
def responses_that_are_refused():
    stranger = openai.OpenAI(base_url=URL + "/v1", api_key="sk-wrong")
    err = raises(openai.AuthenticationError, lambda: stranger.responses.create(model=MODEL, input="hi"))
    same(err.code, "invalid_api_key", "code")
    raises(openai.NotFoundError, lambda: client.responses.create(model="none", input="hi"))
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
def a_response_that_times_out_while_the_prompt_is_computed():
    hasty = client.with_options(max_retries=0, timeout=0.3)  # no other check has this prompt, so none of it is cached
    times_out(openai.APITimeoutError, "py-hasty-response", lambda i, n: hasty.responses.create(
        model=MODEL, input=f"{n} " + "tell " * 16000, max_output_tokens=8, extra_headers=named(i)))


@check
def a_response_is_tried_again():
    retried(429, "py-response-429", lambda i: same(respond("Try again", extra_headers=named(i)).status, "incomplete", "status"))
    retried(503, "py-response-503", lambda i: same(
        [e.type for e in respond("Try again", stream=True, extra_headers=named(i))][-1], "response.completed", "last event"))


@check
def a_certificate_for_another_name_before_messages():
    elsewhere = anthropic.Anthropic(base_url=URL.replace("127.0.0.1", "localhost"), api_key=KEY, max_retries=0)
    err = raises(anthropic.APIConnectionError, lambda: say(elsewhere, "hi"))
    expect("certificate verify failed" in str(err.__cause__), f"cause {err.__cause__!r}")


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
def a_message_that_uses_a_tool():
    for i, choice in enumerate(USE_CHOICES):
        ask = dict(tools=USABLE, tool_choice=choice)
        whole = say(claude, "Weather in Rome?", 200, **ask, extra_headers=named(f"py-use-{i}"))
        same((whole.stop_reason, [b.type for b in whole.content]), ("tool_use", ["tool_use"]), "end")
        same(legs(f"py-use-{i}"), (1, 1), "prefill and decode legs")
        with claude.messages.stream(model=MODEL, max_tokens=200, messages=[{"role": "user", "content": "Weather in Rome?"}],
                                    extra_headers=named(f"py-use-stream-{i}"), **ask) as stream:
            pieces = [e.partial_json for e in stream if e.type == "input_json"]
            final = stream.get_final_message()
        expect(len(pieces) > 3, f"{len(pieces)} pieces of the input")
        same((json.loads("".join(pieces)), final.stop_reason), (final.content[0].input, "tool_use"), "accumulated input and end")
        used = final.content[0]
        same(town(used.name, used.input), town(whole.content[0].name, whole.content[0].input), "town")
        same(legs(f"py-use-stream-{i}"), (1, 1), "prefill and decode legs")
        turns = [{"role": "user", "content": "Weather in Rome?"}, {"role": "assistant", "content": [used.model_dump(include={"type", "id", "name", "input"})]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": used.id, "content": "Rain"}]}]
        answer = claude.messages.create(model=MODEL, max_tokens=8, messages=turns, tools=USABLE)
        same((answer.stop_reason, answer.content[0].type), ("max_tokens", "text"), "the answer to the tool's result")
    err = raises(anthropic.BadRequestError, lambda: say(claude, "Weather?", tools=USABLE, tool_choice={"type": "tool", "name": "news"}))
    expect("tool_choice" in err.message, f"message {err.message!r}")


@check
def sixteen_streamed_messages_at_once():
    async def one(c, i):
        async with c.messages.stream(model=MODEL, max_tokens=20, messages=[{"role": "user", "content": f"Tell story {i}"}]) as stream:
            return (await stream.get_final_message()).stop_reason

    async def all_of_them():
        async with anthropic.AsyncAnthropic(base_url=URL, api_key=KEY) as c:
            return await asyncio.gather(*(one(c, i) for i in range(16)))
    same(asyncio.run(all_of_them()), ["max_tokens"] * 16, "stop reasons")


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
def a_message_is_tried_again():
    retried(429, "py-message-429", lambda i: same(say(claude, "Try again", extra_headers=named(i)).stop_reason, "max_tokens", "stop_reason"))
    retried(503, "py-message-503", lambda i: same(
        [e.type for e in say(claude, "Try again", stream=True, extra_headers=named(i))][-1], "message_stop", "last event"))


@check
def no_retry_of_a_message_after_two_burnt_prefills():
    err = raises(anthropic.InternalServerError, lambda: say(claude, "[[D:rst]]", extra_headers=named("py-message-burnt")))
    same((err.status_code, err.body["error"]["code"]), (502, "decode_failed"), "error")
    same(legs("py-message-burnt"), (2, 2), "prefill and decode legs")
    nothing_held()


@check
def too_many_messages_at_once():
    streams = [say(claude, f"Hold {i}", 1000, stream=True) for i in range(20)]
    try:
        err = raises(anthropic.RateLimitError, lambda: say(claude_once, "one more"))
    finally:
        for s in streams:
            s.close()
    same((err.status_code, err.body["error"]["type"], err.response.headers["retry-after"]), (429, "rate_limit_error", "1"), "error")
    nothing_held()


@check
def a_message_that_times_out_while_the_prompt_is_computed():
    hasty = claude_once.with_options(timeout=0.3)
    times_out(anthropic.APITimeoutError, "py-hasty-message", lambda i, n: say(hasty, f"{n} " + "note " * 16000, extra_headers=named(i)))


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
