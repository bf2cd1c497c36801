"""Writes oracle files, exactly as FORMAT.md describes them.

Equal content gives equal bytes: no timestamps, fixed-length strings, a fixed order of creation. A file appears under
its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import torch

SCHEMA = "dflash-parity"
SCHEMA_VERSION = {"oracle": 2, "vectors": 1}

CHUNK_BYTES = 16 << 20  # HDF5 ends a chunk at 4 GiB; a dataset of more bytes than this is cut into blocks of rows

# The 1.10 format stores the index of a one-chunk dataset in its header; older ones spend 2 KiB on a tree for it.
LIBVER = ("v110", "v110")

LOGICAL = {
    torch.float64: ("float64", "<f8"),
    torch.float32: ("float32", "<f4"),
    torch.bfloat16: ("bfloat16", "<u2"),
    torch.int32: ("int32", "<i4"),
}


def text(value: str) -> np.ndarray:
    return np.array(value.encode("utf-8"), dtype=h5py.string_dtype("utf-8", len(value.encode("utf-8"))))


def storage(tensor: torch.Tensor) -> tuple[str, np.ndarray]:
    """Logical dtype and the little-endian array that stands for it."""
    logical, stored = LOGICAL[tensor.dtype]
    tensor = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        return logical, tensor.view(torch.int16).numpy().view(np.uint16).astype(stored, copy=False)
    return logical, tensor.numpy().astype(stored, copy=False)


class OracleWriter:
    def __init__(self, file: h5py.File, kind: str):
        self.file = file
        self.data_bytes = 0
        file.attrs.create("schema", text(SCHEMA))
        file.attrs.create("schema_version", np.int32(SCHEMA_VERSION[kind]))
        file.attrs.create("kind", text(kind))

    def document(self, name: str, record: dict) -> None:
        body = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        dataset = self.file.create_dataset(name, data=text(body), track_times=False)
        dataset.attrs.create("sha256", text(hashlib.sha256(body.encode("utf-8")).hexdigest()))

    def group(self, name: str, params: dict) -> None:
        """A group of isolated vectors; `params` says what they were made with."""
        body = json.dumps(params, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self.file.create_group(name).attrs.create("params", text(body))

    def tensor(self, name: str, tensor: torch.Tensor, stride: int = 1, offset: int = 0) -> None:
        """Stores the whole tensor, or with a stride the elements offset, offset + stride, ... of its flattening."""
        shape, labels = list(tensor.shape), {}
        if stride > 1:
            tensor = tensor.flatten()[offset::stride]
            labels = {
                "full_shape": np.array(shape, dtype="<i8"),
                "sample_stride": np.int64(stride),
                "sample_offset": np.int64(offset),
            }
        self._dataset(name, tensor, labels)

    def rows(self, name: str, tensor: torch.Tensor, rows: list[int]) -> None:
        """Stores whole rows of a tensor whose first dimension counts rows."""
        self._dataset(name, tensor[rows], {"rows": np.array(rows, dtype="<i8")})

    def sketches(self, seed: int) -> None:
        """The group of the sketches, which says what their signs are made from."""
        self.file.create_group("sketch").attrs.create("seed", np.int64(seed))

    def _dataset(self, name: str, tensor: torch.Tensor, labels: dict) -> None:
        if not 1 <= tensor.dim() <= 4 or tensor.numel() == 0:
            raise ValueError(f"{name}: shape {list(tensor.shape)} is not of rank 1 to 4 with at least one element")
        logical, array = storage(tensor)
        # blocks of equal size, since HDF5 stores the last one in full
        block = -(-len(array) // min(len(array), -(-array.nbytes // CHUNK_BYTES)))
        dataset = self.file.create_dataset(
            name, data=array, chunks=(block, *array.shape[1:]), maxshape=array.shape,
            fletcher32=True, track_times=False,
        )  # fmt: skip
        dataset.attrs.create("logical_dtype", text(logical))
        dataset.attrs.create("sha256", text(hashlib.sha256(array.tobytes()).hexdigest()))
        for label, value in labels.items():
            dataset.attrs.create(label, value)
        self.data_bytes += array.nbytes


@contextmanager
def oracle_file(path: Path, kind: str = "oracle"):
    """Yields a writer on a temporary name beside `path`, and moves the file there when the block ends well."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with h5py.File(temporary, "w", libver=LIBVER, track_order=False) as file:
            yield OracleWriter(file, kind)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
