"""FedorAS's hyperparameters. Numbers that the text does not print are those of the authors' public code."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedscale_ext.core.errors import UserError
from fedscale_ext.util.ranges import (
    Count,
    CountOrZero,
    Fraction,
    FractionBelowOne,
    Positive,
    PositiveFraction,
    Range,
)


@dataclass(frozen=True)
class FedorASParams:
    """Hyperparameters of FedorAS, in the order of its stages: tiers, supernet, search, fine-tuning.

    A job has supernet_rounds + 1 + tiers x (finetune_rounds + twin_rounds) ``rounds``. With fewer, it
    ends before; with more, it ends when all stages are done.

    The default numbers are those of the authors' public code for CIFAR-10, where it has them. ``finetune_clients`` (6
    there) and ``twin_rounds`` (500 there) differ. The paper's text prints half of the supernet (``subspace``) and
    "|C| > 1" (``opa_min_clients``). Its Tables 9 and 10, in the appendix, were not at hand. Presets of data named
    ``_fedoras_small``, and of ``shakespeare_small``, have smaller numbers: 32 paths to begin with, 16 parents, and 48
    or 64 evaluations.

    Under ``allocation: capacity``, FedScale's slowest device affords the cheapest path, and its fastest is thirteen
    times as fast. Printed budgets of ``cnn_l`` and ``cnn_s`` are 6 to 38 times that path, so that tiers may stay empty.
    Such a job does not start.

    Attributes:
        brackets: Most MMACs of a path of each tier, smallest tier first, counted as in the paper (with normalisation,
            activations and pooling). By default, they are the printed ones of the space, else from random paths.
        tiers: Number of tiers, if ``brackets`` has none.
        allocation: ``shares`` ranks devices by the MACs that they afford. ``random`` deals tiers whatever the device
            (public code). ``capacity`` gives each device the highest tier that it affords.
        shares: Share of the clients in each tier, weakest first. By default, it is the space's own.
        unsupported: Operators that the devices of each tier cannot run: a list per tier.
        upper_only: A tier's model may be smaller than its bracket (Eq. 6).
        supernet_rounds: Rounds of supernet training (section 3.1).
        subspace: Most of the supernet's bytes that a client is sent, as a share (Eq. 1).
        subspace_per: A new subspace is drawn for each ``client``, or once for all clients of a ``round``.
        dynamic_budget: Share of a device's budget that its other work may take, at random, from each batch. With 0,
            budgets stay as they are.
        idle_gradient: Gradient of an operator that was on a path earlier in the client's round and now is not.
            ``zero``: momentum and weight decay still move it (public code). ``none``: it stays as it is.
        val_ratio: Share of each client's training samples that is held out for the search.
        aggregation: ``opa`` weighs each operator by the examples that went through it (Eq. 5). ``fedavg`` weighs whole
            clients by their examples, ``plain`` all clients alike.
        mean_over: ``fedavg`` and ``plain`` average over all participants, also those without the operator, with its
            unchanged weights (section 3.1). ``holders``: over those that were sent it.
        opa_min_clients: An operator that fewer clients trained keeps its weights.
        opa_scope: ``all`` applies OPA to weights and buffers. ``buffers_only`` averages weights as ``fedavg`` does, as
            in the public code.
        search: ``nsga2`` evolves paths (section 3.2). ``random`` draws them.
        evaluation: ``central`` judges on the validation samples of all clients together. ``federated`` lets clients
            judge on their own (section 4.7).
        evaluations: Paths that are judged for each tier: one number, or one per tier.
        population: Random paths that NSGA-II begins with.
        parents: Best paths that NSGA-II keeps from each generation, and number of new ones that it makes of them.
            Random search judges as many at a time.
        mutation: Probability with which an operator of a new path is drawn at random.
        objectives: 2: paths are ranked by score and MACs, and the best score wins (NSGA-II). 1: only the score counts
            (public code).
        target: Score at which a tier's search ends before all ``evaluations``. By default, it does not end early.
        score: ``accuracy`` judges paths by accuracy (the text of section 3.2), ``loss`` by the negative loss (Eq. 6).
        val_fraction: Share of the validation samples that a central search uses.
        evaluation_rounds: A federated search has each generation judged by this many times ``num_participants``
            clients.
        compare_rankings: In a federated search, the server also judges each generation on all validation samples and
            reports Kendall's tau (Fig. 6). This decides nothing.
        recalibrate: BatchNorm's statistics are re-estimated for each path before it is judged.
        finetune_rounds: Rounds of fine-tuning of each tier, one tier after the other (section 3.3).
        finetune_clients: Participants of such a round, from that tier and above. The default is ``num_participants``.
        finetune_epochs: Passes of a client over its samples in such a round.
        finetune_batch: Samples of a batch in fine-tuning.
        finetune_lr: Learning rate with which fine-tuning begins.
        finetune_lr_end: Factor of the schedule: the final share of the learning rate (cosine), or the factor of each
            step.
        finetune_schedule: ``cosine`` falls to ``finetune_lr_end``. ``steps`` multiplies by it at half and at three
            quarters of the rounds. By default, text takes steps, else cosine (public code).
        finetune_augment: Augmentation in fine-tuning. By default, it is the job's ``augment``, with flip_crop in place
            of rand_flip_crop.
        twin_rounds: Rounds per tier, at the end, that train the same model from random weights, as in fine-tuning but
            by ``num_participants`` clients. The authors' public code has 500; with 0, there are none.
        twin_epochs: Epochs of the twin's clients. The default is fine-tuning's.
        twin_batch: Samples of a batch of the twin. The default is fine-tuning's.
        twin_lr: First learning rate of the twin. The default is the job's ``learning_rate``.
        twin_lr_end: ``finetune_lr_end`` of the twin.
        twin_clients: ``eligible``: the clients who fine-tune the model train its twin. ``all``: any client does,
            whatever it affords (Fig. 1's tier-unaware training).

    """

    brackets: tuple[float, ...] = ()
    tiers: Count | None = None
    allocation: Literal["shares", "random", "capacity"] = "shares"
    shares: tuple[float, ...] | None = None
    unsupported: tuple[tuple[str, ...], ...] = ()
    upper_only: bool = False
    supernet_rounds: Count = 500
    subspace: PositiveFraction = 0.5
    subspace_per: Literal["client", "round"] = "client"
    dynamic_budget: FractionBelowOne = 0.0
    idle_gradient: Literal["zero", "none"] = "zero"
    val_ratio: FractionBelowOne = 0.1
    aggregation: Literal["opa", "fedavg", "plain"] = "opa"
    mean_over: Literal["participants", "holders"] = "participants"
    opa_min_clients: Count = 2
    opa_scope: Literal["all", "buffers_only"] = "all"
    search: Literal["nsga2", "random"] = "nsga2"
    evaluation: Literal["central", "federated"] = "central"
    evaluations: Count | tuple[int, ...] = 1000
    population: Annotated[int, Range(2)] = 128
    parents: Annotated[int, Range(2)] = 64
    mutation: Fraction = 0.1
    objectives: Literal[1, 2] = 2
    target: Annotated[float, Range()] | None = None
    score: Literal["accuracy", "loss"] = "accuracy"
    val_fraction: PositiveFraction = 1.0
    evaluation_rounds: Count = 4
    compare_rankings: bool = False
    recalibrate: bool = False
    finetune_rounds: CountOrZero = 100
    finetune_clients: Count | None = None
    finetune_epochs: Count = 1
    finetune_batch: Count = 32
    finetune_lr: Positive = 0.01
    finetune_lr_end: PositiveFraction = 0.1
    finetune_schedule: Literal["cosine", "steps"] | None = None
    finetune_augment: Literal["none", "flip", "flip_crop", "rand_flip_crop"] | None = None
    twin_rounds: CountOrZero = 0
    twin_epochs: Count | None = None
    twin_batch: Count | None = None
    twin_lr: Positive | None = None
    twin_lr_end: PositiveFraction = 0.1
    twin_clients: Literal["eligible", "all"] = "eligible"

    def __post_init__(self) -> None:
        if self.brackets and not all(a < b for a, b in zip((0.0, *self.brackets), self.brackets, strict=False)):
            raise UserError(f"fedoras.brackets is {list(self.brackets)}; it must hold rising MMACs, all above 0")
        if self.brackets and self.tiers is not None and len(self.brackets) != self.tiers:
            raise UserError(
                f"fedoras.brackets are of {len(self.brackets)} tiers and fedoras.tiers is {self.tiers}; leave one out"
            )
        if self.shares is not None and not (self.shares and min(self.shares) > 0):
            raise UserError(f"fedoras.shares is {list(self.shares)}; it must hold a share above 0 for each tier")
        if self.shares is not None and self.allocation == "capacity":
            raise UserError(
                "fedoras.shares is given and fedoras.allocation is capacity, which looks only at devices; set "
                "fedoras.allocation to shares or random, or remove fedoras.shares"
            )
        if self.compare_rankings and self.evaluation == "central":
            raise UserError(
                "fedoras.compare_rankings compares a federated search with a central one: set fedoras.evaluation to "
                "federated, or remove it"
            )

    def evaluations_by_tier(self, tiers: int) -> tuple[int, ...]:
        """Return the number of paths that are judged for each tier; UserError where it is that of other tiers."""
        each = (self.evaluations,) * tiers if isinstance(self.evaluations, int) else self.evaluations
        if len(each) != tiers:
            raise UserError(f"fedoras.evaluations has {len(each)} numbers; there are {tiers} tiers")
        return each
