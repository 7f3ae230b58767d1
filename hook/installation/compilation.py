"""Compiles the hook's code: run by the hook's own interpreter, 3.9 or newer, as a script with -I -S.

Arguments: the folder the code is in, the folder it will be in, then a word a file: PATH for bytecode beside
its source, MODULE=PATH for a place in the bundle: first hook.boot, then the others in load order. Needs no
more of the library than Debian's python3-minimal has.
"""

import marshal
import os
import py_compile
import sys

WITHOUT_DOCSTRINGS = 2
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
"""The sources beside it are not even looked at, which saves a stat and a read a module."""


def main(folder: str, final: str, words: "list[str]") -> None:
    """Write the bytecode files and the bundle, each as a whole."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    from hook.boot import bundle

    modules = []
    for word in words:
        module, _, path = word.rpartition("=")
        source = os.path.join(folder, path)  # noqa: PTH118 - pathlib is not in a minimal Python
        seen_as = os.path.join(final, path)  # noqa: PTH118
        if module:
            with open(source, "rb") as file:  # noqa: PTH123
                code = compile(file.read(), seen_as, "exec", dont_inherit=True, optimize=WITHOUT_DOCSTRINGS)
                modules.append((module, code))
        else:
            py_compile.compile(source, dfile=seen_as, doraise=True, quiet=2, invalidation_mode=UNCHECKED)
    draft = os.path.join(folder, f".{bundle()}.{os.getpid()}")  # noqa: PTH118
    with open(draft, "wb") as file:  # noqa: PTH123
        file.write(marshal.dumps((modules[0][1], tuple(modules[1:]))))
    os.replace(draft, os.path.join(folder, bundle()))  # noqa: PTH105, PTH118


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
