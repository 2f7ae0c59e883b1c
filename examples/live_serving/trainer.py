"""Trains until it is told to stop, and saves what it has learned meanwhile.

    trainer.py OUTPUT STEPS

exports the untrained model to OUTPUT/model and waits for a line on standard
input. Then it trains until standard input ends. Every STEPS steps a snapshot
goes to OUTPUT/snapshots, and an article appears.
"""

import os
import pathlib
import sys
import threading
import time

os.environ.setdefault("LODESTAR_QUIET_START", "1")


def main(output: pathlib.Path, steps: int) -> None:
    """Trains and saves."""
    # First: it quiets TensorFlow's start.
    import lodestar

    # isort: split
    from news import NewsSite, build_model

    site, model = NewsSite(), build_model()
    lodestar.export.save(model, output / "model")
    if not sys.stdin.readline():
        return
    stopped = threading.Event()
    threading.Thread(
        target=lambda: (sys.stdin.read(), stopped.set()), daemon=True
    ).start()
    article, saved = site.publish(), False
    while not stopped.is_set():
        for _ in range(steps):
            model.train_on_batch(*site.batch())
        lodestar.snapshot.save(
            output / "snapshots",
            model,
            delta=saved,
            metadata={"article": article, "saving": time.time()},
        )
        article, saved = site.publish(), True


if __name__ == "__main__":
    try:
        main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
