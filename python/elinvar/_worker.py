"""The helper process of `elinvar.check`, run as a file and not imported: see `python/src/check.rs`.

It loads the library and neither the package nor NumPy, which starts threads: the library forks, and a fork is sound only in a process with one thread.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location


def main(library: str, parent: int) -> None:
    loader = ExtensionFileLoader("_elinvar", library)
    spec = spec_from_file_location("_elinvar", library, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    module.serve_check(parent)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
