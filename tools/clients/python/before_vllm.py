"""Drives xpyd with openai and anthropic, the official Python SDKs, before real vLLM engines: a pair with a
small model, and one with an embedding model among the decode engines. What they say is nonsense, but it is
the same each time, and a forced call has the form that its schema asks for."""

import contextlib
import json
import re
import threading
import time

import anthropic
import openai
from rig import ADMIN, DECODE, KEY, PREFILL, URL, call, check, expect, raises, run_all, same, wait

MODEL = "tiny"
LONG = "Tell story 22"  # to which it says some 700 tokens
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, timeout=120)
once = client.with_options(max_retries=0)
claude = anthropic.Anthropic(base_url=URL, api_key=KEY, timeout=120)
claude_once = claude.with_options(max_retries=0)
PAGE = {"type": "object", "properties": {"page": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["page"], "additionalProperties": False}
FUNCTIONS = [{"type": "function", "name": "look_up", "description": "looks a page up", "parameters": PAGE, "strict": True}]
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "looks a page up", "parameters": PAGE, "strict": True}}]
USABLE = [{"name": "look_up", "description": "looks a page up", "input_schema": PAGE, "strict": True}]


def user(text):
    return [{"role": "user", "content": text}]


def chat(c, text, tokens=12, **more):
    return c.chat.completions.create(model=MODEL, messages=user(text), max_tokens=tokens, temperature=0, **more)


def respond(c, text, tokens=12, **more):
    return c.responses.create(model=MODEL, input=text, max_output_tokens=tokens, temperature=0, **more)


SURE = {"temperature": 0}  # which the SDK has no argument for


def say(c, text, tokens=12, **more):
    return c.messages.create(model=MODEL, max_tokens=tokens, messages=user(text), extra_body=SURE, **more)


def series(url, name, labels=""):
    """The sum of the series of a metric that have these labels."""
    return sum(float(n) for n in re.findall(rf"^{name}(?:{{[^}}]*{labels}[^}}]*}})? (\S+)$", call(url + "/metrics"), re.M))


@contextlib.contextmanager
def on_both_legs(n):
    """All n completions inside go through a prefill and a decode engine."""
    def taken(path=""):
        return series(ADMIN, "xpyd_decisions_total", path)
    both = 'path="disaggregated"'
    before, before_both = taken(), taken(both)
    yield
    wait("the decisions are counted", lambda: taken() >= before + n)  # which may be after the client has its answer
    same((taken() - before, taken(both) - before_both), (n, n), "completions, and those on both legs")


def nothing_held():
    """No engine has a request or a block in use. Well before a lease of 30 s ends."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    wait("every block free and every engine idle",
         lambda: not any(series(e, name) for e in PREFILL + DECODE for name in names), 20)


def page(name, arguments):
    same((name, list(arguments)), ("look_up", ["page"]), "call")
    expect(1 <= arguments["page"] <= 9, f"arguments {arguments}")
    return arguments["page"]


@check
def chat_and_its_stream():
    with on_both_legs(2):
        whole = chat(client, "Why do clouds float?")
        pieces = [c.choices[0].delta.content or "" for c in chat(client, "Why do clouds float?", stream=True)]
    same("".join(pieces), whole.choices[0].message.content, "streamed text")
    same(whole.usage.completion_tokens, 12, "completion_tokens")


@check
def a_tool_call():
    choices = ["required", {"type": "function", "function": {"name": "look_up"}}]
    with on_both_legs(2):
        answers = [chat(client, "Which page?", 200, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False) for choice in choices]
    for answer in answers:
        f = answer.choices[0].message.tool_calls[0].function
        page(f.name, json.loads(f.arguments))


@check
def a_response_and_its_stream():
    with on_both_legs(2):
        whole = respond(client, "Tell me", instructions="be brief")
        with client.responses.stream(model=MODEL, input="Tell me", instructions="be brief", max_output_tokens=12, temperature=0) as stream:
            events = list(stream)
            final = stream.get_final_response()
    same((whole.status, whole.usage.output_tokens), ("incomplete", 12), "end")
    same("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text, "streamed text")
    same((final.output_text, final.status, events[-1].type), (whole.output_text, "incomplete", "response.completed"), "end of the stream")
    same([e.sequence_number for e in events], list(range(len(events))), "sequence numbers")


@check
def a_response_that_calls_a_function():
    for choice in ("required", {"type": "function", "name": "look_up"}):
        ask = dict(model=MODEL, input="Which page?", tools=FUNCTIONS, tool_choice=choice, parallel_tool_calls=False, max_output_tokens=200, temperature=0)
        with on_both_legs(2):
            whole = client.responses.create(**ask)
            with client.responses.stream(**ask) as stream:
                pieces = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
                final = stream.get_final_response()
        same([o.type for o in whole.output + final.output], ["function_call"] * 2, "output")
        same("".join(pieces), final.output[0].arguments, "streamed arguments")
        same(page(final.output[0].name, json.loads(final.output[0].arguments)), page(whole.output[0].name, json.loads(whole.output[0].arguments)), "page")


@check
def responses_that_are_refused():
    err = raises(openai.BadRequestError, lambda: respond(client, "hi", extra_body={"kv_transfer_params": {"a": 1}}))
    same((err.code, err.param), ("unsupported_parameter", "kv_transfer_params"), "error")
    raises(openai.BadRequestError, lambda: respond(client, "word " * 3000))
    raises(openai.NotFoundError, lambda: respond(client, "hi", previous_response_id="resp_none"))
    raises(openai.NotFoundError, lambda: client.responses.create(model="none", input="hi"))
    raises(openai.AuthenticationError, lambda: respond(openai.OpenAI(base_url=URL + "/v1", api_key="sk-wrong"), "hi"))
    nothing_held()


@check
def embeddings():
    both = client.embeddings.create(model="embedder", input=["up", "down"])  # the SDK asks for base64
    floats = client.embeddings.create(model="embedder", input="down", encoding_format="float").data[0].embedding
    same((len(both.data), len(floats)), (2, 64), "vectors, and numbers of one")
    expect(all(abs(a - b) < 1e-4 for a, b in zip(both.data[1].embedding, floats)), "base64 and floats differ")
    expect(both.data[0].embedding != both.data[1].embedding, "two texts have one vector")
    raises(openai.NotFoundError, lambda: client.embeddings.create(model="none", input="hi"))


@check
def a_message_and_its_stream():
    with on_both_legs(2):
        whole = say(claude, "Tell me", system="be brief", extra_headers={"X-Request-Id": "py-message"})
        with claude.messages.stream(model=MODEL, max_tokens=12, messages=user("Tell me"), system="be brief", extra_body=SURE) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
    same((whole.stop_reason, whole.usage.output_tokens, whole._request_id), ("max_tokens", 12, "py-message"), "end")
    same((text, final.content[0].text, final.stop_reason), (whole.content[0].text, whole.content[0].text, "max_tokens"), "text and end of the stream")
    count = claude.messages.count_tokens(model=MODEL, system="be brief", messages=user("Tell me"))
    same(count.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens, "counted tokens")


@check
def a_message_that_uses_a_tool():
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "look_up"}):
        ask = dict(model=MODEL, max_tokens=200, messages=user("Which page?"), tools=USABLE, tool_choice=choice, extra_body=SURE)
        with on_both_legs(2):
            whole = claude.messages.create(**ask)
            with claude.messages.stream(**ask) as stream:
                pieces = [e.partial_json for e in stream if e.type == "input_json"]
                final = stream.get_final_message()
        same((whole.stop_reason, final.stop_reason), ("tool_use", "tool_use"), "stop reasons")
        same((json.loads("".join(pieces)), page(final.content[0].name, final.content[0].input)), (final.content[0].input, page(whole.content[0].name, whole.content[0].input)), "input")


@check
def messages_that_are_refused():
    err = raises(anthropic.AuthenticationError, lambda: say(anthropic.Anthropic(base_url=URL, api_key="sk-wrong"), "hi"))
    same(err.body["error"]["type"], "authentication_error", "type")
    err = raises(anthropic.BadRequestError, lambda: claude.messages.create(model=MODEL, max_tokens=1, messages=user("hi"), extra_body={"kv_transfer_params": {"a": 1}}))
    same(err.body["error"]["code"], "unsupported_parameter", "code")
    raises(anthropic.BadRequestError, lambda: say(claude, "word " * 3000))
    raises(anthropic.NotFoundError, lambda: claude.messages.create(model="none", max_tokens=1, messages=user("hi")))
    nothing_held()


@check
def streams_left_half_way():
    for stream in (respond(client, LONG, 1500, stream=True), say(claude, LONG, 1500, stream=True)):
        for _ in range(8):
            next(stream)
        stream.close()
        nothing_held()


@check
def calls_that_time_out():
    hasty, hasty_claude = once.with_options(timeout=0.3), claude_once.with_options(timeout=0.3)
    raises(openai.APITimeoutError, lambda: respond(hasty, LONG, 1500))
    raises(anthropic.APITimeoutError, lambda: say(hasty_claude, LONG, 1500))
    nothing_held()


def retried(ask, code, begin, end):
    """From begin on xpyd refuses with that code. That ends when it has happened, and an attempt of the SDK succeeds."""
    begin()
    before = series(ADMIN, "xpyd_request_errors_total", f'code="{code}"')

    def mend():
        try:
            wait("a refusal", lambda: series(ADMIN, "xpyd_request_errors_total", f'code="{code}"') > before)
        finally:
            end()
    thread = threading.Thread(target=mend)
    thread.start()
    begun = time.monotonic()
    try:
        ask()
    finally:
        thread.join()
    took = time.monotonic() - begun
    n = series(ADMIN, "xpyd_request_errors_total", f'code="{code}"') - before
    expect(took >= n >= 1, f"{n} refusals in {took:.2f} s, want each attempt at least the second later that Retry-After asks for")


# A machine that stalls may need some more attempts than two.
ASKS = [lambda: same(respond(client.with_options(max_retries=8), "Try again").status, "incomplete", "status"),
        lambda: same(say(claude.with_options(max_retries=8), "Try again").stop_reason, "max_tokens", "stop_reason")]


def hold(streams):
    """Opens streams until there are as many as one client may have."""
    try:
        while len(streams) < 12:
            streams.append(chat(once, f"Hold {len(streams)}", 2000, stream=True, extra_body={"ignore_eos": True}))
    except openai.RateLimitError:
        return
    expect(False, "12 streams at once")


@check
def retries_a_429():
    for ask in ASKS:
        streams = []
        retried(ask, "client_limit", lambda: hold(streams), lambda: [s.close() for s in streams])
        nothing_held()


@check
def retries_a_503():
    name = DECODE[0].removeprefix("http://")
    for ask in ASKS:
        retried(ask, "decode_unavailable", lambda: call(f"{ADMIN}/backends/{name}", {"state": "drain"}, "PATCH"),
                lambda: call(f"{ADMIN}/backends/{name}", {"state": "ready"}, "PATCH"))
    nothing_held()


if __name__ == "__main__":
    run_all()
