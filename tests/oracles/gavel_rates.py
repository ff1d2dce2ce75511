"""A small table of throughputs, as Gavel writes them."""

from __future__ import annotations

import json

from roost.files import TextFile
from roost.traces.throughputs import Throughputs, read_throughputs

#: Steps per second: of one worker, and of two together and spread.
RATES = {
    "v100": {"('LM (batch size 5)', 1)": 10.0, "('LM (batch size 5)', 2)": 18.0, "('A3C', 1)": 4.0},
    "v100_unconsolidated": {"('LM (batch size 5)', 2)": 6.0},
    "k80": {"('LM (batch size 5)', 1)": 2.0, "('LM (batch size 5)', 2)": 0.0, "('A3C', 1)": 3.0},
}


def table() -> Throughputs:
    text = {
        kind: {key: {"null": rate, "('A3C', 1)": [1.0, 1.0]} for key, rate in types.items()}
        for kind, types in RATES.items()
    }
    return read_throughputs(TextFile("throughputs.json", json.dumps(text)))
