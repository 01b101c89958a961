"""OPA: each operator becomes the mean over the clients that trained it, by the examples that went through it
(FedorAS, section 3.1, Equation 5).

The mean takes in an operator's parameters and its buffers. The public code maps only buffers to operators. Its weights
are averaged by all examples of all participants, unchanged copies too; ``buffers_only`` does as it does. FedAvg, with
which the paper compares, normalises "collectively for full models". A client that was not sent an operator, or returned
it unchanged, counts with the weights of the round's start (``mean_over`` participants).

An operator that fewer than ``min_clients`` trained stays as it is, to protect single clients (the public code leaves
that off). What all paths share has no such limit, and is averaged by all examples that a client trained on.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal

from fedscale_ext.core.types import State
from fedscale_ext.submodels import CountMean

Operator = tuple[int, str]  # number of its layer, its name
Aggregation = Literal["opa", "fedavg", "plain"]
MeanOver = Literal["participants", "holders"]
_LAYERS = "layers"


def operator_of(name: str) -> Operator | None:
    """Operator of a tensor, by its name in the state; None for a tensor that all paths share."""
    first, *rest = name.split(".", 3)
    return (int(rest[0]), rest[1]) if first == _LAYERS else None


class OperatorMeans:
    """The new state of a supernet, client by client; sums in float64, of the operators that somebody holds.

    ``reference``: the state that the clients started from. ``aggregation`` opa: Equation 5; fedavg: an operator's mean
    is by all examples that clients trained on; plain: the same, all alike. ``parameters``: names of the trainable
    tensors, where only these are averaged as by fedavg (``opa_scope`` buffers_only); None: OPA averages all.
    ``mean_over``: whether such a mean that is not OPA's is over all clients, those that do not hold the operator with
    its values in ``reference``, or over those that hold it.
    """

    def __init__(
        self,
        reference: State,
        aggregation: Aggregation,
        min_clients: int,
        parameters: Collection[str] | None = None,
        mean_over: MeanOver = "participants",
    ) -> None:
        self._reference, self._aggregation, self._min_clients = reference, aggregation, min_clients
        self._all_clients = mean_over == "participants"
        self._groups: dict[tuple[Operator | None, bool], State] = {}  # with tensors that OPA averages, and others
        for name, tensor in reference.items():
            operator = operator_of(name)
            by_examples = operator is not None and aggregation == "opa" and not (parameters and name in parameters)
            self._groups.setdefault((operator, by_examples), {})[name] = tensor
        self._means: dict[tuple[Operator | None, bool], CountMean] = {}
        self.clients: Counter[Operator] = Counter()  # that trained each operator

    def add(self, state: State, examples: Mapping[Operator, int], trained: int) -> None:
        """Add a client's state.

        Args:
            state: Tensors of the operators that it holds.
            examples: Number of examples that went through each operator.
            trained: Number of examples that it trained on.

        """
        whole = 1 if self._aggregation == "plain" else trained
        for key, reference in self._groups.items():
            operator, by_examples = key
            held = next(iter(reference)) in state
            if not held and (by_examples or not self._all_clients):
                continue
            weight = examples.get(operator, 0) if by_examples and operator is not None else whole
            if weight:
                if key not in self._means:
                    self._means[key] = CountMean(reference)
                self._means[key].add(state if held else reference, None, weight)
        self.clients.update(operator for operator, seen in examples.items() if seen)

    def result(self) -> State:
        """The mean, in the reference's dtypes."""
        new = dict(self._reference)
        for (operator, _), mean in self._means.items():
            if operator is None or self.clients[operator] >= self._min_clients:
                new |= mean.result()
        return new
