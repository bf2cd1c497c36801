#!/usr/bin/env python3
"""Times plain_block.py's forward of one block over a cached context, in bfloat16.

`dflash-parity bench --table --torch PYTHON` calls this and sets its own times beside it. On a GPU there are three ways:
eager, the eager kernels replayed as a CUDA graph, and torch.compile's kernels replayed as a CUDA graph; they take turns.
Prints one JSON object of medians in milliseconds; a way that does not work here is null, and `why` says why.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from options import positive
from plain_block import PlainBlock, Shape
from refusal import Refused

WARM_UP = 10


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def captured(step: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """A CUDA graph of the step; what a first call sets up is set up before, on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def ways_of(model: PlainBlock, noise: torch.Tensor, device: str) -> tuple[dict[str, Callable], list[str]]:
    """What can be timed here by name, and why the rest cannot."""
    ways: dict[str, Callable] = {"eager_ms": lambda: model(noise)}
    if device != "cuda":
        return ways, ["graphs need a GPU"]
    lacking = []
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    for name, step in (("graph_ms", lambda: model(noise)), ("compiled_ms", lambda: compiled(noise))):
        try:
            ways[name] = captured(step)
        except Exception as error:  # the compiler and the driver raise many kinds
            lines = str(error).strip().splitlines() or [type(error).__name__]
            lacking.append(f"{name.removesuffix('_ms')} not timed: {lines[0][:160]}")
    return ways, lacking


def medians(ways: dict[str, Callable], device: str, repeat: int) -> dict[str, float]:
    """Milliseconds of each way, from its call to the end of its work; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM_UP + repeat):
        for name, step in ways.items():
            finish(device)
            begin = time.perf_counter()
            step()
            finish(device)
            if turn >= WARM_UP:
                times[name].append(time.perf_counter() - begin)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--context", type=positive, required=True)
    parser.add_argument("--threads", type=positive, required=True)
    parser.add_argument("--repeat", type=positive, default=50)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        if arguments.device == "cuda" and not torch.cuda.is_available():
            raise Refused("PyTorch finds no CUDA device. Use a PyTorch that is built for this machine's driver.")
        shape = Shape(arguments.checkpoint)
        positions = torch.arange(arguments.context + shape.block)
        torch.manual_seed(0)
        with torch.no_grad():
            model = PlainBlock(arguments.checkpoint, positions, torch.bfloat16, arguments.device)
            like = {"dtype": torch.bfloat16, "device": arguments.device}
            model.ingest(torch.randn(arguments.context, shape.hidden, **like))
            ways, lacking = ways_of(model, torch.randn(shape.block, shape.hidden, **like), arguments.device)
            result = medians(ways, arguments.device, arguments.repeat)
    except Refused as error:
        print(f"time_plain: {error}", file=sys.stderr)
        return 3
    print(json.dumps({"torch": torch.__version__, "eager_ms": None, "graph_ms": None, "compiled_ms": None, **result,
                      "why": "; ".join(lacking)}))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
