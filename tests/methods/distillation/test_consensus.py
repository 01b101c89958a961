"""What several models say together: means that sum to one, in any order, and what weighs more."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedscale_ext.methods.distillation import consensus

MODELS, COUNT, CLASSES = 4, 3, 5


@st.composite
def said(draw: st.DrawFn) -> Tensor:
    """Logits [models, n, classes] of any size."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    models = draw(st.integers(1, MODELS))
    return draw(st.sampled_from([0.01, 1.0, 30.0])) * torch.randn(models, COUNT, CLASSES, generator=generator)


@settings(max_examples=25)
@given(said())
def test_the_mean_is_that_of_numpy(logits: Tensor) -> None:
    mean = consensus.mean_logits(logits)
    assert mean.dtype == torch.float32
    assert mean.numpy() == pytest.approx(logits.numpy().mean(0), abs=1e-4)


@settings(max_examples=25)
@given(said(), st.sampled_from([0.1, 0.5, 1.0]))
def test_entropy_reduction_gives_probabilities_in_the_order_of_the_mean(logits: Tensor, temperature: float) -> None:
    probabilities = consensus.entropy_reduced(logits, temperature)
    assert probabilities.sum(-1).tolist() == pytest.approx([1.0] * COUNT, abs=1e-5)
    mean = logits.double().softmax(-1).mean(0)
    most = mean.gather(-1, probabilities.argmax(-1, keepdim=True)).flatten()
    torch.testing.assert_close(most, mean.amax(-1), atol=1e-6, rtol=0)
    torch.testing.assert_close(probabilities, (mean / temperature).softmax(-1).float())


@settings(max_examples=25)
@given(said())
def test_a_lower_temperature_leaves_less_entropy(logits: Tensor) -> None:
    def entropy(temperature: float) -> Tensor:
        return consensus.entropies(consensus.entropy_reduced(logits, temperature).double().log())

    assert (entropy(0.1) <= entropy(0.5) + 1e-6).all() and (entropy(0.5) <= entropy(1.0) + 1e-6).all()


@settings(max_examples=25)
@given(said(), st.integers(0, 10**6))
def test_weights_of_a_mean_are_shares_and_models_have_no_order(logits: Tensor, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(logits.shape[:2], generator=generator) + 0.1
    mean, order = consensus.weighted(logits, weights), torch.randperm(len(logits), generator=generator)
    torch.testing.assert_close(mean, consensus.weighted(logits[order], weights[order]))
    torch.testing.assert_close(mean, consensus.weighted(logits, 7 * weights))
    torch.testing.assert_close(consensus.weighted(logits, torch.ones_like(weights)), consensus.mean_logits(logits))
    least, most = logits.amin(0) - 1e-3, logits.amax(0) + 1e-3
    assert ((mean >= least) & (mean <= most)).all()


def test_without_any_weight_there_is_nothing() -> None:
    assert not consensus.weighted(torch.ones(2, 3, 4), torch.zeros(2, 3)).any()


def test_entropies_are_in_nats() -> None:
    sure = torch.tensor([[[100.0, 0.0]], [[0.0, 0.0]]])
    assert consensus.entropies(sure).flatten().tolist() == pytest.approx([0.0, torch.tensor(2.0).log().item()])


@settings(max_examples=25)
@given(said())
def test_surer_models_weigh_more_and_others_nothing(logits: Tensor) -> None:
    counts = torch.ones(logits.shape[:2], dtype=torch.bool)
    counts[0] = False
    weights, entropies = consensus.entropy_weights(logits, counts), consensus.entropies(logits)
    assert not weights[0].any() and torch.isfinite(weights).all() and (weights[1:] > 0).all()
    for n in range(COUNT):
        order = entropies[1:, n].argsort()
        assert (weights[1:, n][order].diff() <= 0).all()


@settings(max_examples=25)
@given(said())
def test_variance_grows_with_the_square_of_logits(logits: Tensor) -> None:
    variance = consensus.variance_weights(logits)
    assert variance.numpy() == pytest.approx(logits.double().numpy().var(-1))
    torch.testing.assert_close(consensus.variance_weights(3 * logits), 9 * variance, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(consensus.variance_weights(logits + 2), variance, rtol=1e-3, atol=1e-4)


def test_who_is_right() -> None:
    logits = torch.tensor([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [2.0, 1.0]]])
    assert consensus.right(logits, torch.tensor([1, 0])).tolist() == [[True, True], [False, True]]
