"""distribute_tensor without peers: under `uniform`, the source holds the tensor that this rank holds.

torch scatters from the first rank of a mesh dimension. Elsewhere a scatter has nothing to compare with and gives zeros,
but here this rank has the list of parts in hand, as the source would: it takes its own part of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from allranks.one_rank import private
from allranks.one_rank.on_import import when_imported
from allranks.one_rank.patches import Patches
from allranks.one_rank.session import backend_of, session


def _scatter(original: Callable[..., Any]) -> Callable[..., Any]:
    def mesh_scatter(
        output: torch.Tensor,
        scatter_list: list[torch.Tensor],
        mesh: Any,
        mesh_dim: int = 0,
        async_op: bool = False,
        **kwargs: Any,
    ) -> Any:
        backend = backend_of(mesh.get_group(mesh_dim))
        source = kwargs.get("group_src", 0)
        if output.is_meta or backend is None or session.fill != "uniform" or source == backend.rank():
            return original(output, scatter_list, mesh, mesh_dim, async_op, **kwargs)
        backend.note("scatter", str(output.dtype).removeprefix("torch."), 0)
        with torch.no_grad():
            output.copy_(scatter_list[backend.rank()])
        return None

    return mesh_scatter


def install(patches: Patches) -> None:
    """Takes effect when a program imports torch.distributed.tensor."""

    def patch(module: Any) -> None:
        patches.wrap(module, "mesh_scatter", _scatter)

    when_imported(patches, {private.TENSOR_COLLECTIVES: patch, private.TENSOR_PLACEMENTS: patch})
