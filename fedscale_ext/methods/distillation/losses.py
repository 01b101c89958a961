"""Losses of a student on public samples: outputs [..., classes], targets and labels of the same samples -> [...]."""

from collections.abc import Callable, Mapping

from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]  # output, target, labels


def soft_cross_entropy(output: Tensor, probabilities: Tensor) -> Tensor:
    """Cross-entropy with ``probabilities`` [..., classes]."""
    return -(probabilities * output.log_softmax(-1)).sum(-1)


def divergence(output: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) of logits, at temperature 1."""
    log_p = teacher.log_softmax(-1)
    return (log_p.exp() * (log_p - output.log_softmax(-1))).sum(-1)


def absolute_error(output: Tensor, teacher: Tensor) -> Tensor:
    """Mean absolute difference of logits."""
    return (output - teacher).abs().mean(-1)


def hard_cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with class numbers [...]."""
    flat = functional.cross_entropy(output.flatten(0, -2), labels.flatten(), reduction="none")
    return flat.view(labels.shape)


def labels_and_teacher(epsilon: float, output: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """epsilon CE + (1 - epsilon) KL(teacher || student) (FedGEMS)."""
    return epsilon * hard_cross_entropy(output, labels) + (1.0 - epsilon) * divergence(output, teacher)


def of_clients(name: str, epsilon: float) -> Loss:
    """The loss of that name, which a work item's objective has; KeyError for an unknown name."""

    def with_labels(output: Tensor, target: Tensor | None, labels: Tensor | None) -> Tensor:
        return labels_and_teacher(epsilon, output, _required(target), _required(labels))

    known: Mapping[str, Loss] = {
        "labels": lambda output, _, labels: hard_cross_entropy(output, _required(labels)),
        "mae": lambda output, target, _: absolute_error(output, _required(target)),
        "probabilities": lambda output, target, _: soft_cross_entropy(output, _required(target)),
        "labels+teacher": with_labels,
    }
    return known[name]


def _required(value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError("the public samples came without what this loss compares with")
    return value
