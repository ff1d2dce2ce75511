"""Tables of pairs as Gavel and Lucid write them, and files that are neither."""

from __future__ import annotations

import json

import pytest

from roost.errors import InvalidSpec
from roost.files import TextFile
from roost.traces.pairs import read_pairs

LM, GAN, DUO = "('LM', 1)", "('GAN', 1)", "('LM', 2)"
RATES = {
    "v100": {
        LM: {"null": 4.0, LM: [2.0, 2.0], GAN: [3.0, 2.5], DUO: [1.0, 1.0]},
        GAN: {"null": 2.0, LM: [2.5, 3.0], GAN: [0.0, 0.0]},
        DUO: {"null": 8.0},
        "('dead', 1)": {"null": 0.0, LM: [1.0, 1.0]},
    },
    "v100_unconsolidated": {LM: {"null": 1.0}},
}
HEADER = (
    ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1"
    ",model2,dataset2,gpu_num2,batchsize2,amp2,speed2,gmem"
)
ROWS = """
0,VGG,ImageNet,1,32,0,0.8,PPO,LunarLander,1,64,1,1.2,900
1,VGG,ImageNet,1,32,0,0.6,PPO,LunarLander,1,64,1,0.9,900
2,VGG,ImageNet,2,32,0,0.1,PPO,LunarLander,1,64,1,0.1,900
"""


def test_gavels_rates_become_parts_of_those_alone() -> None:
    table = read_pairs(TextFile("throughputs.json", json.dumps(RATES)))

    assert table.kinds == {
        "v100": {"LM": {"LM": 0.5, "GAN": 0.75}, "GAN": {"LM": 1.0, "GAN": 0.0}},
    }


def test_lucids_rows_tell_both_speeds_and_those_measured_twice_their_mean() -> None:
    table = read_pairs(TextFile("colocate.csv", HEADER + ROWS))

    vgg, ppo = "VGG (ImageNet, batch size 32)", "PPO (LunarLander, batch size 64, amp)"
    assert table.kinds[""][vgg] == {ppo: pytest.approx(0.7)}
    assert table.kinds[""][ppo] == {vgg: pytest.approx(0.95)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,gpus\na,1\n", "no table of pairs: neither throughputs.json of Gavel"),
        (HEADER + "\n", "at least one pair"),
        (HEADER + ROWS.replace("0.8", "nan"), "a number from 0 to"),
        ("{}", "at least one pair"),
        ('{"v100": [1]}', "not a table of rates as Gavel writes it"),
        (json.dumps(RATES).replace("4.0", "NaN"), "a rate of nan"),
        (json.dumps(RATES).replace("[3.0, 2.5]", "[3.0]"), "not a table of rates"),
        (json.dumps(RATES).replace("[3.0, 2.5]", "[-3.0, 2.5]"), "a rate of -3.0"),
    ],
)
def test_what_is_no_such_table_is_refused_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        read_pairs(TextFile("pairs", text))
