"""The words of the protocol: what a worker may say, and what is believed of it.

A worker says one JSON object a line. Some lines are about members, the others report progress. Any
process of a job may write anything, so only what makes sense is taken over.
"""

from __future__ import annotations

_HUGE = 1e300  # no loss is larger; an integer might be too large for a float
#: What is said about members, for others to understand.
ABOUT_MEMBERS = ("elastic", "ready", "joined", "saved_for", "offloaded", "over")
#: The largest of each number that a job may say; the smallest is 0, or close to it.
_WHOLE = {"step": 1 << 62, "batch": 1 << 40, "memory_mib": 1 << 40, "predicted_mib": 1 << 40}
_WHOLE |= {"world": 1 << 20, "local_batch": 1 << 40}
_REAL = {"done": 1.0, "saved": 1.0, "step_s": 1e9, "sync_s": 1e9, "epochs": 1e9, "noise": 1e30}
#: What holds for one number of workers alone.
_SIZED = ("step_s", "sync_s", "local_batch")


def is_about_members(line: bytes) -> bool:
    """Whether a line says something about members."""
    return any(b'"%s"' % name.encode() in line for name in ABOUT_MEMBERS)


def take(told: dict[str, object], said: dict[str, object]) -> None:
    """Add what was said; of another number of workers, what was timed before holds no more."""
    if "world" in said and said["world"] != told.get("world"):
        for name in _SIZED:
            told.pop(name, None)
    told.update(said)


def checked(said: object) -> dict[str, object]:
    """As much of it as a job may say."""
    if not isinstance(said, dict):
        return {}
    found: dict[str, object] = {}
    for name, most in _WHOLE.items():
        value = said.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most:
            found[name] = value
    for name, highest in _REAL.items():
        number = _number(said.get(name))
        if number is not None and 0 <= number <= highest:
            found[name] = float(number)
    loss = _number(said.get("loss"))
    if loss is not None:
        found["loss"] = float(loss) if abs(loss) < _HUGE or loss != loss else _HUGE  # noqa: PLR0124
    if isinstance(said.get("elastic"), bool):
        found["elastic"] = said["elastic"]
    return found


def _number(value: object) -> float | None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if fits else None  # type: ignore[return-value]
