"""Imports single modules of the reference packages without running the packages around them.

SpecForge and NeMo AutoModel import trainers, data sets and distributed code from their `__init__` files. The draft
models need none of that: their own files need torch and transformers. So parents that are not imported yet get an empty
module with their folder as the search path, and the import system finds the one file.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import types
from importlib import metadata
from pathlib import Path


def import_file(name: str) -> types.ModuleType:
    """The module `name`, importing of its parents no more than their place on the disk."""
    if name in sys.modules:
        return sys.modules[name]
    parts = name.split(".")
    if parts[0] in sys.modules:  # for its parents there is no spec
        places = getattr(sys.modules[parts[0]], "__path__", None)
    else:
        top = importlib.util.find_spec(parts[0])
        places = top.submodule_search_locations if top is not None else None
    if not places:
        raise ModuleNotFoundError(f"the package {parts[0]} is not installed; see oracles/requirements-nodeps.txt")
    folder = Path(next(iter(places)))
    for depth in range(1, len(parts)):
        parent = ".".join(parts[:depth])
        if depth > 1:
            folder = folder / parts[depth - 1]
        if parent not in sys.modules:
            module = types.ModuleType(parent)
            module.__path__ = [str(folder)]
            sys.modules[parent] = module
    return importlib.import_module(name)


def specforge_dspark() -> types.ModuleType:
    return import_file("specforge.modeling.draft.dspark")


def specforge_masks() -> types.ModuleType:
    """The training code of SpecForge, for the function that makes the attention masks of its draft models."""
    import_file("specforge.core.chunking")  # its parents as empty modules, so that no trainer is imported
    return import_file("specforge.algorithms.common.dflash_family_model")


def nemo_dflash2() -> types.ModuleType:
    """NeMo AutoModel's DFlash2. Its neighbour `target` serves training only, and one of its functions is asked for."""
    target = "nemo_automodel.components.speculative.dflash.target"
    if target not in sys.modules:
        # the file pulls in the data set code; the draft model asks it for a function that serving a target needs
        stand_in = types.ModuleType(target)
        stand_in.resolve_text_config = lambda config: config
        sys.modules[target] = stand_in
    return import_file("nemo_automodel.components.speculative.dflash.draft_qwen3_dflash2")


def source_record(module: types.ModuleType) -> dict:
    """Name and digest of the source file of a reference module."""
    source = Path(inspect.getsourcefile(module))
    return {"module": module.__name__, "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}


def version(distribution: str) -> str:
    return metadata.version(distribution)
