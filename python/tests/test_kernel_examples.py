"""The examples of kernels, as scripts and as a notebook."""

import ast
import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the simulator runs on Linux")


@pytest.mark.parametrize("name", ["check_kernel", "fuse", "metal_kernel"])
def test_an_example_runs(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out


def test_the_notebook_runs_and_shows_its_results():
    cells = json.loads((EXAMPLES / "kernels.ipynb").read_text())["cells"]
    scope, shown = {}, []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"] and cell["execution_count"] is None, "outputs are not committed"
        cell_code = ast.parse("".join(cell["source"]))
        last = cell_code.body.pop() if isinstance(cell_code.body[-1], ast.Expr) else None
        exec(compile(cell_code, "<cell>", "exec"), scope)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), scope) if last else None
        if hasattr(value, "_repr_html_"):
            shown.append(value._repr_html_())
    together = "\n".join(shown)
    assert "out-of-bounds-read" in together and "y[i] = x[i + 1] - x[i];" in together
    assert "silu" in together and "<svg" in together and "<td>fused</td>" in together
