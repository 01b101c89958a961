"""FedL2G: gradients of the quiz, the server's step, rounds of warming up, what counts as work and traffic."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings
from torch import nn
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.api.predict import predict
from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.methods.exchange.class_vectors import VECTORS
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.methods.exchange.fedl2g import GRADIENTS, FedL2GClient
from fedscale_ext.methods.exchange.learning_to_guide import guiding_gradients
from fedscale_ext.methods.personal.personal_models import floating_tensors
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.layers.final_layer import input_of
from fedscale_ext.report.job.loading import load_job
from methods.exchange.exchange_harness import (
    TYPES,
    WIDTH,
    assert_cohorts_equal_one_by_one,
    bench,
    new_aggregator,
    play,
    samples,
)
from methods.harness import CLASSES, SHAPE

SPEC = headed(models.named_spec("cnn_small", SHAPE, CLASSES), WIDTH)


class Attending(nn.Module):
    """Its attention is torch's own, which takes fused kernels."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.patches, self.last = nn.Conv2d(in_channels, 8, 4, 4), nn.Linear(8, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.last(functional.scaled_dot_product_attention(tokens, tokens, tokens).mean(1))


ATTENDING = headed(models.named_spec("tests.methods.exchange.test_fedl2g:Attending", SHAPE, CLASSES), WIDTH)
NORMED = headed(models.named_spec("nasbench201_base", SHAPE, CLASSES), WIDTH)
GUIDING = {
    "features": torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(4)),
    "logits": torch.randn(CLASSES, CLASSES, generator=torch.Generator().manual_seed(4)),
}


def quiz_loss(
    spec: models.ModelSpec, layer: str | None, study: Any, quiz: Any, vectors: torch.Tensor, lr: float
) -> float:
    """The quiz's loss after a step by torch's own optimiser."""
    model = bench(spec).module().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with input_of(model.get_submodule("head")) as last:
        logits = model(study.x)
    guided = last.features if layer else logits
    (functional.cross_entropy(logits, study.y) + functional.mse_loss(guided, vectors[study.y])).backward()
    optimizer.step()
    with torch.no_grad():
        return float(functional.cross_entropy(model(quiz.x), quiz.y))


@pytest.mark.parametrize("spec", [SPEC, NORMED, ATTENDING], ids=["plain", "batch norm", "attention"])
@pytest.mark.parametrize(("layer", "guide"), [("head", "features"), (None, "logits")])
def test_gradients_are_the_differences_of_the_quiz(spec: models.ModelSpec, layer: str | None, guide: str) -> None:
    study, quiz, vectors = samples(7), samples(5), GUIDING[guide].double()
    gradients = guiding_gradients(bench(spec).module().eval(), layer, study, quiz, vectors, 0.1)
    assert gradients.shape == vectors.shape and gradients.abs().max() > 1e-6
    missing = torch.bincount(study.y, minlength=CLASSES) == 0
    assert not gradients[missing].any()
    largest = [divmod(int(index), vectors.shape[1]) for index in gradients.abs().flatten().argsort()[-3:]]
    for row, column in largest:
        change = torch.zeros_like(vectors)
        change[row, column] = 1e-4
        up, down = (quiz_loss(spec, layer, study, quiz, vectors + sign * change, 0.1) for sign in (1, -1))
        assert (up - down) / 2e-4 == pytest.approx(float(gradients[row, column]), rel=1e-4)


@pytest.mark.parametrize("guide", GUIDING)
def test_the_loss_has_the_distance_to_the_vector_of_the_class(guide: str) -> None:
    conf = client_settings(model_key="a", client_state={}, shared_tensors={VECTORS: GUIDING[guide]},
                           weight=1.0, guide=guide)  # fmt: skip
    client = FedL2GClient(conf, bench(SPEC))
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(4, CLASSES)), np.array([0, 3, 3, 1])
    features = rng.normal(size=(4, WIDTH))
    guided = features if guide == "features" else logits
    distances = ((guided - GUIDING[guide].numpy()[labels]) ** 2).mean(1)
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), labels] + distances
    output, tapped, y = torch.from_numpy(logits), torch.from_numpy(features), torch.from_numpy(labels)
    losses = client.feature_losses(output, tapped, y) if client.tap else client.losses(output, y)
    assert (client.tap is None) == (guide == "logits")
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("more", [{"guide": "features"}, {"guide": "logits"}, {"guide": "features", "warm_up": True}],
                         ids=["features", "logits", "warming up"])  # fmt: skip
def test_clients_side_by_side_learn_what_they_learn_one_by_one(more: dict[str, Any]) -> None:
    states = [{}, floating_tensors(bench(SPEC, 9).module().state_dict())]
    message = {VECTORS: GUIDING[more["guide"]]}
    steps = {"local_steps": 1} if "warm_up" in more else {}
    settings = {"weight": 1.0, "study": 4, "held_out": 0.2, **more, **steps}
    assert_cohorts_equal_one_by_one(FedL2GClient, SPEC, states, message, **settings)


def test_a_client_studies_what_it_trains_on_and_holds_the_quiz_out() -> None:
    at, data = bench(SPEC), samples(9)
    conf = client_settings(model_key="a", client_state={}, shared_tensors={VECTORS: GUIDING["features"]},
                           returns_tensors=True, weight=1.0, guide="features", study=4, held_out=0.3)  # fmt: skip
    client = FedL2GClient(conf, at)
    study, quiz = client._parts(data, conf)
    rows, held = hold_out(9, 0.3, conf.seed, conf.client_id)
    assert len(study) == 4 and torch.equal(quiz.x, data.x[held]) and len(held) == 3
    assert all(any(torch.equal(x, data.x[row]) for row in rows) for x in study.x)
    model = at.module()
    returned = client.train(data, model, conf)["returned"]
    assert returned[COUNTS].tolist() == torch.bincount(study.y, minlength=CLASSES).tolist()
    expected = guiding_gradients(model.eval(), "head", study, quiz, GUIDING["features"].double(), conf.learning_rate)
    torch.testing.assert_close(returned[GRADIENTS], expected.float())


def test_warming_up_leaves_the_model_as_it_is() -> None:
    at, state = bench(SPEC), floating_tensors(bench(SPEC, 9).module().state_dict())
    conf = client_settings(model_key="a", client_state=state, shared_tensors={VECTORS: GUIDING["features"]},
                           returns_tensors=True, study=4, held_out=0.3, warm_up=True, local_steps=1)  # fmt: skip
    result = FedL2GClient(conf, at).train(samples(9), at.module(), conf)
    assert all(torch.equal(result["client_state"][name], tensor) for name, tensor in state.items())
    assert result["success"] and result["trained_size"] == 4 and result["returned"][GRADIENTS].any()


def test_the_server_steps_along_the_mean_over_the_clients_that_studied_a_class(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedl2g", tmp_path, lr=0.5)
    before = aggregator.vectors.clone()
    rng = np.random.default_rng(5)
    one, two = (torch.from_numpy(rng.normal(size=(CLASSES, WIDTH)).astype(np.float32)) for _ in range(2))
    counts = [torch.tensor(each, dtype=torch.int32) for each in ([4, 0, 6, 0, 0], [0, 0, 3, 7, 0])]
    answers = {number: {GRADIENTS: each * (count > 0)[:, None], COUNTS: count}
               for number, each, count in ((1, one, counts[0]), (4, two, counts[1]))}  # fmt: skip
    play(aggregator, 1, [1, 4], answers)
    expected = before.numpy().copy()
    expected[0] -= 0.5 * one[0].numpy()
    expected[2] -= 0.5 * (one[2].numpy() + two[2].numpy()) / 2
    expected[3] -= 0.5 * two[3].numpy()
    np.testing.assert_allclose(aggregator.vectors.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(aggregator.message()[VECTORS], aggregator.vectors)


def test_vectors_that_diverge_stay_as_they_were(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedl2g", tmp_path, lr=1e38)
    before = aggregator.vectors.clone()
    gradients = torch.full((CLASSES, WIDTH), 1e3)
    play(aggregator, 1, [1], {1: {GRADIENTS: gradients, COUNTS: torch.full((CLASSES,), 2, dtype=torch.int32)}})
    assert torch.equal(aggregator.vectors, before)
    assert any("as before; lower fedl2g.lr" in event["message"] for event in aggregator.events)


def test_rows_of_studied_classes_count_as_traffic_and_the_quiz_as_work(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedl2g", tmp_path, warm_up=1, study=6, quiz=0.25)
    row, every = 4 * WIDTH, 4 * CLASSES
    (item,) = aggregator.assign(1, np.array([2]))  # of 20 samples, 5 of them in the quiz
    assert aggregator.download_bytes(item) == CLASSES * row and aggregator.upload_bytes(item) == CLASSES * row + every
    assert item.overrides == {"held_out": 0.25, "local_steps": 1, "batch_size": 6}
    # of the six samples of its only step: that step, the quiz of five, and a derivative that costs two forward passes
    assert item.compute_fraction == pytest.approx((6 + 5) / 6) and item.forward_fraction == 2.0
    counts = torch.tensor([6, 0, 0, 0, 0], dtype=torch.int32)
    play(aggregator, 1, [2], {2: {GRADIENTS: torch.ones(CLASSES, WIDTH), COUNTS: counts}})
    aggregator.history.append(None)
    (item,) = aggregator.assign(2, np.array([2]))
    assert aggregator.upload_bytes(item) == row + every
    assert item.overrides == {"held_out": 0.25} and item.compute_fraction == pytest.approx(1 + 11 / 10)
    assert item.forward_fraction == pytest.approx(12 / 10)
    assert aggregator.counted(item) == 6 and not item.objective["warm_up"]


def test_a_job_that_only_warms_up_says_so_and_fine_tunes_all_the_same(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedl2g", tmp_path, rounds=5, warm_up=5)
    assert any("no client trains in this job" in event["message"] for event in aggregator.events)
    assert aggregator.objective()["warm_up"] and not aggregator.test_objective()["warm_up"]
    assert not any(
        "no client" in each["message"] for each in new_aggregator("fedl2g", tmp_path, rounds=6, warm_up=5).events
    )


def test_clients_that_only_sent_gradients_never_trained(job_file: Path) -> None:
    keys = {"method": "fedl2g", "fedl2g.types": TYPES, "fedl2g.representation": WIDTH, "fedl2g.warm_up": 1,
            "num_participants": 3, "eval_interval": 1, "job_name": "warming"}  # fmt: skip
    assert fedscale_ext.run(job_file, rounds=1, **keys)["cost"]["client_models"] == 0
    job = load_job(job_file.parent / "logs/warming/logs")
    tested = {client for client, count in enumerate(job.evaluation.count, 1) if count}
    assert any(f"{len(tested)} of {len(tested)} tested clients never trained" in each for each in job.notices)
    summary = fedscale_ext.run(job_file, rounds=2, resume=True, **keys)
    job = load_job(job_file.parent / "logs/warming/logs")
    warm, last = job.records
    assert warm.untrained == warm.participants and not last.untrained
    trained = set(last.participants)
    assert set(warm.participants) - trained and summary["cost"]["client_models"] == len(trained)
    assert summary["clients"]["took_part"] == len(trained | set(warm.participants))
    few = f"{len(tested - trained)} of {len(tested)} tested clients never trained"
    assert any(few in each for each in summary["notices"])
    for number, name in enumerate(job.clients.names, 1):
        notices: list[str] = []
        next(predict(job, name, np.zeros((1, 28, 28), np.uint8), notices.append))
        assert any(f"client {name} never trained" in each for each in notices) == (number not in trained)


def test_logits_need_no_common_width(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedl2g", tmp_path, guide="logits", representation=0)
    assert aggregator.vectors.shape == (CLASSES, CLASSES)
    assert aggregator.sent_tensors.template(TYPES[0])[GRADIENTS].shape == (CLASSES, CLASSES)


def test_a_checkpoint_holds_the_vectors(tmp_path: Path) -> None:
    aggregator, resumed = new_aggregator("fedl2g", tmp_path / "a", lr=0.5), new_aggregator("fedl2g", tmp_path / "b")
    play(aggregator, 1)
    assert aggregator.shared.sections([]) != resumed.shared.sections([])
    resumed.load_state(*aggregator.state())
    assert aggregator.shared.sections([]) == resumed.shared.sections([])
