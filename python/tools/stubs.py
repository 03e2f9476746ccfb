"""Writes elinvar/ops.pyi, the types of the operators' functions, from the operators' descriptions: `python tools/stubs.py`.

With --check it writes nothing, and its exit code is 1 where the file is not current.
"""

import pathlib
import sys

from elinvar import _elinvar, _operators

FILE = pathlib.Path(__file__).parent.parent / "elinvar" / "ops.pyi"

HEAD = '''# Written by tools/stubs.py from the operators' descriptions.
"""Every operator of the library as a function, made of its description."""

from typing import Any, Literal, Sequence

from elinvar._elinvar import DType, Executor, Tensor

'''


def text() -> str:
    """The whole file."""
    return HEAD + "\n".join(_operators.source(description, stub=True) for description in _elinvar._descriptions())


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(FILE.read_text() != text())
    FILE.write_text(text())
