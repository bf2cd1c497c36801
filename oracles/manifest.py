"""The manifest of the stored oracles: what each file is, byte for byte, and what wrote it.

The generator writes it (generate.py --cases), the gate holds every oracle of the case list against it. What wrote an
oracle is its signature: the generator's own sources, the files of the references as they were loaded, the packages with
digests of what they hold, and the processor. It stands beside the oracles and not in them: a comment in a source or
another processor must not change their bytes.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import h5py

import packages

FOLDER = Path(__file__).resolve().parent
# Distributions whose code runs between a checkpoint and an oracle.
DISTRIBUTIONS = ("torch", "transformers", "dflash", "specforge", "nemo-automodel", "safetensors", "gguf", "h5py", "numpy")
# Packages of the references: their loaded files are digested one by one, or where there are hundreds together.
REFERENCES = ("dflash", "specforge", "nemo_automodel")
MANY = ("transformers",)


def digest_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_of_text(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def loaded_files(package: str) -> dict[str, str]:
    """Of every loaded module of a package: its name and the digest of its source."""
    files = {}
    for name, module in sorted(sys.modules.items()):
        source = getattr(module, "__file__", None)
        if name.split(".")[0] == package and source is not None and source.endswith(".py"):
            files[name] = digest_of(Path(source))
    return files


def generator_files() -> dict[str, str]:
    """The sources of this folder that are loaded."""
    names = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    sources = sorted(Path(name).resolve() for name in names if os.path.isabs(name))
    return {path.name: digest_of(path) for path in sources if path.parent == FOLDER}


def installed(distribution: str) -> dict[str, str]:
    """Version of a package and one digest of the digests that its installer recorded, whatever folder it is in."""
    record = metadata.distribution(distribution)
    rows = csv.reader((record.read_text("RECORD") or "").splitlines())
    held = sorted((row[0], row[1]) for row in rows if row[1] and not row[0].startswith("..") and ".dist-info/" not in row[0])
    return {"version": record.version, "sha256": digest_of_text(held)}


def processor() -> str:
    """Architecture, vendor and family: what chooses the code of the libraries that multiply."""
    facts = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            key, _, value = line.partition(":")
            facts[key.strip()] = value.strip()
    except OSError:
        pass  # not Linux: the architecture alone
    names = [facts[key] for key in ("vendor_id", "cpu family", "model") if key in facts]
    return " ".join([platform.machine(), *names])


def signature() -> dict:
    """What writes oracles in this process. The references are all loaded first, so that no case adds a file."""
    packages.specforge_dspark()
    packages.nemo_dflash2()
    __import__("gguf")
    references = {name: digest for package in REFERENCES for name, digest in loaded_files(package).items()}
    return {
        "generator": generator_files(),
        "references": references,
        "modules": {name: {"files": len(files := loaded_files(name)), "sha256": digest_of_text(files)} for name in MANY},
        "packages": {
            "python": {"version": platform.python_version()},
            "hdf5": {"version": h5py.version.hdf5_version},
            **{name: installed(name) for name in DISTRIBUTIONS},
        },
        "processor": processor(),
    }


def renew(path: Path, oracle: str, file: Path, written_by: dict, listed: list[str]) -> None:
    """Puts an oracle that was just written (its name in the case list, its file) into the manifest; entries of oracles
    that no case names any more, and signatures of no entry, go."""
    document = json.loads(path.read_text()) if path.exists() else {"schema": 1, "oracles": {}, "signatures": {}}
    key = digest_of_text(written_by)[:16]
    document["signatures"][key] = written_by
    document["oracles"][oracle] = {"bytes": file.stat().st_size, "sha256": digest_of(file), "signature": key}
    document["oracles"] = {name: entry for name, entry in sorted(document["oracles"].items()) if name in listed}
    used = {entry["signature"] for entry in document["oracles"].values()}
    document["signatures"] = {name: value for name, value in sorted(document["signatures"].items()) if name in used}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(temporary, path)
