"""Names of the files in a job's log folder, for whoever needs no more than these."""

HEADER, METRICS, INTERNALS = "header.json", "metrics.jsonl", "internals.jsonl"
WANDB_LOGIN = "login"  # the wandb_token of those whose machine knows its key already
NEEDS_WANDB = (
    "wandb_token is given, but wandb is not installed: pip install 'fedscale_ext[wandb]', or leave the key out"
)
