"""What torch does around a backend that would wait for peers, or compare with them."""

from __future__ import annotations

import sys
from typing import Any

from allranks.one_rank import private
from allranks.one_rank.patches import Patches
from allranks.one_rank.session import backend_of

_noted: list[str] = []


def install(patches: Patches) -> None:
    """Other backends keep torch's ways."""
    from allranks.one_rank.backend import OneRankBackend

    def make_wrapper(original: Any) -> Any:
        def create(wrapped_pg: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(wrapped_pg, OneRankBackend):
                return original(wrapped_pg, *args, **kwargs)
            if not _noted:
                _noted.append("detail")
                sys.stderr.write("allranks: TORCH_DISTRIBUTED_DEBUG=DETAIL compares ranks; it is off with one rank\n")
            return wrapped_pg

        return create

    patches.wrap(*private.DEBUG_WRAPPER, make_wrapper)

    def make_verify(original: Any) -> Any:
        def verify(process_group: Any, *args: Any, **kwargs: Any) -> Any:
            # Under the fill rules zeros and nan, the shapes that rank 0 "sends" would be zeros.
            return None if backend_of(process_group) is not None else original(process_group, *args, **kwargs)

        return verify

    for module, name in private.VERIFY_SHAPES:
        patches.wrap(module, name, make_verify)

    def make_logging(original: Any) -> Any:
        def get_ddp_logging_data(self: Any) -> Any:
            data = original(self)
            backend = backend_of(self.process_group)
            if backend is not None:
                data["backend_name"] = backend.name()  # C++ asks for the type of the backend, which is "custom".
            return data

        return get_ddp_logging_data

    patches.wrap(*private.DDP_LOGGING, make_logging)
