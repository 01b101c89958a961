"""Entry of Moss's executors: its devices train as FedAvg's do (Algorithm 1, lines 3-6), and nothing more."""

if __name__ == "__main__":
    from fedscale_ext.runtime.launch import run_executor

    run_executor()
