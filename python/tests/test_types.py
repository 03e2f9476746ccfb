"""The type stubs say what there is."""

import ast
import importlib.util
import pathlib

import elinvar

FOLDER = pathlib.Path(elinvar.__file__).parent


def test_stubs_of_operators_are_current():
    tool = pathlib.Path(__file__).parent.parent / "tools" / "stubs.py"
    spec = importlib.util.spec_from_file_location("stubs", tool)
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    assert (FOLDER / "ops.pyi").read_text() == stubs.text(), "run python tools/stubs.py"


def test_stubs_of_classes_name_every_method():
    tree = ast.parse((FOLDER / "_elinvar.pyi").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    # What every class has.
    ordinary = set(dir(object)) | {"__module__", "__doc__", "__weakref__"}
    # The stubs leave out how these print and pickle.
    left_out = {"__reduce__", "__repr__", "__str__", "__delitem__"}
    for name in ["Tensor", "Executor", "Recording", "DType", "DeviceInfo"]:
        said = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        said |= {node.target.id for node in classes[name].body if isinstance(node, ast.AnnAssign)}
        there = set(dir(getattr(elinvar, name))) - ordinary
        assert there - left_out <= said, (name, there - left_out - said)
        assert said - ordinary <= there, (name, said - ordinary - there)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert all(hasattr(elinvar._elinvar, function) for function in functions)
