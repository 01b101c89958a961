"""A student's losses on public samples: torch's own where it has them, and nothing where the student agrees."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedscale_ext.methods.distillation import losses

SEEDS = st.integers(0, 10**6)


def drawn(seed: int, *shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, 5, generator=generator, dtype=torch.float64) for _ in range(2)]


@settings(max_examples=15)
@given(SEEDS)
def test_divergence_is_torchs(seed: int) -> None:
    output, teacher = drawn(seed, 7)
    theirs = functional.kl_div(output.log_softmax(-1), teacher.log_softmax(-1), reduction="none", log_target=True)
    torch.testing.assert_close(losses.divergence(output, teacher), theirs.sum(-1))
    assert (losses.divergence(output, teacher) >= -1e-12).all()
    assert losses.divergence(output, output + 3.0).abs().max() < 1e-12  # a constant changes no probability


@settings(max_examples=15)
@given(SEEDS)
def test_cross_entropies_are_torchs(seed: int) -> None:
    output, teacher = drawn(seed, 2, 7)
    labels, p = teacher.argmax(-1), teacher.softmax(-1)
    flat = functional.cross_entropy(output.flatten(0, 1), p.flatten(0, 1), reduction="none")
    torch.testing.assert_close(losses.soft_cross_entropy(output, p).flatten(), flat)
    hard = functional.cross_entropy(output.flatten(0, 1), labels.flatten(), reduction="none")
    torch.testing.assert_close(losses.hard_cross_entropy(output, labels).flatten(), hard)


@settings(max_examples=15)
@given(SEEDS, st.sampled_from([0.0, 0.25, 1.0]))
def test_names_lead_to_losses(seed: int, epsilon: float) -> None:
    output, teacher = drawn(seed, 3)
    labels, p = teacher.argmax(-1), teacher.softmax(-1)
    ce, kl = losses.hard_cross_entropy(output, labels), losses.divergence(output, teacher)
    both = losses.of_clients("labels+teacher", epsilon)(output, teacher, labels)
    torch.testing.assert_close(both, epsilon * ce + (1 - epsilon) * kl)
    torch.testing.assert_close(losses.of_clients("labels", 1.0)(output, None, labels), ce)
    torch.testing.assert_close(
        losses.of_clients("probabilities", 1.0)(output, p, None), losses.soft_cross_entropy(output, p)
    )
    mae = losses.of_clients("mae", 1.0)(output, teacher, None)
    assert mae.tolist() == pytest.approx((output - teacher).abs().mean(-1).tolist())


def test_a_loss_without_its_target_says_so() -> None:
    with pytest.raises(ValueError, match="without what this loss compares with"):
        losses.of_clients("mae", 1.0)(torch.zeros(1, 2), None, None)
    with pytest.raises(KeyError):
        losses.of_clients("mse", 1.0)
