#!/usr/bin/env python3
"""Measures a server with OpenAI's interface under load: time to the first token and tokens per second, of many streams at a time.

    elinvar serve --port 8080 &
    python load.py --url http://127.0.0.1:8080 --streams 1,8,32 --max-tokens 64

    pip install xllamacpp
    python load.py --llama-cpp model.gguf --threads 2 --streams 1,8,32 --max-tokens 64     # llama.cpp's server, started and ended here

Each stream asks its next question when it has its answer. Prompts are random words, different for each request, so that no cache of prompts helps.
Tokens are those that the server counts (`usage`). Only servers on this machine are asked.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import json
import multiprocessing
import random
import socket
import sys
import time
import urllib.parse
from dataclasses import dataclass, field

WORDS = "the of and to in that was his he it with is for as had you not be her on at by which have or from this him but all she they were my are me one".split()
MAX_STREAMS, MAX_REQUESTS, MAX_TOKENS = 1024, 100_000, 8192


@dataclass
class Answer:
    """Seconds from the request to each part of its text, and the tokens that the server counts."""

    times: list[float] = field(default_factory=list)
    tokens: int | None = None
    error: str | None = None


async def body_lines(reader: asyncio.StreamReader, is_chunked: bool):
    """The lines of a response's body."""
    rest = b""
    while True:
        if is_chunked:
            size = int((await reader.readline()).split(b";")[0] or b"0", 16)
            part = await reader.readexactly(size + 2)
            part = part[:-2]
        else:
            part = await reader.read(1 << 16)
        if not part:
            break
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
    if rest:
        yield rest


async def ask(address: tuple[str, int], path: str, key: str | None, body: dict) -> Answer:
    """Sends one request on a connection of its own."""
    answer, data = Answer(), json.dumps(body).encode()
    headers = [f"POST {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}", "Content-Type: application/json", f"Content-Length: {len(data)}", "Connection: close"]
    if key:
        headers.append(f"Authorization: Bearer {key}")
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write("\r\n".join([*headers, "", ""]).encode() + data)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        is_chunked = False
        while line := (await reader.readline()).strip():
            is_chunked |= line.lower() == b"transfer-encoding: chunked"
        is_complete = False
        async for line in body_lines(reader, is_chunked):
            if status != 200:
                answer.error = f"{status}: {line.decode(errors='replace')[:200]}"
            elif line == b"data: [DONE]":
                is_complete = True
                break
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    answer.error = str(event["error"])[:200]
                for choice in event.get("choices", []):
                    if choice.get("text") or choice.get("delta", {}).get("content"):
                        answer.times.append(time.perf_counter() - start)
                if usage := event.get("usage"):
                    answer.tokens = usage["completion_tokens"]
        if not is_complete and answer.error is None:
            answer.error = "the answer ended before [DONE]"
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return answer


def percentile(values: list[float], percent: int) -> float:
    """By the nearest rank."""
    values = sorted(values)
    return values[max(0, -(-len(values) * percent // 100) - 1)] if values else float("nan")


async def measure(options: argparse.Namespace, address: tuple[str, int], streams: int, draw: random.Random) -> dict:
    """Answers of `streams` streams at a time."""
    count = min(options.requests or 4 * streams, MAX_REQUESTS)
    path = "/v1/chat/completions" if options.chat else "/v1/completions"

    def request() -> dict:
        text = " ".join(draw.choice(WORDS) for _ in range(options.words))
        prompt = {"messages": [{"role": "user", "content": text}]} if options.chat else {"prompt": text}
        return dict(prompt, model=options.model, max_tokens=options.max_tokens, temperature=options.temperature, seed=0, stream=True,
                    stream_options={"include_usage": True}, ignore_eos=True)

    bodies = [request() for _ in range(count)]
    answers: list[Answer] = []

    async def stream() -> None:
        while bodies:
            try:
                answers.append(await asyncio.wait_for(ask(address, path, options.key, bodies.pop()), options.timeout))
            except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
                answers.append(Answer(error=f"{type(error).__name__}: {error}"))

    start = time.perf_counter()
    await asyncio.gather(*(stream() for _ in range(streams)))
    seconds = time.perf_counter() - start
    good = [answer for answer in answers if answer.error is None and answer.times]
    first = [answer.times[0] * 1e3 for answer in good]
    between = [(b - a) * 1e3 for answer in good for a, b in zip(answer.times, answer.times[1:])]
    tokens = sum(len(answer.times) if answer.tokens is None else answer.tokens for answer in good)
    for error in sorted({answer.error for answer in answers if answer.error})[:3]:
        print(f"error: {error}", file=sys.stderr)
    return dict(streams=streams, requests=count, failed=count - len(good), tokens=tokens, seconds=seconds, tokens_per_second=tokens / seconds,
                first_p50_ms=percentile(first, 50), first_p99_ms=percentile(first, 99), between_p50_ms=percentile(between, 50),
                between_p99_ms=percentile(between, 99))


def loopback(url: str) -> tuple[str, int]:
    """The address of a server on this machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        sys.exit(f"error: --url {url}: http://127.0.0.1:PORT expected")
    address = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)[0][4]
    if not ipaddress.ip_address(address[0]).is_loopback:
        sys.exit(f"error: --url {url} is not this machine: load is measured over loopback alone")
    return address[0], address[1]


def serve_llama_cpp(path: str, threads: int, streams: int, context: int, ready) -> None:
    """llama.cpp's server in a process of its own."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_parallel = streams
    params.n_ctx = streams * context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.port = 0
    params.verbosity = -1
    server = xllamacpp.Server(params)
    ready.send(server.listening_address)
    ready.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", help="API key")
    parser.add_argument("--model", default="default")
    parser.add_argument("--chat", action="store_true", help="ask /v1/chat/completions instead of /v1/completions")
    parser.add_argument("--streams", default="1,8,32", help="numbers of streams at a time, separated by commas")
    parser.add_argument("--requests", type=int, help="requests for each number of streams [default: four times as many]")
    parser.add_argument("--words", type=int, default=64, help="words of a prompt")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the prompts")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one answer")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--llama-cpp", metavar="GGUF", help="start llama.cpp's server with this model, of the package xllamacpp, and ask that one")
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count(), help="threads of llama.cpp's server")
    options = parser.parse_args()
    levels = [int(level) for level in options.streams.split(",")]
    if not all(1 <= level <= MAX_STREAMS for level in levels) or not 1 <= options.max_tokens <= MAX_TOKENS:
        sys.exit(f"error: 1 to {MAX_STREAMS} streams and 1 to {MAX_TOKENS} tokens expected")

    ours = None
    if options.llama_cpp:
        ours, theirs = multiprocessing.Pipe()
        context = 4 * options.words + options.max_tokens + 64
        peer = multiprocessing.get_context("spawn").Process(target=serve_llama_cpp, args=(options.llama_cpp, options.threads, max(levels), context, theirs), daemon=True)
        peer.start()
        options.url = ours.recv()
    address, draw, rows = loopback(options.url), random.Random(options.seed), []
    asyncio.run(measure(argparse.Namespace(**{**vars(options), "requests": 2}), address, 1, draw))
    print("| streams | requests | failed | tokens/s | first token p50 ms | p99 ms | between tokens p50 ms | p99 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for level in levels:
        row = asyncio.run(measure(options, address, level, draw))
        rows.append(row)
        print(f"| {row['streams']} | {row['requests']} | {row['failed']} | {row['tokens_per_second']:.1f} | {row['first_p50_ms']:.1f} | {row['first_p99_ms']:.1f} "
              f"| {row['between_p50_ms']:.2f} | {row['between_p99_ms']:.2f} |", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    if options.llama_cpp:
        peer.kill()
    if any(row["failed"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
