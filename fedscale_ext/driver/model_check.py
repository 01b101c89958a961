"""Whether there are the method and the models that a configuration names, and the models take the job's data: told
before any process starts.

Importing torch, which the models need, takes seconds. Where a model's name and the shape of the data suffice
(``model_names.py``), or the fields of its file, it is left out; only what does not look right is asked of the models
themselves, whose sentence is then told.
"""

from collections.abc import Iterator
from pathlib import Path

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.methods import check_name
from fedscale_ext.config.model_names import surely_takes
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import describe
from fedscale_ext.data.registry import is_text
from fedscale_ext.util.reading import MEGA, read_json

Shape = tuple[int, int, int]

_SYMBOLS = ("supernet", "headed", "paired")  # families of which some networks read symbols of a text, and some do not
_LISTS = ("types", "match_params")  # hyperparameters, of whichever method, that are lists of models


def check_models(config: JobConfig, data: bool) -> None:
    """Check that the configured method and models exist; UserError otherwise.

    The models are ``model``, ``capacity_model`` and those of the types of devices. With ``data``, where the data folder
    is on this machine, models must also take its samples and classes.
    """
    check_name(config.job.method)
    for key in config.params:
        try:
            check_name(key.partition(".")[0])
        except UserError as error:
            raise UserError(f"unknown job_conf key {key!r}: {error}") from None
    shape, classes = _task(config) if data else (None, None)
    text = is_text(config.fedscale.data_set) if data else None
    for key, model in _named(config):
        if _surely_fits(model, shape, classes, text):
            continue
        try:
            _ask(model, shape, classes, text)
        except UserError as error:
            raise UserError(f"key {key!r}: {error}") from None


def _named(config: JobConfig) -> Iterator[tuple[str, str]]:
    """(key, model) of all models that the job names."""
    if "model" in config.given:  # not FedScale's default, which is none of the models here: some methods do without
        yield "model", config.fedscale.model
    if config.job.capacity_model is not None:
        yield "capacity_model", config.job.capacity_model
    params = config.method_params()
    for name in _LISTS:
        models = params.get(name)
        for model in models if isinstance(models, list) else []:
            if isinstance(model, str):  # what is none is told with the other hyperparameters
                yield f"{config.job.method}.{name}", model


def _task(config: JobConfig) -> tuple[Shape, int | None]:
    """Shape of the samples and number of classes, None where only labels tell that."""
    args = config.fedscale
    about = describe(data_folder(args.data_dir, args.data_set), args.data_set, config.job.sample_shape)
    return about.shape, about.classes


def _surely_fits(model: str, shape: Shape | None, classes: int | None, text: bool | None) -> bool:
    if not model.endswith(".json"):
        return surely_takes(model, shape, text)
    if shape is None or classes is None:  # the file may lie on other machines; the aggregator compares it
        return True
    try:
        spec = read_json(Path(model).expanduser(), MEGA)
        fields = spec["fields"]
        if text or spec["family"] in _SYMBOLS:
            return False
        return bool(fields["input_shape"] == list(shape) and fields["num_classes"] == classes)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _ask(model: str, shape: Shape | None, classes: int | None, text: bool | None) -> None:
    from fedscale_ext.models import registry
    from fedscale_ext.models.files import configured_spec

    if shape is None:
        registry.check_name(model)
    else:
        registry.skeleton(configured_spec(model, shape, classes or 1, text=text))
