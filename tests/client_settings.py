"""What an executor tells a client that trains: one place for the tests that call the client without a job."""

from argparse import Namespace


def client_settings(client: int = 3, **changes: object) -> Namespace:
    values = {
        "use_cuda": False, "task": "cv", "seed": 1, "round": 1, "client_id": client, "local_steps": 6,
        "batch_size": 5, "learning_rate": 0.05, "client_momentum": 0.9, "client_weight_decay": 5e-4,
        "prox_mu": 0.0, "own_classes": False, "clip_norm": None, "loss_decay": 0.2, "precision": "float32",
        "local_epochs": None, "held_out": 0.0, "offset": None, "own": None, "mask": None, "returned": None,
        "shared": None, "group_lasso": 0.0,
        "client_optimizer": "sgd", "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8,
    }  # fmt: skip
    return Namespace(**{**values, **changes})
