"""Small networks and data of all kinds for Moss's tests, in float64."""

from collections import OrderedDict

import torch

from fedscale_ext import models
from fedscale_ext.methods.moss.knowledge_transfer import Options, Wire
from fedscale_ext.methods.moss.losses import observe
from fedscale_ext.methods.moss.proxy_models import Public, Type
from fedscale_ext.models.families import mobilenetv2, resnet, vit
from fedscale_ext.models.families.mobilenetv3_modules import Block as Inverted

SHAPE, CLASSES = (2, 9, 8), 3
OPTIONS = Options(epochs=2, batch_size=4, lr=0.05, momentum=0.5, weight_decay=1e-2, meta_lr=1e-2)


def _inverted():
    blocks = [
        Inverted("c0", 3, 4, 4, 0, "relu6", 1, "none", True),
        Inverted("c1", 3, 8, 5, 0, "relu6", 2, "conv", False),
    ]
    return mobilenetv2.make(SHAPE, CLASSES, 4, 1, blocks, 6)


SPECS = {
    "resnet": resnet.make(SHAPE, CLASSES, 4, [resnet.Block("c0", 4, 4), resnet.Block("c1", 6, 6, 2, True)]),
    "mobilenet": _inverted(),
    "cnn": models.named_spec("lenet_6k", SHAPE, CLASSES),
    "vit": vit.make(SHAPE, CLASSES, [("c0", 1), ("c1", 2)], patch=4, width=6, head_dim=2, mlp=3),
    "mlp": models.ModelSpec.make("multi_exit", **dict(models.named_spec("single_exit_mlp", SHAPE, CLASSES).fields)),
}
SPECS["dropped"] = SPECS["mlp"].replace(dropout=0.4)


def double(state):
    return OrderedDict((k, each.double() if each.is_floating_point() else each) for k, each in state.items())


def start(name, seed=1):
    return double(models.initial_state(SPECS[name], seed))


def public(count=10, seed=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *SHAPE, generator=generator, dtype=torch.float64)
    return Public(x, torch.randint(CLASSES, (count,), generator=generator))


def types(*names):
    return {name: Type(SPECS[name]) for name in names}


def wire(teacher, student, options=OPTIONS, seed=5):
    """A transfer whose TD is no longer uniform, so that all of phi has a part."""
    specs = SPECS[teacher], SPECS[student]
    generator = torch.Generator().manual_seed(seed)
    transfer = Wire(*specs, tuple(map(models.taps, specs)), options, generator)
    transfer.phi = {
        name: (each + 0.3 * torch.randn(each.shape, generator=generator)).double()
        for name, each in transfer.phi.items()
    }
    transfer.projections = double(transfer.projections)
    return transfer


def seen(transfer, teacher, data, seed=2):
    return observe(SPECS[teacher], start(teacher, seed), data.x, transfer.teacher_taps)


def generator(seed=7):
    return torch.Generator().manual_seed(seed)
