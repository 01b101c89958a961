"""Base of methods that give weak clients narrower versions of one model."""

from typing import ClassVar

from fedscale_ext.method import ModelSpec, MultiModelAggregator, models, narrowed


class ShrinkingAggregator(MultiModelAggregator):
    """What such methods share: the devices are those that afford the narrowest version, and clients that afford
    less are named, not dropped."""

    measures_statistics: ClassVar[bool] = True  # versions share weights, not BatchNorm's statistics

    @property
    def narrowest(self) -> float:
        """Rate of channels of the narrowest version."""
        raise NotImplementedError

    def full_spec(self) -> ModelSpec:
        """The model of rate 1: the configuration's, with dense convolutions where the method's ``dense`` asks for them
        (as FedTrans's appendix A has it for its baselines)."""
        spec = self.initial_spec()
        dense = getattr(models.family(spec), "dense", None) if getattr(self.params, "dense", False) else None
        return spec if dense is None else dense(spec)

    def smallest_spec(self) -> ModelSpec:
        """The narrowest version, unless ``capacity_model`` names another model."""
        if self.config.job.capacity_model is not None:
            return super().smallest_spec()
        return narrowed(self.full_spec(), self.narrowest)
