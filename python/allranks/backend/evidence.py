"""What ranks did earlier that explains why they disagree later.

`DTensor.from_local` without a shape takes each rank's word for the size of its shard; a wrong one shows up in some
collective far away. The calls are remembered, and if ranks' shapes disagree they are shown with the mismatch.
"""

from __future__ import annotations

import sys
from typing import Any

from allranks import _allranks
from allranks.backend.session import Place, Session

_DTENSOR = "torch.distributed.tensor._api"
_REMEMBERED = 256


class Evidence:
    """The calls of each rank, in order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls: dict[int, list[tuple[tuple[int, ...], Place]]] = {}

    def watch(self, registry: Any) -> None:
        """From the import of DTensor on."""
        registry.on_import(_DTENSOR, lambda module: registry.patches.wrap(module.DTensor, "from_local", self._wrap))

    def _wrap(self, original: Any) -> staticmethod[..., Any]:
        def from_local(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if kwargs.get("shape") is None:
                self._remember(tuple(made.shape))
            return made

        from_local.__doc__ = original.__doc__
        return staticmethod(from_local)

    def _remember(self, shape: tuple[int, ...]) -> None:
        rank = _allranks.current_rank()
        if rank is None or len(self._calls.setdefault(rank, [])) >= _REMEMBERED:
            return
        site = _allranks.user_site(sys._getframe(2))
        if site is not None:
            what = f"DTensor.from_local infers the global shape {shape}"
            self._calls[rank].append((shape, (rank, *site, what)))

    def explain(self) -> None:
        """Adds the first calls whose shapes disagree to what was found."""
        for calls in zip(*self._calls.values(), strict=False):
            if len({shape for shape, _ in calls}) > 1:
                hint = "pass shape= and stride= to DTensor.from_local where shards are uneven"
                self._session.world.amend("shape-mismatch", [place for _, place in calls], hint)
                return
