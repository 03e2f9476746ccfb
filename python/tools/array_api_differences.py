"""A plugin of pytest's: tests whose names contain a line of tests/array_api_differences.txt are expected to fail."""

import pathlib

import pytest


def pytest_collection_modifyitems(items):
    lines = (pathlib.Path(__file__).parent.parent / "tests" / "array_api_differences.txt").read_text().splitlines()
    known = [line for line in lines if line and not line.startswith("#")]
    for item in items:
        if any(line in item.nodeid for line in known):
            item.add_marker(pytest.mark.xfail(reason="array_api_differences.txt", strict=False))
