"""`allranks.on_import` for as long as patches are in place."""

from __future__ import annotations

from allranks.on_import import Action, watch
from allranks.one_rank.patches import Patches


def when_imported(patches: Patches, actions: dict[str, Action]) -> None:
    """Runs each action on its module: now if it is imported already, else when it is; never after `patches.undo()`."""
    patches.on_undo(watch(actions))
