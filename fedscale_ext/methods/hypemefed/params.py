"""HypeMeFed's hyperparameters, with the paper's symbols and defaults (sections 4 and 5.1)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedscale_ext.methods.submodel.capacity_levels import LevelsParams
from fedscale_ext.util.ranges import Count, Fraction, NotNegative, Positive, Range


@dataclass(frozen=True)
class HyperNetworkParams:
    """Hyperparameters of HypeMeFed's hypernetworks: the paper's values (section 5.1), ``hidden`` the public code's.

    Attributes:
        k: Singular components of a weight that hypernetworks map.
        hidden: Hidden units of a hypernetwork.
        epochs: Epochs of the hypernetworks' training in a round.
        lr: Learning rate of their Adam.
        variant: ``low_rank`` maps singular components. ``naive`` maps whole weights.
        loss: ``weight`` compares whole weights (public code). ``factors`` compares their factors (text).
        optimizer: ``reset`` starts Adam anew in each round. ``kept`` goes on with its moments.
        generate: Layers that are generated. Beside convolutions, these may be BatchNorm (+bn) and exits' linear layers
            (+fc).
        precision: Number format of the products in the hypernetworks' training. ``bfloat16`` takes little more than
            half the time on processors that have it; values and Adam's moments stay float32.

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
class HypeMeFedParams(HyperNetworkParams, LevelsParams):
    """Hyperparameters of HypeMeFed.

    Levels are prefixes of the model: each ends in an exit.

    Attributes:
        groups: Clients of the first exit, of the second, and so on, in the order of ``groups_by``. Section
            5.1 has 17, 17 and 16.
        strata: Participants come from all levels in proportion (section 5.1). Without it, they are drawn from all
            clients alike.
        multi_exit: Clients train all exits of their prefix together. Without it, they train only the deepest.
        missing: Stand-in for convolutions that a client lacks: ``generated`` or ``random`` ones, or none (``trained``:
            a mean over those who trained the layer). ``stale`` takes the start-of-round tensors for all that the client
            lacks, BatchNorm and exits too. The public code amounts to ``stale``, except for how it weighs clients.
        generated_weight: Weight of a generated layer in the mean, as a share of its client's.
        warmup: Share of the job's rounds before weights are generated, or of ``stop_macs`` if clients spend that share
            earlier. Unless it is 0 or 1, a job cannot be resumed with another number of rounds.
        rescale: Generated tensors are scaled to the mean norm of the round's trained ones. The paper does not do this.
        sample_order: Order of clients' weights in each epoch of the hypernetworks. ``shuffled`` is the public code's.
        weighted: Clients weigh by their training samples. Without it, all weigh alike.
        prox_mu: Weight of FedProx's term at the clients (section 4.2). With 0, there is none.

    """

    strata: bool = True
    multi_exit: bool = True
    missing: Literal["generated", "trained", "stale", "random"] = "generated"
    generated_weight: Fraction = 1.0
    warmup: Fraction = 0.0
    rescale: bool = False
    sample_order: Literal["shuffled", "fixed"] = "shuffled"
    weighted: bool = True
    prox_mu: NotNegative = 0.0

    method: ClassVar[str] = "hypemefed"

    def follows_rounds(self, rounds: int) -> str:
        """Return the share of the rounds without generated weights, where there is one."""
        generates = self.missing != "trained"
        return f"hypemefed.warmup: {self.warmup:g}" if generates and 0 < self.warmup < 1 else ""
