"""Streams two chat completions through xpyd with the official client. The first must
end cleanly; in the second the decode engine is killed, and the client must raise.

usage: openai_raises.py BASE_URL DECODE_PID
"""

import os
import signal
import sys

import openai


def stream(client, model, tokens):
    return client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "count to a thousand"}],
        max_tokens=tokens,
        stream=True,
    )


def main() -> int:
    base_url, decode_pid = sys.argv[1], int(sys.argv[2])
    # No retries: a second attempt would find no engine and raise for that reason.
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=30)
    model = client.models.list().data[0].id
    reasons = [c.choices[0].finish_reason for c in stream(client, model, 8) if c.choices]
    if reasons[-1] != "length":
        print(f"a whole stream ended with finish_reason {reasons[-1]!r}")
        return 1
    events = 0
    try:
        for chunk in stream(client, model, 1000):
            events += bool(chunk.choices and chunk.choices[0].delta.content)
            if events == 5:
                os.kill(decode_pid, signal.SIGKILL)
    # An error event raises APIError itself, a broken connection its APIConnectionError.
    except openai.APIError as err:
        if events < 5:
            print(f"raised before the kill, after {events} events: {err!r}")
            return 1
        print(f"openai {openai.__version__} raised after {events} events: {err!r}")
        return 0
    print(f"the stream ended cleanly after {events} events")
    return 1


sys.exit(main())
