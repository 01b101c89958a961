"""The validation set, paths' figures on it, and re-estimated statistics."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.methods.fedoras.federated_evaluation import mean_scores
from fedscale_ext.methods.fedoras.validation import path_figures, recalibrated, validation_rows
from fedscale_ext.models.supernet import family as supernet

SIZES = [10, 1, 35, 7, 200]


def test_a_share_of_every_client_is_held_out_of_what_it_trains_on() -> None:
    rows = validation_rows(SIZES, 0.1, seed=3)
    assert [len(held_out) for held_out in rows] == [1, 0, 4, 1, 20]
    for client, (held_out, size) in enumerate(zip(rows, SIZES, strict=True), start=1):
        trained, _ = hold_out(size, 0.1, 3, client)
        assert sorted([*held_out.tolist(), *trained.tolist()]) == list(range(size))


def test_a_fraction_of_the_whole_set_is_drawn() -> None:
    whole = validation_rows(SIZES, 0.5, seed=3)
    half = validation_rows(SIZES, 0.5, seed=3, fraction=0.5)
    assert sum(map(len, half)) == -(-sum(map(len, whole)) // 2)
    assert all(set(held_out.tolist()) <= set(all_.tolist()) for held_out, all_ in zip(half, whole, strict=True))
    assert [held_out.tolist() for held_out in half] == [
        held_out.tolist() for held_out in validation_rows(SIZES, 0.5, 3, fraction=0.5)
    ]
    with pytest.raises(UserError, match="fraction of the validation set is 0; it must be above 0"):
        validation_rows(SIZES, 0.1, 3, fraction=0.0)


@pytest.fixture
def trained() -> tuple[supernet.Searchable, list[tuple[str, ...]]]:
    """A small supernet whose statistics are not those of its data, and three of its paths."""
    torch.manual_seed(1)
    spec = models.named_spec("cnn_tiny", (2, 18, 20), 4)
    module = models.build(spec)
    assert isinstance(module, supernet.Searchable)
    for name, tensor in module.named_buffers():
        if name.endswith("running_mean"):
            tensor.normal_(0, 0.3)
    rng = np.random.default_rng(1)
    return module, [tuple(held[rng.integers(len(held))] for held in spec["ops"]) for _ in range(3)]


def data(samples: int, batch: int = 16) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(samples, 2, 18, 20, generator=generator) + 0.5
    y = torch.randint(0, 4, (samples,), generator=generator)
    return list(zip(x.split(batch), y.split(batch), strict=True))


def test_all_clients_together_judge_as_the_global_set_does(trained: tuple[supernet.Searchable, list]) -> None:
    module, paths = trained
    batches = data(80)
    central = path_figures(module, paths, lambda: batches)
    by_client = np.stack([path_figures(module, paths, lambda batch=batch: [batch]) for batch in batches])  # type: ignore[misc]
    examples = np.full((len(batches), len(paths)), 16.0)
    assert mean_scores(by_client[:, :, 0], examples) == pytest.approx(central[:, 0] / 80)
    assert mean_scores(by_client[:, :, 2], examples) == pytest.approx(central[:, 2] / 80, rel=1e-5)


def test_figures_are_those_of_the_path_alone(trained: tuple[supernet.Searchable, list]) -> None:
    module, paths = trained
    batches = data(40)
    spec = supernet.path_of(models.named_spec("cnn_tiny", (2, 18, 20), 4), paths[0])
    alone = models.build(spec)
    state = module.state_dict()
    alone.load_state_dict({name: state[name] for name in alone.state_dict()})
    alone.eval()
    logits = torch.cat([alone(x) for x, _ in batches])
    labels = torch.cat([y for _, y in batches])
    correct, _, loss = path_figures(module, paths, lambda: batches)[0]
    assert correct == (logits.argmax(1) == labels).sum()
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item(), rel=1e-5)


@pytest.mark.parametrize("recalibrate", [False, True])
def test_judging_leaves_no_trace(trained: tuple[supernet.Searchable, list], recalibrate: bool) -> None:
    module, paths = trained
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    batches = data(40)
    figures = path_figures(module, paths, lambda: batches, recalibrate=recalibrate)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    alone = [path_figures(module, [path], lambda: batches, recalibrate=recalibrate)[0] for path in reversed(paths)]
    assert (figures == np.array(alone[::-1])).all()


def test_recalibrated_statistics_are_those_of_the_data_through_the_path(
    trained: tuple[supernet.Searchable, list],
) -> None:
    module, paths = trained
    module.choose(paths[0])
    module.eval()
    batches = data(48)
    inputs = [x for x, _ in batches]
    before = {name: tensor.clone() for name, tensor in module.named_buffers()}
    stem = torch.cat([module.stem.conv(x) for x in inputs]).double()  # type: ignore[union-attr,operator]
    with recalibrated(module, inputs):
        assert not module.training
        inside = {name: tensor.clone() for name, tensor in module.named_buffers()}
    changed = {name for name in before if not torch.equal(before[name], inside[name])}
    on_path = {f"layers.{layer}.{name}." for layer, name in enumerate(paths[0])}
    assert changed
    assert not [
        name
        for name in changed
        if name.startswith("layers.") and not any(name.startswith(prefix) for prefix in on_path)
    ]
    torch.testing.assert_close(inside["stem.bn.running_mean"].double(), stem.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inside["stem.bn.running_var"].double(), stem.var((0, 2, 3)), rtol=1e-4, atol=1e-5)


def test_statistics_come_back_after_an_error(trained: tuple[supernet.Searchable, list]) -> None:
    module, paths = trained
    module.choose(paths[0])
    module.train()
    before = {name: tensor.clone() for name, tensor in module.named_buffers()}

    def broken() -> Iterable[Tensor]:
        yield data(16)[0][0]
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"), recalibrated(module, broken()):
        pass
    assert module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.named_buffers())


def test_recalibration_changes_what_is_found(trained: tuple[supernet.Searchable, list]) -> None:
    module, paths = trained
    batches = data(64)
    losses = [
        path_figures(module, paths, lambda: batches, recalibrate=recalibrate)[:, 2] for recalibrate in (False, True)
    ]
    assert (np.abs(losses[0] - losses[1]) > 0.1).all()


def test_recurrent_paths_have_no_statistics() -> None:
    spec = supernet.make((1, 1, 6), 7, **{**supernet.SPACES["rnn"], "symbols": 7, "embedding": 3, "hidden": 4})
    module = models.build(spec)
    assert isinstance(module, supernet.Searchable)
    symbols = torch.randint(0, 7, (12, 1, 1, 6), generator=torch.Generator().manual_seed(1)).float()
    batches = [(symbols, torch.arange(12) % 7)]
    paths = [("lstm", "zero", "identity", "zero"), ("gru", "linear", "qrnn", "identity")]
    figures = [path_figures(module, paths, lambda: batches, recalibrate=recalibrate) for recalibrate in (False, True)]
    assert (figures[0] == figures[1]).all()
    assert figures[0].shape == (2, 3)
    assert path_figures(module, [], lambda: batches).shape == (0, 3)
