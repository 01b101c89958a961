"""Clients with public samples: side by side as one after another, what they keep, what they say, when they learn."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from client_settings import NO_BENCH, client_settings

from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.methods.distillation.client import LogitsClient
from fedscale_ext.methods.personal.personal_models import floating_tensors, load_tensors
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort
from methods.harness import samples

State = dict[str, torch.Tensor]
SHAPE, CLASSES, PUBLIC = (1, 8, 8), 5, 9
SPEC = models.named_spec("nasbench201_base", SHAPE, CLASSES)
DIGEST = {"loss": "mae", "epochs": 2, "batch_size": 4, "told": True}
PRETRAIN = {"loss": "labels", "epochs": 1, "batch_size": 5, "told": False}


def network(seed: int = 7) -> torch.nn.Module:
    module = models.build(SPEC).double()
    module.load_state_dict(models.initial_state(SPEC, seed))
    return module


def handed(with_target: bool = True) -> State:
    public = samples(PUBLIC, seed=50)
    shared = {"x": public.x, "labels": public.y, "asked": torch.tensor([8, 0, 3])}
    if with_target:
        target = torch.randn(7, CLASSES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        shared |= {"rows": torch.tensor([1, 2, 3, 5, 6, 7, 8]), "target": target}
    return shared


def conf(client: int, **changes: Any) -> ClientConfig:
    values = {
        "client_state": {},
        "shared_tensors": handed(),
        "returns_tensors": True,
        "public": [PRETRAIN, DIGEST],
        "test_bsz": 2,
    }
    return client_settings(client, **{**values, "model_key": "type", **changes})


def client(settings: ClientConfig) -> LogitsClient:
    return LogitsClient(settings, SimpleNamespace(module=lambda key: network()))  # type: ignore[arg-type]


# an eps at which Adam makes little of rounding
ADAM = {"client_optimizer": "adam", "learning_rate": 1e-3, "adam_eps": 1e-2}


@pytest.mark.parametrize("changes", [{}, ADAM, {"local_epochs": 2}, {"client_state": None}])
def test_side_by_side_is_one_after_another(changes: dict[str, Any]) -> None:
    counts, owns = (
        [20, 9, 7],
        [floating_tensors(network(3).state_dict()), {}, floating_tensors(network(4).state_dict())],
    )
    data = [samples(count, index) for index, count in enumerate(counts)]

    def settings(index: int) -> ClientConfig:
        steps = 2 * -(-counts[index] // 5) if "local_epochs" in changes else 10 - index
        return conf(index, **{"client_state": owns[index], "local_steps": steps, **changes})

    module, stack = network(), stacked(network(), SHAPE)
    assert stack is not None
    cohort = Cohort(stack, module, SHAPE, 3, torch.device("cpu"), channels_last=True)
    cohort.restore({name: tensor.detach().clone() for name, tensor in module.state_dict().items()})
    confs = [settings(index) for index in range(3)]
    together = client(confs[0]).train_cohort(data, cohort, confs)
    states = cohort.trained([one.local_steps for one in confs])
    for index, other in enumerate(together):
        config = settings(index)
        alone = client(config).train(data[index], network(), config)
        assert isinstance(other, dict) and other["trained_size"] == alone["trained_size"]
        assert abs(other["moving_loss"] - alone["moving_loss"]) < 1e-9
        torch.testing.assert_close(other["returned"]["logits"], alone["returned"]["logits"], atol=1e-6, rtol=1e-6)
        for name, tensor in floating_tensors(alone["update_weight"]).items():
            assert float((tensor - states[name][index]).abs().max()) < 1e-9
            assert "client_state" not in alone or torch.equal(alone["client_state"][name], tensor)
            assert "client_state" not in other or torch.equal(other["client_state"][name], states[name][index])
        assert ("client_state" in alone) == ("client_state" in other) == (config.client_state is not None)


def test_logits_are_those_of_the_trained_model_on_the_rows_that_were_asked() -> None:
    settings = conf(3, local_steps=4)
    result = client(settings).train(samples(20), network(), settings)
    module = network()
    load_tensors(module, result["client_state"])
    expected = module.eval()(settings.shared_tensors["x"][[8, 0, 3]])
    assert result["returned"]["logits"].dtype == torch.float32
    torch.testing.assert_close(result["returned"]["logits"], expected.detach().float())
    assert all(tensor.is_floating_point() for tensor in result["client_state"].values())


def test_phases_come_in_order_and_only_what_was_told_is_learnt() -> None:
    with_target, without_target = conf(3, shared_tensors=handed()), conf(3, shared_tensors=handed(with_target=False))
    assert [phase.config(with_target).batch_size for phase in client(with_target)._phases(with_target)] == [5, 4]
    assert [phase.config(without_target).batch_size for phase in client(without_target)._phases(without_target)] == [5]
    pretrain, digest = client(with_target)._phases(with_target)
    assert len(pretrain.samples) == PUBLIC and len(digest.samples) == 7
    assert digest.config(with_target).local_steps == 4  # seven samples in fours, twice
    torch.testing.assert_close(digest.samples.x[2], with_target.shared_tensors["x"][3])


def test_a_digest_brings_a_model_nearer_to_what_was_told() -> None:
    settings = conf(3, public=[{**DIGEST, "epochs": 30}])
    (phase,) = client(settings)._phases(settings)
    module = network()

    def apart() -> float:
        logits = module.eval()(settings.shared_tensors["x"][settings.shared_tensors["rows"]]).detach()
        return float((logits - settings.shared_tensors["target"]).abs().mean())

    before = apart()
    phase.train(phase.samples, module, phase.config(settings))
    assert apart() < 0.7 * before


def test_without_public_samples_it_trains_as_any_client_from_what_it_keeps() -> None:
    state = floating_tensors(network(3).state_dict())
    settings = conf(3, client_state=state, shared_tensors=None, returns_tensors=False, round="personalise")
    result = client(settings).train(samples(20), network(), settings)
    plain = client_settings(3, round="personalise")
    expected = MultiModelClient(plain, NO_BENCH).train(samples(20), network(3), plain)
    assert "returned" not in result
    for name, tensor in expected["update_weight"].items():
        torch.testing.assert_close(result["update_weight"][name], tensor)


def test_a_model_that_breaks_down_fails_its_client_alone() -> None:
    settings = conf(3, learning_rate=1e200, clip_norm=None)
    with pytest.raises(FloatingPointError):
        client(settings).train(samples(20), network(), settings)
