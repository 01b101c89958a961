"""What a model costs: counted on its skeleton, or told by a family whose models consist of parts counted before."""

from functools import lru_cache
from typing import Any, cast

from fedscale_ext.core.model_spec import Cost, ModelSpec
from fedscale_ext.models.counting import measure
from fedscale_ext.models.registry import family, skeleton


@lru_cache(maxsize=4096)
def cost(spec: ModelSpec) -> Cost:
    """Cost of a spec, measured once."""
    module: Any = family(spec)
    if hasattr(module, "cost"):
        return cast(Cost, module.cost(spec))
    return measure(skeleton(spec), spec["input_shape"])
