#!/usr/bin/env python3
"""Writes a recording (FORMAT.md) from numpy arrays: what another engine does so that `dflash-parity compare` can read it.

`write_recording` is all there is to it, and needs h5py and numpy alone: copy it. Run as a program, this file plays the
other engine with an oracle's own float32 run:

    python oracles/record_example.py ORACLE.h5 RUN.h5
    build/dflash-parity compare ORACLE.h5 RUN.h5
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import h5py
import numpy as np

LOGICAL = {"float64": "<f8", "float32": "<f4", "int32": "<i4"}


def _text(value: str) -> np.ndarray:
    body = value.encode("utf-8")
    return np.array(body, dtype=h5py.string_dtype("utf-8", len(body)))


def _record(file: h5py.File, name: str, record: dict) -> None:
    body = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    dataset = file.create_dataset(name, data=_text(body), track_times=False)
    dataset.attrs.create("sha256", _text(hashlib.sha256(body.encode("utf-8")).hexdigest()))


def _tensor(file: h5py.File, name: str, values: np.ndarray) -> None:
    """One chunk with Fletcher32; the logical dtype and the digest of the bytes beside it. For bfloat16 store the bits
    as <u2 and say logical_dtype "bfloat16"."""
    logical = values.dtype.name
    stored = np.ascontiguousarray(values, dtype=LOGICAL[logical])
    dataset = file.create_dataset(
        name, data=stored, chunks=stored.shape, maxshape=stored.shape, fletcher32=True, track_times=False
    )
    dataset.attrs.create("logical_dtype", _text(logical))
    dataset.attrs.create("sha256", _text(hashlib.sha256(stored.tobytes()).hexdigest()))


def write_recording(path: Path, geometry: dict, provenance: dict, inputs: dict, stages: dict) -> None:
    """`geometry` and `provenance` are FORMAT.md's records; `inputs` and `stages` map names to arrays: float32 or
    float64, and int32 for positions, the anchor and the stages that hold ids. The file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with h5py.File(temporary, "w", libver=("v110", "v110")) as file:
            file.attrs.create("schema", _text("dflash-parity"))
            file.attrs.create("schema_version", np.int32(1))
            file.attrs.create("kind", _text("recording"))
            _record(file, "geometry", geometry)
            _record(file, "provenance", provenance)
            for name, values in inputs.items():
                _tensor(file, f"inputs/{name}", values)
            for name, values in stages.items():
                _tensor(file, f"stages/run/{name}", values)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def from_oracle(oracle: Path, out: Path) -> None:
    with h5py.File(oracle, "r") as file:
        geometry, theirs = (json.loads(file[name][()]) for name in ("geometry", "provenance"))
        inputs = {name: _values(dataset) for name, dataset in file["inputs"].items()}
        stages = {name: _values(dataset) for name, dataset in file["stages/float32"].items()}
        sampled = [name for name, dataset in file["stages/float32"].items() if "full_shape" in dataset.attrs]
    if sampled:
        raise SystemExit(f"{oracle} holds samples of {sampled[0]}; a recording holds every element. Take another oracle.")
    provenance = {
        "generator": "record_example.py",
        "command": f"python oracles/record_example.py {oracle} {out}",
        "config_sha256": theirs["config_sha256"],
        "precision": theirs.get("precision", "stored"),
        "engine": {"name": "torch", "version": theirs["packages"]["torch"], "class": "float32"},
        # An engine takes these from the checkpoint that it ran: name, dtype, shape and the digest of the raw bytes.
        "tensors": theirs["tensors"],
    }
    if "head" in theirs:
        provenance["head"] = theirs["head"]
    write_recording(out, geometry, provenance, inputs, stages)


def _values(dataset: h5py.Dataset) -> np.ndarray:
    """The dataset's values in float32 (a bfloat16 one stores the upper half of a float32) or int32."""
    if dataset.attrs["logical_dtype"] == b"bfloat16":
        return (dataset[()].astype(np.uint32) << 16).view(np.float32)
    return dataset[()]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: record_example.py ORACLE.h5 RUN.h5")
    from_oracle(Path(sys.argv[1]), Path(sys.argv[2]))
