"""PROM: every type's model meets the others as a proxy of the largest architecture (Moss, section 3.3, Algorithm 1).

:class:`ProxyModels` is the server's step: WIRE from each type's pre-aggregated model M^i to its proxy PM^i, FILE over
the proxies, WIRE from their mean PM^G back to each M^i. :class:`PairwiseModels` is "Moss without PROM" (section
4.8.1): each M^i is met by every other model, transformed to its architecture.

Departures: each PM^i begins the round as the last round's PM^G, a common random state in the first, for Eq. 10 averages
weights, which have no meaning across separate basins. A type that has the proxy's architecture is copied instead of
transferred (``same_arch_transfer`` wire is the text taken literally): its fidelity is 1.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor

from fedscale_ext import models
from fedscale_ext.methods.moss.fidelity_aggregation import aggregate, fidelity
from fedscale_ext.methods.moss.knowledge_transfer import Options, Report, Wire
from fedscale_ext.methods.moss.losses import Observed, observe
from fedscale_ext.models import ModelSpec
from fedscale_ext.runtime.threads import in_threads
from fedscale_ext.runtime.work import State
from fedscale_ext.streams import torch_stream


@dataclass(frozen=True)
class Type:
    """A type of devices: its architecture, and the modules tapped in it (None: the family's own taps)."""

    spec: ModelSpec
    taps: tuple[str, ...] | None = None

    @property
    def tapped(self) -> tuple[str, ...]:
        """Names of the tapped modules; UserError where none are declared."""
        return models.taps(self.spec) if self.taps is None else self.taps


@dataclass(frozen=True)
class Public:
    """The server's data: samples [N, C, H, W], and labels [N] unless teachers' outputs stand for them."""

    x: Tensor
    labels: Tensor | None


@dataclass(frozen=True)
class Exchange:
    """What a step of the server made: new models by type, fidelities and transfers' reports by name."""

    models: dict[str, State]
    fidelity: dict[str, float]
    reports: dict[str, Report]


class _Job(NamedTuple):
    """One transfer: the names of its networks and teacher, and the student's state."""

    name: str
    teacher: str
    student: State


class Transfers(ABC):
    """The transfers between types, with what they keep from round to round.

    Results depend on ``seed``, the rounds and the states alone: transfers run in ``threads`` threads at once.
    """

    def __init__(
        self,
        types: Mapping[str, Type],
        options: Options,
        seed: int,
        same_arch_transfer: Literal["copy", "wire"] = "copy",
        aggregation: Literal["file", "fedavg"] = "file",
        threads: int | None = None,
    ) -> None:
        self.types, self.options, self.seed = dict(types), options, seed
        self.copies, self.aggregation = same_arch_transfer == "copy", aggregation
        self.threads = threads or os.cpu_count() or 1
        self.wires: dict[str, Wire] = {}

    @abstractmethod
    def step(self, round: int, models: Mapping[str, State], samples: Mapping[str, int], public: Public) -> Exchange:
        """Exchange between the types that took part: their pre-aggregated models and numbers of samples.

        The types that did not are left out of everything.
        """

    def _add(self, name: str, teacher: Type, student: Type) -> None:
        generator = torch_stream(self.seed, "moss", name)
        taps = (teacher.tapped, student.tapped) if self.options.wire != "ce" else ((), ())
        self.wires[name] = Wire(teacher.spec, student.spec, taps, self.options, generator)

    def _transfer(
        self, round: int, jobs: Sequence[_Job], observed: Mapping[str, Observed], public: Public
    ) -> dict[str, tuple[State, Report]]:
        def run(job: _Job) -> tuple[State, Report]:
            generator = torch_stream(self.seed, round, "moss", job.name)
            return self.wires[job.name].run(observed[job.teacher], job.student, public.x, public.labels, generator)

        largest_first = sorted(jobs, key=lambda job: -models.cost(self.wires[job.name].student).training_macs)
        found = in_threads(largest_first, run, self.threads)
        return {job.name: each for job, each in zip(largest_first, found, strict=True)}

    def _observe(
        self, held: Mapping[str, tuple[ModelSpec, State, tuple[str, ...]]], public: Public
    ) -> dict[str, Observed]:
        found = in_threads(held.values(), lambda each: observe(each[0], each[1], public.x, each[2]), self.threads)
        return dict(zip(held, found, strict=True))

    def _weights(self, fidelities: Mapping[str, float], samples: Mapping[str, int]) -> list[float]:
        return [fidelities[key] if self.aggregation == "file" else float(samples[key]) for key in fidelities]

    def state(self) -> tuple[State, dict[str, Any]]:
        """(tensors, JSON) for a checkpoint."""
        found = {name: wire.state() for name, wire in self.wires.items()}
        tensors = {f"{name}/{key}": each for name, (own, _) in found.items() for key, each in own.items()}
        return tensors, {name: data for name, (_, data) in found.items()}

    def load_state(self, tensors: State, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned; KeyError where it is of other types."""
        for name, wire in self.wires.items():
            own = {key.removeprefix(f"{name}/"): each for key, each in tensors.items() if key.startswith(f"{name}/")}
            wire.load_state(own, data[name])


class ProxyModels(Transfers):
    """Moss's server with proxies: 2 N transfers, named ``forward.<type>`` and ``backward.<type>``.

    ``architecture``: of the proxies, by default that of the type of most parameters; ``proxy``: PM^G.
    """

    def __init__(
        self,
        types: Mapping[str, Type],
        options: Options,
        seed: int,
        *,
        architecture: Type | None = None,
        **switches: Any,
    ) -> None:
        """Further arguments as :class:`Transfers` has them."""
        super().__init__(types, options, seed, **switches)
        largest = max(types.values(), key=lambda each: models.cost(each.spec).parameters)
        self.architecture = largest if architecture is None else architecture
        self.proxy = models.initial_state(self.architecture.spec, torch_stream(seed, "moss", "proxy"))
        for key, own in types.items():
            if not self._copied(key):
                self._add(f"forward.{key}", own, self.architecture)
                self._add(f"backward.{key}", self.architecture, own)

    def _copied(self, key: str) -> bool:
        return self.copies and self.types[key].spec == self.architecture.spec

    def step(self, round: int, models: Mapping[str, State], samples: Mapping[str, int], public: Public) -> Exchange:
        """Algorithm 1, lines 8-14."""
        moved = [key for key in models if not self._copied(key)]
        names = {key: self.wires[f"forward.{key}"].teacher_taps for key in moved}
        observed = self._observe({key: (self.types[key].spec, models[key], names[key]) for key in moved}, public)
        forward = self._transfer(round, [_Job(f"forward.{key}", key, self.proxy) for key in moved], observed, public)
        proxies = {key: forward[f"forward.{key}"][0] if key in moved else models[key] for key in models}
        answers = self._observe({key: (self.architecture.spec, proxies[key], ()) for key in moved}, public)
        fidelities = {
            key: fidelity(observed[key].logits, answers[key].logits) if key in moved else 1.0 for key in models
        }
        self.proxy = aggregate(list(proxies.values()), self._weights(fidelities, samples))
        tapped = self.wires[f"backward.{moved[0]}"].teacher_taps if moved else ()
        teacher = self._observe({"proxy": (self.architecture.spec, self.proxy, tapped)}, public)
        backward = self._transfer(
            round, [_Job(f"backward.{key}", "proxy", models[key]) for key in moved], teacher, public
        )
        new = {key: backward[f"backward.{key}"][0] if key in moved else self.proxy for key in models}
        return Exchange(new, fidelities, {name: report for name, (_, report) in {**forward, **backward}.items()})

    def state(self) -> tuple[State, dict[str, Any]]:  # noqa: D102
        tensors, data = super().state()
        return tensors | {f"proxy/{name}": each for name, each in self.proxy.items()}, data

    def load_state(self, tensors: State, data: Mapping[str, Any]) -> None:  # noqa: D102
        super().load_state(tensors, data)
        self.proxy = {name: tensors[f"proxy/{name}"].clone() for name in self.proxy}


class PairwiseModels(Transfers):
    """Without proxies: up to N^2 transfers, named ``<teacher's type>.<student's type>``.

    Each model is the mean by FILE of itself, with fidelity 1, and of copies of itself that learnt from the others; with
    ``same_arch_transfer`` wire its own transfer to itself takes its place.
    """

    def __init__(self, types: Mapping[str, Type], options: Options, seed: int, **switches: Any) -> None:
        """Further arguments as :class:`Transfers` has them."""
        super().__init__(types, options, seed, **switches)
        for source, teacher in types.items():
            for key, student in types.items():
                if not self.copies or source != key:
                    self._add(f"{source}.{key}", teacher, student)

    def step(self, round: int, models: Mapping[str, State], samples: Mapping[str, int], public: Public) -> Exchange:
        """Each type from every other; fidelities are named as the transfers are."""
        names = {key: self.types[key].tapped if self.options.wire != "ce" else () for key in models}
        observed = self._observe({key: (self.types[key].spec, models[key], names[key]) for key in models}, public)
        pairs = {f"{k}.{i}": (k, i) for i in models for k in models if f"{k}.{i}" in self.wires}
        found = self._transfer(round, [_Job(name, k, models[i]) for name, (k, i) in pairs.items()], observed, public)
        answers = self._observe({name: (self.types[pairs[name][1]].spec, found[name][0], ()) for name in pairs}, public)
        reached = {name: fidelity(observed[k].logits, answers[name].logits) for name, (k, _) in pairs.items()}
        new: dict[str, State] = {}
        for i in models:
            meeting = {k: found[f"{k}.{i}"][0] if f"{k}.{i}" in found else models[i] for k in models}
            fidelities = {k: reached.get(f"{k}.{i}", 1.0) for k in models}
            new[i] = aggregate(list(meeting.values()), self._weights(fidelities, samples))
        return Exchange(new, reached, {name: report for name, (_, report) in found.items()})
