#!/usr/bin/env python3
"""Measures llama.cpp on the CPU through the Python package xllamacpp, which needs no build: prompt processing (pp) and text generation (tg).

    pip install xllamacpp
    python llama_cpp_server.py --model model.gguf --threads 1 --prompt 128 --generate 32 --rounds 3

Prints a JSON list of `test`, `tokens_per_second` and `tokens_per_processor_second`, the best of the rounds, as `elinvar bench decode --json` does for
its own. On a busy machine compare processor time, of one thread: llama.cpp's threads spin while they wait for each other. The package's
llama.cpp has AVX2 and no AVX-512 (`xllamacpp.get_system_info()` says what it has).
"""

import argparse
import json
import os
import resource
import sys
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
    options = parser.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_ctx = max(1024, options.prompt + 1, options.generate + 2)
    params.n_parallel = 1
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

    best = {name: [0.0, 0.0] for name in (f"pp{options.prompt}", f"tg{options.generate}")}
    prompt, generated = best.values()
    for _ in range(options.rounds):
        one, _ = ask([1], 1)
        seconds, timings = ask([i * 31 % 1000 for i in range(options.prompt)], 1)
        prompt[:] = max(prompt[0], timings["prompt_per_second"]), max(prompt[1], options.prompt / seconds)
        seconds, timings = ask([1], options.generate + 1)
        generated[:] = max(generated[0], timings["predicted_per_second"]), max(generated[1], options.generate / (seconds - one))
    print(json.dumps([dict(test=name, tokens_per_second=clock, tokens_per_processor_second=processor) for name, (clock, processor) in best.items()]))
    sys.stdout.flush()
    # The server has no other end.
    os._exit(0)


if __name__ == "__main__":
    main()
