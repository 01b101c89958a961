"""The only place that knows what FedScale 1.0 needs to be imported on a current Python.

FedScale's installed files stay as they are. What is mended here, each only where it is needed:

* ``wandb`` and three TensorFlow modules of FedScale are imported unconditionally but used only
  on request: modules that say so when they are used stand in for them where the real ones are
  not installed. (Standing in for ``tensorflow`` itself would break TensorBoard's writer.)
* torchvision beside a CPU-only torch cannot load its compiled part and dies on import because
  the operator ``nms`` is not declared: its signature is declared first. Models and transforms
  then work; ``torchvision.ops.nms`` and ``torchvision.io`` do not, and nothing here needs them.
* torchvision takes as long to import as torch itself, and FedScale needs it for its own zoo and data
  sets only: FedScale's modules hold stand-ins for it that import it when they are first used.
* ``config_parser`` parses ``sys.argv`` when it is imported and evaluates ``use_cuda`` as Python:
  it only ever sees an argument list that config.py has validated.
* logging is set up by the constructors of Aggregator and Executor with handlers of FedScale's
  own; it is left to them.
"""

import importlib
import importlib.util
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# FedScale modules that import tensorflow on import, and the names that FedScale takes from them
_TENSORFLOW_MODULES = {
    "fedscale.utils.models.tensorflow_model_provider": "get_tensorflow_model",
    "fedscale.cloud.internal.tensorflow_model_adapter": "TensorflowModelAdapter",
    "fedscale.cloud.execution.tensorflow_client": "TensorflowClient",
}
_WANDB_MODULES = ("fedscale.cloud.aggregation.aggregator", "fedscale.cloud.execution.executor")
_ENVIRONMENT = ("MASTER_ADDR", "MASTER_PORT")  # variables that fllibs sets on import, and nothing here reads
_NMS_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept_libraries: list[Any] = []  # a torch Library withdraws its operators when it is collected


class _Missing:
    """Stands for a name of a package that is not installed; says so when it is used."""

    def __init__(self, what: str, package: str):
        self.what, self.package = what, package

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise ImportError(f"{self.what} needs the package {self.package}, which is not installed")


class _OnUse(ModuleType):
    """Stands for a module that takes long to import: whatever is asked of it, the real one answers."""

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__
        if name.startswith("__") and name != "__dict__":  # what the import system asks of a loaded module
            return own(name)
        return getattr(importlib.import_module(own("__name__")), name)


def declare_torchvision_operators() -> None:
    """Let torchvision be imported beside a torch without CUDA."""
    import torch

    if torch.version.cuda is not None or "torchvision" in sys.modules or _kept_libraries:
        return
    library = torch.library.Library("torchvision", "DEF")
    for schema in _NMS_SCHEMAS:
        library.define(schema)
    _kept_libraries.append(library)


def _stand_in(name: str, **names: object) -> None:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)  # what importlib.util.find_spec asks of a loaded module
    module.__dict__.update(names)
    sys.modules[name] = module


@contextmanager
def _torchvision_on_use() -> Iterator[None]:
    """What is imported meanwhile and names torchvision gets stand-ins; later imports get the real one."""
    if "torchvision" in sys.modules:
        yield
        return
    parts = {part: _OnUse(f"torchvision.{part}") for part in ("datasets", "models", "transforms")}
    _stand_in("torchvision", **parts)
    sys.modules.update({f"torchvision.{part}": module for part, module in parts.items()})
    try:
        yield
    finally:
        for name in ("torchvision", *(f"torchvision.{part}" for part in parts)):
            del sys.modules[name]


@contextmanager
def _argv(arguments: Sequence[str]) -> Iterator[None]:
    kept, sys.argv = sys.argv, ["fedscale_ext", *arguments]
    try:
        yield
    finally:
        sys.argv = kept


def prepare() -> None:
    """Make every module of FedScale's PyTorch path importable. Safe to call again."""
    declare_torchvision_operators()
    if "wandb" not in sys.modules and importlib.util.find_spec("wandb") is None:
        _stand_in("wandb", run=None, init=_Missing("--wandb_token", "wandb"))
    if importlib.util.find_spec("tensorflow") is None:
        for module, name in _TENSORFLOW_MODULES.items():
            if module not in sys.modules:
                _stand_in(module, **{name: _Missing(f"FedScale's {name}", "tensorflow")})
    with _argv([]):
        import fedscale.cloud.config_parser
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    with _torchvision_on_use():
        import fedscale.cloud.fllibs  # noqa: F401  the module that imports torchvision, for all others
    for name, value in before.items():
        set_variable(name, value)


def set_variable(name: str, value: str | None) -> None:
    """Set an environment variable; None: remove it."""
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


def remove_stand_in() -> None:
    """Remove the stand-in for wandb, once FedScale's modules that import it have it."""
    loaded = all(module in sys.modules for module in _WANDB_MODULES)
    if loaded and isinstance(getattr(sys.modules.get("wandb"), "init", None), _Missing):
        del sys.modules["wandb"]


def torchvision_models() -> ModuleType:
    """torchvision.models, imported now."""
    declare_torchvision_operators()
    return importlib.import_module("torchvision.models")


def fedscale_parser() -> ArgumentParser:
    """FedScale's argument parser: the names, types and defaults of its job_conf keys (no torch needed)."""
    with _argv([]):
        from fedscale.cloud import config_parser
    return config_parser.parser


def install_arguments(arguments: Namespace) -> None:
    """Make ``arguments`` what FedScale's modules read as ``parser.args`` in this process."""
    with _argv([]):
        from fedscale.cloud import config_parser
    values = vars(config_parser.args)
    values.clear()
    values.update(vars(arguments))


@contextmanager
def same_arguments() -> Iterator[None]:
    """Restore at the end what FedScale's modules read as ``parser.args``."""
    with _argv([]):
        from fedscale.cloud import config_parser
    before = Namespace(**vars(config_parser.args))
    try:
        yield
    finally:
        install_arguments(before)


def complete_arguments(arguments: Namespace) -> Namespace:
    """Add what FedScale's config_parser derives after parsing: num_class and the clock factor."""
    with _argv([]):
        from fedscale.cloud import config_parser
    arguments.num_class = config_parser.datasetCategories.get(arguments.data_set, arguments.num_classes)
    return arguments
