"""Dropout by streams that it is given."""

import torch
from torch import Tensor, nn

from fedscale_ext.models.layers.dropout import DrawnFrom, Dropout, drawing


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_masks_come_from_the_stream_alone_and_keep_the_mean() -> None:
    network, x = nn.Sequential(Dropout(0.25), Dropout(0.25)), torch.ones(200, 300)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(outputs))
        with drawing(network, generator(seed)):
            outputs.append(network(x))
            again = network(x)
        assert not torch.equal(outputs[-1], again)  # another draw in each step
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    shares = {float(value): float((outputs[0] == value).double().mean()) for value in outputs[0].unique()}
    assert shares.keys() == {0.0, float(torch.tensor(1 / 0.75) * torch.tensor(1 / 0.75))}
    assert abs(shares[0.0] - (1 - 0.75**2)) < 0.01  # two layers draw apart


def test_a_layer_may_drop_everything() -> None:
    layer, x = Dropout(1.0), torch.ones(4, 5)
    with drawing(layer, generator()):
        assert torch.equal(layer(x), torch.zeros(4, 5))


def test_gradients_flow_through_what_is_kept() -> None:
    layer, x = Dropout(0.5), torch.ones(4, 50, requires_grad=True)
    with drawing(layer, generator()):
        output = layer(x)
    output.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, output.detach())


def test_evaluation_and_the_time_after_training_draw_nothing_from_it() -> None:
    layer, stream, x = Dropout(0.5), generator(), torch.ones(4, 50)
    before = stream.get_state()
    with drawing(layer.eval(), stream):
        assert torch.equal(layer(x), x)
    torch.manual_seed(3)
    first = layer.train()(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first) and (first == 0).any()  # torch's own stream
    assert torch.equal(stream.get_state(), before)


class Path(nn.Module):
    """As torchvision's stochastic depth draws."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.new_empty(len(x), 1).bernoulli_(0.5) / 0.5 if self.training else x


def test_within_drawing_every_network_draws_from_the_stream_alone() -> None:
    x, outputs = torch.ones(6, 50), []
    network = nn.Sequential(nn.Dropout(0.5), Dropout(0.5), Path())
    for seed in (1, 1, 2):
        torch.manual_seed(len(outputs))
        held = torch.get_rng_state()
        with DrawnFrom(generator(seed)):
            outputs.append(network(x))
            assert not torch.equal(network(x), outputs[-1])
            assert torch.equal(network.eval()(x), x) and network.train()
        assert torch.equal(torch.get_rng_state(), held)
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    assert set(outputs[0].unique().tolist()) == {0.0, 8.0}  # each doubles what it keeps
