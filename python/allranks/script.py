"""A program as Python would run it: `python FILE`, `python -m MODULE`, `python FOLDER_OR_ZIP`.

Found and compiled once, then executed by each rank in a `__main__` of its own.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from allranks.isolation import monkeypatch


class CannotRun(Exception):
    """The program cannot be started: a usage error with a hint."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Program:
    """What to run, with its arguments."""

    #: A file, folder or archive as written; empty for a module.
    path: str
    #: A module's name; empty for a file.
    module: str
    arguments: tuple[str, ...]
    #: `sys.path[0]`, or None under `python -P`.
    first_path: str | None
    code: types.CodeType | None

    def run_main(self) -> None:
        """Executes the program in the calling thread; whatever it raises comes out."""
        sys.argv[:] = ["-m" if self.module else self.path, *self.arguments]
        if self.first_path is not None:
            sys.path.insert(0, self.first_path)
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        namespace = vars(main)
        if self.code is not None:
            file = self.code.co_filename  # Absolute, whatever folder a rank is in by now.
            loader = importlib.machinery.SourceFileLoader("__main__", file)
            namespace.update(__file__=file, __cached__=None, __loader__=loader, __builtins__=_builtins())
            code = self.code
        else:
            spec, code = _find_module(self.module) if self.module else _find_main(self.path)
            namespace.update(
                __file__=spec.origin,
                __cached__=spec.cached,
                __loader__=spec.loader,
                __spec__=spec,
                __package__=spec.parent,
                __builtins__=_builtins(),
            )
            sys.argv[0] = str(spec.origin) if self.module else self.path
        exec(code, namespace)


def _builtins() -> types.ModuleType:
    return sys.modules["builtins"]


def load(script: str | None, module: str | None, arguments: Sequence[str]) -> Program:
    """Finds the program and compiles it if it is a file.

    Raises `CannotRun` if there is no such program, and whatever compiling raises (SyntaxError, ValueError).
    """
    safe = getattr(sys.flags, "safe_path", False)
    if module is not None:
        folder = None if safe else os.getcwd()
        _check_module(module, [*([folder] if folder else []), *sys.path])
        return Program("", module, tuple(arguments), folder, None)
    assert script is not None
    if os.path.isdir(script) or _is_archive(script):
        return Program(script, "", tuple(arguments), script, None)
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        raise CannotRun(f"cannot read {script}: {error.strerror or error}", None) from None
    code = monkeypatch.compile_user(source, os.path.abspath(script))
    folder = os.path.dirname(os.path.realpath(script))
    return Program(script, "", tuple(arguments), None if safe else folder, code)


def _is_archive(path: str) -> bool:
    import zipimport

    try:
        zipimport.zipimporter(path)
    except (ImportError, OSError):
        return False
    return True


def _check_module(name: str, path: list[str]) -> None:
    """Whether the module can be found, without importing its packages: that is the ranks' business."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        full = ".".join(parts[:count])
        spec = importlib.machinery.PathFinder.find_spec(full, path)
        if spec is None:
            if count == 1 and (name in sys.modules or importlib.util.find_spec(parts[0]) is not None):
                return  # Built in, frozen, or found by a finder of its own.
            raise CannotRun(f"no module named {full}", f"looked in {path[0] or os.getcwd()} and in sys.path")
        if count < len(parts) and spec.submodule_search_locations is None:
            raise CannotRun(f"no module named {name}: {full} is not a package")
        path = list(spec.submodule_search_locations or ())


def _find_module(name: str) -> tuple[importlib.machinery.ModuleSpec, types.CodeType]:
    """By runpy's rules: packages above are imported, a package stands for its `__main__`."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"No module named {name}")
    if spec.submodule_search_locations is not None:
        if name.endswith(".__main__"):
            raise ImportError("Cannot use package as __main__ module")
        try:
            return _find_module(name + ".__main__")
        except ImportError as error:
            raise ImportError(f"{error}; {name!r} is a package and cannot be directly executed") from None
    return spec, _code_of(spec, name)


def _find_main(path: str) -> tuple[importlib.machinery.ModuleSpec, types.CodeType]:
    spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
    if spec is None:
        raise ImportError(f"can't find '__main__' module in {path!r}")
    return spec, _code_of(spec, "__main__")


def _code_of(spec: importlib.machinery.ModuleSpec, name: str) -> types.CodeType:
    loader: Any = spec.loader
    if type(loader) is importlib.machinery.SourceFileLoader:
        return monkeypatch.compiled(loader.path, loader.get_data)
    code = loader.get_code(name) if hasattr(loader, "get_code") else None
    if code is None:
        raise ImportError(f"No code object available for {name}")
    assert isinstance(code, types.CodeType)
    return code
