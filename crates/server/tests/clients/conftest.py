"""A server for the tests of clients: `elinvar serve` on the model in the repository, once as it is and once with a chat template that knows tools."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[4] / "models/shakespeare"
TEMPLATE = """{% if tools %}<tool_call>{{ tools | tojson }}
{% endif %}{% for message in messages %}{{ message.role | upper }}:
{{ message.content }}{{ message.tool_calls | default('') }}

{% endfor %}{% if add_generation_prompt %}ASSISTANT:
{% endif %}"""
KEY = "a key of these tests"


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """Where it listens. The models are `shakespeare` and `tools`."""
    folder = tmp_path_factory.mktemp("model") / "tools"
    shutil.copytree(MODEL, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    command = [os.environ.get("ELINVAR", "elinvar"), "serve", "--device", "cpu", "--port", "0", "--api-key", KEY, "--model", str(MODEL), "--model", str(folder)]
    with open(folder.parent / "log", "w+") as log:
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            found = next(found for line in server.stderr if (found := re.search(r" on (http://\S+)", line)))
            # What else it says must not fill the pipe.
            drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=log)
            yield found[1]
            server.terminate()
            server.wait()
            drain.wait()
