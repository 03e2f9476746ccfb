#!/usr/bin/env python3
"""Measures llama.cpp on the CPU through the Python package xllamacpp, which needs no build: prompt processing (pp) and text generation (tg).

    pip install xllamacpp
    python llama_cpp_server.py --model model.gguf --threads 1 --prompt 128 --generate 32 --rounds 3 --sequences 4

With `--sequences` so many requests at a time generate, and all their tokens count. Prints a JSON list of `test`, `tokens_per_second` and `tokens_per_processor_second`, the best of the rounds, as `elinvar bench decode --json` does for
its own. On a busy machine compare processor time, of one thread: llama.cpp's threads spin while they wait for each other. The package's
llama.cpp has AVX2 and no AVX-512 (`xllamacpp.get_system_info()` says what it has).
"""

import argparse
import concurrent.futures
import json
import os
import resource
import sys
import time
import urllib.request

import xllamacpp

GREEDY = dict(temperature=0, top_k=1, samplers=["top_k"], ignore_eos=True, cache_prompt=False)


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=1)
    options = parser.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_ctx = max(1024, options.prompt + 1, options.generate + 2) * options.sequences
    params.n_parallel = options.sequences
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.port = 0
    params.verbosity = -1
    server = xllamacpp.Server(params)

    def ask(prompt: list[int], count: int) -> tuple[float, dict]:
        body = json.dumps(dict(prompt=prompt, n_predict=count, **GREEDY)).encode()
        request = urllib.request.Request(f"{server.listening_address}/completion", body, {"Content-Type": "application/json"})
        before = processor_seconds()
        with urllib.request.urlopen(request) as answer:
            timings = json.load(answer)["timings"]
        return processor_seconds() - before, timings

    def ask_all(count: int) -> tuple[float, float]:
        """Processor seconds and seconds of all requests at a time."""
        before, start = processor_seconds(), time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(options.sequences) as threads:
            list(threads.map(lambda number: ask([number + 1], count), range(options.sequences)))
        return processor_seconds() - before, time.perf_counter() - start

    name = f"tg{options.generate}" if options.sequences == 1 else f"{options.sequences} x tg{options.generate}"
    best = {test: [0.0, 0.0] for test in (f"pp{options.prompt}", name)}
    prompt, generated = best.values()
    tokens = options.generate * options.sequences
    for _ in range(options.rounds):
        seconds, timings = ask([i * 31 % 500 for i in range(options.prompt)], 1)
        prompt[:] = max(prompt[0], timings["prompt_per_second"]), max(prompt[1], options.prompt / seconds)
        one, many = ask_all(1), ask_all(options.generate + 1)
        generated[:] = max(generated[0], tokens / (many[1] - one[1])), max(generated[1], tokens / (many[0] - one[0]))
    print(json.dumps([dict(test=name, tokens_per_second=clock, tokens_per_processor_second=processor) for name, (clock, processor) in best.items()]))
    sys.stdout.flush()
    # The server has no other end.
    os._exit(0)


if __name__ == "__main__":
    main()
