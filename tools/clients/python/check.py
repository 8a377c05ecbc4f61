"""Drives xpyd with the official Python SDK, openai, and asserts what its user sees."""

import asyncio
import json
import os
import signal

import apis  # its checks register themselves
import openai
from rig import (DECODE, KEY, URL, VICTIM, VICTIM_PID, call, check, expect, fault, legs, nothing_held,
                 raises, refusals, retried, run_all, same, times_out)

MODEL = "sim"
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY)
once = client.with_options(max_retries=0)
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "of a town",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"], "additionalProperties": False}, "strict": True}}]


def messages(text):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def chat(c, text, tokens=8, **more):
    return c.chat.completions.create(model=MODEL, messages=messages(text), max_tokens=tokens, **more)


def named(request_id):
    return {"X-Request-Id": request_id}


@check
def models():
    same([m.id for m in client.models.list()], [MODEL], "models")


@check
def a_certificate_for_another_name():
    # The certificate is for 127.0.0.1. All other checks use that, so they trust it and its CA.
    err = raises(openai.APIConnectionError, lambda: chat(openai.OpenAI(base_url=URL.replace("127.0.0.1", "localhost") + "/v1", api_key=KEY, max_retries=0), "hi"))
    expect("certificate verify failed" in str(err.__cause__), f"cause {err.__cause__!r}")
    expect(URL.startswith("https://"), URL)


@check
def without_tls():
    plain = openai.OpenAI(base_url=VICTIM + "/v1", api_key=KEY)
    whole = chat(plain, "Over plain HTTP", 16)
    pieces = [c.choices[0].delta.content or "" for c in chat(plain, "Over plain HTTP", 16, stream=True)]
    same("".join(pieces), whole.choices[0].message.content, "streamed text")


@check
def chat_and_its_stream():
    ask = dict(model=MODEL, messages=messages("Why do clouds float?"))  # no limit: it ends by itself
    whole = client.chat.completions.create(**ask)
    same(whole.choices[0].finish_reason, "stop", "finish_reason")
    same(whole.usage.completion_tokens, 64, "completion_tokens")
    expect(whole._request_id, "no request id")
    with client.chat.completions.stream(stream_options={"include_usage": True}, **ask) as stream:
        deltas = [e.delta for e in stream if e.type == "content.delta"]
        final = stream.get_final_completion()
    expect(len(deltas) >= 64, f"{len(deltas)} deltas")
    same("".join(deltas), whole.choices[0].message.content, "streamed text")
    same(final.choices[0].message.content, whole.choices[0].message.content, "accumulated text")
    same(final.choices[0].finish_reason, "stop", "finish_reason of the stream")
    same(final.usage.completion_tokens, 64, "completion_tokens of the stream")


@check
def completion_and_its_stream():
    ask = dict(model=MODEL, prompt="Once upon a time", max_tokens=16)
    whole = client.completions.create(**ask)
    chunks = list(client.completions.create(stream=True, stream_options={"include_usage": True}, **ask))
    same("".join(c.choices[0].text for c in chunks if c.choices), whole.choices[0].text, "streamed text")
    same(chunks[-2].choices[0].finish_reason, "length", "finish_reason")
    same(chunks[-1].usage.completion_tokens, 16, "completion_tokens")


@check
def embeddings():
    both = client.embeddings.create(model=MODEL, input=["up", "down"])  # the SDK asks for base64
    same([d.index for d in both.data], [0, 1], "indices")
    floats = client.embeddings.create(model=MODEL, input="down", encoding_format="float").data[0].embedding
    same(len(floats), 8, "numbers of a vector")
    expect(all(abs(a - b) < 1e-6 for a, b in zip(both.data[1].embedding, floats)), "base64 and floats differ")
    expect(both.data[0].embedding != both.data[1].embedding, "two texts have one vector")
    err = raises(openai.NotFoundError, lambda: client.embeddings.create(model="none", input="hi"))
    expect("`none` does not exist" in err.message, f"message {err.message!r}")


@check
def a_transcription():
    sound = ("a.wav", b"RIFF" * 50000)
    heard = client.audio.transcriptions.create(model=MODEL, file=sound)
    same(len(heard.text.split()), 4, "words")
    same(client.audio.translations.create(model=MODEL, file=sound).text, heard.text, "the translation")


@check
def several_choices():
    answer = chat(client, "Two, please", 4, n=2, temperature=1)
    same([c.index for c in answer.choices], [0, 1], "choices")


@check
def sixteen_streams_at_once():
    async def one(c, i):
        stream = await c.chat.completions.create(
            model=MODEL, messages=messages(f"Tell story {i}"), max_tokens=20, stream=True)
        return [c.choices[0].finish_reason async for c in stream if c.choices][-1]

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=URL + "/v1", api_key=KEY) as c:
            return await asyncio.gather(*(one(c, i) for i in range(16)))
    same(asyncio.run(all_of_them()), ["length"] * 16, "finish_reasons")


@check
def tools_that_are_not_called():
    for choice in ("none", "auto"):
        answer = chat(client, "Weather in Rome?", tools=TOOLS, tool_choice=choice)
        same((answer.choices[0].finish_reason, answer.choices[0].message.tool_calls), ("length", None), choice)
    err = raises(openai.BadRequestError, lambda: chat(client, "Weather?", tools=TOOLS, tool_choice=function("news")))
    expect("does not match any" in err.message, f"message {err.message!r}")


def function(name):
    return {"type": "function", "function": {"name": name}}


# This is how a call ends. vLLM says "stop" for a function that tool_choice names.
FORCED = [("required", "tool_calls"), (function("weather"), "stop")]


def town(call):
    """The argument of a call, which the engines make up: words."""
    same((call.type, call.function.name), ("function", "weather"), "call")
    expect(call.id, "no id")
    arguments = json.loads(call.function.arguments)
    same(list(arguments), ["town"], "arguments")
    expect(len(arguments["town"].split()) == 3, f"arguments {arguments}")
    return arguments["town"]


@check
def a_tool_call():
    for i, (choice, reason) in enumerate(FORCED):
        answer = chat(client, "Weather in Rome?", 200, tools=TOOLS, tool_choice=choice, extra_headers=named(f"py-tool-{i}"))
        same((len(answer.choices[0].message.tool_calls), answer.choices[0].finish_reason), (1, reason), "calls and finish_reason")
        town(answer.choices[0].message.tool_calls[0])
        same(legs(f"py-tool-{i}"), (1, 1), "prefill and decode legs")


@check
def a_tool_call_in_a_stream():
    for i, (choice, reason) in enumerate(FORCED):
        ask = dict(model=MODEL, messages=messages("Weather in Rome?"), tools=TOOLS, tool_choice=choice)
        whole = client.chat.completions.create(**ask)
        request_id = f"py-tool-stream-{i}"
        with client.chat.completions.stream(extra_headers=named(request_id), **ask) as stream:
            told = list(stream)
            final = stream.get_final_completion()
        pieces = [e.arguments_delta for e in told if e.type == "tool_calls.function.arguments.delta"]
        done = [e for e in told if e.type == "tool_calls.function.arguments.done"]
        expect(len(pieces) > 3, f"{len(pieces)} pieces of the arguments")
        same([(e.index, e.name, e.arguments) for e in done], [(0, "weather", "".join(pieces))], "done events")
        same((len(final.choices[0].message.tool_calls), final.choices[0].finish_reason), (1, reason), "calls and finish_reason")
        call = final.choices[0].message.tool_calls[0]
        same(call.function.arguments, "".join(pieces), "accumulated arguments")
        same(town(call), town(whole.choices[0].message.tool_calls[0]), "town")
        same(legs(request_id), (1, 1), "prefill and decode legs")


@check
def bad_requests():
    err = raises(openai.BadRequestError, lambda: chat(client, "hi", extra_body={"kv_transfer_params": {"a": 1}}))
    same((err.status_code, err.code, err.param), (400, "unsupported_parameter", "kv_transfer_params"), "error")
    err = raises(openai.BadRequestError, lambda: chat(client, "hi", temperature=-1))
    same((err.status_code, err.type), (400, "BadRequestError"), "the engine's error")
    err = raises(openai.BadRequestError, lambda: chat(client, "word " * 40000))
    expect("maximum context length" in err.message, f"message {err.message!r}")


@check
def wrong_key_model_and_route():
    stranger = openai.OpenAI(base_url=URL + "/v1", api_key="sk-wrong")
    err = raises(openai.AuthenticationError, lambda: chat(stranger, "hi"))
    same((err.status_code, err.code), (401, "invalid_api_key"), "error")
    err = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="none", messages=messages("hi")))
    expect("`none` does not exist" in err.message, f"message {err.message!r}")
    err = raises(openai.NotFoundError, lambda: client.moderations.create(model=MODEL, input="hi"))
    same(err.code, "unknown_route", "code")


@check
def too_much_at_once():
    streams = [chat(client, f"Hold {i}", 1000, stream=True) for i in range(20)]
    try:
        err = raises(openai.RateLimitError, lambda: chat(once, "one more"))
    finally:
        for s in streams:
            s.close()
    same((err.status_code, err.code), (429, "client_limit"), "error")
    same(err.response.headers.get("retry-after"), "1", "Retry-After")
    nothing_held()


def try_again(request_id):
    same(chat(client, "Try again", extra_headers=named(request_id)).choices[0].finish_reason, "length", "finish_reason")


@check
def retries_a_429():
    retried(429, "python-429", try_again)


@check
def retries_a_503():
    retried(503, "python-503", try_again)


@check
def no_retry_after_two_burnt_prefills():
    before = refusals()
    err = raises(openai.InternalServerError,
                 lambda: chat(client, "[[D:rst]]", extra_headers=named("python-burnt")))
    same((err.status_code, err.code), (502, "decode_failed"), "error")
    same(refusals() - before, 1, "refusals")
    same(legs("python-burnt"), (2, 2), "prefill and decode legs")
    nothing_held()


@check
def a_stream_left_half_way():
    stream = chat(client, "A long story", 1000, stream=True)
    for _ in range(5):
        next(stream)
    stream.close()
    nothing_held()


@check
def a_call_that_times_out_while_the_prompt_is_computed():
    hasty = once.with_options(timeout=0.3)
    times_out(openai.APITimeoutError, "python-hasty", lambda i, n: chat(hasty, f"{n} " + "word " * 16000, extra_headers=named(i)))


@check
def a_stream_that_breaks_off():
    # The proxy sends one error event, in place of the engine's own if there was one, and then the
    # stream breaks off.
    for marker in ("[[D:die@6]]", "[[D:die@6:rst]]", "[[D:cut@6]]", "[[D:error-done@6]]"):
        stream = chat(client, marker, 100, stream=True)
        got = []
        err = raises(openai.APIError, lambda: got.extend(c for c in stream))
        expect(len(got) >= 5, f"{marker}: {len(got)} events before the error")
        same(err.code, "decode_failed", marker + " code")
    nothing_held()


@check
def an_answer_that_breaks_off_is_tried_again():
    fault("")
    answer = chat(client, "Short [[decode-0:die]]", extra_headers=named("python-again"))
    same(answer.choices[0].finish_reason, "length", "finish_reason")


@check
def xpyd_dies_in_mid_stream():
    c = openai.OpenAI(base_url=VICTIM + "/v1", api_key=KEY, max_retries=0)
    stream = chat(c, "A long story", 1000, stream=True)
    for _ in range(5):
        next(stream)
    os.kill(VICTIM_PID, signal.SIGKILL)
    raises(openai.APIConnectionError, lambda: list(stream))
    raises(openai.APIConnectionError, lambda: chat(c, "Still there?"))
    nothing_held()


@check
def engines_die_in_mid_stream_and_come_back():
    stream = chat(client, "A long story", 1000, stream=True)
    for _ in range(5):
        next(stream)
    for engine in DECODE:
        call(engine + "/sim/restart", {})
    err = raises(openai.APIError, lambda: list(stream))
    same(err.code, "decode_failed", "code")
    same(chat(client, "Again").choices[0].finish_reason, "length", "finish_reason after it")


if __name__ == "__main__":
    run_all()
