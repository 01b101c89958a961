"""Entry of FedTrans's executors: its clients run plain local SGD (Algorithm 1, line 10)."""

if __name__ == "__main__":
    from fedscale_ext.runtime.launch import run_executor

    run_executor()
