#!/usr/bin/env python3
"""Takes the place of llama-server in llama.cpp's tests: starts `elinvar serve` and passes requests on, in the words of its interface.

Flags of llama-server become those of `elinvar serve`; one that has no counterpart ends the program. Requests lose what belongs to llama.cpp alone: the
paths without `/v1`, `/completion` with `n_predict`, `cache_prompt` and lists as `logit_bias`, the names of models, which it ignores. Answers get what its
tests look at. Texts that its sampler draws by default (temperature 0.8) are those of temperature 0 here, which the tests' plugin compares with llama.cpp's.

Environment: ELINVAR, the command; ELINVAR_TEST_MODEL, the folder of stories260K in the form of Hugging Face.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import aiohttp
from aiohttp import web

# llama.cpp's default, with the tools of Hermes.
CHATML = """{{ bos_token }}{% if tools %}<|im_start|>system
Call tools as <tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call>: {{ tools | tojson }}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PATHS = {"/chat/completions/input_tokens": "/v1/messages/count_tokens", "/chat/completions": "/v1/chat/completions", "/responses": "/v1/responses", "/models": "/v1/models", "/embeddings": "/v1/embeddings"}
NATIVE = ("/completion", "/completions")
SAMPLER_DEFAULT = 0.8


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, kind, default in [("port", int, 8080), ("host", str, "127.0.0.1"), ("seed", int, 0), ("temp", float, SAMPLER_DEFAULT), ("ctx-size", int, 4096),
                                ("parallel", int, 1), ("batch-size", int, 512), ("n-predict", int, -1), ("threads", int, None), ("alias", str, "default"),
                                ("api-key", str, None), ("chat-template", str, None), ("chat-template-file", str, None), ("reasoning", str, "auto")]:
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--kv-unified", action="store_true")
    # Where the model comes from, how many tokens a part of a step has, and what is always on here.
    for name in ("hf-repo", "hf-file", "ubatch-size"):
        parser.add_argument(f"--{name}")
    for name in ("offline", "slots", "no-slots", "metrics", "cont-batching", "jinja", "no-jinja", "verbose"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


def model_folder(options: argparse.Namespace, folder: str) -> str:
    """The model with the chat template that is asked for."""
    for file in Path(os.environ["ELINVAR_TEST_MODEL"]).iterdir():
        if file.suffix in (".json", ".safetensors"):
            Path(folder, file.name).symlink_to(file.resolve())
    template = CHATML
    if options.chat_template_file:
        template = Path(options.chat_template_file).read_text()
    elif options.chat_template not in (None, "chatml"):
        template = options.chat_template
    # llama.cpp begins each text with its first token, whatever the template says.
    if "bos_token" not in template:
        template = "{{ bos_token }}" + template
    Path(folder, "chat_template.jinja").write_text(template)
    return folder


class Adapter:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        # A context that the model does not have is cut.
        most = json.loads(Path(os.environ["ELINVAR_TEST_MODEL"], "config.json").read_text())["max_position_embeddings"]
        self.context = min(most, options.ctx_size if options.kv_unified else options.ctx_size // options.parallel)

    async def start(self, folder: str) -> None:
        options = self.options
        command = [os.environ["ELINVAR"], "serve", "--device", "cpu", "--host", "127.0.0.1", "--port", "0", "--model", f"{options.alias}={model_folder(options, folder)}",
                   "--context", self.context, "--cache-tokens", options.ctx_size, "--running", options.parallel, "--step-tokens", options.batch_size]
        for name, value in (("--threads", options.threads), ("--api-key", options.api_key)):
            command += [] if value is None else [name, value]
        self.child = await asyncio.create_subprocess_exec(*map(str, command), stderr=asyncio.subprocess.PIPE)
        while line := (await self.child.stderr.readline()).decode():
            if found := re.search(r" on (http://\S+)", line):
                self.address = found[1]
                break
        else:
            sys.exit("elinvar serve did not start")
        self.log = asyncio.create_task(self.child.stderr.read())
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))

    async def ask(self, path: str, body: object, headers: dict) -> tuple[int, object]:
        async with self.session.post(self.address + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def tokens(self, text: str, headers: dict, is_start: bool) -> list[int]:
        _, answer = await self.ask("/tokenize", {"content": text, "add_special": is_start}, headers)
        return answer["tokens"]

    async def prompt(self, prompt: object, headers: dict) -> object:
        """A prompt as completions have it."""
        if isinstance(prompt, dict):
            return None if "multimodal_data" in prompt else prompt.get("prompt_string")
        if isinstance(prompt, list) and any(isinstance(part, int) for part in prompt):
            parts = [[part] if isinstance(part, int) else await self.tokens(part, headers, index == 0) for index, part in enumerate(prompt)]
            return [token for part in parts for token in part]
        if isinstance(prompt, list):
            return [await self.prompt(one, headers) for one in prompt]
        return prompt

    async def translated(self, path: str, body: dict, headers: dict) -> dict:
        body, limit = dict(body, model="default"), self.options.n_predict
        if path in NATIVE:
            body["prompt"] = await self.prompt(body.get("prompt"), headers)
            body["max_tokens"] = body.pop("n_predict", limit)
            body.pop("cache_prompt", None)
        if body.get("max_tokens", 0) is not None and path not in ("/v1/responses", "/v1/messages", "/v1/messages/count_tokens"):
            asked = body.get("max_tokens", body.get("max_completion_tokens", limit))
            body["max_tokens"] = self.context if asked < 0 else asked
        if body.get("temperature", SAMPLER_DEFAULT) == SAMPLER_DEFAULT:
            body["temperature"] = 0
        body.setdefault("seed", self.options.seed)
        body.setdefault("chat_template_kwargs", {"enable_thinking": self.options.reasoning != "off"})
        if bias := body.get("logit_bias"):
            pairs = bias.items() if isinstance(bias, dict) else bias
            body["logit_bias"] = {}
            for key, value in pairs:
                is_token = isinstance(key, int) or key.isdigit()
                for token in [key] if is_token else await self.tokens(key, headers, False):
                    body["logit_bias"][str(token)] = value
        if (schema := body.pop("json_schema", None)) is not None:
            body["response_format"] = {"type": "json_schema", "schema": schema}
        return body

    def native(self, choice: dict, usage: dict | None) -> dict:
        """A completion as /completion has it."""
        reason = choice["finish_reason"]
        answer = {"index": choice["index"], "content": choice["text"], "tokens": [], "stop": reason is not None}
        if reason is not None:
            answer.update(stop_type="limit" if reason == "length" else "eos", has_new_line="\n" in choice["text"])
        if usage:
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            answer["timings"] = dict(prompt_n=usage["prompt_tokens"] - cached, cache_n=cached, predicted_n=usage["completion_tokens"])
            answer["truncated"] = usage["total_tokens"] >= self.context
        return answer

    def answer(self, path: str, value: object) -> object:
        """An answer, or a part of one, with what llama.cpp's tests look at."""
        if not isinstance(value, dict):
            return value
        if path in NATIVE and "choices" in value:
            usage = value.get("usage")
            answers = [self.native(choice, usage if len(value["choices"]) == 1 else None) for choice in value["choices"]]
            return answers[0] if len(answers) == 1 else answers
        if "system_fingerprint" in value:
            value["system_fingerprint"] = "b" + value["system_fingerprint"]
        for choice in value.get("choices", []):
            if choice.get("delta", {}).get("content") == "":
                choice["delta"]["content"] = None
        error = value.get("error")
        if isinstance(error, dict) and error.get("code") == "context_length_exceeded":
            tokens, context = map(int, re.search(r"(\d+) tokens, and the context (\d+)", error["message"]).groups())
            error.update(type="exceed_context_size_error", n_prompt_tokens=tokens, n_ctx=context, message=error["message"] + ": exceeds the available context size")
        return value

    async def get(self, request: web.Request) -> web.StreamResponse:
        path = PATHS.get(request.path, request.path)
        async with self.session.get(self.address + path, headers=keys(request)) as response:
            body = await response.read()
            if path == "/slots" and response.status == 200:
                running = json.loads(body)
                count = max(len(running), self.options.parallel)
                body = json.dumps([dict(id=index, n_ctx=self.context, is_processing=index < len(running)) for index in range(count)]).encode()
            return web.Response(status=response.status, body=body, content_type=response.content_type)

    async def post(self, request: web.Request) -> web.StreamResponse:
        path, headers = PATHS.get(request.path, request.path), keys(request)
        body = json.loads(await request.text() or "null")
        if isinstance(body, dict):
            body = await self.translated(path, body, headers)
        target = "/v1/completions" if path in NATIVE else path
        async with self.session.post(self.address + target, json=body, headers=headers) as response:
            if response.content_type != "text/event-stream":
                return web.json_response(self.answer(path, await response.json()), status=response.status)
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            async for line in response.content:
                if line.startswith(b"data: {"):
                    line = b"data: " + json.dumps(self.answer(path, json.loads(line[6:]))).encode() + b"\n"
                await stream.write(line)
            return stream


def keys(request: web.Request) -> dict:
    return {name: request.headers[name] for name in ("Authorization", "X-Api-Key") if name in request.headers}


async def main() -> None:
    options = arguments()
    adapter, stopped = Adapter(options), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory() as folder:
        await adapter.start(folder)
        app = web.Application(client_max_size=1 << 30)
        app.add_routes([web.get("/{path:.*}", adapter.get), web.post("/{path:.*}", adapter.post)])
        # A client that goes away cancels what it asked for.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, options.host, options.port).start()
        await stopped.wait()
        adapter.child.kill()
        await adapter.child.wait()
        await adapter.session.close()
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
