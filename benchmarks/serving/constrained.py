#!/usr/bin/env python3
"""Asks a server for answers to generated JSON schemas, and validates each with jsonschema.

    pip install jsonschema
    elinvar serve --port 8080 &
    python constrained.py --url http://127.0.0.1:8080 --count 1000

Values are short enough for the answers to end: an answer that ends for want of tokens is one that fails. Only servers on this machine are asked.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import random
import sys
import urllib.parse

import jsonschema

PATTERNS = ["^[0-9]{4}-[01][0-9]-[0-3][0-9]$", "^[a-z]{1,8}$", "^#[0-9a-f]{6}$", "^(yes|no|never)$", "^\\+?[0-9]{3,6}$"]


def schema(draw: random.Random, depth: int) -> dict:
    kind = draw.randrange(8 if depth == 0 else 12)
    if kind == 0:
        least = draw.randrange(-50, 50)
        return {"type": "integer", "minimum": least, "maximum": least + draw.randrange(500)}
    if kind == 1:
        # No number without a bound of its digits: a model may write those for ever.
        return {"type": "integer", "exclusiveMinimum": 0, "maximum": 10_000, "multipleOf": draw.choice([1, 5, 12])}
    if kind == 2:
        return {"type": draw.choice(["boolean", "null"])}
    if kind in (3, 4):
        least = draw.randrange(3)
        return {"type": "string", "minLength": least, "maxLength": least + 1 + draw.randrange(8)}
    if kind == 5:
        return {"type": "string", "pattern": draw.choice(PATTERNS)}
    if kind == 6:
        return {"enum": draw.sample(["red", "green", "blue", 1, 2.5, None, True, "ä ö", ""], 1 + draw.randrange(5))}
    if kind == 7:
        return {"const": draw.choice(["a", 42, None, [1, "x"], {"k": False}])}
    if kind == 8:
        least = draw.randrange(3)
        return {"type": "array", "items": schema(draw, depth - 1), "minItems": least, "maxItems": least + draw.randrange(3)}
    if kind == 9:
        return {"anyOf": [schema(draw, depth - 1), schema(draw, depth - 1)]}
    names = draw.sample(["name", "age", "tags", "über", "a b", "x\"y", "id"], 1 + draw.randrange(4))
    return {"type": "object", "properties": {name: schema(draw, depth - 1) for name in names}, "required": [name for name in names if draw.random() < 0.7],
            "additionalProperties": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", default="default")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=400)
    options = parser.parse_args()
    url = urllib.parse.urlsplit(options.url)
    if url.hostname not in ("127.0.0.1", "localhost", "::1"):
        sys.exit(f"error: --url {options.url} is not this machine")
    draw = random.Random(0)
    schemas = [schema(draw, 3) for _ in range(options.count)]

    def ask(number: int) -> str | None:
        body = {"model": options.model, "prompt": f"Number {number}: ", "max_tokens": options.max_tokens, "seed": number, "temperature": number % 2,
                "response_format": {"type": "json_schema", "schema": schemas[number]}}
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.load(response)
        if response.status != 200:
            return f"{response.status} {answer['error']['message']}"
        choice = answer["choices"][0]
        if choice["finish_reason"] != "stop":
            return f"no end after {answer['usage']['completion_tokens']} tokens: {choice['text'][:80]!r}"
        try:
            jsonschema.validate(json.loads(choice["text"]), schemas[number], jsonschema.Draft202012Validator)
        except (ValueError, jsonschema.ValidationError) as error:
            return f"invalid: {choice['text'][:80]!r}: {str(error).splitlines()[0]}"
        return None

    with concurrent.futures.ThreadPoolExecutor(options.connections) as threads:
        failures = [(number, failure) for number, failure in enumerate(threads.map(ask, range(options.count))) if failure]
    for number, failure in failures[:10]:
        print(f"{json.dumps(schemas[number])}: {failure}", file=sys.stderr)
    print(f"{options.count - len(failures)} of {options.count} answers are valid;", dict(collections.Counter(failure.split()[0] for _, failure in failures)))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
