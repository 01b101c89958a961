"""Names of the models that come with the package, and the inputs that they surely take: what can be told without
torch, which the models themselves (``models/registry.py``) need. A test holds the two together."""

# least height and width -> models that take any input from there on
_SIDES: dict[int, tuple[str, ...]] = {
    1: (
        "first_exit_mlp", "multi_exit_mlp", "single_exit_mlp",
        "rnn", "rnn_largest", "rnn_smallest",
        "rnn_positions", "rnn_positions_largest", "rnn_positions_smallest",
    ),
    2: ("first_exit_cnn3", "first_exit_cnn10", "first_exit_resnet18_4"),
    3: (
        "nasbench201_sixteenth", "nasbench201_base", "nasbench201_1x", "nasbench201_2x", "nasbench201_4x",
        "nasbench201_8x", "nasbench201_16x", "nasbench201_32x", "nasbench201_64x",
        "first_exit_resnet18", "first_exit_resnet18_small",
    ),
    4: (
        "cnn_leaf", "cnn_small", "lenet_80k", "lenet_6k",
        "first_exit_vgg_small", "first_exit_vgg_stl10", "first_exit_vgg_svhn", "first_exit_vgg_unimib",
    ),
    8: ("vit_small", "multi_exit_cnn3", "single_exit_cnn3"),
    9: (
        "resnet18", "resnet18_openimage", "resnet_tiny", "mobilenetv2", "mobilenetv2_thin", "mobilenetv3_small",
        "multi_exit_resnet18", "multi_exit_resnet18_4", "multi_exit_resnet18_small",
        "single_exit_resnet18", "single_exit_resnet18_4", "single_exit_resnet18_small",
        "cifar10_extra_range", "cifar10_extra_range_largest", "cifar10_extra_range_smallest",
        "torchvision_efficientnet_v2_s", "torchvision_mobilenet_v2", "torchvision_mobilenet_v3_large",
        "torchvision_mobilenet_v3_small", "torchvision_resnet18", "torchvision_resnet34",
    ),
    16: (
        "multi_exit_cnn10", "single_exit_cnn10",
        "multi_exit_vgg_small", "multi_exit_vgg_stl10", "multi_exit_vgg_svhn", "multi_exit_vgg_unimib",
        "single_exit_vgg_small", "single_exit_vgg_stl10", "single_exit_vgg_svhn", "single_exit_vgg_unimib",
    ),
    17: (
        "resnet18_speech", "resnet18_speech_8x", "cnn_l", "cnn_l_largest", "cnn_l_smallest",
        "cnn_tiny", "cnn_tiny_largest", "cnn_tiny_smallest",
    ),
    33: ("cnn_s", "cnn_s_largest", "cnn_s_smallest"),
}  # fmt: skip
# models with exits take windows of a signal, of height 1, that are as long as the side above
_WINDOWS = ("first_exit_", "multi_exit_", "single_exit_")

READS_SYMBOLS = {
    "rnn", "rnn_largest", "rnn_smallest",
    "rnn_positions", "rnn_positions_largest", "rnn_positions_smallest",
}  # fmt: skip
"""Models of texts, whose samples are numbers of symbols; the others read pictures or other values."""

LEAST_SIDE = {name: side for side, names in _SIDES.items() for name in names}


def surely_takes(name: str, shape: tuple[int, int, int] | None, text: bool | None) -> bool:
    """Whether ``name`` is a model of the package that takes inputs of ``shape`` (C, H, W); None: not known.

    ``text`` says whether inputs are symbols of a text; None: not known. False means: build the model to find out.
    """
    if text is not None and (name in READS_SYMBOLS) != text:
        return False
    if name not in LEAST_SIDE or shape is None:
        return name in LEAST_SIDE
    _, height, width = shape
    return LEAST_SIDE[name] <= (width if height == 1 and name.startswith(_WINDOWS) else min(height, width))
