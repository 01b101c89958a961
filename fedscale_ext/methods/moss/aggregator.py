"""Moss (Cai et al., IMWUT 9(1), Article 211, 2025): types of devices with architectures of their own learn from each
other by public data on the server, whole weights at a time.

A round (Algorithm 1): devices train the model of their type and hand it in (lines 4-7); each type's are averaged by
their samples (line 8; the text names no weights); the server transfers each to a proxy of one architecture (PROM and
WIRE, section 3.3 and 3.4), averages the proxies by their fidelity (FILE, section 3.5), and transfers the mean back.

Departures from the paper:

* A type without participants is left out of the exchange, and keeps its model.
* A type of the proxies' architecture begins as they do. Otherwise the mean of Eq. 10 would join separate basins.
* ``knowledge_transfer.py``, ``proxy_models.py`` and ``fidelity_aggregation.py`` name those of their steps.

Paper to code, section by section: docs/methods/moss.md.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal

import torch

from fedscale_ext.data.public import PublicData
from fedscale_ext.method import About, Population, State, Task, Update, UserError
from fedscale_ext.methods.device_types import DeviceTypesAggregator
from fedscale_ext.methods.moss.params import MossParams, check_derivatives, check_named_taps, named_taps
from fedscale_ext.methods.moss.proxy_models import PairwiseModels, ProxyModels, Public, Transfers, Type
from fedscale_ext.methods.moss.server_figures import ServerFigures


class MossAggregator(DeviceTypesAggregator):
    """Types of devices train different architectures, which meet on the server as proxies of one (Moss).

    Server state: a model for each type, PM^G, and WIRE's networks for each transfer.
    """

    about: ClassVar[About] = About("device types", 2025, "public samples")
    Params: ClassVar[type] = MossParams

    def init_state(self, population: Population, task: Task) -> None:
        """Create M^i, PM^G, TL, TD and r, all at random, and load d_public."""
        super().init_state(population, task)
        data = self.public_data()
        self.notice(f"the server's public data are {data.description}")
        target = self._ce_target(data)
        self.public = Public(data.x, data.labels if target == "labels" else None).to(self.server_device())
        self.server = self._server(target)
        self.figures = ServerFigures(self.server.transfers)
        if isinstance(self.server, ProxyModels):
            for key in self.keys:
                if self.pool[key].spec == self.server.architecture.spec:
                    self.pool.update(key, self.server.proxy)
        self._trained: dict[str, State] = {}
        self._samples: dict[str, int] = {}

    def _ce_target(self, data: PublicData) -> Literal["labels", "teacher"]:
        ce_target: Literal["auto", "labels", "teacher"] = self.params.ce_target
        if ce_target == "labels" and data.labels is None:
            raise UserError(
                f"moss.ce_target is labels and the public data are {data.description}: set it to teacher, or give "
                "public data of the clients' classes"
            )
        if ce_target == "auto":
            return "teacher" if data.labels is None else "labels"
        return ce_target

    def _server(self, target: Literal["labels", "teacher"]) -> Transfers:
        p = self.params
        types = {key: Type(self.pool[key].spec, p.taps_of(index)) for index, key in enumerate(self.keys)}
        proxies = Type(self.initial_spec(), named_taps(p.proxy_taps)) if p.proxy else None
        named = [("moss.taps", key, each) for key, each in types.items()]
        if proxies is not None:
            named.append(("moss.proxy_taps", self.args.model, proxies))
        for key, name, each in named:
            if each.taps is not None:  # copies, and WIRE without matching, would not notice
                check_named_taps(key, name, each.spec, each.taps)
            if p.learns and p.meta_update == "bilevel":
                check_derivatives("model" if each is proxies else "moss.types", name, each.spec)
        switches: dict[str, Any] = {"same_arch_transfer": p.same_arch_transfer, "aggregation": p.aggregation}
        switches |= {"statistics": p.bn_statistics, "progress": self._progress}
        if proxies is None:
            return PairwiseModels(types, p.options(target), self.seed, **switches)
        return ProxyModels(types, p.options(target), self.seed, architecture=proxies, proxies=p.proxies, **switches)

    def _progress(self, round: int, done: int, of: int) -> None:
        what = f"server: {done} of {of} transfers done"
        self.emit({"event": "progress", "round": round, "what": what, "passing": True})

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take M^i, the mean over the type's participants (Algorithm 1, line 8)."""
        self._trained = {key: means[key] for key in self.keys if key in means}
        self._samples = dict.fromkeys(self._trained, 0)
        for update in updates:
            self._samples[update.item.model] += update.samples
        if self.privacy is not None:  # who took part is a secret: all clients of a type count
            sizes, types = self.task.train_sizes, self.type_of
            self._samples = {key: int(sizes[types == self.keys.index(key)].sum()) for key in self._trained}

    def evolve(self, round: int) -> None:
        """Run WIRE, FILE and WIRE (Algorithm 1, lines 9-14)."""
        exchange = self.server.step(round, self._trained, self._samples, self.public)
        for key, state in exchange.models.items():
            self.pool.update(key, state)
        self._trained = {}
        self.figures.add(round, exchange)
        if exchange.diverged:
            self.notice(
                f"round {round}: {len(exchange.diverged)} of the server's transfers diverged and count for nothing: "
                f"{', '.join(exchange.diverged)}; lower moss.lr or learning_rate"
            )
        self.record("diverged", exchange.diverged)
        self.record("fidelity", exchange.fidelity)
        self.record("transfers", {name: asdict(report) for name, report in exchange.reports.items()})

    def results(self) -> dict[str, Any]:
        """Report figures by type, fidelities, and the losses of the server's transfers."""
        return {**super().results(), "server": self.figures.rows()}

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return PM^G and persistent proxies, networks and moments of each transfer, and the figures of past rounds."""
        tensors, data = self.server.state()
        return tensors, {**data, "figures": self.figures.state()}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.server.load_state(tensors, data)
        if "figures" in data:  # an earlier version kept none: the summary's begin with the round after
            self.figures.load_state(data["figures"])
