"""The user's changes to shared classes and modules are private to the rank that makes them.

`torch.nn.Linear.reset_parameters = f` in a rank must not be seen by the others. Modules of the user are compiled
through a small pass over their syntax tree: the object of every attribute that is assigned or deleted goes through a
function that returns it (and makes the attribute a slot if the object is a class or module that ranks share). The
object is still evaluated once and in its old place; lines and columns stay. `self.x = ...` and `cls.x = ...` are left
alone.
"""

from __future__ import annotations

import ast
import builtins
import logging
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from allranks._allranks import current_rank, set_touch_handler, touch
from allranks.isolation.registry import Registry

#: The name under which user code finds `touch`; also in tracebacks, should anybody look.
HOOK = "__allranks_touch__"
ITEM_HOOK = "__allranks_touch_item__"


class _Pass(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            return node
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return node
        node.value = _call(HOOK, node.value, ast.Constant(node.attr))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_modules = isinstance(node.value, ast.Attribute) and node.value.attr == "modules"
        if isinstance(node.ctx, ast.Store) and is_modules and isinstance(node.slice, (ast.Name, ast.Constant)):
            node.value = _call(ITEM_HOOK, node.value, node.slice)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_setter = isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr")
        if is_setter and len(node.args) >= 2 and isinstance(node.args[1], (ast.Name, ast.Constant)):
            if not isinstance(node.args[0], ast.Starred):
                node.args[0] = _call(HOOK, node.args[0], node.args[1])
        return node


def _call(function: str, value: ast.expr, name: ast.expr) -> ast.Call:
    call = ast.Call(ast.Name(function, ast.Load()), [value, name], [])
    for new in (call, call.func, name):
        ast.copy_location(new, value)
    return call


def compile_user(source: bytes | str, path: str) -> types.CodeType:
    """Compiles a file of the user. A SyntaxError is the one that Python itself would raise."""
    try:
        tree = _Pass().visit(ast.parse(source, path))
        return compile(tree, path, "exec", dont_inherit=True)
    except RecursionError:
        return compile(source, path, "exec", dont_inherit=True)


_compiled: dict[str, tuple[int, int, types.CodeType]] = {}


def compiled(path: str, read: Callable[[str], bytes]) -> types.CodeType:
    """As `compile_user`, once for all ranks as long as the file does not change."""
    stat = os.stat(path)
    known = _compiled.get(path)
    if known and known[:2] == (stat.st_mtime_ns, stat.st_size):
        return known[2]
    code = compile_user(read(path), path)
    _compiled[path] = (stat.st_mtime_ns, stat.st_size, code)
    return code


def install(registry: Registry) -> None:
    """Lets `touch` reach the registry."""
    from allranks.isolation import modules

    def is_users(owner: Any) -> bool:
        if isinstance(owner, types.ModuleType):
            return owner is sys.modules.get("__main__") or modules.is_users_module(owner.__name__)
        return modules.is_users_module(getattr(owner, "__module__", None) or "")

    def touched(owner: Any, name: Any) -> None:
        if current_rank() is None or not isinstance(name, str):
            return
        if isinstance(owner, logging.Logger):
            registry.attributes(owner, logger_copy)
        elif not is_users(owner) and not registry.has("attribute", owner, name):
            if owner is sys or (isinstance(owner, types.ModuleType) and registry.has("entry", vars(owner), name)):
                return
            try:
                registry.attribute(owner, name)
            except (AttributeError, TypeError):
                pass  # It cannot be set either: the program gets Python's own error.

    def touch_item(mapping: Any, key: Any) -> Any:
        if mapping is sys.modules and isinstance(key, str):
            modules.take_module(key)
        return mapping

    from allranks.isolation.logs import logger_copy

    set_touch_handler(touched, (logging.Logger, logging.RootLogger))
    registry.at_close.append(lambda: set_touch_handler(None, ()))
    registry.patches.set(builtins, HOOK, touch)
    registry.patches.set(builtins, ITEM_HOOK, touch_item)
    real_setattr, real_delattr = setattr, delattr

    def hooked_setattr(owner: Any, name: str, value: Any) -> None:
        real_setattr(touch(owner, name), name, value)

    def hooked_delattr(owner: Any, name: str) -> None:
        real_delattr(touch(owner, name), name)

    def hook_tool(module: types.ModuleType) -> None:
        registry.patches.set(module, "setattr", hooked_setattr)
        registry.patches.set(module, "delattr", hooked_delattr)

    for tool in ("unittest.mock", "_pytest.monkeypatch"):
        registry.on_import(tool, hook_tool)
