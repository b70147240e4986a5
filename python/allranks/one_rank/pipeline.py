"""Metadata inference of a pipeline stage whose neighbours do not exist.

A stage learns the shape of its input from the stage before, and that of its output's gradient from the stage after. The
latter is known: the shape of the output. The former is the first of these that the stage's module takes:

1. what `pipeline_input` said;
2. the arguments of `step`, if the program passes them on every rank;
3. the output of another stage on this rank (interleaved schedules);
4. the smallest input that its layers suggest, with as many rows as the target if the rank has one, else with one row; a
   note on stderr says so, since the rows of a microbatch are known to the first stage only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from allranks.one_rank import private
from allranks.one_rank.on_import import when_imported
from allranks.one_rank.patches import Patches
from allranks.one_rank.session import backend_of

Example = tuple[torch.Tensor, ...]

_given: list[Example] = []
_outputs: dict[int, Example] = {}
#: What `step` was called with on this rank: its arguments, and the rows of its target.
_step: tuple[Example, int] = ((), 1)


def pipeline_input(*example: torch.Tensor) -> None:
    """Says what one microbatch looks like where it enters a stage: shapes and dtypes count, values do not."""
    _given[:] = [tuple(t.detach().to("meta") for t in example)]


def _candidates(module: nn.Module, rows: int) -> Iterator[torch.Tensor]:
    """Inputs that the module might take, smallest first, by the first layer that tells."""
    for layer in module.modules():
        weight = getattr(layer, "weight", None)
        dtype = weight.dtype if isinstance(weight, torch.Tensor) else torch.get_default_dtype()
        width: int | None = None
        match layer:
            case nn.Embedding():
                yield torch.zeros(rows, 1, dtype=torch.long, device="meta")
            case nn.Linear():
                width = layer.in_features
            case nn.LayerNorm() | nn.RMSNorm():
                width = layer.normalized_shape[-1]
            case nn.MultiheadAttention():
                width = layer.embed_dim
            case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
                for size in (1, 8, 32, 224):
                    shape = (rows, layer.in_channels, *[size] * len(layer.kernel_size))
                    yield torch.zeros(shape, dtype=dtype, device="meta")
            case _ if isinstance(weight, torch.Tensor) and weight.dim() >= 1:
                width = weight.shape[-1]
        if width is not None:
            yield torch.zeros(rows, width, dtype=dtype, device="meta")
            yield torch.zeros(rows, 1, width, dtype=dtype, device="meta")


def _takes(module: nn.Module, inputs: Example) -> bool:
    """Whether the module, without its data, runs on these."""
    state = {name: t.detach().to("meta") for name, t in (*module.named_parameters(), *module.named_buffers())}
    try:
        with torch.no_grad():
            torch.func.functional_call(module, state, inputs)
    except Exception:  # Any refusal means no.
        return False
    return True


def _probe(module: nn.Module, rows: int) -> Example:
    tried: list[str] = []
    for candidate in _candidates(module, rows):
        if _takes(module, (candidate,)):
            return (candidate,)
        tried.append(str(tuple(candidate.shape)))
    raise RuntimeError(
        "one-rank mode: no stage exists that could tell the shape of this stage's input"
        + (f", and the module takes none of {', '.join(tried[:6])}" if tried else "")
        + "; pass input_args= to PipelineStage, or call allranks.one_rank.pipeline_input(example) before"
    )


def _inputs(stage: Any) -> Example:
    arguments, rows = _step
    if _given:
        return _given[0]
    if arguments and _takes(stage.submod, arguments):
        return arguments
    for index, outputs in _outputs.items():
        if index != stage.stage_index and _takes(stage.submod, outputs):
            return outputs
    found = _probe(stage.submod, rows)
    sys.stderr.write(
        f"allranks: stage {stage.stage_index}: nobody sends the shape of its input; taking "
        f"{', '.join(str(tuple(t.shape)) for t in found)} for a microbatch. Pass input_args= to PipelineStage or "
        "call allranks.one_rank.pipeline_input(example) to say better.\n"
    )
    return found


def _initialize(original: Callable[..., Any]) -> Callable[..., Any]:
    def initialize(self: Any, stages: Any, args: Any, kwargs: Any, target: Any, *rest: Any, **more: Any) -> Any:
        global _step
        tensors = args if isinstance(args, tuple) and all(isinstance(a, torch.Tensor) for a in args) else ()
        rows = target.shape[0] if isinstance(target, torch.Tensor) and target.dim() else 1
        _step = tuple(t.detach().to("meta") for t in tensors), rows
        try:
            return original(self, stages, args, kwargs, target, *rest, **more)
        finally:
            _step = (), 1

    return initialize


def _recv_meta(stages: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def recv_meta(self: Any, src_stage: int) -> Any:
            if backend_of(self.group) is None:
                return original(self, src_stage)
            if src_stage > self.stage_index:
                return stages._StageBackwardMeta(backward_metas=stages._derive_grad_metas(self._stage_meta.outputs))
            told = getattr(getattr(self, "_user_meta", None), "inputs", None)
            if told:  # `input_args=`, which some versions compare with what they receive.
                return stages._StageForwardMeta(forward_metas=told)
            inputs = tuple(
                t.detach().clone().requires_grad_(self.has_backward and t.is_floating_point()) for t in _inputs(self)
            )
            return stages._StageForwardMeta(forward_metas=stages.extract_tensor_metas(inputs))

        return recv_meta

    return make


def _send_meta(original: Callable[..., Any]) -> Callable[..., Any]:
    def send_meta(self: Any, meta: Any, dst_stage: int) -> None:
        if dst_stage > self.stage_index and backend_of(self.group) is not None:
            outputs = self._fwd_outputs_for_bwd_meta or ()
            _outputs[self.stage_index] = tuple(t.detach().to("meta") for t in outputs)
        original(self, meta, dst_stage)

    return send_meta


def install(patches: Patches) -> None:
    """Takes effect when a program imports torch.distributed.pipelining. Stages on other backends keep torch's ways."""

    def patch(stages: Any) -> None:
        patches.wrap(stages.PipelineStage, "_recv_meta", _recv_meta(stages))
        patches.wrap(stages.PipelineStage, "_send_meta", _send_meta)

    def patch_schedules(schedules: Any) -> None:
        patches.wrap(schedules._PipelineSchedule, "_initialize_pp_stages", _initialize)

    when_imported(patches, {private.PIPELINE_STAGE: patch, private.PIPELINE_SCHEDULES: patch_schedules})


def forget() -> None:
    """A new run knows nothing of the last one's shapes."""
    _given.clear()
    _outputs.clear()
