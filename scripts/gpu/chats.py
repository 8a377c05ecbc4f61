"""chats.py WHAT.json OUT.json: conversations with a server. Each turn's prompt is all that was said before, as token ids,
and some new tokens. OUT has a record of each turn."""
import asyncio
import datetime
import json
import random
import sys
import time
import urllib.parse

WORDS = (200, 480)  # ids of tokens; random ones never begin alike


def words(rnd, n):
    return [rnd.randrange(*WORDS) for _ in range(n)]


async def events(url, body):
    """The data of each event of the stream, as it comes. The first item is the head: status and headers."""
    to = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(to.hostname, to.port, limit=1 << 22)
    try:
        payload = json.dumps(body).encode()
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode() + payload)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        yield int(head[0].split()[1]), headers
        async for line in lines(reader, "chunked" in headers.get("transfer-encoding", "")):
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])
    finally:
        writer.close()


async def lines(reader, chunked):
    """The lines of a body, wherever its chunks end."""
    if not chunked:
        async for line in reader:
            yield line
        return
    rest = b""
    while size := int(await reader.readline() or b"0", 16):
        rest += await reader.readexactly(size)
        await reader.readexactly(2)
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line
    yield rest


async def turn(url, body, record):
    """Sends one turn and returns the tokens of its answer, or None if it failed; record gets what was measured."""
    begin = time.perf_counter()
    first = last = None
    gaps, ids = [], []
    try:
        async for item in events(url, body):
            if isinstance(item, tuple):
                status, headers = item
                record |= {k.removeprefix("x-xpyd-"): v for k, v in headers.items() if k in ("x-xpyd-path", "x-xpyd-prefill", "x-xpyd-decode")}
                if status != 200:
                    raise RuntimeError(f"status {status}")
                continue
            if usage := item.get("usage"):
                record["tokens"] = usage["completion_tokens"]
                record["cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            if not item.get("choices"):
                continue
            now = time.perf_counter()
            ids += item["choices"][0].get("token_ids") or []
            if last is not None:
                gaps.append(round((now - last) * 1e3, 3))
            first, last = first or now, now
    except (OSError, RuntimeError, ValueError, asyncio.IncompleteReadError) as e:
        record["error"] = repr(e)[:200]
        return None
    if first is None:
        record["error"] = "no event"
        return None
    record |= {"ttft_ms": (first - begin) * 1e3, "e2e_ms": (last - begin) * 1e3, "gaps_ms": gaps}
    return ids


async def talk(url, model, load, salt, seed, i, records):
    rnd = random.Random(f"{seed} {i}")
    await asyncio.sleep(i * load["every"])
    prompt = words(random.Random(seed), load["shared"]) + words(rnd, load["own"])
    for k in range(load["turns"]):
        record = {"turn": k, "conversation": i, "prompt": len(prompt), "at": round(time.time(), 3)}
        records.append(record)
        ids = await turn(url, dict(model=model, prompt=prompt, max_tokens=load["answer"], stream=True, ignore_eos=True, temperature=0,
                                   cache_salt=salt, return_token_ids=True, stream_options={"include_usage": True}), record)
        if ids is None:
            return
        await asyncio.sleep(rnd.uniform(*load["think"]))
        prompt = prompt + ids + words(rnd, load["ask"])


def run(url, model, load, salt, seed):
    """All conversations, which begin one after the other. Returns what was measured of each turn, and the seconds."""
    records, begin = [], time.perf_counter()

    async def all_of_them():
        await asyncio.gather(*(talk(url, model, load, salt, seed, i, records) for i in range(load["conversations"])))

    asyncio.run(all_of_them())
    return records, time.perf_counter() - begin


def main():
    with open(sys.argv[1]) as f:
        what = json.load(f)
    began = datetime.datetime.now(datetime.timezone.utc).isoformat()
    records, seconds = run(**what)
    with open(sys.argv[2], "w") as f:
        json.dump({"started": began, "duration_us": seconds * 1e6, "records": records}, f)
    sys.exit(1 if any("error" in r for r in records) else 0)


if __name__ == "__main__":
    main()
