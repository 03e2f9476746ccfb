"""OpenAI's client against `elinvar serve`."""

import json

import openai
import pytest
from conftest import KEY

MESSAGES = [{"role": "user", "content": "Good morrow, who comes here?"}]
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "set_age", "description": "Sets an age.", "parameters": SCHEMA}}


@pytest.fixture
def client(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)


def chat(client, **more):
    return client.chat.completions.create(**{"model": "default", "messages": MESSAGES, "max_tokens": 12, "temperature": 0, **more})


def test_models(client):
    assert [model.id for model in client.models.list()] == ["shakespeare", "tools"]
    assert client.models.retrieve("tools").id == "tools"


def test_chat_is_the_same_whole_and_streamed(client):
    whole = chat(client)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens and not chunks[-1].choices


def test_stream_helper(client):
    with client.chat.completions.stream(model="default", messages=MESSAGES, max_tokens=12, temperature=0) as stream:
        texts = [event.snapshot for event in stream if event.type == "content.delta"]
        assert texts[-1] and stream.current_completion_snapshot.choices[0].message.content == texts[-1]


def test_seeds_and_choices(client):
    texts = lambda seed, n: [choice.message.content for choice in chat(client, temperature=1, seed=seed, n=n).choices]
    assert texts(7, 3)[2:] == texts(9, 1) and len(set(texts(7, 3))) == 3


def test_logprobs(client):
    choice = chat(client, logprobs=True, top_logprobs=3).choices[0]
    assert b"".join(bytes(token.bytes) for token in choice.logprobs.content).decode() == choice.message.content
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in choice.logprobs.content)


def test_stop_and_bias(client):
    text = chat(client).choices[0].message.content
    stopped = chat(client, stop=text[3:6]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (text[: text.index(text[3:6])], "stop")
    first = chat(client, logprobs=True).choices[0].logprobs.content[0].model_extra["id"]
    assert chat(client, logit_bias={str(first): -100}).choices[0].message.content != text


def test_schema(client):
    answer = chat(client, max_tokens=60, response_format={"type": "json_schema", "json_schema": {"name": "age", "schema": SCHEMA, "strict": True}})
    assert 0 <= json.loads(answer.choices[0].message.content)["age"] <= 99


def test_tools(client):
    more = dict(model="tools", tools=[TOOL], tool_choice="required", max_tokens=90)
    call = chat(client, **more).choices[0].message.tool_calls[0]
    assert call.function.name == "set_age" and 0 <= json.loads(call.function.arguments)["age"] <= 99
    deltas = [chunk.choices[0].delta for chunk in chat(client, stream=True, **more)]
    assert "".join(call.function.arguments for delta in deltas for call in delta.tool_calls or []) == call.function.arguments
    history = [*MESSAGES, {"role": "assistant", "tool_calls": [call.model_dump()]}, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    assert chat(client, model="tools", messages=history).choices[0].message.content


def test_completions(client):
    answer = client.completions.create(model="default", prompt=["ROMEO:", [1, 2, 3]], max_tokens=5, temperature=0, logprobs=2, echo=False)
    assert [choice.index for choice in answer.choices] == [0, 1] and len(answer.choices[0].logprobs.tokens) == 5
    stream = client.completions.create(model="default", prompt="ROMEO:", max_tokens=5, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == answer.choices[0].text


def test_digest_does_not_depend_on_the_others(client):
    digests = lambda n: chat(client, n=n, temperature=1, seed=3, extra_body={"digest": True}).model_extra["elinvar"]
    assert digests(4)["digests"][0] == digests(1)["digest"]


def test_responses(client):
    more = dict(model="default", input="Good morrow, who comes here?", instructions="A play.", max_output_tokens=8, temperature=0)
    whole = client.responses.create(**more)
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens") and whole.output_text
    events = list(client.responses.create(stream=True, **more))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    parsed = client.responses.create(model="default", input="An age.", text={"format": {"type": "json_schema", "name": "age", "schema": SCHEMA}}, max_output_tokens=60)
    assert 0 <= json.loads(parsed.output_text)["age"] <= 99


def test_errors(client, address):
    for kind, more in [
        (openai.BadRequestError, dict(temperature=3)), (openai.NotFoundError, dict(model="gpt-4")), (openai.BadRequestError, dict(messages=[])),
        (openai.BadRequestError, dict(messages=[{"role": "user", "content": "word " * 2000}])),
    ]:
        with pytest.raises(kind) as error:
            chat(client, **more)
        assert error.value.param in more
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{address}/v1", api_key="another", max_retries=0).models.list()
    with pytest.raises(openai.NotFoundError, match="give vectors"):
        client.embeddings.create(model="default", input="a")


def test_a_stream_that_is_closed_is_cancelled(client):
    stream = chat(client, max_tokens=400, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert chat(client).choices[0].message.content
