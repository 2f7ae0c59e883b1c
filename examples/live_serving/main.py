"""Serves a model while another process trains it.

The trainer saves a snapshot every so many steps, most of them deltas; this
process takes each in while it scores, and prints a line when the first score of
a new version is there: how long after the save began, and what the model now
says of the article that appeared before that save, of which it knew nothing
then.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

os.environ.setdefault("LODESTAR_QUIET_START", "1")

_START_SECONDS = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs both processes; returns the exit code."""
    options = _parse(arguments)
    if options.output is not None:
        return _run(options, pathlib.Path(options.output))
    with tempfile.TemporaryDirectory() as output:
        return _run(options, pathlib.Path(output))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="live_serving", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--seconds", type=float, default=15, help="of training (%(default)s)"
    )
    parser.add_argument(
        "--versions",
        type=int,
        default=1,
        help="to show before it ends, however long it takes (%(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=100,
        help="between snapshots (%(default)s)",
    )
    parser.add_argument(
        "--poll-seconds",
        type=float,
        default=0.1,
        help="between looks for a new snapshot (%(default)s)",
    )
    parser.add_argument(
        "--output", help="folder to leave model and snapshots in"
    )
    options = parser.parse_args(arguments)
    for name in ("seconds", "versions", "steps", "poll_seconds"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    if options.output is not None:
        output = pathlib.Path(options.output)
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            parser.error(f"--output {output} is there, and no empty folder")
    return options


def _run(options: argparse.Namespace, output: pathlib.Path) -> int:
    output.mkdir(parents=True, exist_ok=True)
    trainer = subprocess.Popen(
        [
            sys.executable,
            pathlib.Path(__file__).with_name("trainer.py"),
            output,
            str(options.steps),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,  # which ends with this process
        text=True,
    )
    try:
        if not _wait_for_model(trainer, output / "model"):
            return trainer.wait() or 1
        return _serve(trainer, output, options)
    finally:
        trainer.stdin.close()
        trainer.wait()


def _wait_for_model(trainer: subprocess.Popen, model: pathlib.Path) -> bool:
    end = time.monotonic() + _START_SECONDS
    while not model.exists():
        if trainer.poll() is not None or time.monotonic() > end:
            print("live_serving: the trainer exported nothing", file=sys.stderr)
            return False
        time.sleep(0.05)
    return True


def _serve(
    trainer: subprocess.Popen,
    output: pathlib.Path,
    options: argparse.Namespace,
) -> int:
    # First: it quiets TensorFlow's start.
    import lodestar

    # isort: split
    import numpy as np
    from news import READERS, features

    readers = np.arange(0, READERS, 10)
    times = []

    def click_share(article: int) -> float:
        began = time.perf_counter()
        scores = live(features(readers, np.full_like(readers, article)))
        share = float(scores["click"].numpy().mean())
        times.append(time.perf_counter() - began)
        return share

    with lodestar.serving.LiveModel(
        output / "model", output / "snapshots", options.poll_seconds
    ) as live:
        click_share(0)  # TensorFlow's first call is a slow one.
        times.clear()
        trainer.stdin.write("go\n")
        trainer.stdin.flush()
        print("version   step  delay   rows  article  click, unseen -> fresh")
        end = time.monotonic() + options.seconds
        shown, lines = None, 0
        unseen: dict[int, float] = {}
        article = 0
        running = True
        while running or live.stats()["lag_versions"] > 0:
            running = trainer.poll() is None
            if time.monotonic() > end and lines >= options.versions:
                trainer.stdin.close()
            # The next article of the site, which no version knows yet.
            share = click_share(article)
            version = live.version()
            if version == shown:
                unseen.setdefault(article, share)
                time.sleep(0.002)
                continue
            stats = live.stats()
            article = stats["metadata"]["article"]
            share = click_share(article)
            delay = time.time() - stats["metadata"]["saving"]
            before = unseen.get(article)
            print(
                f"{version:7d} {stats['step']:6d} {delay:5.2f}s "
                f"{sum(stats['rows'].values()):6d}  {article:7d}  "
                f"{'' if before is None else f'{before:.2f} -> '}{share:.2f}",
                flush=True,
            )
            shown = version
            lines += 1
            article += 1
        stats = live.stats()
    if trainer.returncode or stats["last_error"]:
        print(f"live_serving: {stats['last_error']}", file=sys.stderr)
        return 1
    median, slowest = np.median(times), np.max(times)
    print(
        f"{len(times)} calls of {len(readers)} examples: median "
        f"{median * 1e3:.1f} ms, slowest {slowest * 1e3:.1f} ms; "
        f"{stats['updates']} versions taken in, {stats['full_updates']} of "
        "them whole"
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
