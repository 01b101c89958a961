"""What a job's classes are called: by its data folder, else by the registry, else by their numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import names_in, read_description
from fedscale_ext.data.registry import known


def class_names(config: Mapping[str, Any], classes: int) -> list[str]:
    """Return the names of labels 0.. of a job with the settings ``config``, as many as ``classes``.

    A label without a name has its number. A data folder that is not there names none.
    """
    try:
        names = names_in(read_description(data_folder(Path(config["data_dir"]))))
    except (UserError, KeyError, TypeError):
        names = []
    entry = known(str(config.get("data_set", "")))
    names = names or list(entry.label_names if entry else ())
    return [names[number] if number < len(names) else str(number) for number in range(classes)]
