"""In which order a job's models are listed and drawn."""

import re
from collections.abc import Sequence

from fedscale_ext.core.types import RoundRecord


def model_order(records: Sequence[RoundRecord], others: Sequence[str] = ()) -> list[str]:
    """Order of models in all pictures and tables of a job.

    Trained models come first, then models that are only served (mixtures of them), then ``others``. Each group is
    sorted by name and number (m2 before m10).
    """
    trained = {key for record in records for key in record.assignments}
    last = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    served = set(last.serve if last else ()) - trained
    return list(dict.fromkeys(key for keys in (trained, served, others) for key in sorted(keys, key=_by_number)))


def _by_number(key: str) -> list[tuple[bool, int, str]]:
    parts = (part for part in re.split(r"(\d+)", key) if part)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
