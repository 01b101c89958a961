"""PROM: every type's model meets the others as a proxy of the largest architecture (Moss, section 3.3, Algorithm 1).

:class:`ProxyModels` is the server's step: WIRE from each type's pre-aggregated model M^i to its proxy PM^i, FILE over
the proxies, WIRE from their mean PM^G back to each M^i. :class:`PairwiseModels` is "Moss without PROM" (section
4.8.1): each M^i is met by every other model, transformed to its architecture.

Departures from the paper:

* Each PM^i begins the round as the last round's PM^G, since Eq. 10 averages weights, which have no meaning across
  separate basins. Algorithm 1 makes the proxies once (line 1) and never sets them to PM^G: with ``proxies`` persistent,
  each PM^i begins as it ended the last round. That is 4.5 ± 1.2 points less accurate on all devices' samples of UCI HAR
  (95 % interval of three paired seeds). In the first round all begin as one random state.
* Line 13 transfers to every type, one that has the proxy's architecture too. With ``same_arch_transfer`` copy such a
  type is copied, and its fidelity is 1: level on UCI HAR (1.5 ± 10.8 points), though the type itself loses 5.4 ± 3.7.
* A transfer takes some ten steps, in which BatchNorm's running statistics lag behind the weights. With ``statistics``
  public they are re-estimated on the public samples: of the student after every transfer, and of PM^G after FILE. The
  text says nothing of them.
* A transfer that diverges counts for nothing: its student, what that answers, or its networks are not finite. Its proxy
  is left out of FILE, a type that it was to teach keeps its model, and its networks begin anew. Where no proxy is left,
  PM^G stays as it was and nobody learns from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.core.types import State
from fedscale_ext.methods.distillation.fitting import check_finite
from fedscale_ext.methods.moss.fidelity_aggregation import aggregate, fidelity
from fedscale_ext.methods.moss.knowledge_transfer import Options, Report, Wire
from fedscale_ext.methods.moss.losses import Observed, observe, reestimated
from fedscale_ext.models import ModelSpec
from fedscale_ext.util.threads import in_threads
from fedscale_ext.util.torch_devices import threads_on


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

    def to(self, device: torch.device) -> "Public":
        """Return the same data on a device, which is then that of all transfers."""
        return Public(self.x.to(device), None if self.labels is None else self.labels.to(device))


@dataclass(frozen=True)
class Exchange:
    """What a step of the server made: new models by type, fidelities and transfers' reports by name, and the names of
    the transfers that ``diverged``, which have neither."""

    models: dict[str, State]
    fidelity: dict[str, float]
    reports: dict[str, Report]
    diverged: list[str]


class _Job(NamedTuple):
    """One transfer: the names of its networks and teacher, and the student's state."""

    name: str
    teacher: str
    student: State


class _Transfer(NamedTuple):
    """What a transfer made of its student: its state, the report, and its logits on the public samples."""

    state: State
    report: Report
    logits: Tensor


class Transfers(ABC):
    """The transfers between types, with what they keep from round to round.

    Transfers run on the device of the public samples; states come from the CPU and return to it. Results depend on
    ``seed``, the rounds and the states alone: transfers run in ``threads`` threads at once; by default as many as the
    machine has processors, and one on a GPU.
    ``progress`` is told the round, how many of its transfers are done, and how many it has.
    ``transfers``: the type that each is of and where it leads or comes from, in words, by name. ``statistics``: whose
    BatchNorm's running statistics are, those of training or of the public samples.
    """

    def __init__(
        self,
        types: Mapping[str, Type],
        options: Options,
        seed: int,
        same_arch_transfer: Literal["wire", "copy"] = "wire",
        aggregation: Literal["file", "fedavg"] = "file",
        statistics: Literal["running", "public"] = "running",
        threads: int | None = None,
        progress: Callable[[int, int, int], None] = lambda round, done, of: None,
    ) -> None:
        self.types, self.options, self.seed = dict(types), options, seed
        self.copies, self.aggregation, self.statistics = same_arch_transfer == "copy", aggregation, statistics
        self.threads, self.progress = threads, progress
        self.wires: dict[str, Wire] = {}
        self.transfers: dict[str, tuple[str, str]] = {}

    @abstractmethod
    def step(self, round: int, models: Mapping[str, State], samples: Mapping[str, int], public: Public) -> Exchange:
        """Exchange between the types that took part: their pre-aggregated models and numbers of samples.

        The types that did not are left out of everything.
        """

    def _add(self, name: str, teacher: Type, student: Type, of: tuple[str, str]) -> None:
        self.transfers[name] = of
        generator = torch_stream(self.seed, "moss", name)
        taps = (teacher.tapped, student.tapped) if self.options.wire != "ce" else ((), ())
        self.wires[name] = Wire(teacher.spec, student.spec, taps, self.options, generator)

    def _transfer(
        self,
        round: int,
        jobs: Sequence[_Job],
        observed: Mapping[str, Observed],
        public: Public,
        before: int = 0,
        after: int = 0,
    ) -> dict[str, _Transfer]:
        """By name, those that did not diverge; so many of the round's transfers come ``before`` and ``after`` them."""
        done, progress_lock = before, Lock()

        def tell(more: int) -> None:
            nonlocal done
            with progress_lock:
                done += more
                self.progress(round, done, before + len(jobs) + after)

        def run(job: _Job) -> _Transfer | None:
            transfer = transferred(job)
            tell(1)
            return transfer

        def transferred(job: _Job) -> _Transfer | None:
            wire, teacher = self.wires[job.name], observed[job.teacher]
            try:
                check_finite([teacher.logits], "the teacher")
                generator = torch_stream(self.seed, round, "moss", job.name)
                state, report = wire.run(teacher, job.student, public.x, public.labels, generator)
                state = self._with_statistics(wire.student, state, public)
                answers = observe(wire.student, state, public.x, ()).logits
                check_finite([answers], "the student")
            except FloatingPointError:
                wire.begin(torch_stream(self.seed, round, "moss", job.name, "anew"))
                return None
            return _Transfer(state, report, answers)

        if jobs:
            tell(0)
        largest_first = sorted(jobs, key=lambda job: -models.cost(self.wires[job.name].student).training_macs)
        transfers = in_threads(largest_first, run, self._threads(public))
        return {job.name: each for job, each in zip(largest_first, transfers, strict=True) if each is not None}

    def _with_statistics(self, spec: ModelSpec, state: State, public: Public) -> State:
        """What a transfer or FILE made, with the running statistics that it is used with."""
        if self.statistics == "running":
            return state
        return reestimated(spec, state, public.x, self.options.batch_size)

    def _observe(
        self, held: Mapping[str, tuple[ModelSpec, State, tuple[str, ...]]], public: Public
    ) -> dict[str, Observed]:
        observations = in_threads(
            held.values(), lambda each: observe(each[0], each[1], public.x, each[2]), self._threads(public)
        )
        return dict(zip(held, observations, strict=True))

    def _threads(self, public: Public) -> int:
        return self.threads or threads_on(public.x.device)

    def _weights(self, fidelities: Mapping[str, float], samples: Mapping[str, int]) -> list[float]:
        return [fidelities[key] if self.aggregation == "file" else float(samples[key]) for key in fidelities]

    def state(self) -> tuple[State, dict[str, Any]]:
        """(tensors, JSON) for a checkpoint."""
        states = {name: wire.state() for name, wire in self.wires.items()}
        tensors = {f"{name}/{key}": each for name, (state, _) in states.items() for key, each in state.items()}
        return tensors, {name: data for name, (_, data) in states.items()}

    def load_state(self, tensors: State, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned; KeyError where it is of other types."""
        for name, wire in self.wires.items():
            state = {key.removeprefix(f"{name}/"): each for key, each in tensors.items() if key.startswith(f"{name}/")}
            wire.load_state(state, data[name])


class ProxyModels(Transfers):
    """Moss's server with proxies: 2 N transfers, named ``forward.<type>`` and ``backward.<type>``.

    ``architecture``: of the proxies, by default that of the type of most parameters; ``proxy``: PM^G; ``proxies``: what
    each PM^i begins a round as, and ``type_proxies`` these by type where they are ``persistent``.
    """

    def __init__(
        self,
        types: Mapping[str, Type],
        options: Options,
        seed: int,
        *,
        architecture: Type | None = None,
        proxies: Literal["global", "persistent"] = "global",
        **switches: Any,
    ) -> None:
        """Further arguments as :class:`Transfers` has them."""
        super().__init__(types, options, seed, **switches)
        largest = max(types.values(), key=lambda each: models.cost(each.spec).parameters)
        self.architecture = largest if architecture is None else architecture
        self.proxy = models.initial_state(self.architecture.spec, torch_stream(seed, "moss", "proxy"))
        for key, device_type in types.items():
            if not self._copied(key):
                self._add(f"forward.{key}", device_type, self.architecture, (key, "to its proxy"))
                self._add(f"backward.{key}", self.architecture, device_type, (key, "from the proxies' mean"))
        moved = [key for key in types if proxies == "persistent" and not self._copied(key)]
        self.type_proxies = dict.fromkeys(moved, self.proxy)

    def _copied(self, key: str) -> bool:
        return self.copies and self.types[key].spec == self.architecture.spec

    def step(self, round: int, models: Mapping[str, State], samples: Mapping[str, int], public: Public) -> Exchange:
        """Algorithm 1, lines 9-14."""
        moved = [key for key in models if not self._copied(key)]
        names = {key: self.wires[f"forward.{key}"].teacher_taps for key in moved}
        observed = self._observe({key: (self.types[key].spec, models[key], names[key]) for key in moved}, public)
        jobs = [_Job(f"forward.{key}", key, self.type_proxies.get(key, self.proxy)) for key in moved]
        forward = self._transfer(round, jobs, observed, public, after=len(jobs))
        proxies: dict[str, State] = {}
        fidelities: dict[str, float] = {}
        for key in models:
            if key not in moved:
                proxies[key], fidelities[key] = models[key], 1.0
            elif (transfer := forward.get(f"forward.{key}")) is not None:
                proxies[key], fidelities[key] = transfer.state, fidelity(observed[key].logits, transfer.logits)
        self.type_proxies |= {key: state for key, state in proxies.items() if key in self.type_proxies}
        backward: dict[str, _Transfer] = {}
        if proxies:
            mean = aggregate(list(proxies.values()), self._weights(fidelities, samples))
            self.proxy = self._with_statistics(self.architecture.spec, mean, public)
            tapped = self.wires[f"backward.{moved[0]}"].teacher_taps if moved else ()
            teacher = self._observe({"proxy": (self.architecture.spec, self.proxy, tapped)}, public)
            back = [_Job(f"backward.{key}", "proxy", models[key]) for key in moved]
            backward, jobs = self._transfer(round, back, teacher, public, before=len(jobs)), jobs + back
        new: dict[str, State] = {}
        for key in models:
            learnt = backward.get(f"backward.{key}")
            new[key] = self.proxy if key not in moved else models[key] if learnt is None else learnt.state
        return _exchange(new, fidelities, {**forward, **backward}, jobs)

    def state(self) -> tuple[State, dict[str, Any]]:  # noqa: D102
        tensors, data = super().state()
        held = {"proxy": self.proxy, **{f"proxy.{key}": state for key, state in self.type_proxies.items()}}
        return tensors | {f"{key}/{name}": each for key, state in held.items() for name, each in state.items()}, data

    def load_state(self, tensors: State, data: Mapping[str, Any]) -> None:  # noqa: D102
        super().load_state(tensors, data)
        names = list(self.proxy)
        self.proxy = {name: tensors[f"proxy/{name}"].clone() for name in names}
        self.type_proxies = {
            key: {name: tensors[f"proxy.{key}/{name}"].clone() for name in names} for key in self.type_proxies
        }


class PairwiseModels(Transfers):
    """Without proxies: N^2 transfers, named ``<teacher's type>.<student's type>``.

    Each model is the mean by FILE of copies of itself that learnt from each type's model, its own too: the text's N^2
    transfers. With ``same_arch_transfer`` copy the model as it was, with fidelity 1, takes the place of the latter.
    """

    def __init__(self, types: Mapping[str, Type], options: Options, seed: int, **switches: Any) -> None:
        """Further arguments as :class:`Transfers` has them."""
        super().__init__(types, options, seed, **switches)
        for source, teacher in types.items():
            for key, student in types.items():
                if not self.copies or source != key:
                    self._add(f"{source}.{key}", teacher, student, (key, f"from {source}"))

    def step(self, round: int, models: Mapping[str, State], samples: Mapping[str, int], public: Public) -> Exchange:
        """Each type from every type, from itself unless it is copied; fidelities are named as the transfers are."""
        names = {key: self.types[key].tapped if self.options.wire != "ce" else () for key in models}
        observed = self._observe({key: (self.types[key].spec, models[key], names[key]) for key in models}, public)
        pairs = {f"{k}.{i}": (k, i) for i in models for k in models if f"{k}.{i}" in self.wires}
        jobs = [_Job(name, k, models[i]) for name, (k, i) in pairs.items()]
        transfers = self._transfer(round, jobs, observed, public)
        reached = {
            n: fidelity(observed[k].logits, transfers[n].logits) for n, (k, _) in pairs.items() if n in transfers
        }
        new: dict[str, State] = {}
        for i in models:
            meeting = {k: transfers[f"{k}.{i}"].state for k in models if f"{k}.{i}" in transfers}
            if f"{i}.{i}" not in pairs or not meeting:
                meeting[i] = models[i]
            meeting = {k: meeting[k] for k in models if k in meeting}  # sums run in the types' order
            fidelities = {k: reached.get(f"{k}.{i}", 1.0) for k in meeting}
            new[i] = aggregate(list(meeting.values()), self._weights(fidelities, samples))
            if any(f"{k}.{i}" in transfers for k in meeting):
                new[i] = self._with_statistics(self.types[i].spec, new[i], public)
        return _exchange(new, reached, transfers, jobs)


def _exchange(
    models: dict[str, State], fidelities: dict[str, float], transfers: Mapping[str, _Transfer], jobs: Sequence[_Job]
) -> Exchange:
    diverged = [job.name for job in jobs if job.name not in transfers]
    return Exchange(models, fidelities, {name: each.report for name, each in transfers.items()}, diverged)
