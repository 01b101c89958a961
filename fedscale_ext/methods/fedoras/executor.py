"""Entry of FedorAS's executors: their clients train a path in each step (section 3.1)."""

if __name__ == "__main__":
    from fedscale_ext.runtime.launch import run_executor

    run_executor()
