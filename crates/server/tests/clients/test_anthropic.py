"""Anthropic's client against `elinvar serve`."""

import anthropic
import pytest
from conftest import KEY

MESSAGES = [{"role": "user", "content": "Good morrow, who comes here?"}]
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"], "additionalProperties": False}
TOOL = {"name": "set_age", "description": "Sets an age.", "input_schema": SCHEMA}


@pytest.fixture
def client(address):
    return anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0)


def ask(client, **more):
    # A parameter of the server's own passes through extra_body.
    return client.messages.create(**{"model": "default", "messages": MESSAGES, "max_tokens": 12, "extra_body": {"temperature": 0}, **more})


def test_message(client):
    message = ask(client, system="A play.")
    assert (message.type, message.role, message.stop_reason, message.content[0].type) == ("message", "assistant", "max_tokens", "text")
    assert message.usage.output_tokens == 12
    counted = client.messages.count_tokens(model="default", system=[{"type": "text", "text": "A play."}], messages=MESSAGES)
    assert counted.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_stream(client):
    whole = ask(client)
    with client.messages.stream(model="default", messages=MESSAGES, max_tokens=12, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 12)
    kinds = [event.type for event in ask(client, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_stop_sequences(client):
    text = ask(client).content[0].text
    stopped = ask(client, stop_sequences=["\u0001", text[3:6]])
    assert (stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text) == ("stop_sequence", text[3:6], text[: text.index(text[3:6])])


def test_an_answer_goes_on(client):
    begun = [*MESSAGES, {"role": "assistant", "content": "'Tis I, my"}]
    more = ask(client, model="tools", messages=begun)
    assert more.content[0].text != ask(client, model="tools").content[0].text


def test_tools(client):
    for choice in ({"type": "any"}, {"type": "tool", "name": "set_age"}):
        more = dict(model="tools", tools=[TOOL], tool_choice=choice, max_tokens=90)
        message = ask(client, **more)
        call = message.content[0]
        assert (message.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "set_age") and 0 <= call.input["age"] <= 99
        with client.messages.stream(messages=MESSAGES, extra_body={"temperature": 0}, **more) as stream:
            assert stream.get_final_message().content[0].input == call.input
    history = [*MESSAGES, {"role": "assistant", "content": message.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "done"}]}]
    assert ask(client, model="tools", tools=[TOOL], messages=history).content
    with pytest.raises(anthropic.BadRequestError, match="chat template"):
        ask(client, tools=[TOOL])


def test_schema(client):
    config = {"format": {"type": "json_schema", "schema": {"type": "string", "enum": ["yes", "no"]}}}
    assert ask(client, extra_body={"output_config": config}).content[0].text in ('"yes"', '"no"')


def test_errors(client, address):
    for kind, more in [
        (anthropic.BadRequestError, dict(stop_sequences=[""])), (anthropic.NotFoundError, dict(model="claude")), (anthropic.BadRequestError, dict(messages=[])),
        (anthropic.BadRequestError, dict(messages=[{"role": "user", "content": "word " * 2000}])),
        (anthropic.BadRequestError, dict(messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://localhost/x.png"}}]}])),
    ]:
        with pytest.raises(kind) as error:
            ask(client, **more)
        assert error.value.body["type"] == "error" and error.value.body["error"]["type"] in ("invalid_request_error", "not_found_error")
    with pytest.raises(anthropic.AuthenticationError):
        ask(anthropic.Anthropic(base_url=address, api_key="another", max_retries=0))
