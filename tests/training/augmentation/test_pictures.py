"""Pictures changed at random in training: what is drawn, what is seen, and by whom."""

from pathlib import Path

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings
from tiny_job import tiny_data
from torch import Tensor

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.store import open_data_set
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.training.augmentation.pictures import PAD, Augmentation
from fedscale_ext.training.device_data import DeviceData
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort
from fedscale_ext.training.samples import ClientSamples

CPU = torch.device("cpu")
SHAPE = (3, 10, 12)
BLACK = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64).view(3, 1, 1)


def pictures(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_crops_are_those_of_a_padded_picture_and_then_flipped() -> None:
    """Against padding, cutting and flipping one by one, as torchvision's RandomCrop and RandomHorizontalFlip do."""
    x = pictures(40)
    augmentation = Augmentation(True, BLACK)
    views = augmentation.draw(1, 40, np.random.default_rng(1))[0]
    seen = augmentation.apply(x, torch.from_numpy(views))
    for picture, (flip, down, right), view in zip(x, views.tolist(), seen, strict=True):
        padded = BLACK.expand(3, 10 + 2 * PAD, 12 + 2 * PAD).clone()
        padded[:, PAD:-PAD, PAD:-PAD] = picture
        cut = padded[:, PAD + down : PAD + down + 10, PAD + right : PAD + right + 12]
        assert torch.equal(view, cut.flip(2) if flip else cut)


def test_draws_reach_everything() -> None:
    views = Augmentation(True, BLACK).draw(50, 20, np.random.default_rng(1))
    assert set(views[..., 0].ravel()) == {0, 1} and set(views[..., 1:].ravel()) == set(range(-PAD, PAD + 1))
    assert not Augmentation(False, BLACK).draw(50, 20, np.random.default_rng(1))[..., 1:].any()


@pytest.mark.parametrize("crop", [False, True])
def test_a_cohort_sees_what_its_clients_see_alone(crop: bool) -> None:
    counts, start = [20, 12, 3], None
    spec = models.named_spec("cnn_small", SHAPE, 4)
    torch.manual_seed(0)
    module = models.build(spec).double()
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = stacked(models.build(spec).double(), SHAPE)
    assert network is not None
    confs = [client_settings(client, local_steps=steps) for client, steps in enumerate((6, 6, 4))]
    views = Augmentation(crop, BLACK)
    data = [ClientSamples(pictures(n, c), torch.arange(n) % 4, views) for c, n in enumerate(counts)]
    client = MultiModelClient(confs[0], NO_BENCH)
    cohort = Cohort(network, module, SHAPE, len(counts), CPU, channels_last=True)
    cohort.restore(start)
    together = client.train_cohort(data, cohort, confs)
    states = cohort.trained([settings.local_steps for settings in confs])
    for index, (settings, samples) in enumerate(zip(confs, data, strict=True)):
        module.load_state_dict(start)
        alone = client.train(samples, module, settings)
        for name, tensor in alone["update_weight"].items():
            assert float((tensor - states[name][index]).abs().max()) < 1e-9
        assert abs(alone["moving_loss"] - together[index]["moving_loss"]) < 1e-9  # type: ignore[index]
        module.load_state_dict(start)
        plain = client.train(ClientSamples(samples.x, samples.y), module, settings)
        assert plain["moving_loss"] != alone["moving_loss"]


def test_each_round_and_client_draws_its_own() -> None:
    data = ClientSamples(pictures(5), torch.arange(5), Augmentation(True, BLACK))
    rows = np.zeros((4, 5), dtype=np.int64)
    drawn = [data.views(rows, client_settings(client, round=round)) for client in (1, 2) for round in (1, 2)]
    assert len({views.tobytes() for views in drawn if views is not None}) == 4
    again = data.views(rows, client_settings(1, round=1))
    assert again is not None and drawn[0] is not None and np.array_equal(again, drawn[0])


def test_clients_may_see_samples_otherwise_than_the_job_says(tmp_path: Path) -> None:
    """As FedorAS's stage 3 does."""
    data = DeviceData(open_data_set(tiny_data(tmp_path), "femnist"), CPU, "flip_crop")
    rows, seen = np.arange(3), [None, "flip_crop", "flip", "none"]
    augmentations = [data.samples(rows, augment).augmentation for augment in seen]
    assert isinstance(augmentations[0], Augmentation) and isinstance(augmentations[2], Augmentation)
    assert (
        augmentations[0].crop
        and augmentations[0] is augmentations[1]
        and not augmentations[2].crop
        and augmentations[3] is None
    )
    assert data.samples(rows, "flip").augmentation is augmentations[2]


def test_black_is_what_a_black_pixel_becomes(tmp_path: Path) -> None:
    data = open_data_set(tiny_data(tmp_path), "femnist")
    augmentation = Augmentation.of("flip_crop", data, CPU)
    assert augmentation is not None and augmentation.crop
    assert augmentation.black.flatten().tolist() == pytest.approx([-0.1307 / 0.3081])
    assert Augmentation.of("none", data, CPU) is None


def test_values_are_not_flipped(tmp_path: Path) -> None:
    x, y = np.zeros((6, 9, 128), np.float16), np.arange(6)
    np.savez(tmp_path / "har.npz", x=x, y=y, client=y // 3)
    import_npz(tmp_path / "har.npz", tmp_path / "out", "uci_har")
    with pytest.raises(UserError, match="augment: speech is for features of speech, and uci_har holds none"):
        Augmentation.of("speech", open_data_set(tmp_path / "out", "uci_har"), CPU)
    with pytest.raises(UserError, match="augment: flip is for pictures"):
        Augmentation.of("flip", open_data_set(tmp_path / "out", "uci_har"), CPU)


def test_a_job_with_augmentation_and_another_shape_repeats_itself(job_file: Path) -> None:
    keys = {"augment": "flip_crop", "sample_shape": "1x20x20", "rounds": 1}
    first = fedscale_ext.run(job_file, job_name="first", **keys)
    again = fedscale_ext.run(job_file, job_name="again", **keys)
    plain = fedscale_ext.run(job_file, job_name="plain", **{**keys, "augment": "none"})
    other = fedscale_ext.run(job_file, job_name="other", **{**keys, "sample_shape": [1, 28, 28]})
    assert first["loss"] == again["loss"]
    assert len({str(job["loss"]) for job in (first, plain, other)}) == 3


@pytest.mark.parametrize("shape", ["64", "3x64", "axbxc", "3x-1x4", "0x5x5", "2x28x28", "1x28x2000"])
def test_impossible_shapes_are_refused(job_file: Path, shape: str) -> None:
    with pytest.raises(UserError, match=r"sample_shape|input shape"):
        fedscale_ext.run(job_file, sample_shape=shape)
