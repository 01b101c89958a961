"""HypeMeFed's hyperparameters, with the paper's symbols and defaults (sections 4 and 5.1)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedscale_ext.methods.submodel.exit_levels import ExitLevelsParams
from fedscale_ext.util.ranges import Count, NotNegative, Positive, Range, Share


@dataclass(frozen=True)
class Options:
    """Options of a model's hypernetworks: the paper's values (section 5.1), ``hidden`` the public code's.

    :class:`HypeMeFedParams` describes each of them.
    """

    k: Count | Literal["all"] = 100
    hidden: Annotated[int, Range(1, 100_000)] = 512  # more would fill any memory
    epochs: Annotated[int, Range(1, 1_000_000)] = 25  # more would never end
    lr: Positive = 5e-4
    variant: Literal["low_rank", "naive"] = "low_rank"
    loss: Literal["weight", "factors"] = "weight"
    optimizer: Literal["reset", "kept"] = "reset"
    generate: Literal["conv", "+bn", "+fc", "+bn+fc"] = "conv"
    precision: Literal["float32", "bfloat16"] = "float32"

    @property
    def components(self) -> int | None:
        """Number of singular components, or None for all."""
        return None if self.k == "all" else self.k


@dataclass(frozen=True)
class HypeMeFedParams(Options, ExitLevelsParams):
    """Keys ``hypemefed.<name>``.

    Levels: ``levels`` capacity gives each client the deepest prefix whose MACs it affords; groups makes them as large
    as ``groups`` says (clients of the first exit, of the second, …; section 5.1 has 17, 17 and 16), the weakest
    clients first; fix draws levels once from ``shares``, among those that a client affords. ``strata`` takes
    participants from all levels in proportion (section 5.1); off draws them from all clients alike.

    What clients train: ``multi_exit`` all exits of their prefix together, or (off) the deepest alone.

    ``missing``: what stands for the convolutions that a client lacks: generated ones, or nothing (trained: the mean is
    over those who trained a layer), or random ones (for comparison); or, for all that it lacks, BatchNorm and exits
    too, what the round began with (stale: what the public code's rounds amount to, but for the clients' weights).
    ``generated_weight``: weight of such a layer as a share of its client's; ``warmup``: share of the rounds before
    weights are generated. ``rescale`` scales each generated tensor to the mean norm of the round's trained ones (not in
    the paper).

    Hypernetworks: ``k`` singular components, or all; ``hidden`` units, ``epochs`` a round, ``lr`` of Adam;
    ``variant`` naive maps whole weights; ``loss`` on the weight (public code) or on its factors (text); ``optimizer``
    reset each round or kept; ``sample_order`` of clients' weights in each epoch, shuffled (public code) or fixed;
    ``generate`` what beside convolutions; ``precision`` of their training's products:
    bfloat16 takes little more than half of the time on processors that have such products (values and Adam's moments
    stay float32). ``weighted`` weighs clients by their samples; ``prox_mu`` above 0 gives them FedProx's term
    (section 4.1).
    """

    strata: bool = True
    multi_exit: bool = True
    missing: Literal["generated", "trained", "stale", "random"] = "generated"
    generated_weight: Share = 1.0
    warmup: Share = 0.0
    rescale: bool = False
    sample_order: Literal["shuffled", "fixed"] = "shuffled"
    weighted: bool = True
    prox_mu: NotNegative = 0.0

    method: ClassVar[str] = "hypemefed"
