"""A model of the server learns: what torch would have done, held-out samples that end it, buffers, schedules."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.methods.distillation.fitting import Fit, Fitted, batches, fit, logits_of
from fedscale_ext.methods.distillation.losses import divergence

SHAPE, CLASSES, COUNT = (1, 8, 8), 4, 13
SPEC = models.named_spec("nasbench201_base", SHAPE, CLASSES)
HOW = Fit(lr=0.05, batch_size=4, epochs=2, momentum=0.9, weight_decay=1e-3)
X = torch.randn(COUNT, *SHAPE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
TEACHER = 3 * torch.randn(COUNT, CLASSES, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


LENET = models.named_spec("lenet_6k", SHAPE, CLASSES)  # no BatchNorm, before which Adam makes much of rounding


def start(spec: models.ModelSpec = SPEC) -> dict[str, Tensor]:
    state = models.initial_state(spec, 1)
    return {name: each.double() if each.is_floating_point() else each for name, each in state.items()}


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(9)


def loss(output: Tensor, rows: Tensor) -> Tensor:
    return divergence(output, TEACHER[rows].to(output.dtype))


@pytest.mark.parametrize("how", [HOW, replace(HOW, optimizer="adam", lr=1e-2), replace(HOW, epochs=0, steps=5)])
def test_it_is_torchs_training(how: Fit) -> None:
    spec = LENET if how.optimizer == "adam" else SPEC
    fitted = fit(spec, start(spec), X, loss, how, generator())
    module = models.build(spec).double().train()
    module.load_state_dict(start(spec))
    if how.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(module.parameters(), lr=how.lr, weight_decay=1e-3)
    else:
        optimizer = torch.optim.SGD(module.parameters(), lr=how.lr, momentum=0.9, weight_decay=1e-3)
    draw = generator()
    every = [rows for _ in range(2) for rows in batches(COUNT, 4, draw)]
    for rows in every[: how.steps or None]:
        optimizer.zero_grad()
        loss(module(X[rows]), rows).mean().backward()
        optimizer.step()
    assert fitted.steps == (how.steps or len(every))
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(fitted.state[name], tensor, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(
        logits_of(spec, fitted.state, X), module.eval()(X).detach().float(), atol=1e-5, rtol=1e-5
    )


def test_dropout_depends_on_the_stream_alone() -> None:
    spec, states = models.named_spec("single_exit_mlp", SHAPE, CLASSES).replace(dropout=0.4), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(fit(spec, start(spec), X, loss, HOW, generator()).state)
    assert all(torch.equal(each, states[1][name]) for name, each in states[0].items())


def test_the_start_is_left_as_it_was_and_equal_streams_give_equal_states() -> None:
    begin = start()
    one, other = (fit(SPEC, begin, X, loss, HOW, generator()) for _ in range(2))
    assert all(torch.equal(each, begin[name]) for name, each in start().items())
    assert all(torch.equal(each, other.state[name]) for name, each in one.state.items())
    assert not any(each.requires_grad for each in one.state.values())


def test_a_cosine_ends_in_steps_of_nothing() -> None:
    how = replace(HOW, epochs=0, steps=1, momentum=0.0, weight_decay=0.0)
    first = fit(SPEC, start(), X, loss, how, generator())
    cosine = fit(SPEC, start(), X, loss, replace(how, cosine=True), generator())
    assert all(torch.equal(each, cosine.state[name]) for name, each in first.state.items())  # begins at lr
    far = fit(SPEC, start(), X, loss, replace(how, cosine=True, steps=40), generator())
    plain = fit(SPEC, start(), X, loss, replace(how, steps=40), generator())
    name = models.parameter_names(SPEC)[0]
    moved = [float((state[name] - start()[name]).norm()) for state in (far.state, plain.state)]
    assert 0 < moved[0] < moved[1]


def test_held_out_samples_end_it_and_the_best_state_counts() -> None:
    held = torch.tensor([0, 5, 7])
    seen: set[int] = set()

    def noting(output: Tensor, rows: Tensor) -> Tensor:
        if output.requires_grad:
            seen.update(rows.tolist())
        return loss(output, rows)

    how = Fit(lr=0.5, batch_size=4, steps=400, optimizer="adam", patience=10)
    fitted = fit(SPEC, start(), X, noting, how, generator(), held)
    assert seen == set(range(COUNT)) - set(held.tolist())
    assert 10 <= fitted.steps < 400  # ten samples are soon learnt by heart

    def judged(state: dict[str, Tensor]) -> float:
        return float(loss(logits_of(SPEC, state, X[held]), held).mean())

    assert judged(fitted.state) <= judged(start())


@pytest.mark.parametrize(("steps", "patience"), [(7, 1000), (25, 100)])
def test_the_last_step_counts_even_if_patience_is_long(steps: int, patience: int) -> None:
    other = {name: 1.1 * each for name, each in start(LENET).items()}
    teacher, held = logits_of(LENET, other, X), torch.arange(4)

    def fitted(**changes: int) -> Fitted:
        how = Fit(lr=1e-4, batch_size=4, optimizer="adam", **changes)
        lost = lambda output, rows: divergence(output, teacher[rows])  # noqa: E731
        return fit(LENET, start(LENET), X, lost, how, generator(), held)

    last, judged = fitted(steps=steps), fitted(steps=steps, patience=patience)
    assert all(torch.equal(each, judged.state[name]) for name, each in last.state.items())


def test_a_student_that_only_gets_worse_stays_as_it_was() -> None:
    how = Fit(lr=50.0, batch_size=4, steps=30, patience=10)
    teacher = logits_of(SPEC, start(), X)
    held = torch.arange(4)
    fitted = fit(SPEC, start(), X, lambda output, rows: divergence(output, teacher[rows]), how, generator(), held)
    assert all(torch.equal(each, fitted.state[name]) for name, each in start().items())


@pytest.mark.parametrize(("steps", "said"), [(1, "not all of its numbers"), (9, "its loss is not finite in step 2")])
@pytest.mark.parametrize("held", [None, torch.arange(4)])
def test_one_that_diverges_says_so(steps: int, said: str, held: Tensor | None) -> None:
    how = Fit(lr=1e200, batch_size=4, steps=steps, patience=9)
    if held is not None and steps == 1:
        how = replace(how, patience=99)  # judged after its one step: as it was
        fitted = fit(LENET, start(LENET), X, loss, how, generator(), held)
        assert all(torch.equal(each, fitted.state[name]) for name, each in start(LENET).items())
        return
    with pytest.raises(FloatingPointError, match=said):
        fit(LENET, start(LENET), X, loss, how, generator(), held)


def test_a_network_with_one_exit_learns_too() -> None:
    spec = models.named_spec("single_exit_mlp", SHAPE, CLASSES)
    state = models.initial_state(spec, 1)
    fitted = fit(spec, state, X.float(), loss, replace(HOW, epochs=1), generator())
    assert fitted.steps == 3 and logits_of(spec, fitted.state, X.float()).shape == (COUNT, CLASSES)


@pytest.mark.parametrize(("count", "sizes"), [(9, [4, 5]), (10, [4, 4, 2]), (8, [4, 4]), (3, [3]), (1, [1])])
def test_a_last_sample_joins_the_batch_before(count: int, sizes: list[int]) -> None:
    drawn = batches(count, 4, torch.Generator().manual_seed(1))
    assert [len(each) for each in drawn] == sizes and sorted(torch.cat(drawn).tolist()) == list(range(count))
