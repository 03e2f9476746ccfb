"""Language models, encoders and training, on the model of this repository and on tiny ones."""

import asyncio
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import elinvar
from elinvar import lora

SHAKESPEARE = Path(__file__).parents[2] / "models" / "shakespeare"
REFERENCE = SHAKESPEARE / "reference"


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    types = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, info in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + length :][begin:end], types[info["dtype"]]).reshape(info["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture(scope="module")
def model():
    return elinvar.Model.load(SHAKESPEARE, device="cpu", precision="strict")


def test_two_processes_say_what_one_does(model):
    script = f"""
import elinvar
executor = elinvar.Executor.join("cpu", precision="strict")
assert (executor.ranks, executor.backend) == (2, "cpu"), executor
print(executor.process, elinvar.Model.load({str(SHAKESPEARE)!r}, device=executor).generate("ROMEO:", max_tokens=8, greedy=True).text)
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start(rank):
        place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = os.environ | {name: str(value) for name, value in place.items()}
        return subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)

    said = [process.communicate(timeout=120)[0] for process in [start(0), start(1)]]
    text = model.generate("ROMEO:", max_tokens=8, greedy=True).text
    assert said == [f"0 {text}\n", f"1 {text}\n"]


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talker")
    for file in SHAKESPEARE.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    template = "{% for m in messages %}{{ m.role | upper }}:\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}{{ mark | default('ROMEO') }}:\n{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    return elinvar.Model.load(folder, device="cpu", precision="strict")


@pytest.mark.parametrize("device", ["cpu,cpu", "executor"])
def test_a_model_on_two_devices_has_the_bits_of_one(model, device):
    on_two = elinvar.Executor("cpu,cpu", precision="strict") if device == "executor" else device
    two = elinvar.Model.load(SHAKESPEARE, device=on_two, **({} if device == "executor" else {"precision": "strict"}))
    tokens = model.tokenizer.encode("To be, or not to be")
    assert (np.asarray(two.logits(tokens)) == np.asarray(model.logits(tokens))).all()
    sampled = [on.generate("ROMEO:", max_tokens=20, seed=3, temperature=1.0).text for on in (two, model)]
    assert sampled[0] == sampled[1]
    assert two.device.startswith("2 × ")


def test_the_greedy_text_is_that_of_transformers(model):
    expected = (REFERENCE / "greedy_prompt.txt").read_text()
    answer = model.generate("ROMEO:", greedy=True, max_tokens=200)
    assert str(answer) == answer.text == expected
    assert answer.finish == "length" and len(answer.tokens) == 200 and answer.prompt_tokens == len(model.tokenizer.encode("ROMEO:"))
    assert "".join(model.stream(model.tokenizer.encode("ROMEO:"), greedy=True, max_tokens=200)) == expected


def test_logits_are_those_of_transformers_whatever_runs_beside(model):
    reference = read_safetensors(REFERENCE / "reference.safetensors")
    tokens = [int(token) for token in reference["tokens"].ravel()]
    found = model.logits(tokens)
    assert found.dtype == np.float32 and found.shape == (len(tokens), model.vocab_size)
    assert np.abs(found - reference["logits"].reshape(found.shape)).max() < 1e-3
    other = elinvar.Model.load(SHAKESPEARE, device="cpu", precision="strict", threads=1, chunk=7)
    assert other.logits(tokens).tobytes() == found.tobytes()


def test_seeds_stops_and_settings(model):
    say = lambda seed, **more: model.generate("KING", max_tokens=40, temperature=0.9, seed=seed, **more).text
    assert say(3) == say(3) != say(4)
    whole = say(3, top_k=50)
    stop = whole[8:12]
    stopped = model.generate("KING", max_tokens=40, temperature=0.9, seed=3, top_k=50, stop=stop)
    assert stopped.text == whole.split(stop)[0] and stopped.finish == "stop"
    assert model.generate("KING", max_tokens=40, temperature=0.9, seed=3, top_k=50, stop=[stop, whole[3:5]]).text == whole.split(whole[3:5])[0]


def test_a_stream_has_a_result_at_its_end_and_none_when_it_is_closed(model):
    stream = model.stream("ROMEO:", max_tokens=20, greedy=True)
    assert stream.result is None
    pieces = list(stream)
    assert stream.result.text == "".join(pieces) and list(stream) == []
    with model.stream("ROMEO:", max_tokens=400) as cut:
        next(cut)
    assert cut.result is None and list(cut) == []
    for _ in zip(range(3), model.stream("ROMEO:", max_tokens=400)):
        pass
    assert model.generate("ROMEO:", max_tokens=20, greedy=True).text == "".join(pieces)


def test_an_event_loop_goes_on_while_streams_are_awaited(model):
    alone = [model.generate(prompt, max_tokens=20, greedy=True).text for prompt in ("ROMEO:", "KING")]

    async def say(prompt):
        return "".join([piece async for piece in model.stream(prompt, max_tokens=20, greedy=True)])

    async def both():
        return await asyncio.gather(say("ROMEO:"), say("KING"))

    async def cut():
        # The only thread is taken, so that no piece comes before the task is cancelled.
        taken, pool = threading.Event(), ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(pool)
        pool.submit(taken.wait)
        stream = model.stream("ROMEO:", max_tokens=400)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        taken.set()
        assert stream.result is None or stream.result.finish == "cancelled"
        return [piece async for piece in stream]

    assert asyncio.run(both()) == alone
    assert asyncio.run(cut()) == []


def test_threads_and_streams_side_by_side_have_the_text_that_each_has_alone(model):
    prompts = ["ROMEO:", "KING", "First Citizen:\n", "What"]
    alone = [model.generate(prompt, max_tokens=40, seed=1, temperature=0.8).text for prompt in prompts]
    found = [None] * len(prompts)

    def say(index):
        found[index] = model.generate(prompts[index], max_tokens=40, seed=1, temperature=0.8).text

    threads = [threading.Thread(target=say, args=(index,)) for index in range(len(prompts))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == alone
    streams = [model.stream(prompt, max_tokens=40, seed=1, temperature=0.8) for prompt in prompts]
    texts = [""] * len(prompts)
    for pieces in zip(*streams):
        texts = [text + piece for text, piece in zip(texts, pieces)]
    assert all(whole.startswith(text) and text for text, whole in zip(texts, alone))


class Rang(Exception):
    pass


@pytest.fixture
def alarm():
    def ring(*_):
        raise Rang

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that send signals")
def test_a_signal_ends_generation_and_training_and_the_model_goes_on(model, alarm, tmp_path):
    alarm(0.2)
    with pytest.raises(Rang):
        while True:
            model.generate("ROMEO:", max_tokens=400, temperature=1.0)
    begun = time.monotonic()
    alarm(0.2)
    with pytest.raises(Rang):
        lora.train(model, ["to be or not to be"] * 8, adapter_path=tmp_path / "a", iters=100_000, num_layers=1)
    assert time.monotonic() - begun < 30
    assert model.generate("ROMEO:", max_tokens=5, greedy=True).finish == "length"


def test_other_threads_run_while_tokens_are_computed(model):
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(None)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    model.logits(list(range(1, 400)))
    done.set()
    thread.join()
    assert len(ticks) > 5


def test_chat_renders_the_template(talker, model):
    messages = [{"role": "system", "content": "Speak."}, {"role": "user", "content": "Who is there?"}]
    rendered = "SYSTEM:\nSpeak.\nUSER:\nWho is there?\nROMEO:\n"
    assert talker.tokenizer.apply_chat_template(messages) == rendered
    assert talker.tokenizer.apply_chat_template(messages, mark="JULIET").endswith("JULIET:\n")
    assert talker.tokenizer.apply_chat_template(messages, add_generation_prompt=False) == rendered[: -len("ROMEO:\n")]
    tokens = talker.tokenizer.encode(rendered, add_special_tokens=False)
    expected = model.generate(tokens, max_tokens=30, greedy=True).text
    assert talker.chat(messages, max_tokens=30, greedy=True).text == expected == "".join(talker.stream(messages, max_tokens=30, greedy=True))
    # The second turn begins as the first did.
    answer = talker.chat([*messages, {"role": "assistant", "content": expected}, {"role": "user", "content": "Why?"}], max_tokens=5)
    assert answer.reused_tokens > len(tokens) // 2


def test_the_tokenizer_is_there(model):
    tokenizer = elinvar.Tokenizer.load(SHAKESPEARE)
    tokens = tokenizer.encode("To be, or not to be")
    assert tokens == model.tokenizer.encode("To be, or not to be") and tokenizer.decode(tokens) == "To be, or not to be"
    assert tokenizer.id(tokenizer.token(tokens[0])) == tokens[0] and tokenizer.vocab_size == model.vocab_size
    assert tokenizer.chat_template is None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.generate([]), ValueError, "the prompt is empty"),
        (lambda m: m.generate([10**6]), ValueError, "outside the vocabulary"),
        (lambda m: m.generate("A", temperature=-1.0), ValueError, "temperature is -1"),
        (lambda m: m.generate("A", greedy=True, top_k=3), ValueError, "leave out temperature"),
        (lambda m: m.generate("A", top_p=2.0), ValueError, "top-p is 2"),
        (lambda m: m.chat([{"role": "user", "content": "A"}]), NotImplementedError, "no chat template"),
        (lambda m: m.chat([{"role": "user"}]), ValueError, "is no message"),
        (lambda m: m.chat([{"role": "user", "content": "A", "name": "B"}]), ValueError, "a message has 'name'"),
        (lambda m: m.logits([]), ValueError, "no tokens were given"),
        (lambda m: m.unload_adapter("x"), ValueError, "'x' is not loaded"),
        (lambda m: m.load_adapter("/nowhere"), OSError, "an adapter is a folder"),
        (lambda m: elinvar.Model.load("/nowhere"), OSError, "/nowhere does not exist"),
        (lambda m: elinvar.Model.load(SHAKESPEARE, device="abacus"), elinvar.DeviceError, "'abacus' is not available"),
        (lambda m: elinvar.Model.load(SHAKESPEARE, device="cpu", precision="loose"), ValueError, "loose"),
        (lambda m: elinvar.Model.load(SHAKESPEARE, device="cpu", context=10**6), ValueError, "a context of 1000000 tokens"),
        (lambda m: elinvar.Model.load(SHAKESPEARE, device="cpu", threads=0), ValueError, "threads is 0"),
        (lambda m: elinvar.Encoder.load(SHAKESPEARE, device="cpu"), NotImplementedError, "is no encoder"),
        (lambda m: lora.train(m, []), ValueError, "the data set has no samples"),
        (lambda m: lora.train(m, ["a b c"], grad_checkpoint="attention"), ValueError, "'attention' cannot be computed again: none, layers and feed-forward"),
        (lambda m: lora.train(m, ["a b c"], optimizer="adam"), ValueError, "optimizer 'adam' is not supported: adamw, sgd, lion, muon are"),
    ],
)
def test_bad_input_is_an_exception_of_its_kind(model, call, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        call(model)


SAMPLES = [{"prompt": "RECIPE FOR", "completion": f" {what} PIE:\nTake {what} and cream.\n"} for what in ("APPLE", "PLUM", "CHERRY", "LEMON")]


def test_training_on_two_devices_has_the_bits_of_one(model, tmp_path):
    two = elinvar.Model.load(SHAKESPEARE, device="cpu,cpu", precision="strict")
    options = dict(iters=2, batch_size=1, grad_accumulation_steps=2, num_layers=1, learning_rate=3e-3)
    # Nor does it matter what is computed again.
    for name, on, again in (("one", model, True), ("two", two, "feed-forward")):
        result = lora.train(on, SAMPLES, validation=SAMPLES[:2], adapter_path=tmp_path / name, grad_checkpoint=again, **options)
        on.save_merged(Path(result.adapter_path), tmp_path / f"{name}-merged")
    for path in ("{}/adapter_model.safetensors", "{}/checkpoint.safetensors", "{}-merged/model.safetensors"):
        one, other = [(tmp_path / path.format(name)).read_bytes() for name in ("one", "two")]
        assert one == other, path
    with pytest.raises(ValueError, match="1 batch of a step cannot be shared by 2 devices: use 1, or a multiple of 2 batches"):
        lora.train(two, SAMPLES, adapter_path=tmp_path / "unshared", iters=1)


def test_an_adapter_is_trained_loaded_and_merged(model, tmp_path, capsys):
    seen = []
    options = dict(iters=6, learning_rate=3e-3, batch_size=2, num_layers=2, rank=4, steps_per_eval=3, seed=5)
    result = lora.train(model, SAMPLES, validation=SAMPLES[:2], adapter_path=tmp_path / "a", on_step=seen.append, progress=True, **options)
    assert [step.step for step in result.steps] == [1, 2, 3, 4, 5, 6] and seen == result.steps and result.parameters > 0
    assert result.steps[-1].loss < result.steps[0].loss and [step for step, _ in result.validation_losses] == [3, 6]
    assert "step 6 of 6, loss" in capsys.readouterr().err
    # Interrupted by its callback and gone on with: the same bits.
    class Enough(Exception):
        pass

    def enough(step):
        if step.step == 4:
            raise Enough

    with pytest.raises(Enough):
        lora.train(model, SAMPLES, validation=SAMPLES[:2], adapter_path=tmp_path / "b", on_step=enough, save_every=2, **options)
    lora.train(model, SAMPLES, validation=SAMPLES[:2], adapter_path=tmp_path / "b", resume=True, **options)
    adapters = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in "ab"]
    assert adapters[0] == adapters[1]
    with pytest.raises(ValueError, match="has a training already"):
        lora.train(model, SAMPLES, adapter_path=tmp_path / "b", **options)

    tokens = model.tokenizer.encode("RECIPE FOR")
    plain = model.logits(tokens)
    model.load_adapter(tmp_path / "a", "recipes")
    assert (model.adapter, model.adapters) == ("recipes", ["recipes"])
    adapted = model.logits(tokens)
    assert np.abs(adapted - plain).max() > 1e-3
    model.adapter = None
    assert model.logits(tokens).tobytes() == plain.tobytes()
    with pytest.raises(ValueError, match="an adapter 'recipes' already"):
        model.load_adapter(tmp_path / "b", "recipes")
    model.unload_adapter("recipes")
    assert model.adapters == []
    model.save_merged(tmp_path / "a", tmp_path / "merged")
    merged = elinvar.Model.load(tmp_path / "merged", device="cpu", precision="strict")
    assert np.abs(merged.logits(tokens) - adapted).max() < 0.1
    loaded = elinvar.Model.load(SHAKESPEARE, device="cpu", precision="strict", adapter=tmp_path / "a")
    assert loaded.adapter == "default" and loaded.logits(tokens).tobytes() == adapted.tobytes()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A BERT of one layer over the words w0 to w19, which takes 16 tokens."""
    folder, random = tmp_path_factory.mktemp("encoder"), np.random.default_rng(1)
    tokens = ["[UNK]", "[CLS]", "[SEP]", *(f"w{n}" for n in range(20))]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    config = dict(architectures=["BertModel"], vocab_size=23, hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=3)
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 16}))
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocabulary},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    shapes = {"embeddings.word_embeddings.weight": (23, 12), "embeddings.position_embeddings.weight": (16, 12)}
    shapes["embeddings.token_type_embeddings.weight"] = (2, 12)
    layer = "encoder.layer.0."
    for name in ("embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"):
        shapes |= {f"{name}.weight": (12,), f"{name}.bias": (12,)}
    linears = {"attention.self.query": (12, 12), "attention.self.key": (12, 12), "attention.self.value": (12, 12)}
    linears |= {"attention.output.dense": (12, 12), "intermediate.dense": (20, 12), "output.dense": (12, 20)}
    for name, (rows, columns) in linears.items():
        shapes |= {f"{layer}{name}.weight": (rows, columns), f"{layer}{name}.bias": (rows,)}
    tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    encoder = elinvar.Encoder.load(folder, device="cpu", precision="strict")
    return encoder, tensors


def bert(tensors, tokens):
    """The vectors of a text's tokens after the last layer, in double precision."""
    get = lambda name: tensors[name].astype(np.float64)
    linear = lambda x, name: x @ get(f"encoder.layer.0.{name}.weight").T + get(f"encoder.layer.0.{name}.bias")

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * get(f"{name}.weight") + get(f"{name}.bias")

    erf = np.vectorize(__import__("math").erf)
    x = get("embeddings.word_embeddings.weight")[tokens] + get("embeddings.position_embeddings.weight")[: len(tokens)]
    x = norm(x + get("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
    q, k, v = (linear(x, f"attention.self.{part}").reshape(len(tokens), 3, 4) for part in ("query", "key", "value"))
    weights = np.exp(np.einsum("qhd,khd->hqk", q, k) / 2)
    attended = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v).reshape(len(tokens), 12)
    x = norm(x + linear(attended, "attention.output.dense"), "encoder.layer.0.attention.output.LayerNorm")
    inner = linear(x, "intermediate.dense")
    inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
    return norm(x + linear(inner, "output.dense"), "encoder.layer.0.output.LayerNorm")


def test_embeddings_are_those_of_numpy_and_have_the_bits_of_single_texts(encoder):
    encoder, tensors = encoder
    texts = ["w1", "w3 w5 w7", "w2 w2 w9 w4 w11 w0", "w7 w5 w3", " ".join(f"w{n}" for n in range(20))]
    assert encoder.count_tokens(texts) == [3, 5, 8, 5, 22] and (encoder.dimensions, encoder.max_tokens) == (12, 16)
    for pooling, pool in {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "last": lambda x: x[-1]}.items():
        found = encoder.embed(texts, pooling=pooling)
        assert found.dtype == np.float32 and found.shape == (5, 12)
        for text, vector in zip(texts, found):
            tokens = encoder.tokenizer.encode(text)
            tokens = tokens[:15] + tokens[-1:] if len(tokens) > 16 else tokens
            assert np.abs(pool(bert(tensors, tokens)) - vector).max() < 1e-5
            assert encoder.embed(text, pooling=pooling).tobytes() == vector.tobytes()
    unit = encoder.embed(texts, normalize=True)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1) and np.allclose(unit * np.linalg.norm(found := encoder.embed(texts), axis=1)[:, None], found)
    assert encoder.embed("w5", prefix="w1 ").tobytes() == encoder.embed("w1 w5").tobytes()
    assert encoder.embed([]).shape == (0, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [(dict(texts=["w1", ""]), "text 1: the text is empty"), (dict(texts="w1", pooling="max"), "'max' is not"), (dict(texts="w1", max_tokens=17), "3 to 16")],
)
def test_what_cannot_be_embedded_is_a_value_error(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        encoder[0].embed(**options)
