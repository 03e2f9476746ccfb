#!/usr/bin/env python3
"""Starts `elinvar serve`, sends it many requests, and prints its resident memory on the way; requests that are cut off in every phase are among them.

    python endure.py --elinvar target/release/elinvar --requests 100000

Each connection sends request after request: a completion of a token or two from one of many short prompts, every tenth as a stream, every hundredth cut off by closing
the connection after up to 20 ms. In the end no request may be left in the engine, all its pages must be free, and resident memory may not have grown by more than a
twentieth since a tenth of the requests.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time


def resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    status, length = int((await reader.readline()).split()[1]), None
    while line := (await reader.readline()).strip().lower():
        if line.startswith(b"content-length:"):
            length = int(line[15:])
    if length is not None:
        return status, await reader.readexactly(length)
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return status, body


def request(address: str, method: str, path: str, body: dict | None = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    return f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elinvar", default="target/release/elinvar")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    server = subprocess.Popen([options.elinvar, "serve", "--device", "cpu", "--port", "0"], stderr=subprocess.PIPE, text=True)
    address = next(found[1] for line in server.stderr if (found := re.search(r" on http://(\S+)", line)))
    drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
    host, port = address.split(":")
    draw, left, counts, start = random.Random(0), options.requests, {"answered": 0, "streamed": 0, "cut off": 0}, time.monotonic()
    marks, resident = {1000, options.requests // 10, options.requests // 2, options.requests}, {}
    print(f"before: {resident_kib(server.pid) / 1024:.1f} MiB")

    async def connection() -> None:
        nonlocal left
        reader = writer = None
        while left > 0:
            number, left = options.requests - left, left - 1
            if writer is None:
                reader, writer = await asyncio.open_connection(host, port)
            is_cut, is_stream = number % 100 == 99, number % 10 == 0
            body = {"prompt": f"{draw.randrange(10_000)} speaks: " + "to be or not " * (draw.randrange(8) if number % 20 == 0 else 0), "max_tokens": 300 if is_cut else 1 + number % 2, "stream": is_stream}
            writer.write(request(address, "POST", "/v1/completions", body))
            await writer.drain()
            if is_cut:
                await asyncio.sleep(draw.random() / 50)
                writer.close()
                writer = None
                counts["cut off"] += 1
            else:
                status, answer = await read_answer(reader)
                if status != 200 or is_stream and not answer.endswith(b"data: [DONE]\n\n"):
                    sys.exit(f"error: request {number}: {status} {answer[:200]}")
                counts["streamed" if is_stream else "answered"] += 1
            if number + 1 in marks:
                resident[number + 1] = resident_kib(server.pid)
                print(f"after {number + 1}: {resident[number + 1] / 1024:.1f} MiB, {time.monotonic() - start:.0f} s", flush=True)

    await asyncio.gather(*(connection() for _ in range(options.connections)))
    reader, writer = await asyncio.open_connection(host, port)
    figures = lambda text: {name: float(value) for name, value in re.findall(r"^elinvar_(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE)}
    for _ in range(100):
        writer.write(request(address, "GET", "/metrics"))
        found = figures((await read_answer(reader))[1].decode())
        if found["requests_running"] + found["requests_waiting"] == 0:
            break
        await asyncio.sleep(0.05)
    is_idle = found["requests_running"] + found["requests_waiting"] == 0 and found["cache_pages_free"] == found["cache_pages"]
    print(f"{counts}; pages free: {found['cache_pages_free']:.0f} of {found['cache_pages']:.0f}")
    server.terminate()
    server.wait()
    drain.wait()
    if not is_idle:
        sys.exit("error: requests or pages are left")
    if resident[options.requests] > 1.05 * resident[options.requests // 10]:
        sys.exit("error: resident memory grows")


asyncio.run(main())
