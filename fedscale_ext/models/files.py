"""A configuration's ``model``: the name of an architecture, or a file with the spec of one.

A finished job leaves the spec of each of its models as ``models/<key>.json`` in its log folder, so that a
baseline can be given "the largest model transformed by FedTrans" (Zhu et al., MLSys 2024, Appendix A.1 on arXiv).
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from fedscale_ext.core.errors import UserError, meant_or_known, one_line
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.cost import cost
from fedscale_ext.models.registry import check_symbols, family, named_spec, reads_symbols
from fedscale_ext.util.reading import MEGA, read_json

T = TypeVar("T")

_SUFFIX = ".json"
_KEYS = ["family", "fields"]
_LARGEST = 2047 * MEGA  # what max_message_mb can be set to; building on the meta device costs no memory


def configured_spec(
    model: str, input_shape: tuple[int, int, int], num_classes: int, *, text: bool | None = None
) -> ModelSpec:
    """Return the spec of a configuration's model.

    Args:
        model: A name, or the path of a spec that ends in .json.
        input_shape: Shape of a sample, (C, H, W).
        num_classes: Number of classes.
        text: Whether samples are symbols of a text. None: not known, and all models are taken.

    Raises:
        UserError: If the name is unknown, the file is missing, damaged, not buildable or for another task, or the model
            does not read such samples.

    """
    if not model.endswith(_SUFFIX):
        if "/" in model or model.endswith(".safetensors"):
            raise UserError(f"model {model} is no spec: give a file that ends in .json, as models/KEY.json of a job, "
                            "or the name of a model")  # fmt: skip
        return named_spec(model, input_shape, num_classes, text=text)
    path = Path(model).expanduser()
    spec = _read(path)
    try:
        module: Any = family(spec)
        _check_fields(spec, module)
    except UserError as error:
        raise UserError(f"{path}: {one_line(str(error), 200)}") from None
    if hasattr(module, "completed"):
        spec = _built(path, spec, lambda: module.completed(spec, input_shape, num_classes))
    for name, required in (("input_shape", input_shape), ("num_classes", num_classes)):
        value = dict(spec.fields).get(name)
        if value != required:
            raise UserError(
                f"{path} is a model for {name} {value!r:.60}, but this data set has {name} {required!r}; "
                "give the spec of a job on data of that kind"
            )
    _built(path, spec, lambda: reads_symbols(spec))  # networks that it joins may be missing
    check_symbols(str(path), spec, text)
    size = _built(path, spec, lambda: cost(spec).bytes)
    if size > _LARGEST:
        raise UserError(f"{path} is a model of {size:,} bytes; a message can carry {_LARGEST:,}")
    return spec


def _built(path: Path, spec: ModelSpec, make: Callable[[], T]) -> T:
    try:
        return make()
    except Exception as error:  # a family or torch may raise anything for fields that it did not write
        raise UserError(
            f"{path} cannot be built as a model of the family {spec.family!r}: {one_line(str(error), 200)}"
        ) from None


def _check_fields(spec: ModelSpec, module: Any) -> None:
    """Raise UserError for a field that the spec's family does not have, since it would change nothing."""
    if hasattr(module, "FIELDS"):
        known = [*module.FIELDS, *getattr(module, "SHORT", ())]
        _check_names(f"a spec of the family {spec.family!r} has no field", dict(spec.fields), known)


def _check_names(refusal: str, names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{refusal} {name!r:.60}{meant_or_known(name, known)}")


def _read(path: Path) -> ModelSpec:
    try:
        data: Any = read_json(path, MEGA)
        _check_names(f"{path}: a model spec has no", data.keys(), _KEYS)
        return ModelSpec.from_json(data)
    except OSError as error:
        raise UserError(f"the model {path} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{path} is no model spec: give the models/KEY.json of a finished job, or the name of a model"
        ) from None
