"""Where the runtime's process enters the hook's code.

hooks.d names the interpreter with `-I -S -c ENTRY TREE RUN CONFIG`. ENTRY, in hook/installation/entry.py,
takes this module and all others from one file of TREE, the bundle: 1 ms less than finding each of them. It is
for one Python. Any other finds the modules' own files in TREE.
"""

import posix
import sys

TYPE_CHECKING = False  # typing's own would be an import
if TYPE_CHECKING:
    from types import CodeType


def start(modules: "tuple[tuple[str, CodeType], ...]" = ()) -> None:
    """Run the hook and end the process, without the interpreter's own farewell (1 ms).

    modules: name and code of each, in the order in which they load; of none where there is no bundle. Raises
    anything at all where the installation is damaged: ENTRY lets the container start then.
    """
    _load(sys.argv[1], modules)
    from hook import program

    posix._exit(program.main(sys.argv[2], sys.argv[3]))  # noqa: SLF001 - os._exit, without os


def _load(tree: str, modules: "tuple[tuple[str, CodeType], ...]") -> None:
    # _json is found in the first folder that is asked, not in the last.
    sys.path.sort(key=lambda folder: not folder.endswith("lib-dynload"))
    for name, code in modules:
        module = type(sys)(name)
        package, _, child = name.rpartition(".")
        if package:
            setattr(sys.modules[package], child, module)
        else:
            module.__path__ = [f"{tree}/{name}"]
        sys.modules[name] = module
        exec(code, module.__dict__)  # noqa: S102 - root's file, as the modules themselves are


def bundle() -> str:
    """Name of the bundle for this Python, as ENTRY spells it, too."""
    return f"{sys.implementation.cache_tag}-{sys.hexversion:x}.bundle"
