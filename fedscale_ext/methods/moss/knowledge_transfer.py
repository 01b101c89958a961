"""WIRE: a student learns from a teacher what a learnt matching of their layers says (Moss, section 3.4).

The matching (:mod:`fedscale_ext.methods.moss.matching`) has parameters phi, the student theta, among which r. Per
batch, as in L2T-ww (Jang et al., ICML 2019), from which Moss takes it:

(a) one step of SGD on CE + L_loc (Eq. 8);
(b) ``inner_steps`` steps on L_loc, (c) one on CE, (d) the CE there: its gradient by phi through the steps, momentum
    and weight decay included, makes a step of Adam;
(e) back to where (a) ended. Running statistics too: only (a) moves them.

Departures from the paper:

* Algorithm 2 names no objective for phi, and accumulates one loss over all of the data. The above is the default, with
  one step per batch. ``meta_update`` "joint" is its literal reading, in which phi minimises the loss itself, and can by
  Loc -> 0; "frozen" leaves phi as it began.
* phi and r persist from round to round. Those of a transfer that diverged begin anew.
* phi learns by Adam at 1e-4 with weight decay 1e-4, as L2T-ww's does. Section 4.2.4 names SGD, at 1e-3, as the one
  optimizer.
* Eq. 5 is a sum over all pairs, and so is the default. Its gradient is several times that of cross-entropy while r is
  untrained. Two switches, in neither text, make it smaller: ``pair_reduce`` mean divides the sum by the number of
  pairs; ``projection_start`` least_squares begins r where the matching error of the public samples is least.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vjp
from torch.optim.adam import adam

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.methods.distillation.fitting import batches, check_finite
from fedscale_ext.methods.moss import matching
from fedscale_ext.methods.moss.losses import Batch, Observed, Student
from fedscale_ext.methods.moss.matching import MapTargets
from fedscale_ext.methods.moss.twice_differentiable import TwiceDifferentiable
from fedscale_ext.models.taps import map_shapes
from fedscale_ext.util.macs import counted_once
from fedscale_ext.util.ranges import Count, Decay, NotNegative, Positive
from fedscale_ext.util.torch_devices import CPU


@dataclass(frozen=True)
class WireParams:
    """Hyperparameters of WIRE: the paper's (section 4.2.4), or L2T-ww's where it names none, and for phi.

    Attributes:
        wire: Loss of a student: ``loc`` matches weighted pairs of layers, ``ce`` learns the labels. ``ce+mse`` matches
            all pairs with equal weights.
        meta_update: How the meta-networks learn. ``bilevel`` judges them by cross-entropy, also under the loss ``loc``.
            ``joint`` is Algorithm 2 taken literally; ``frozen`` leaves them as they began.
        meta_layers: Layers of the meta-networks.
        pair_reduce: L_loc is the ``sum`` over the pairs of layers (Eq. 5), or their ``mean``.
        projection_start: The 1x1 transformations r begin at random, or as the least-squares solution.
        persistent: The meta-networks phi and the transformations r are kept from round to round. Without it, they begin
            anew each time.
        epochs: Epochs of a transfer over the public data.
        batch_size: Public samples of a batch.
        lr: Learning rate of the student's SGD.
        momentum: Momentum of the student's SGD. The paper's text says 0.05.
        weight_decay: Weight decay of the student's SGD.
        beta: Weight of the matching loss L_loc. L2T-ww has 0.5.
        inner_steps: Steps on L_loc before the step by which the meta-networks are judged.
        meta_lr: Learning rate of the meta-networks' Adam.
        meta_weight_decay: Weight decay of the meta-networks' Adam.

    """

    wire: Literal["loc+ce", "loc", "ce", "ce+mse"] = "loc+ce"
    meta_update: Literal["bilevel", "joint", "frozen"] = "bilevel"
    meta_layers: Literal[1, 2] = 1
    pair_reduce: Literal["sum", "mean"] = "sum"
    projection_start: Literal["random", "least_squares"] = "random"
    persistent: bool = True
    epochs: Count = 5
    batch_size: Count = 32
    lr: Positive = 1e-3
    momentum: Decay = 0.9
    weight_decay: NotNegative = 1e-4
    beta: NotNegative = 1.0
    inner_steps: Count = 2
    meta_lr: Positive = 1e-4
    meta_weight_decay: NotNegative = 1e-4

    @property
    def learns(self) -> bool:
        """Whether phi is learnt."""
        return self.wire.startswith("loc") and self.meta_update != "frozen"


@dataclass(frozen=True)
class Options(WireParams):
    """WIRE's hyperparameters with the target of the cross-entropy, which follows from the data.

    Attributes:
        ce_target: ``labels`` of the public data, or the ``teacher``'s probabilities where these data have other labels.

    """

    ce_target: Literal["labels", "teacher"] = "labels"


@dataclass(frozen=True)
class Report:
    """One transfer's means over the last epoch: of CE, of L_loc and, where it has a part, of Loc over all pairs."""

    ce: float
    matching: float
    location: float


class Wire:
    """The transfer from one teacher to one student: TL, TD and r, kept between rounds.

    ``phi``: TL and TD; ``projections``: r; ``moments``: Adam's; all on the CPU between transfers. Results
    depend on these, the arguments of :meth:`run` and nothing else.
    """

    def __init__(
        self,
        teacher: ModelSpec,
        student: ModelSpec,
        taps: tuple[tuple[str, ...], tuple[str, ...]],
        options: Options,
        generator: torch.Generator,
    ) -> None:
        """Shape the networks for two specs and their ``taps``. UserError where a spec has no such module."""
        self.options, self.student = options, student
        self.teacher_taps, self.student_taps = taps if options.wire != "ce" else ((), ())
        self._shapes = tuple(
            map_shapes(spec, names) if names else ()
            for spec, names in ((teacher, self.teacher_taps), (student, self.student_taps))
        )
        self._macs: dict[Hashable, int] = {}  # of a step, by its number of samples
        self.begin(generator)

    def begin(self, generator: torch.Generator) -> None:
        """Draw TL, TD and r at random, and put Adam before its first step."""
        of_teacher, of_student = self._shapes
        self.phi = matching.meta_networks(of_teacher, len(of_student), self.options.meta_layers, generator)
        self.projections = matching.projections(of_teacher, of_student, generator)
        self.moments = {
            f"{part}.{name}": torch.zeros_like(each) for part in ("first", "second") for name, each in self.phi.items()
        }
        self.steps = 0
        self.solved = False  # whether r has begun as the least-squares solution

    def run(
        self, teacher: Observed, state: State, x: Tensor, labels: Tensor | None, generator: torch.Generator
    ) -> tuple[State, Report]:
        """Train the student for ``epochs`` over the public samples (Algorithm 2).

        Args:
            teacher: The teacher's logits and tapped maps of the samples.
            state: The student's state before, on any device.
            x: Samples [N, C, H, W]; the transfer runs on their device.
            labels: Classes int64 [N]; None where the teacher's probabilities are the target.
            generator: Orders the samples; dropout draws from it too.

        Returns:
            The student's new state, on the device of the old one, and the figures of the last epoch.

        Raises:
            FloatingPointError: The transfer diverged. Call :meth:`begin` next, as its networks may hold anything.

        """
        options = self.options
        if not options.persistent:
            self.begin(generator)
        # [N, classes], or int64 [N]
        target = teacher.logits.softmax(1) if labels is None or options.ce_target == "teacher" else labels
        targets = MapTargets.of(teacher.maps, self._shapes[1])
        means = [each.mean((2, 3)) for each in teacher.maps]  # by m: [N, C_m, H, W] -> [N, C_m]
        self._to(x.device, x.dtype)
        problem = Student(self.student, self.student_taps, state, x, generator)
        if self.projections and options.projection_start == "least_squares" and not self.solved:
            self.projections = matching.solved_projections(problem.maps(x, options.batch_size), targets)
            self.solved = True
        theta = {**problem.parameters, **self.projections}
        velocity = {name: torch.zeros_like(each) for name, each in theta.items()}
        figures: list[tuple[Tensor, Tensor, Tensor]] = []
        for _ in range(options.epochs):
            figures.clear()
            for drawn in batches(len(x), options.batch_size, generator):
                rows = drawn.to(x.device)
                batch = Batch(x[rows], target[rows], targets[rows], tuple(each[rows] for each in means))
                with counted_once(self._macs, len(rows)):
                    theta, velocity, losses = self._batch(problem, theta, velocity, batch)
                figures.append(losses)
        self.projections = {name: theta[name] for name in self.projections}
        new = {name: theta[name] if name in theta else problem.buffers[name] for name in state}
        means_of_epoch = [torch.stack(each).mean() for each in zip(*figures, strict=True)]
        networks = (self.phi, self.projections, self.moments)
        check_finite(
            [*means_of_epoch, *new.values(), *(each for part in networks for each in part.values())], "the transfer"
        )
        self._to(CPU, x.dtype)
        ce, loss, located = map(float, means_of_epoch)
        return {name: each.to(state[name]) for name, each in new.items()}, Report(ce, loss, located)

    def _batch(
        self, problem: Student, theta: State, velocity: State, batch: Batch
    ) -> tuple[State, State, tuple[Tensor, Tensor, Tensor]]:
        """Take the step of (a) on a batch, and the step of phi that ``meta_update`` says.

        Returns:
            theta and its velocity after (a); the batch's CE, L_loc and mean Loc (0-d each).

        """
        options = self.options

        def final(theta: State, phi: State) -> tuple[Tensor, tuple[Tensor, Tensor, State]]:
            ce, loss, buffers = problem.losses(theta, self._weights(phi, batch), batch)
            total = options.beta * loss if options.wire == "loc" else ce + options.beta * loss
            return total, (ce, loss, buffers)

        joint = options.learns and options.meta_update == "joint"
        differentiate = grad_and_value(final, argnums=(0, 1) if joint else (0,), has_aux=True)
        gradients, (_, (ce, loss, problem.buffers)) = differentiate(theta, self.phi)
        theta, velocity = self._sgd(theta, velocity, gradients[0])
        with torch.no_grad():
            layers = enumerate(batch.means if options.wire.startswith("loc") else ())
            located = [matching.location(self.phi, m, each).mean() for m, each in layers]  # by m: mean of [N, B]
        if joint:
            self._adam(gradients[1])
        elif options.learns:
            self._adam(self._meta_gradient(problem, theta, velocity, batch))
        return theta, velocity, (ce, loss, torch.stack(located).mean() if located else torch.zeros_like(loss))

    def _meta_gradient(self, problem: Student, theta: State, velocity: State, batch: Batch) -> State:
        """Return the gradient of (d)'s CE by phi, through (c) and (b) backwards.

        A step is m' = mu m + grad L(theta, w) + lambda theta, theta' = theta - eta m'. From the gradients by theta' and
        by the next step's velocity m'' follow those by its own velocity and by theta:

            by m' = mu (by m'') - eta (by theta'),  by theta = by theta' + lambda (by m') + H (by m')

        with H the second derivatives of L. The same product gives what w = Loc * Deg contributes. What steps keep for
        the way back is freed as it is used.
        """
        weights, to_phi = _vjp(lambda phi: self._weights(phi, batch), self.phi)  # [N, B, sum of C_m]
        theta, velocity, ways_back = self._inner_steps(problem, theta, velocity, weights, batch)
        by_theta, by_velocity = self._outer_gradient(problem, theta, velocity, batch)
        by_weights = self._back_through_inner_steps(ways_back, by_theta, by_velocity, torch.zeros_like(weights))
        by_phi: State = to_phi(by_weights)[0]
        return by_phi

    def _inner_steps(
        self, problem: Student, theta: State, velocity: State, weights: Tensor, batch: Batch
    ) -> tuple[State, State, list[Callable[[State], tuple[Any, ...]]]]:
        """Take the steps of (b) on L_loc.

        Args:
            problem: The student's losses.
            theta: The student's parameters and r, where (a) ended.
            velocity: SGD's momentum of each, there.
            weights: Loc * Deg of all pairs, [N, B, sum of C_m].
            batch: The samples of the step.

        Returns:
            theta and its velocity after the steps. Then, for each step, a function of the gradient by its velocity: it
            gives the products with the second derivatives of L_loc by theta and by the weights, the first step's by
            the weights alone.

        """
        options = self.options

        def matched(theta: State, weights: Tensor) -> Tensor:
            return options.beta * problem.losses(theta, weights, batch)[1]

        ways_back: list[Callable[[State], tuple[Any, ...]]] = []
        for step in range(options.inner_steps):
            with TwiceDifferentiable():
                if step:
                    gradient, back = _vjp(grad(matched), theta, weights)
                else:
                    gradient, back = _vjp(partial(grad(matched), theta), weights)
            ways_back.append(back)
            theta, velocity = self._sgd(theta, velocity, gradient)
        return theta, velocity, ways_back

    def _outer_gradient(self, problem: Student, theta: State, velocity: State, batch: Batch) -> tuple[State, State]:
        """Take the step of (c) on CE, and differentiate the CE of (d) back through it.

        Args:
            problem: The student's losses.
            theta: The student's parameters and r after (b).
            velocity: SGD's momentum of each, there.
            batch: The samples of the step.

        Returns:
            The gradients of (d)'s CE by theta after (b), and by the velocity of (c)'s step. Those of r are zero.

        """

        def cross_entropy(network: State) -> Tensor:
            return problem.losses(network, None, batch)[0]

        network = {name: theta[name] for name in problem.parameters}  # CE does not depend on r
        with TwiceDifferentiable():
            slope, back = _vjp(grad(cross_entropy), network)
        by_theta = grad(cross_entropy)(self._sgd(network, velocity, slope)[0])
        by_velocity = {name: -self.options.lr * each for name, each in by_theta.items()}
        by_theta = self._back(by_theta, by_velocity, back(by_velocity)[0])
        del slope, back  # with all that they keep
        zeros = {name: torch.zeros_like(each) for name, each in theta.items()}
        return {**zeros, **by_theta}, {**zeros, **by_velocity}

    def _back_through_inner_steps(
        self, ways_back: list[Callable[[State], tuple[Any, ...]]], by_theta: State, by_velocity: State, total: Tensor
    ) -> Tensor:
        """Differentiate back through the steps of (b), the last one first.

        Args:
            ways_back: A function for each step, from :meth:`_inner_steps`; the list is emptied.
            by_theta: Gradient by theta after (b).
            by_velocity: Gradient by the velocity of (c)'s step.
            total: Zeros [N, B, sum of C_m], to which each step adds.

        Returns:
            The gradient by the weights Loc * Deg, [N, B, sum of C_m].

        """
        options = self.options
        while ways_back:
            by_velocity = {
                name: options.momentum * by_velocity[name] - options.lr * each for name, each in by_theta.items()
            }
            *curved, by_weights = ways_back.pop()(by_velocity)
            total += by_weights
            if curved:  # the first step needs only the weights' part
                by_theta = self._back(by_theta, by_velocity, curved[0])
        return total

    def _back(self, by_theta: State, by_velocity: State, curved: State) -> State:
        """The gradient by theta before a step, from those by theta after it and by its velocity; ``curved``: the
        product of the latter with the second derivatives."""
        decay = self.options.weight_decay
        return {name: each + decay * by_velocity[name] + curved[name] for name, each in by_theta.items()}

    def _weights(self, phi: State, batch: Batch) -> Tensor | None:
        """Loc * Deg of all pairs, [N, B, sum of C_m], or 1 / C_m where nothing is learnt from the teacher's features.

        They are divided by the number of pairs where L_loc is their mean. None where ``wire`` is "ce".
        """
        if self.options.wire == "ce":
            return None
        if self.options.wire == "ce+mse":
            even = torch.cat([each.new_full(each.shape, 1 / each.shape[1]) for each in batch.means], 1)
            weights = even.expand(len(self.student_taps), *even.shape)  # [B, sum of C_m] -> [N, B, sum of C_m]
        else:
            weights = matching.pair_weights(phi, batch.means)
        if self.options.pair_reduce == "mean":
            return weights / (len(self.teacher_taps) * len(self.student_taps))
        return weights

    def _sgd(self, theta: State, velocity: State, gradients: State) -> tuple[State, State]:
        """Take a step of torch's SGD, as a function: theta and its velocity after it."""
        options = self.options
        moving = {
            name: torch.add(gradients[name], each, alpha=options.weight_decay) + options.momentum * velocity[name]
            for name, each in theta.items()
        }
        return {name: torch.add(each, moving[name], alpha=-options.lr) for name, each in theta.items()}, moving

    def _adam(self, gradients: State) -> None:
        # the function, as the class imports a compiler; its step counts are tensors, and it walks through memory
        self.steps += 1
        options, names = self.options, list(self.phi)
        adam([self.phi[name] for name in names], [gradients[name].contiguous() for name in names],
             [self.moments[f"first.{name}"] for name in names], [self.moments[f"second.{name}"] for name in names], [],
             [torch.full((), float(self.steps - 1), device=self.phi[name].device) for name in names],
             fused=True, amsgrad=False, beta1=0.9, beta2=0.999,
             lr=options.meta_lr, weight_decay=options.meta_weight_decay, eps=1e-8, maximize=False)  # fmt: skip

    def _to(self, device: torch.device, dtype: torch.dtype) -> None:
        for name in ("phi", "projections", "moments"):
            setattr(self, name, {key: each.to(device, dtype) for key, each in getattr(self, name).items()})

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return (tensors, JSON) for a checkpoint. The tensors are its own: write them before the next :meth:`run`."""
        return {**self.phi, **self.projections, **self.moments}, {"steps": self.steps, "solved": self.solved}

    def load_state(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; KeyError where it is of another transfer."""
        for name in ("phi", "projections", "moments"):
            setattr(self, name, {key: tensors[key].clone() for key in getattr(self, name)})
        self.steps = int(data["steps"])
        self.solved = bool(data.get("solved"))  # an earlier version had no such start


def _vjp(function: Callable[..., Any], *at: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The value of a function and its vector-Jacobian product: torch's, without its form for auxiliary values."""
    value, back, *_ = vjp(function, *at)
    return value, back
