import subprocess
import sys

import pytest

IMPORTS = """
import fedscale_ext.compat as compat
compat.prepare()
compat.prepare()
from fedscale.cloud.aggregation.aggregator import Aggregator
from fedscale.cloud.execution.executor import Executor
from fedscale.cloud.execution.torch_client import TorchClient
import torchvision.models
torchvision.models.resnet18(num_classes=2)
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)


def test_fedscale_is_importable_whatever_the_command_line_holds() -> None:
    done = python(IMPORTS, "--use_cuda", "print('evaluated')", "--rounds", "x", "--unknown")
    assert done.returncode == 0, done.stderr
    assert "evaluated" not in done.stdout


def test_what_is_not_installed_says_so_when_it_is_used() -> None:
    pytest.importorskip("torch")
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError:
        wandb = None
    if wandb is not None and getattr(wandb, "__file__", None):
        pytest.skip("wandb is installed")
    done = python(IMPORTS + "import wandb\ntry:\n    wandb.init()\nexcept ImportError as error:\n    print(error)")
    assert "needs the package wandb" in done.stdout


def test_the_command_needs_no_torch_to_say_what_it_can() -> None:
    code = (
        "import sys\nfrom fedscale_ext.config import job_config\njob_config.make_config({}, {})\n"
        "print('torch' in sys.modules)"
    )
    assert python(code).stdout.strip() == "False"


def test_a_process_of_a_job_imports_nothing_slow_that_it_may_never_use() -> None:
    code = (
        "import sys\nimport fedscale_ext.methods.averaging.fedavg, fedscale_ext.executor.executor\n"
        "print({'torchvision', 'torch._dynamo', 'matplotlib', 'sympy', 'pandas', 'pyarrow', 'scipy'} & {*sys.modules})"
    )
    assert python(code).stdout.strip() == "set()"


def test_fedscales_modules_get_torchvision_when_they_use_it() -> None:
    code = (
        "import sys\nimport fedscale_ext.training\nimport fedscale.cloud.fllibs as libs\n"
        "assert 'torchvision' not in sys.modules\n"
        "print(libs.transforms.ToTensor().__class__.__module__)\n"
        "import torchvision.models\n"
        "print(libs.tormodels.__dict__['resnet18'] is torchvision.models.resnet18)"
    )
    done = python(code)
    assert done.stdout.split() == ["torchvision.transforms.transforms", "True"], done.stderr
