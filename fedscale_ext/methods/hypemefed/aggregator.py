"""HypeMeFed (Shin et al., SenSys 2024): clients train prefixes of a network with several exits; what shallow
clients lack is generated from what they trained.

A round (section 4, Figure 5): clients train the joint loss of their exits (4.2); hypernetworks learn from the
round's deep clients how a block's weights follow from those of the block before (4.3); for every shallow client they
generate the convolutions that it lacks, block after block (4.4); each convolution becomes the mean over all
participants, real or generated, and BatchNorm and exits the mean over those who trained them.

Departures from the paper and the public code:

* Generated weights reach the model. The public code assigns them to a temporary, so that its rounds are those of
  ``missing: stale``.
* The rank is k. In the public code, it is the number of the first round.
* Clients get only their prefix. In the public code, they get the whole network with a flag.
* Means are over those who trained. In the public code, stale copies count.
* Clients weigh by their samples (``weighted``).
* A round without a client of the deepest level goes on. In the public code, it fails.
* The mean divides by the number of participants, as in the public code. That of its runs without hypernetworks, added
  later, adds up n clients and divides by n - 1, which is not followed.
* ``rescale``, which is not in the paper, scales generated tensors to the norm of trained ones. With ten exits they grow
  from block to block without it. It stops that, and did not make the network more accurate than no generated layers do.

Paper to code, section by section: docs/methods/hypemefed.md.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import (
    About,
    CountMean,
    ModelSpec,
    Population,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    stream,
)
from fedscale_ext.methods.hypemefed.factorisation import check_rank, rank
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.measures import RoundMeasures
from fedscale_ext.methods.hypemefed.params import HypeMeFedParams
from fedscale_ext.methods.hypemefed.rescaling import trained_norms
from fedscale_ext.methods.submodel.capacity_levels import Level
from fedscale_ext.methods.submodel.exit_levels import ExitLevelsAggregator, MultiExitClient, prefixes

_AT_ONCE = 16  # clients whose weights are generated at the same time: their copies are all held


class HypeMeFedAggregator(ExitLevelsAggregator):
    """Networks with several exits, of which each client trains a prefix; hypernetworks generate the rest (HypeMeFed).

    Server state: the whole network, its prefixes as parts, and the hypernetworks.
    """

    about: ClassVar[About] = About("hypernetworks", 2024, "a model with exits")
    Params: ClassVar[type] = HypeMeFedParams
    prox_param: ClassVar[str] = "prox_mu"
    Client: ClassVar[type] = MultiExitClient
    reduces: ClassVar[bool] = False  # hypernetworks learn from each client's weights
    reestimates_by_default: ClassVar[bool] = False  # BatchNorm's are averaged over those who trained them

    def make_levels(self, spec: ModelSpec) -> list[Level]:
        """The prefixes, deepest first; without ``multi_exit``, with only their last exit."""
        return prefixes(spec, "all" if self.params.multi_exit else "last")

    def init_state(self, population: Population, task: Task) -> None:
        """Create the network, its prefixes, and a hypernetwork for each pair of convolutions."""
        super().init_state(population, task)
        if self.params.missing == "generated":
            self.hypernetworks = self._hypernetworks()
            if self.params.warmup == 1:
                self.notice("no weights are generated: hypemefed.warmup is 1, all rounds")

    def _hypernetworks(self) -> HyperNetworks:
        shapes = {name: tuple(tensor.shape) for name, tensor in self.pool[self.whole].state.items()}
        generator = torch_stream(self.seed, "hypernetworks")
        networks = HyperNetworks(shapes, self.params, generator, self.server_device())
        if not networks.pairs:
            raise UserError(f"model {self.args.model} has no convolution that could be generated from another one")
        k, sources = self.params.components, networks.factored
        configured = "k" in self.config.method_params()
        if configured and not sources:
            self.notice(f"hypemefed.k is {self.params.k}, and no singular components are taken: it has no effect")
        elif configured and k is not None:
            check_rank(k, sources, "hypemefed.k")
        elif k is not None and sources and k > (largest := max(rank(shape, None) for shape in sources)):
            self.notice(f"hypemefed.k is {k}, and no layer has more than {largest} components: all are kept")
        megabytes = 4e-6 * networks.parameters
        self.notice(f"{len(networks.pairs)} hypernetworks with {networks.parameters:,} parameters ({megabytes:.2f} MB)")
        for skipped in networks.skipped:
            logging.info(f"never generated: {skipped.target}, {skipped.reason}")
        return networks

    def selection_groups(self) -> np.ndarray | None:
        """The level of each client: participants come from all of them (section 5.1)."""
        return self.level_of if self.params.strata else None

    def overrides(self, level: int) -> dict[str, Any]:
        """FedProx's term, where ``prox_mu`` is above 0. Clients sum their exits' losses themselves."""
        return {"prox_mu": self.params.prox_mu} if self.params.prox_mu else {}

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train its prefix."""
        self._mean = CountMean(self.pool[self.whole].state)
        self._held: list[tuple[Update, State]] = []
        self._samples: dict[int, int] = {}  # in the order in which hypernetworks learn from the clients
        return super().assign(round, participants)

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add a client's state to the mean. Layers that others are generated from are stored until the round ends."""
        part = self.pool[update.item.model].part
        self._mean.add(state, part.covered if part else None, self.weight(update.item))
        self._samples[update.client] = update.samples
        self.record_state(f"client/{update.client}", state)
        if self.params.missing != "trained":
            self._held.append((update, {name: state[name] for name in self._layers() if name in state}))

    def _layers(self) -> list[str]:
        """Names of generated tensors, and of those that they are generated from."""
        if self.params.missing != "generated":
            return []
        pairs = self.hypernetworks.pairs
        layers = ((pair, layer) for pair in pairs for layer in (pair.source, pair.target))
        return list(dict.fromkeys(name for pair, layer in layers for name in pair.names(layer)))

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Train the hypernetworks, generate, and average (sections 4.3 and 4.4)."""
        old, p = self.pool[self.whole].state, self.params
        self.record("samples", self._samples)
        if p.missing == "generated":
            self._train_hypernetworks(round)
        trained = ((held, self.weight(update.item)) for update, held in self._held)
        measures = RoundMeasures(trained) if self.config.job.record_internals else None
        if self.has_passed(p.warmup, round):
            for update, generated in self._stand_ins(round, old):
                self._mean.add(generated, dict.fromkeys(generated), p.generated_weight * self.weight(update.item))
                self.record_state(f"generated/{update.client}", generated)
                if measures is not None:
                    measures.add(generated, self.weight(update.item))
        new = self._mean.result()
        if measures is not None:
            self.record("generated", measures.result(old, new))
        self._held.clear()
        self.pool.update(self.whole, new)

    def _train_hypernetworks(self, round: int) -> None:
        def shuffle(target: str) -> np.random.Generator:
            return stream(self.seed, round, "order of samples", target)

        states = [held for _, held in self._held]
        losses = self.hypernetworks.train(states, shuffle if self.params.sample_order == "shuffled" else None)
        self.record("hypernetwork_loss", {name: each[-1] for name, each in losses.items()})
        clients = [update.client for update, _ in self._held]
        orders = {
            target: [[clients[index] for index in order] for order in self.hypernetworks.orders[target]]
            for target in losses
        }
        self.record("hypernetwork_orders", orders)
        self._report_diverged(round, self.hypernetworks.diverged)

    def _norms(self, start: State) -> dict[str, float] | None:
        """Norms to which generated tensors are scaled, by name; None where they stay as they are."""
        if not self.params.rescale:
            return None
        trained = [(held, self.weight(update.item)) for update, held in self._held]
        names = [name for pair in self.hypernetworks.pairs for name in pair.names(pair.target)]
        return trained_norms(trained, names, start)

    def _report_diverged(self, round: int, targets: list[str]) -> None:
        if targets:
            self.notice(
                f"round {round}: hypernetworks that diverged are as they were before it: {', '.join(targets)}; lower "
                "hypemefed.lr"
            )

    def _stand_ins(self, round: int, old: State) -> Iterator[tuple[Update, dict[str, torch.Tensor]]]:
        """Stand-ins for the layers that each client lacks, client after client.

        Args:
            round: The round.
            old: The whole network's state at the round's start.

        Returns:
            Pairs of an update and tensors by name; clients that lack nothing are left out.

        """
        missing = self.params.missing
        if missing == "trained":
            return
        source = old
        norms = self._norms(old) if missing == "generated" else None
        if missing == "random":
            source = models.initial_state(self.pool[self.whole].spec, torch_stream(self.seed, round, "random layers"))
        not_finite: dict[str, None] = {}
        for begin in range(0, len(self._held), _AT_ONCE):
            some = self._held[begin : begin + _AT_ONCE]
            if missing == "generated":
                batch = self.hypernetworks.generate([held for _, held in some], norms)
                not_finite |= dict.fromkeys(self.hypernetworks.not_finite)
            else:
                batch = [self._lacking(update, source, missing == "stale") for update, _ in some]
            for (update, _), tensors in zip(some, batch, strict=True):
                if tensors:
                    yield update, tensors
        if not_finite:
            self.notice(
                f"round {round}: layers were generated with numbers that are not finite ({', '.join(not_finite)}); "
                "they and the layers after them do not count; lower hypemefed.lr"
            )

    def _lacking(self, update: Update, source: State, everything: bool) -> dict[str, torch.Tensor]:
        """Tensors beyond a client's prefix, from ``source``.

        Args:
            update: The client's update.
            source: A state of the whole network.
            everything: Whether all such tensors count, or only those that hypernetworks would generate: convolutions,
                and linear layers within blocks.

        Returns:
            Tensors by name.

        """
        trained = self.pool[update.item.model].state
        return {
            name: tensor
            for name, tensor in source.items()
            if name not in trained and (everything or (name.startswith("block") and tensor.dim() > 1))
        }

    def server_bytes(self) -> int:
        """Bytes of the hypernetworks, whose parameters are float32."""
        return 4 * self.hypernetworks.parameters if self.params.missing == "generated" else 0

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the hypernetworks."""
        return self.hypernetworks.state() if self.params.missing == "generated" else ({}, {})

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        if self.params.missing == "generated":
            self.hypernetworks.load_state(tensors, data)
