"""What an executor does with a unit: train its clients, test a model, or measure how to train."""

import logging
import math
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from fedscale_ext.core.errors import one_line
from fedscale_ext.core.failures import LONGEST, diverged
from fedscale_ext.core.local_steps import step_sizes, trained_on
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.data.registry import known
from fedscale_ext.data.store import DataSet
from fedscale_ext.executor import faults
from fedscale_ext.executor.workbench import Workbench
from fedscale_ext.models import parameter_names
from fedscale_ext.tasks import bn_statistics as static_statistics
from fedscale_ext.tasks import calibration
from fedscale_ext.tasks.around_training import SECTIONS, figures_around_training
from fedscale_ext.tasks.bn_statistics import in_batches
from fedscale_ext.tasks.client_tensors import CONTROL_VARIATES, OwnTensors, Returned, Shared, section_name
from fedscale_ext.tasks.evaluation import MASK, figures_section, test_clients
from fedscale_ext.tasks.personalise import personalised_figures
from fedscale_ext.tasks.reduction import CLASSES, SUM, UnitSum
from fedscale_ext.tasks.test_on_all import figures_on_all
from fedscale_ext.tasks.units import in_parts
from fedscale_ext.tasks.update_checks import Rejected, check_figures
from fedscale_ext.training.device_data import DeviceData
from fedscale_ext.training.label_mask import present
from fedscale_ext.training.local_training import MultiModelClient, seed_layers
from fedscale_ext.training.resident import Cohort, CohortState
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.training.scaffold import new_variate
from fedscale_ext.training.update_norms import change_norms
from fedscale_ext.transport import wire
from fedscale_ext.util.stopwatch import Stopwatch

HANDED = "handed"  # what a unit brings beside models: its kinds, then the tensors by kind and place of the client
# where a client's settings have them
_SETTINGS = {CONTROL_VARIATES: "offset", OwnTensors.kind: "own", Returned.kind: "returned", Shared.kind: "shared"}
MOST_ROWS = 1024  # of factors: the smallest layers that have some are about as large on a side

# FedScale's results of some clients, or why there is none, and their states [clients, *shape]
Trained = tuple[Sequence[dict[str, Any] | Exception], CohortState]


class UnitWork:
    """Does units on one executor: ``client_of`` makes the trainer of a client's settings, ``conf_of`` the
    settings from a unit's header and an item, ``handler`` trains one client (FedScale's hook), ``augment`` is the
    key of that name."""

    def __init__(
        self,
        data: DataSet,
        bench: Workbench,
        client_of: Callable[[Namespace], MultiModelClient],
        conf_of: Callable[[Mapping[str, Any], Mapping[str, Any]], Namespace],
        handler: Callable[[int, Namespace, str], dict[str, Any]],
        watch: Stopwatch,
        augment: str = "none",
    ) -> None:
        self.data, self.bench, self.watch = data, bench, watch
        self._on_device = DeviceData(data, bench.device, augment)
        self.client_of, self.settings, self._handler = client_of, conf_of, handler

    def train(self, header: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Train the unit's work items; a client that fails is reported, not fatal.

        Where the unit asks for their sum, one section holds the weighted sum of the clients' changes;
        otherwise each client's state is a section.
        """
        items = header["items"]
        confs = self.confs(header, items)
        model, most = items[0]["model"], confs[0].max_update_norm
        spec, start = self.bench.spec(model), self.bench.state(model)
        total = UnitSum(start, most, header["longest"], spec) if header["sum"] else None
        results: list[dict[str, Any]] = []
        sections = {}
        for trained, states in self.trained(header, confs):
            begin = len(results)
            norms = self._norms(states, start, spec) if header["norms"] else [None] * len(trained)
            told = zip(confs[begin:], trained, norms, strict=False)
            results += [self._figures(conf, one, norm) for conf, one, norm in told]
            brought = self._brought(confs, results, begin, start, trained, states)
            drop(items[begin : len(results)], results[begin:], states, start)
            if total is None:
                with self.watch("wire"):
                    sections.update(_encoded(states, results, begin))
                    sections.update(_encoded_brought(brought, results))
                continue
            with self.watch("training"):
                weights = [
                    None if "failed" in result else item["weight"]
                    for result, item in zip(results[begin:], items[begin:], strict=False)
                ]
                classes = self._classes(confs[begin : len(results)])
                for result, fault in zip(results[begin:], total.add(states, weights, classes), strict=True):
                    if fault is not None and "failed" not in result:
                        result["failed"] = fault
            with self.watch("wire"):
                sections.update(_encoded_brought(brought, results))
        answer: dict[str, Any] = {"results": results}
        if total is not None:
            with self.watch("wire"):
                answer.update(weight=total.weight, within=total.within)
                sections[SUM] = wire.tensors_to_bytes(total.change())
                if total.class_weight is not None:
                    sections[CLASSES] = wire.tensors_to_bytes({"weights": total.class_weight})
        return answer, sections

    def confs(self, header: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> list[Namespace]:
        """Settings of a unit's clients, with what they were handed."""
        confs = [self.settings(header, item) for item in items]
        for kind, handed in header.get(HANDED, {}).items():
            for place, conf in enumerate(confs):
                own = handed.get(0 if kind == Shared.kind else place, {})
                setattr(conf, _SETTINGS[kind], {name: tensor.to(self.bench.device) for name, tensor in own.items()})
        return confs

    def _brought(
        self,
        confs: Sequence[Namespace],
        results: list[dict[str, Any]],
        begin: int,
        start: State,
        trained: Sequence[dict[str, Any] | Exception],
        states: CohortState,
    ) -> dict[int, dict[str, State]]:
        """What the clients from ``begin`` on hand back beside their states, by place in the unit and kind; one without
        a finite control variate has failed."""
        found: dict[int, dict[str, State]] = {}
        for place in range(begin, len(results)):
            result, conf = trained[place - begin], confs[place]
            if isinstance(result, Exception) or "failed" in results[place]:
                continue
            found[place] = {}
            if conf.own is not None:
                found[place][OwnTensors.kind] = {name: tensor.cpu() for name, tensor in result["own"].items()}
            if conf.returned is not None:
                found[place][Returned.kind] = result["returned"]
            if conf.offset is not None:
                new = new_variate(conf, start, states, place - begin)
                if new is None:
                    results[place]["failed"] = diverged("its control variate is not finite")
                else:
                    found[place][CONTROL_VARIATES] = new
        return found

    def _classes(self, confs: Sequence[Namespace]) -> torch.Tensor | None:
        """bool [clients, classes] of clients who count for their own classes only."""
        if not confs[0].own_classes:
            return None
        return present([self._samples(conf).y for conf in confs], self.data.num_classes)

    def _norms(self, states: CohortState, start: State, spec: ModelSpec) -> list[float]:
        """Norm of each client's change of its parameters."""
        with self.watch("training"):
            return change_norms(states, {name: start[name] for name in parameter_names(spec) if name in start}).tolist()

    def _figures(self, conf: Namespace, result: Mapping[str, Any] | Exception, norm: float | None) -> dict[str, Any]:
        if isinstance(result, FloatingPointError):
            logging.warning(f"client {conf.client_id} diverged: {result}")
            return {"client": conf.client_id, "failed": one_line(diverged(str(result)), LONGEST)}
        if isinstance(result, Exception):
            logging.error(f"client {self.data.client_names[conf.client_id - 1]} failed", exc_info=result)
            return {"client": conf.client_id, "failed": one_line(f"{type(result).__name__}: {result}", LONGEST)}
        samples = int(self.data.train_sizes[conf.client_id - 1])
        figures = {
            "client": conf.client_id,
            "samples": samples,
            "trained": result["trained_size"],
            "steps": conf.local_steps,
            "loss": result["moving_loss"],
            "utility": result["utility"],
        }
        if norm is not None:
            figures["norm"] = norm
        try:  # here as well as where it arrives: a client that does not count must not be in the unit's sum
            check_figures(figures, samples, conf.local_steps, int(self._sizes(conf).sum()), norm is not None)
        except Rejected as reason:
            return {"client": conf.client_id, "failed": reason.reason}
        return figures

    def trained(self, header: dict[str, Any], confs: list[Namespace]) -> Iterator[Trained]:
        """The items' results in order, some at a time; their states are overwritten when more are asked for."""
        model = header["items"][0]["model"]
        trainer = self.client_of(confs[0])
        factored = can_factor(header, confs)
        size = header["cohort"] if trainer.in_cohorts else 1
        for part in in_parts(confs, math.ceil(len(confs) / max(size, 1))):
            cohort = None
            if len(part) > 1 and size > 1:
                with self.watch("training"):
                    cohort = self.bench.cohort(model, len(part), factored=factored)
            together = None
            if cohort is not None and cohort.takes([self._sizes(conf) for conf in part]):
                together = self._together(trainer, cohort, part)
            if together is not None:
                yield together
            else:
                for conf in part:
                    yield self._alone(model, conf)

    def _sizes(self, conf: Namespace) -> np.ndarray:
        samples = trained_on(int(self.data.train_sizes[conf.client_id - 1]), vars(conf))
        return step_sizes(samples, conf.batch_size, conf.local_steps, conf.local_epochs)

    def _together(self, trainer: MultiModelClient, cohort: Cohort, confs: Sequence[Namespace]) -> Trained | None:
        """None where one of them raised: trained one by one, only the clients that are to blame fail."""
        try:
            data = [self._samples(conf) for conf in confs]
            with self.watch("training"):
                results = trainer.train_cohort(data, cohort, confs)
        except Exception as error:
            self._judge(error)
            logging.warning("a cohort failed, its clients train one by one", exc_info=error)
            return None
        return results, cohort.trained([conf.local_steps for conf in confs])

    def _alone(self, model: str, conf: Namespace) -> Trained:
        result: dict[str, Any] | Exception
        try:
            result = self._handler(conf.client_id, conf, model)
            state = result["update_weight"]
        except Exception as error:
            self._judge(error)
            result, state = error, self.bench.state(model)
        return [result], {name: tensor[None] for name, tensor in state.items()}

    def _judge(self, error: Exception) -> None:
        """Return only if an error comes from the client's work itself, so that it would come on any executor.

        An error of this machine (no memory, no file) fails the unit, which another executor then does: what
        a unit yields must not depend on who does it. A GPU that does not work any more ends this process.
        """
        if faults.of_machine(error):
            raise error
        faults.check_device(self.bench.device)

    def train_client(self, model: str, client: MultiModelClient, conf: Namespace) -> dict[str, Any]:
        """One client on the resident module of pool key ``model``."""
        data = self._samples(conf)
        with self.watch("training"):
            return train_alone(client, data, self.bench.module(model), conf)

    def _samples(self, conf: Namespace) -> ClientSamples:
        with self.watch("data"):
            return self._on_device.samples(self.data.train_rows(conf.client_id), conf.augment)

    def personalise(self, header: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Tune the unit's models for each of its clients, and test them."""
        answer, figures = personalised_figures(self, header, batch)
        return answer, {"figures": figures_section(figures)}

    def around_training(self, header: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Train the unit's clients, and test the model of each before and after."""
        answer, figures = figures_around_training(self, header, batch)
        return answer, {name: figures_section(each) for name, each in zip(SECTIONS, figures, strict=True)}

    def test(self, header: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Test the unit's model on the test samples of the unit's clients."""
        with self.watch("evaluation"):
            if OwnTensors.kind in header.get(HANDED, {}):
                return {}, {"figures": figures_section(self._test_own(header, batch))}
            modules = map(self.bench.module, header["members"])
            mask = bool(header.get(MASK))
            figures = test_clients(modules, self.data, header["clients"], batch, self.bench.device, mask)
        return {}, {"figures": figures_section(figures)}

    def _test_own(self, header: dict[str, Any], batch: int) -> np.ndarray:
        """Figures of each client on its own version of the unit's model."""
        return np.concatenate(
            [
                test_clients([module], self.data, [client], batch, self.bench.device, bool(header.get(MASK)))
                for client, module in self.own_versions(header, batch)
            ]
        )

    def test_on_all(self, header: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Test the unit's model, or each client's own version of it, on all clients' test samples."""
        with self.watch("evaluation"):
            return {}, {"figures": figures_section(figures_on_all(self, header, batch))}

    def own_versions(self, header: Mapping[str, Any], batch: int) -> Iterator[tuple[int, nn.Module]]:
        """The unit's clients, each with its own version of the unit's model, done with before the next is asked for;
        with BatchNorm's statistics of its own training samples, where the unit asks for it."""
        (member,) = header["members"]
        items = [{"client": client, "model": member, "objective": {}} for client in header["clients"]]
        for conf in self.confs(header, items):
            module = self.bench.module(member)
            self.client_of(conf).own_model(module, conf)
            if header.get(static_statistics.EVENT):
                found = self.seen(module, [conf.client_id], batch)
                module.load_state_dict(static_statistics.with_statistics(module.state_dict(), found))
            yield conf.client_id, module

    def statistics(self, header: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What BatchNorm layers of the unit's model see of the unit's clients' training samples."""
        with self.watch("evaluation"):
            found = self.seen(self.bench.module(header["model"]), header["clients"], batch)
        return {}, {static_statistics.SUMS: wire.tensors_to_bytes(found)}

    def seen(self, module: nn.Module, clients: Sequence[int], batch: int) -> State:
        """What BatchNorm layers of ``module`` see of the clients' training samples (``static_statistics.sums``)."""
        rows = [part for client in clients for part in in_batches(self.data.train_rows(client), batch)]
        return static_statistics.sums(module, (self._on_device.samples(part).x for part in rows))

    def calibrate(self, header: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Seconds per client and step by size of cohort, on random samples from the model's present state."""
        model = header["model"]
        conf = self.settings(header, {"client": 1, "objective": {}})
        trainer = self.client_of(conf)
        generator = torch.Generator().manual_seed(0)
        shape, classes = (2 * conf.batch_size, *self.data.input_shape), self.data.num_classes
        entry = known(self.data.data_set)
        if entry is not None and entry.text:  # numbers of symbols, which clients may learn to foretell
            x = torch.randint(classes, shape, generator=generator).float().to(self.bench.device)
        else:
            x = torch.randn(*shape, generator=generator).to(self.bench.device)
        y = torch.randint(classes, (len(x),), generator=generator).to(self.bench.device)
        samples = ClientSamples(x, y)
        cohort_of = partial(self.bench.cohort, model, factored=can_factor(header, [conf]))
        one = cohort_of(1) if trainer.in_cohorts else None
        sizes = [1]
        if one is not None:
            kept = one.client_bytes(conf.local_steps * conf.batch_size)
            sizes = calibration.fitting(header["sizes"], self.bench.device.type, kept)

        def train(size: int, steps: int) -> None:
            own = Namespace(**{**vars(conf), "local_steps": steps, "local_epochs": None})
            if size == 1:
                train_alone(trainer, samples, self.bench.module(model), own)
                return
            cohort = cohort_of(size)
            assert cohort is not None
            trainer.train_cohort([samples] * size, cohort, [own] * size)

        seconds = calibration.measure(sizes, train)
        return {"seconds_by_size": [[size, spent] for size, spent in seconds.items()]}, {}


def _encoded_brought(
    brought: Mapping[int, Mapping[str, State]], results: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """A section for everything that a client hands back beside its state, unless it failed."""
    return {
        section_name(kind, place): wire.tensors_to_bytes(new)
        for place, kinds in brought.items()
        if "failed" not in results[place]
        for kind, new in kinds.items()
    }


def can_factor(header: Mapping[str, Any], confs: Sequence[Namespace]) -> bool:
    """Whether linear weights can be kept as factors (:mod:`factored`): for the optimiser, for what is done with
    the update, and for the number of rows that they would have."""
    conf = confs[0]
    few = max(conf.local_steps * conf.batch_size for conf in confs) <= MOST_ROWS
    no_norm = header["longest"] is None and conf.max_update_norm is None and not header["norms"]
    whole = not any(item.get("dropped") for item in header.get("items", ()))
    plain = not conf.own_classes and conf.own is None and conf.clip_norm is None and conf.precision == "float32"
    sgd = conf.client_optimizer == "sgd" and conf.offset is None and not conf.group_lasso
    return bool(header["sum"]) and no_norm and whole and plain and few and sgd


def drop(
    items: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]], states: CohortState, start: State
) -> None:
    """Put back what clients do not hand in: ``states`` [clients, *shape] where ``items`` name tensors ``dropped``."""
    for row, (item, result) in enumerate(zip(items, results, strict=True)):
        for name in () if "failed" in result else item["dropped"]:
            rows = states[name]
            assert isinstance(rows, torch.Tensor)  # see can_factor
            rows[row].copy_(start[name])


def train_alone(
    client: MultiModelClient, data: ClientSamples, module: torch.nn.Module, conf: Namespace
) -> dict[str, Any]:
    """One client on a resident module. Layers that draw by themselves (dropout) draw from its own stream."""
    seed_layers(conf)
    return client.train(data, module, conf)


def _encoded(states: CohortState, results: Sequence[Mapping[str, Any]], begin: int) -> dict[str, bytes]:
    """A section for the state of each client that did not fail, by place in the unit."""
    return {
        str(begin + row): wire.tensors_to_bytes({name: tensor[row].cpu() for name, tensor in states.items()})
        for row in range(len(results) - begin)
        if "failed" not in results[begin + row]
    }
