"""A plugin of pytest for llama.cpp's tests: leaves out what excluded.toml names, and compares texts with those of llama.cpp at temperature 0."""

import collections
import re
import sys
import tomllib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
EXCLUDED = tomllib.loads((FOLDER / "excluded.toml").read_text())["excluded"]
# What llama.cpp's server answers at temperature 0 where its tests expect texts of its sampler: from their pattern to the text.
GREEDY = tomllib.loads((FOLDER / "greedy.toml").read_text())
counts = collections.Counter()


def pytest_configure(config):
    sys.path.insert(0, str(config.rootpath))
    import utils

    # Models are not fetched.
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    match = utils.match_regex
    utils.match_regex = lambda pattern, text: bool(text) and GREEDY[pattern].startswith(text) if pattern in GREEDY else match(pattern, text)


def reason(test: str, is_slow: bool) -> str | None:
    if is_slow:
        return "needs a model of gigabytes"
    for excluded in EXCLUDED:
        if any(re.fullmatch(pattern, test) for pattern in excluded["tests"]):
            return excluded["reason"]
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        test = f"{item.path.stem}::{item.name}"
        # The test that llama.cpp leaves out, as it fails there, is run.
        if item.originalname == "test_cache_vs_nocache_prompt":
            item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]
        why = reason(test, item.get_closest_marker("slow") is not None)
        if why:
            counts[why] += 1
            item.add_marker(pytest.mark.skip(reason=f"excluded: {why}"))


def pytest_terminal_summary(terminalreporter):
    for why, count in counts.most_common():
        terminalreporter.write_line(f"{count:4} excluded: {why}")
