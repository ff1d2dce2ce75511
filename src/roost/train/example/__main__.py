"""A small real training: ``python -m roost.train.example --seconds 10``.

Its amount of work is fixed: a number of steps, given as such or as the seconds that they take with
the processor to themselves. It saves itself a few times a second, resumes where it was, tells how
far it is, stops when asked, shares the work among its workers, which may come and go while it
runs, and can be made to fail.
"""

from __future__ import annotations

import argparse
import os
import sys

from roost import train

_FAILED = 1


def main(arguments: list[str] | None = None) -> int:
    """Train; returns the exit status."""
    options = _parser().parse_args(arguments)
    # One thread, so that the time it takes says how much work it is.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    train.should_stop()  # from now on SIGTERM is noticed
    from roost.train.example import trainer  # noqa: PLC0415 - numpy, after its settings

    try:
        return trainer.ExampleTraining(options).run()
    except (trainer.TrainingFailed, ConnectionError) as error:
        trainer.say(f"error: {error}", sys.stderr)
        return _FAILED


def _failure(text: str) -> str:
    kind, _, code = text.partition(":")
    fine = code.isdigit() and int(code) <= 255 if kind == "exit" else not code  # noqa: PLR2004
    if kind not in ("import", "oom", "diverge", "exit") or not fine:
        raise argparse.ArgumentTypeError("one of import, oom, diverge or exit:CODE")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m roost.train.example", description=__doc__)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--steps", type=_positive, help="how many steps, exactly")
    amount.add_argument(
        "--seconds", type=_seconds, default=10.0, help="or how long they take (default: 10)"
    )
    parser.add_argument("--workers", type=_positive, help="with so many workers (default: all)")
    parser.add_argument("--size", type=_positive, default=64, help="width of the network")
    parser.add_argument("--seed", type=int, default=1, help="which function is learned")
    parser.add_argument(
        "--save-every", type=_pause, default=0.3, help="seconds between checkpoints (default: 0.3)"
    )
    parser.add_argument("--fail", type=_failure, help="import, oom, diverge or exit:CODE")
    parser.add_argument("--at", type=float, default=0.5, help="after which part of the work")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if not 0 < number <= 10**9:
        raise argparse.ArgumentTypeError("a number above 0")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 86400 * 365:
        raise argparse.ArgumentTypeError("seconds above 0")
    return number


def _pause(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 86400 * 365:
        raise argparse.ArgumentTypeError("seconds, or 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
