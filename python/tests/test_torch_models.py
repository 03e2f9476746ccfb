"""Models in PyTorch: modules, patched models of transformers, strict mode, torch.compile."""

import json
import pathlib
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing of elinvar.torch is tested")

import elinvar.torch  # noqa: E402
from elinvar.torch import functional as F  # noqa: E402
from elinvar.torch import nn as enn  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def close(a, b, tolerance=2e-5):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: enn.Linear(6, 4), lambda: torch.nn.Linear(6, 4)),
        (lambda: enn.RMSNorm(6, 1e-5), lambda: torch.nn.RMSNorm(6, 1e-5)),
        (lambda: enn.LayerNorm(6), lambda: torch.nn.LayerNorm(6)),
    ],
)
def test_modules_are_pytorchs_with_its_state(ours, theirs):
    torch.manual_seed(0)
    ours, theirs = ours().to(DEVICE), theirs().to(DEVICE)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 2, 6, device=DEVICE)
    close(ours(x), theirs(x))


def test_embedding_leaves_the_row_of_the_padding_alone():
    ours, theirs = enn.Embedding(5, 3, padding_idx=1).to(DEVICE), torch.nn.Embedding(5, 3, padding_idx=1).to(DEVICE)
    ours.load_state_dict(theirs.state_dict())
    ids = torch.tensor([[1, 2, 2], [4, 1, 0]], device=DEVICE)
    for module in (ours, theirs):
        module(ids).square().sum().backward()
    close(ours.weight.grad, theirs.weight.grad)
    with pytest.raises(ValueError, match="index|5"):
        F.embedding(torch.tensor([5], device=DEVICE), ours.weight)
        elinvar.torch.synchronize()


def test_a_class_that_there_is_not_is_an_error_and_no_later_call_has_it():
    logits = torch.randn(3, 4, device=DEVICE)
    with pytest.raises(ValueError, match="4" if DEVICE == "cpu" else "outside its axis"):
        loss = F.cross_entropy(logits, torch.tensor([0, 4, 1], device=DEVICE), reduction="none")
        assert DEVICE == "cuda" and loss.isnan().tolist() == [False, True, False]
        F.softmax(logits, -1)
    elinvar.torch.synchronize()
    close(F.softmax(logits, -1), torch.softmax(logits, -1))


def test_a_lora_layer_begins_as_its_base_and_trains_its_adapter_alone():
    torch.manual_seed(0)
    base = torch.nn.Linear(6, 4).to(DEVICE)
    layer = enn.LoRALinear(base, r=2, alpha=4)
    x = torch.randn(5, 6, device=DEVICE)
    close(layer(x), base(x))
    torch.nn.init.normal_(layer.lora_B.weight)
    close(layer(x), base(x) + 2 * layer.lora_B(layer.lora_A(x)))
    layer(x).sum().backward()
    assert base.weight.grad is None and layer.lora_A.weight.grad is not None
    assert sorted(layer.state_dict()) == ["base_layer.bias", "base_layer.weight", "lora_A.weight", "lora_B.weight"]


def test_attention_and_swiglu_have_the_state_of_llamas():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no model of it is tested")
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRotaryEmbedding

    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager")
    x, places = torch.randn(2, 5, 32, device=DEVICE), torch.arange(5, device=DEVICE)[None]
    theirs, ours = LlamaMLP(config).to(DEVICE), enn.SwiGLU(32, 48).to(DEVICE)
    ours.load_state_dict(theirs.state_dict())
    close(ours(x), theirs(x))
    theirs, ours = LlamaAttention(config, 0).to(DEVICE), enn.Attention(32, 4, 2).to(DEVICE)
    ours.load_state_dict(theirs.state_dict())
    cos, sin = LlamaRotaryEmbedding(config).to(DEVICE)(x, places)
    mask = torch.full((5, 5), float("-inf"), device=DEVICE).triu(1)[None, None]
    half = [table[..., :4].expand(2, -1, -1) for table in (cos, sin)]
    close(ours(x, *half), theirs(x, (cos, sin), mask)[0])


def test_linear_cross_entropy_in_chunks_is_the_whole():
    torch.manual_seed(0)
    x, weight = torch.randn(2, 5, 6, device=DEVICE, requires_grad=True), torch.randn(7, 6, device=DEVICE, requires_grad=True)
    targets = torch.tensor([[1, 2, -100, 4, 5], [6, 0, 1, 2, 3]], device=DEVICE)
    expected = torch.nn.functional.cross_entropy((x @ weight.T).flatten(0, 1), targets.flatten())
    for chunk in (100, 3):
        loss = F.linear_cross_entropy(x, weight, targets, chunk=chunk)
        close(loss, expected)
        for found, right in zip(torch.autograd.grad(loss, (x, weight)), torch.autograd.grad(expected, (x, weight), retain_graph=True)):
            close(found, right)


def test_autocast_casts_products_and_leaves_norms():
    x, w = torch.randn(3, 8, device=DEVICE), torch.randn(4, 8, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert F.linear(x, w).dtype == torch.bfloat16
        assert F.rms_norm(x).dtype == torch.float32
        F.linear(x, w).float().sum().backward()
    assert w.grad.dtype == torch.float32


def test_bad_input_is_an_error_of_one_line():
    x = torch.randn(2, 4, device=DEVICE)
    for call, words in [
        (lambda: F.rms_norm(x, torch.ones(5, device=DEVICE)), r"weight has shape \[5\], x has shape \[2, 4\]"),
        (lambda: F.rms_norm(x.double()), "float64"),
        (lambda: F.softmax(x, 4), "the axis is 4"),
        (lambda: F.cross_entropy(x, torch.tensor([1, 9], device=DEVICE)), "9|class|index"),
        (lambda: F.gelu(x, "erf"), "'none' or 'tanh'"),
        (lambda: F.attention(x, x, x, causal=True), r"have shapes \[2, 4\], \[2, 4\], \[2, 4\]: each is \[batch, heads, tokens, d\]"),
        (lambda: enn.LoRALinear(torch.nn.Linear(4, 4), 0, 1), "at least 1"),
        (lambda: elinvar.torch.Decoder(torch.nn.Linear(4, 4), 8), "Linear has no configuration"),
    ]:
        with pytest.raises((ValueError, RuntimeError), match=words) as raised:
            call()
            elinvar.torch.synchronize()
        assert "\n" not in str(raised.value)


# Models of transformers.


def build(family, **more):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no model of it is tested")
    sizes = dict(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )
    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(**{**sizes, **more})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().to(DEVICE)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, std=0.3)
        elif "embed" in name:
            torch.nn.init.normal_(parameter)
    return model


FAMILIES = ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2"]


@pytest.mark.parametrize("family", FAMILIES)
def test_patched_models_compute_the_same(family):
    more = {"sliding_window": 4} if family in ("Mistral", "Gemma2") else {}
    model = build(family, **more)
    ids = torch.arange(3, 21, device=DEVICE).reshape(2, 9)
    with torch.no_grad():
        expected = model(ids).logits
    text = model.generate(ids[:1], max_new_tokens=8, do_sample=False)
    done = elinvar.torch.patch(model)
    assert done["attention"] == 2 and sum(count for name, count in done.items() if name.endswith("RMSNorm")) >= 5, str(done)
    with torch.no_grad():
        close(model(ids).logits, expected, 2e-4)
    assert torch.equal(model.generate(ids[:1], max_new_tokens=8, do_sample=False), text)
    assert model.__dict__["_elinvar_decoder"].capacity == 128
    # Batches and samples go the ordinary way.
    assert model.generate(ids, max_new_tokens=3, do_sample=False).shape == (2, 12)
    elinvar.torch.unpatch(model)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, expected)


def test_a_decoder_notices_that_parameters_changed():
    model = build("Llama")
    elinvar.torch.patch(model)
    ids = torch.tensor([[5, 6, 7]], device=DEVICE)
    model.generate(ids, max_new_tokens=2, do_sample=False)
    first = model.__dict__["_elinvar_decoder"]
    with torch.no_grad():
        model.lm_head.weight.mul_(-1)
    after = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert model.__dict__["_elinvar_decoder"] is not first
    elinvar.torch.unpatch(model)
    assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False), after)


def step(model, ids, strict):
    model.zero_grad()
    if strict:
        with elinvar.torch.strict():
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
    else:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "patched"])
def test_strict_mode_has_the_same_bits_for_any_threads_and_is_right(implementation):
    model = build("Llama")
    ids = torch.arange(3, 35, device=DEVICE).reshape(2, 16)
    plain = step(model, ids, strict=False)
    if implementation == "patched":
        elinvar.torch.patch(model)
    else:
        model.set_attn_implementation(implementation)
    threads, runs = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            runs.append(step(model, ids, strict=True))
    finally:
        torch.set_num_threads(threads)
        if implementation == "patched":
            elinvar.torch.unpatch(model)
    for first, second, expected in zip(*runs, plain, strict=True):
        assert torch.equal(first, second)
        close(first, expected, 1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: the CPU's bits are compared with themselves alone")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strict_mode_has_the_bits_of_the_cpu_on_cuda(dtype):
    ids = torch.arange(3, 35).reshape(2, 16)
    model = build("Llama").to(dtype)
    on_gpu = step(model, ids.cuda(), strict=True)
    on_cpu = step(model.cpu(), ids, strict=True)
    for gpu, cpu in zip(on_gpu, on_cpu, strict=True):
        assert torch.equal(gpu.cpu(), cpu)


def test_strict_mode_names_what_it_does_not_support():
    x = torch.randn(4, 4, device=DEVICE)
    with pytest.raises(NotImplementedError, match="aten.randn"), elinvar.torch.strict():
        torch.randn(3)
    with pytest.raises(NotImplementedError, match="aten.linalg_inv_ex"), elinvar.torch.strict():
        torch.linalg.inv(x)
    with elinvar.torch.strict(unsupported="list") as listed:
        torch.dropout(x, 0.5, True)
    assert any("dropout" in name or "bernoulli" in name for name in listed.unsupported)
    assert not elinvar.torch.is_strict()


def test_the_page_of_the_documentation_runs():
    pytest.importorskip("transformers", reason="transformers is not installed: no model of it is tested")
    page = (pathlib.Path(__file__).parents[2] / "docs" / "python-torch.md").read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})


# Embeddings.


def test_embeddings_of_a_bert_are_those_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no model of it is tested")
    words = ["[UNK]", "[CLS]", "[SEP]", *(f"w{n}" for n in range(60))]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {word: id for id, word in enumerate(words)},
        },
    }
    # The shape of all-MiniLM-L6-v2, but for its vocabulary.
    torch.manual_seed(5)
    config = transformers.BertConfig(vocab_size=len(words), hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=12)
    model = transformers.BertModel(config).eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    encoder = elinvar.Encoder.load(tmp_path, device="cpu", precision="strict")
    texts = [" ".join(f"w{(7 * n + k) % 60}" for k in range(count)) for n, count in enumerate([1, 40, 7, 7, 120])]
    found = encoder.embed(texts, pooling="mean", normalize=True)
    for text, vector in zip(texts, found):
        with torch.no_grad():
            states = model(torch.tensor([encoder.tokenizer.encode(text)])).last_hidden_state[0].mean(0)
        close(torch.from_numpy(vector), states / states.norm(), 1e-5)
        assert encoder.embed(text, pooling="mean", normalize=True).tobytes() == vector.tobytes()


# torch.compile.


def test_a_region_is_one_program():
    from elinvar.torch import _backend

    def chain(x, y):
        return (torch.sigmoid(x) * y + 1).clamp(-0.5, 0.5) / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt()

    x, y = torch.randn(8, 16, device=DEVICE), torch.randn(16, device=DEVICE)
    close(torch.compile(chain, backend="elinvar")(x, y), chain(x, y))
    regions = [part for part in _backend.LAST[-1].modules() if isinstance(part, _backend.Region)]
    assert len(regions) == 1 and regions[0].count > 6


def test_a_compiled_transformer_trains_to_the_loss_of_eager():
    def train(compiled):
        model = build("Llama")
        run = torch.compile(model, backend="elinvar") if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        ids = torch.arange(3, 35, device=DEVICE).reshape(2, 16)
        losses = []
        for _ in range(6):
            loss = run(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    eager, compiled = train(False), train(True)
    assert eager[-1] < eager[0] - 0.3
    assert compiled == pytest.approx(eager, rel=2e-3, abs=2e-3)
