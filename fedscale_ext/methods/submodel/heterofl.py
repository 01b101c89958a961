"""HeteroFL (Diao et al., ICLR 2021): clients train the leading channels of one model.

In a round, a client receives the leading channels of each layer at its level's rate, and trains them. Its activations
are divided by the rate (Scaler), and it learns by the logits of its own classes (Masking Trick). Each entry becomes the
mean over the clients that trained it.

The public code is the repository diaoenmao/HeteroFL-…-Heterogeneous-Clients.

Departures from the paper and the public code:

* Devices afford levels by their capacity; the text draws a client's level, which ``levels`` fix and dynamic do.
* The public code tests a client with the logits of classes that it lacks set to zero, as in training, and the global
  model without. Here ``mask_test`` is off unless asked for: the text masks only the loss, and FedTrans, whose baseline
  this is, tests all methods alike. With it, both accuracies are reported.
* The scaler divides in testing too (``scaler``), and levels, not only the whole model, are tested.

Paper to code, section by section: docs/methods/width.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedscale_ext.method import About, JobConfig, ModelSpec, Positive, UserError, models
from fedscale_ext.methods.submodel.capacity_levels import (
    LevelsParams,
    RatesAggregator,
    check_rates,
    check_shares,
)
from fedscale_ext.tasks import bn_statistics


@dataclass(frozen=True)
class HeteroFLParams(LevelsParams):
    """Hyperparameters of HeteroFL.

    The paper draws levels among all of them. So does a job whose ``capacity_model`` is its ``model``, which every
    client then affords.

    Attributes:
        rates: Channel rates of the levels a, b, …, falling: the paper's r^(p-1) with r = 1/2. Channels are rounded up.
        levels: ``capacity`` gives each client the widest level whose MACs it affords. ``groups`` makes levels as large
            as ``groups`` says; it is the default where ``groups`` is given. ``fix`` draws a level once from ``shares``
            among the affordable ones, ``dynamic`` in each round.
        groups: Clients of each level, narrowest first, in the order of ``groups_by``. Participants come from all levels
            in proportion.
        shares: Shares of the levels that ``fix`` and ``dynamic`` draw from, in the order of ``rates``. By default, they
            are equal.
        scaler: Activations are divided by the rate, in tests too: a served level is the function that was trained. It
            works only in models without BatchNorm. The public code divides only in training, and tests only the whole
            model.
        mask: Clients train only on the logits of their own classes. A class's rows are averaged over the clients that
            have it (masked cross-entropy).
        mask_test: Tests of clients use the same mask. The default is the job's ``mask_test``.
        clip_norm: Clipping norm of the gradients. The default is the job's ``clip_norm`` if that is given.
        weighted: Clients weigh by their training samples. The public code weighs all alike.
        dense: Grouped convolutions become dense, as for FedTrans's baselines (its appendix A).

    """

    rates: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)
    levels: Literal["capacity", "groups", "fix", "dynamic"] = "capacity"  # type: ignore[assignment]  # one rule more
    scaler: bool = True
    mask: bool = True
    mask_test: bool = False
    clip_norm: Positive | None = 1.0
    weighted: bool = False
    dense: bool = False

    method: ClassVar[str] = "heterofl"

    def __post_init__(self) -> None:
        check_rates(f"{self.method}.rates", self.rates)
        if list(self.rates) != sorted(self.rates, reverse=True):
            raise UserError(f"{self.method}.rates is {list(self.rates)}; the rates must fall")
        check_shares(f"{self.method}.shares", self.shares, len(self.rates))
        super().__post_init__()

    @classmethod
    def job_defaults(cls, config: JobConfig) -> dict[str, Any]:
        """Prefer the job's own clipping norm and mask of tests."""
        clip = {} if config.job.clip_norm is None else {"clip_norm": config.job.clip_norm}
        mask = {"mask_test": config.job.mask_test}
        return {**super().job_defaults(config), **mask, **clip}


class HeteroFLAggregator(RatesAggregator):
    """Clients train the leading channels of one model, each as many as its device affords (HeteroFL)."""

    about: ClassVar[About] = About("width", 2021)
    Params: ClassVar[type] = HeteroFLParams

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates of the levels, widest first."""
        rates: tuple[float, ...] = self.params.rates
        return rates

    def level_spec(self, spec: ModelSpec, rate: float) -> ModelSpec:
        """Spec of a level with its scaler (the paper's Scaler)."""
        level = super().level_spec(spec, rate)
        return (models.scaled(level, rate) or level) if self.params.scaler else level

    def settings_idle_with_models(self) -> Iterator[str]:
        """Beside the base's: ``scaler``, where it is turned off in vain, or the levels need it and have none."""
        yield from super().settings_idle_with_models()
        whole, scaler = self.pool[self.whole], self.params.scaler
        if models.scaled(whole.spec, 1.0) is not None:
            return
        has_batch_norm = bool(bn_statistics.layers(whole.state))
        if has_batch_norm and not scaler:
            yield f"{self.config.job.method}.scaler does nothing: the model has BatchNorm"
        if scaler and not has_batch_norm:
            yield f"the family {whole.spec.family!r} has no scaler; its levels train without"

    def selection_groups(self) -> np.ndarray | None:
        """The level of each client where ``levels`` is groups: participants come from all of them."""
        return self.level_of if self.params.levels == "groups" else None

    def overrides(self, level: int) -> dict[str, Any]:
        """Masked cross-entropy (the paper's Masking Trick) and clipped gradients (as its code)."""
        mask = {"own_classes": True} if self.params.mask else {}
        clip = {} if self.params.clip_norm is None else {"clip_norm": self.params.clip_norm}
        return {**mask, **clip}

    @property
    def masks_tests(self) -> bool:
        """Whether tests mask the logits of classes that a client lacks (``mask_test``)."""
        return bool(self.params.mask_test)
