#!/usr/bin/env python3
"""Times the upstream model's forward of one block over a cached context, in float32 and bfloat16.

`dflash-parity bench --torch PYTHON` calls this and sets its own time of the same block beside it: the same checkpoint,
threads and rows, in one run. Prints one JSON object of medians in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from transformers import DynamicCache

import reference
from options import positive
from refusal import Refused
from weights import Tensors


def time_round(model, context: int, block: int, taps: int, dtype: torch.dtype, repeat: int) -> float:
    """Median seconds of a block that follows one new context row, over `context` rows in the cache."""
    hidden = model.config.hidden_size
    generator = torch.Generator().manual_seed(0)

    def rows(count: int, width: int) -> torch.Tensor:
        return torch.randn(1, count, width, generator=generator).to(dtype)

    history, newest, noise = rows(context - 1, taps * hidden), rows(1, taps * hidden), rows(block, hidden)
    positions = torch.arange(context + block)[None]
    cache = DynamicCache()  # keeps every row; one made from the config would drop what a window hides
    times = []
    with torch.inference_mode():
        model(target_hidden=history, noise_embedding=noise, position_ids=positions[:, : context - 1 + block],
              past_key_values=cache, use_cache=True)  # fmt: skip
        for _ in range(repeat + 1):
            cache.crop(context - 1)
            begin = time.perf_counter()
            model(target_hidden=newest, noise_embedding=noise, position_ids=positions[:, context - 1 :],
                  past_key_values=cache, use_cache=True)  # fmt: skip
            times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])  # the first one builds the library's plans


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--context", type=positive, required=True)
    parser.add_argument("--threads", type=positive, required=True)
    parser.add_argument("--repeat", type=positive, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        checkpoint = reference.open_checkpoint(arguments.checkpoint)
        if checkpoint.family == "dspark":
            raise Refused(f"{arguments.checkpoint}: timing covers the families of the dflash package.")
        tensors = Tensors.scan(arguments.checkpoint)
        result = {"torch": torch.__version__}
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
            model = reference.build(checkpoint, tensors, dtype)
            seconds = time_round(model, arguments.context, model.block_size, len(model.target_layer_ids), dtype,
                                 arguments.repeat)  # fmt: skip
            result[f"{name}_ms"] = 1e3 * seconds
            del model
    except Refused as error:
        print(f"time_reference: {error}", file=sys.stderr)
        return 3
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
