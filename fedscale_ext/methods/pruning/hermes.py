"""Hermes (Li et al., MobiCom 2021): clients find structured subnetworks, whose overlapping parameters are averaged.

No public code is known. This follows the paper as specs of the baselines sum it up, and decides what that leaves open.

A client judges its subnetwork on a validation part of its training samples. Where its accuracy reaches ``threshold``
and it keeps more than its type asks, it prunes ``step`` of each group's channels: the smallest by the L1 norm of the
weights that make them. It trains what is left. The loss adds ``lasso`` times the sum of the norms of all filters (group
lasso).

Clients begin with the whole model, as in Hermes's own paper. Moss's text (section 5) has it that a device "only trains
the small model". With ``start`` type, a client begins with the leading channels of its type's size, and so never
prunes.

A parameter is overlapped where the subnetworks of two clients or more hold it, whether they take part or not. It
travels, and becomes the mean over the participants that hold it. A parameter of only one client never travels; the
server's copy of it stands for the device's. A channel belongs to all layers that share it (residual sums). Biases,
BatchNorm and its statistics go with it. Traffic counts overlapped entries and a bit for each channel, in both
directions, by the mask at the round's start. MACs are those of the smaller network; virtual time is that of the network
at the round's start. What both sides compute and exchange here is dense.

Paper to code, section by section: docs/methods/pruning.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import (
    GLOBAL,
    About,
    ClientSamples,
    Excludes,
    Feature,
    Fraction,
    NotNegative,
    OpenFraction,
    State,
    Update,
    WorkItem,
    models,
)
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.masked_client import MaskedClient, trainable, validation_passes
from fedscale_ext.methods.pruning.pruned_types import (
    PrunedTypesAggregator,
    PrunedTypesParams,
    channels_of,
    pack_channels,
)


@dataclass(frozen=True)
class HermesParams(PrunedTypesParams):
    """Hyperparameters of Hermes.

    Attributes:
        param_ratio: Share of the model's parameters that the devices of each type keep in the end.
        start: A client begins with the ``whole`` model, or at the size of its ``type``.
        threshold: Accuracy (0 to 1) on a client's validation samples from which on it prunes.
        step: Share of each group's channels that a client prunes at a time.
        validation: Share of a client's training samples that it holds out as validation samples.
        lasso: Weight of the group lasso in the loss.

    """

    start: Literal["whole", "type"] = "whole"
    threshold: Fraction = 0.5
    step: OpenFraction = 0.2
    validation: OpenFraction = 0.1
    lasso: NotNegative = 1e-4

    method: ClassVar[str] = "hermes"


class HermesClient(MaskedClient):
    """Client that keeps some channels of each group, which ``conf.client_state`` lists.

    ``conf.objective["hermes"]`` has ``threshold``, ``step`` and the ``target`` number of channels of each group, if the
    client takes part in a round.
    """

    def mask(self, parameters: Mapping[str, Tensor], conf: ClientConfig) -> State:
        """Masks of all parameters by the active channels."""
        return channels.masks(models.layout(self.bench.spec(conf.model_key)), channels_of(conf, self.bench), parameters)

    def start_masked(self, data: ClientSamples, model: nn.Module, conf: ClientConfig) -> tuple[State, State]:
        """Mask the model, and prune the next channels where the model is good enough."""
        parameters = trainable(model)
        active, mask, settings = (
            channels_of(conf, self.bench),
            self.mask(parameters, conf),
            conf.objective.get("hermes"),
        )
        masks.apply(mask, parameters)
        if settings is not None:
            have, target = channels.widths(active), settings["target"]
            if have != target and self.accuracy(data, model, conf) >= settings["threshold"]:
                layout = models.layout(self.bench.spec(conf.model_key))
                counts = next_widths(have, target, settings["step"])
                active = channels.strongest(channels.strength(layout, parameters), counts, among=active)
                mask = channels.masks(layout, active, parameters)
                masks.apply(mask, parameters)
        return mask, pack_channels(active)


def next_widths(have: Mapping[str, int], target: Mapping[str, int], step: float) -> dict[str, int]:
    """Widths after a pruning step: each group loses ``step`` of its channels, one at least, down to the target."""
    return {group: max(target[group], min(width - 1, round(width * (1 - step)))) for group, width in have.items()}


class HermesAggregator(PrunedTypesAggregator):
    """Each client prunes channels of one model; subnetworks are averaged where they overlap (Hermes)."""

    about: ClassVar[About] = About("pruning", 2021)
    Params: ClassVar[type] = HermesParams
    Client: ClassVar[type] = HermesClient
    narrowing: ClassVar[str] = "prunes it only while its validation accuracy reaches hermes.threshold"
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "starts clients from their own part of the model"),
    )

    @property
    def starts_at_target(self) -> bool:  # type: ignore[override]
        """Whether clients begin at their type's size (hyperparameter ``start``)."""
        return bool(self.params.start == "type")

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train its subnetwork."""
        self._held = channels.held_bytes(self.layout, self.active, self.pool[GLOBAL].state)
        return super().assign(round, participants)

    def unfinished_notice(self) -> str | None:
        """Tell if no client has pruned, though some were to."""
        whole = all(bool(every.all()) for every in self.active.values())
        every = {group: active.shape[1] for group, active in self.active.items()}
        if not whole or all(target == every for target in self.targets):
            return None
        return (
            f"no client has pruned: that takes an accuracy of at least {self.params.threshold:g}, hermes.threshold, on "
            "its validation samples"
        )

    def results(self) -> dict[str, Any]:
        """Report figures by type, with the traffic of the subnetworks as they are now."""
        self._held = channels.held_bytes(self.layout, self.active, self.pool[GLOBAL].state)
        return super().results()

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client: its subnetwork, of which the overlapped entries travel."""
        p = self.params
        settings = {"threshold": p.threshold, "step": p.step, "target": self.target(client)}
        overrides = {"group_lasso": p.lasso, "held_out": p.validation}
        every, alone = (int(sizes[client - 1]) for sizes in self._held)
        carried = every - alone + self.bit_bytes
        (compute, training), passes = self.part_fractions(client), 0.0
        if channels.widths(self.active_channels(client)) != self.target(client):
            passes = validation_passes(self.task, client, p.validation, self.pool[GLOBAL].state)
        return WorkItem(
            client,
            GLOBAL,
            {"hermes": settings},
            overrides,
            compute_fraction=compute,
            training_fraction=training,
            forward_fraction=compute * passes,
            bytes=carried,
        )

    def work_done(self, update: Update) -> WorkItem:
        """Count the steps of the network to which the client pruned; it was judged before it pruned."""
        compute, training = self.part_fractions(update.client)
        return replace(update.item, compute_fraction=compute, training_fraction=training)
