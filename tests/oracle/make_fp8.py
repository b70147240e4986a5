"""Write torch's conversions of the 8-bit floats, as TSV to stdout.

    python tests/oracle/make_fp8.py > crates/numerics/data/fp8.tsv

`decode` rows: dtype, byte, bits of the float32. `encode` rows: dtype, bits of a float32, byte; the floats are each
value of the dtype, the midpoint between it and its neighbour, and the floats next to these, of both signs.
"""

import numpy as np
import torch

DTYPES = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


def bits(x):
    return x.contiguous().view(torch.int32).numpy().view(np.uint32)


print(f"# torch {torch.__version__}")
for name in DTYPES:
    dtype = getattr(torch, name)
    every = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    values = every.view(dtype).to(torch.float32)
    row = " ".join(f"{b:x}" for b in bits(values))
    print(f"decode\t{name}\t{row}")
    finite = torch.sort(values[torch.isfinite(values)].abs().unique()).values
    middle = (finite[1:].double() + finite[:-1].double()).div(2).float()
    past = finite[-1] + (finite[-1] - finite[-2]) * torch.tensor([0.25, 0.5, 0.75, 1.0, 1.5])
    if name == "float8_e8m0fnu":
        middle = torch.cat([middle[:3], middle[-3:]])
        finite = torch.cat([finite[:3], finite[127:128], finite[-3:]])
        past = torch.tensor([2.0**127 * 1.25, 2.0**127 * 1.5, 2.0**127 * 1.75])
    points = torch.cat([finite, middle, past, torch.tensor([0.0, float("inf"), float("nan"), 1e-45, 1e-40, 3e38])])
    near = bits(points).astype(np.int64)
    near = np.unique(np.clip(np.concatenate([near - 1, near, near + 1]), 0, 0x7FFFFFFF)).astype(np.uint32)
    near = np.concatenate([near, near | np.uint32(1 << 31)])
    out = torch.from_numpy(near.view(np.int32)).view(torch.float32).to(dtype).view(torch.uint8).tolist()
    row = " ".join(f"{b:x}:{o:x}" for b, o in zip(near, out, strict=True))
    print(f"encode\t{name}\t{row}")
