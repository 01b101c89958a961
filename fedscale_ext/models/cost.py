"""The cost of a spec: counted on its module, or given by a family that adds up the costs of its models' parts."""

from typing import Any, cast

from fedscale_ext.core.model_spec import Cost, ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.counting import measure
from fedscale_ext.models.registry import family, skeleton


@cached_by_spec(4096)
def cost(spec: ModelSpec) -> Cost:
    """Return the cost of a spec, which is counted once."""
    module: Any = family(spec)
    if hasattr(module, "cost"):
        return cast(Cost, module.cost(spec))
    return measure(skeleton(spec), spec["input_shape"])
