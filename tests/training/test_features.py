"""Features in the loss: the same one by one, in stacked cohorts and under vmap."""

from collections.abc import Callable

import pytest
import torch
from client_settings import NO_BENCH, client_settings
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.models.stacked.network import Mapped, Stacked, stacked
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort
from fedscale_ext.training.samples import ClientSamples

SHAPE = (1, 8, 8)


class Mappable(nn.Module):
    """Has a layer without a stacked form."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.ConvTranspose2d(1, 3, 3), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.relu(self.up(x)).amax((2, 3)))


class FeatureClient(MultiModelClient):
    """Keeps features small, and logits of the first class near them."""

    def feature_losses(self, output: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        assert features.dim() == labels.dim() + 1
        return self.losses(output, labels) + 0.5 * features.square().mean(-1) + 0.1 * features.tanh().sum(-1)


def named(name: str) -> Callable[[], nn.Module]:
    return lambda: models.build(models.named_spec(name, SHAPE, 4))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], str, type]] = {
    "cnn": (named("cnn_small"), "linear2", Stacked),
    "batch norm": (named("nasbench201_base"), "head.linear", Stacked),
    "an exit": (named("single_exit_mlp"), "exit3.linear", Stacked),
    "tokens": (named("vit_small"), "head", Stacked),
    "vmap": (Mappable, "head", Mapped),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_features_in_the_loss_are_the_same_in_cohorts_as_one_by_one(name: str) -> None:
    build, tap, kind = NETWORKS[name]
    module = build().double()
    start = {key: tensor.detach().clone() for key, tensor in module.state_dict().items()}
    network = stacked(module, SHAPE)
    assert isinstance(network, kind)
    sizes = (15, 15) if kind is Mapped else (14, 9)  # of which the last batches have 4 samples each
    generator = torch.Generator().manual_seed(3)
    data = [
        ClientSamples(torch.randn(n, *SHAPE, generator=generator).double(), torch.randint(4, (n,), generator=generator))
        for n in sizes
    ]
    confs = [client_settings(client, local_epochs=2, local_steps=-(-n // 5) * 2) for client, n in enumerate(sizes, 1)]
    client = FeatureClient(confs[0], NO_BENCH)
    client.tap = tap
    alone = []
    for each, conf in zip(data, confs, strict=True):
        module.load_state_dict(start)
        result = client.train(each, module, conf)
        alone.append({key: tensor.clone() for key, tensor in result["update_weight"].items()})
    cohort = Cohort(network, build().double(), SHAPE, 2, torch.device("cpu"), channels_last=False)
    cohort.restore(start)
    client.train_cohort(data, cohort, confs)
    together = cohort.trained([conf.local_steps for conf in confs])
    for row, state in enumerate(alone):
        for key, tensor in state.items():
            torch.testing.assert_close(together[key][row], tensor, atol=1e-9, rtol=1e-9)
    assert not any(torch.equal(alone[0][key], start[key]) for key in start if key.endswith("weight"))


def test_the_features_change_what_is_learnt() -> None:
    conf = client_settings()
    data = ClientSamples(torch.randn(9, *SHAPE), torch.randint(4, (9,)))
    module = named("cnn_small")()
    start = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    client, plain = FeatureClient(conf, NO_BENCH), MultiModelClient(conf, NO_BENCH)
    client.tap = "linear2"
    trained = []
    for each in (client, plain):
        module.load_state_dict(start)
        trained.append(each.train(data, module, conf)["update_weight"]["linear1.weight"].clone())
    assert not torch.allclose(*trained)
