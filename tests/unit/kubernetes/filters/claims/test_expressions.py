"""Expressions about devices: what is true, what has no value, what is refused."""

from __future__ import annotations

import time

import pytest

from roost.errors import InvalidSpec
from roost.kubernetes.filters.claims.expressions import EvaluationError, Value, compiled
from roost.kubernetes.filters.claims.inventory import slice_of

A100: Value = (
    slice_of(
        {
            "metadata": {"name": "s"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": "gpu-0",
                        "attributes": {
                            "model": {"string": "A100-SXM4-40GB"},
                            "index": {"int": 3},
                            "healthy": {"bool": True},
                            "driverVersion": {"version": "535.104.5-beta.2"},
                            "other.example.com/rack": {"string": "r1"},
                        },
                        "capacity": {"memory": {"value": "40Gi"}},
                    }
                ],
            },
        }
    )
    .devices[0]
    .seen
)
GPU = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    "true",
    [
        'device.driver == "gpu.example.com"',
        f'{GPU}.model == "A100-SXM4-40GB"',
        f'{GPU}["model"] == "A100-SXM4-40GB"',
        f'{GPU}.model.startsWith("A100") && {GPU}.model.endsWith("40GB")',
        f'{GPU}.model.contains("SXM")',
        f'{GPU}.model.matches("^A[0-9]+-SXM[0-9]-(40|80)GB$")',
        f'!{GPU}.model.matches("^H")',
        f'{GPU}.model.lowerAscii() == "a100-sxm4-40gb"',
        f'{GPU}.model.split("-")[0] == "A100"',
        f'{GPU}.model.substring(0, 4).upperAscii() == "A100"',
        f'{GPU}.model.replace("-", "") == "A100SXM440GB"',
        f'{GPU}.model.indexOf("SXM") == 5 && size({GPU}.model) == 14',
        f'{GPU}.model in ["H100", "A100-SXM4-40GB"]',
        f"{GPU}.index == 3 && {GPU}.index < 4 && {GPU}.index >= 3",
        f"{GPU}.index == 3.0 && {GPU}.index == 3u",
        f"{GPU}.index % 2 == 1 && {GPU}.index * 2 - 1 == 5 && -7 / 2 == -3 && -7 % 2 == -1",
        f"{GPU}.healthy && !(!{GPU}.healthy)",
        f"{GPU}.healthy ? true : {GPU}.absent",
        'device.attributes["other.example.com"].rack == "r1"',
        f"has({GPU}.model) && !has({GPU}.absent)",
        'has(device.attributes["none.example.com"].x) == false',
        '"gpu.example.com" in device.attributes && !("none" in device.attributes)',
        f'"model" in {GPU} && !("absent" in {GPU})',
        f"!has({GPU}.absent) || {GPU}.absent == 1",
        f"{GPU}.absent == 1 || true",
        f"true || {GPU}.absent == 1",
        f"!(false && {GPU}.absent == 1) && !({GPU}.absent == 1 && false)",
        f'{GPU}.?absent.orValue("no") == "no" && {GPU}.?model.hasValue()',
        f'{GPU}[?"index"].orValue(0) == 3',
        'device.attributes[?"none"].?x.orValue(1) == 1',
        f'{MEMORY}.compareTo(quantity("40Gi")) == 0',
        f'{MEMORY}.isGreaterThan(quantity("39.9Gi")) && !{MEMORY}.isLessThan(quantity("40Gi"))',
        f'{MEMORY} == quantity("40960Mi") && {MEMORY} != quantity("40G")',
        f"{MEMORY}.asInteger() == 42949672960 && {MEMORY}.isInteger() && {MEMORY}.sign() == 1",
        f'{MEMORY}.sub(quantity("30Gi")).add(1).compareTo(quantity("10Gi")) > 0',
        'isQuantity("1.3Gi") && !isQuantity("1,3G") && quantity("-1").sign() == -1',
        'quantity("50k").sub(20000).asApproximateFloat() == 30000.0',
        f'{GPU}.driverVersion.isGreaterThan(semver("535.104.5-beta.1"))',
        f'{GPU}.driverVersion.isLessThan(semver("535.104.5"))',
        f'{GPU}.driverVersion.compareTo(semver("535.104.5-beta.2+build")) == 0',
        f"{GPU}.driverVersion.major() == 535 && {GPU}.driverVersion.minor() == 104",
        'semver("v1.0", true) == semver("1.0.0") && semver("01.01.01", true).patch() == 1',
        'isSemver("1.2.3") && !isSemver("1.2") && isSemver("1.2", true)',
        f"cel.bind(g, {GPU}, g.healthy && g.index == 3)",
        "[1, 2, 3].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2].exists_one(x, x > 1)",
        '[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6] && {"a": 1}.all(k, k == "a")',
        "[1, 2, 3].map(x, x > 1, x * x) == [4, 9]",
        '[3, 1, 2].max() == 3 && [1, 2].sum() == 3 && ["a", "b"].join("-") == "a-b"',
        "sets.contains([1, 2, 3], [3, 1]) && sets.equivalent([1, 1], [1])",
        '{"a": {"b": [1]}}.a.b[0] == 1',
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 2 - 1 - 1 == 0 && 7 / 2 == 3",
        "0x1F == 31 && 1e3 == 1000.0 && .5 == 0.5 && -9223372036854775808 < 0",
        r'"a\tb\u00e9\x41\101\"" == "a	béAA\""',
        r"""r'a\tb' == "a\\tb" && '''it's "so"''' == "it's \"so\"" """,
        'string(3) == "3" && int("-3") == -3 && double(1) == 1.0 && bool("true") && uint(2) == 2u',
        'size("héllo") == 5 && [].size() == 0',
        "true // all of them\n && true",
        "1 == 1 ? (2 == 2 ? true : false) : 1 == 1 ? false : true",
        'null == null && [1, "a"] != [1, "b"]',
        'dyn(true) != dyn(1) && dyn(1) != dyn("1") && !(dyn(true) in [1, 2])',
        "optional.of(1) == optional.of(1) && optional.none().or(optional.of(2)).value() == 2",
    ],
)
def test_what_is_true(true: str) -> None:
    assert compiled(true).holds(A100) is True
    assert compiled(f"!({true})").holds(A100) is False


@pytest.mark.parametrize(
    "expression",
    [
        f'{GPU}.absent == "x"',
        'device.attributes["none"].x == 1',
        f"{GPU}.absent == 1 || false",
        f"{GPU}.model > 1",
        f"{GPU}.model",
        f"{GPU}.index && true",
        f"{GPU}.index ? true : false",
        f"{GPU}.index + 1.0 > 1.0",
        f"{GPU}.index / 0 == 1",
        "9223372036854775807 + 1 > 0",
        "-(-9223372036854775807 - 1) > 0",
        "0u - 1u == 0u",
        "[1][1] == 1",
        '{"a": 1}["b"] == 1',
        '{"a": 1, "a": 2}.a == 1',
        f"quantity({GPU}.model).sign() == 1",
        f"semver({GPU}.model).major() == 1",
        'quantity("9e18").add(quantity("9e18")).asInteger() == 1',
        f'{MEMORY} > quantity("1")',
        '"x".startsWith(1)',
        '"abc".substring(2, 1) == ""',
        f'"x".matches({GPU}.model + "(")',
        "optional.none().value() == 1",
        "true in {1: 2}.a",
        "[1, 2].all(x, x)",
        'string([1]) == ""',
        "!1",
        '-"a" == ""',
    ],
)
def test_what_has_no_value(expression: str) -> None:
    with pytest.raises(EvaluationError):
        compiled(expression).holds(A100)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "needs a value"),
        ("device.", "needs a name"),
        ("device.driver ==", "needs a value"),
        ("(true", "lacks ')'"),
        ("true)", "makes no sense"),
        ("true true", "makes no sense"),
        ("1 = 1", "makes no sense"),
        ("'open", "makes no sense"),
        ("nothing.here", "does not know"),
        ("device.driver.reverse() == ''", "calls reverse"),
        ("ip('10.0.0.1').family() == 4", "calls"),
        ("'x'.startsWith()", "with 1 values"),
        ("b'x' == b'x'", "bytes"),
        ("has(device)", "has() takes a selection"),
        ("[1].all(1, true)", "takes a name"),
        ("[1].all(x, y)", "does not know"),
        ("x && [1].all(x, true)", "does not know"),
        ("cel.bind(1, 2, 3)", "takes a name"),
        ("'a'.matches('(a')", "lacks a bracket"),
        (r"'a'.matches(r'(?=a)')", "flag"),
        (r"'a'.matches(r'\pN')", "does not read"),
        ("'a'.matches('a{2000}')", "repeats"),
        ("'a'.matches('(((a{99}){99}){99}')", "a"),
        (r"'\q' == ''", "escape"),
        ("18446744073709551616u == 0u", "64 bits"),
        ("9223372036854775808 > 0", "64 bits"),
        ("var == 1", "reserved"),
        ("(" * 3000 + ")" * 3000, "nested"),
        ("[" * 3000, "nested"),
        ("1" + "+1" * 3000 + " > 0", "nested"),
        ("!" * 5 + "-" * 4000, "needs a value"),
        ("true" + " && true" * 3000, "at most"),
        ("f(" * 2000, "nested"),
        ("a?b:" * 2000, "nested"),
        ("\x00", "makes no sense"),
    ],
)
def test_what_is_refused(expression: str, why: str) -> None:
    with pytest.raises(InvalidSpec, match="expression") as refused:
        compiled(expression)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "expression",
    [
        "[1,2,3,4,5,6,7,8,9,10].all(a, " * 8 + "true" + ")" * 8,
        "cel.bind(a, [1, 1], "
        + "".join("cel.bind(a, [a, a], " for _ in range(30))
        + "a == a"
        + ")" * 31,
        "cel.bind(a, 'xxxxxxxxxx', " + "cel.bind(a, a + a, " * 30 + "a == ''" + ")" * 31,
        "cel.bind(a, 'x', "
        + "cel.bind(a, a.replace('', 'xxxxxxxxxx'), " * 20
        + "a == ''"
        + ")" * 21,
    ],
)
def test_what_takes_too_long_ends(expression: str) -> None:
    began = time.process_time()
    with pytest.raises(EvaluationError):
        compiled(expression).holds(A100)
    assert time.process_time() - began < 5.0


def test_no_pattern_takes_longer_than_its_text() -> None:
    began = time.process_time()
    for pattern in ("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*)*(.*)*x"):
        assert not compiled(f"'{'a' * 60}b'.matches('{pattern}')").holds(A100)
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("abc", ["xabcx"], ["ab"]),
        ("^a.c$", ["abc", "a-c"], ["a\nc", "abcd"]),
        ("^(?s)a.c$", ["a\nc"], ["ac"]),
        ("^a{2,3}$", ["aa", "aaa"], ["a", "aaaa"]),
        ("^a{2,}$", ["aa", "aaaaa"], ["a"]),
        ("^a{0}b?$", ["", "b"], ["a", "bb"]),
        ("^(ab|cd)*$", ["", "abcd", "cdab"], ["abc"]),
        ("^(?i)ab(?-i)C$", ["ABC", "abC"], ["abc"]),
        ("^(?i:a)b$", ["Ab", "ab"], ["AB"]),
        ("^[a-c0-9_-]+$", ["a-9_"], ["d", ""]),
        ("^[^a-c]$", ["d"], ["a", ""]),
        ("^[]a]+$", ["]a"], ["b"]),
        (r"^\d+\.\d+$", ["1.2"], ["1a2"]),
        (r"\bgpu\b", ["a gpu x"], ["gpux"]),
        (r"^[\w.]+$", ["a.b_1"], ["a b"]),
        ("^[[:alpha:]]+$", ["abc"], ["ab1"]),
        (r"^\Qa$", [], []),
        ("^a+?b*?$", ["aab", "a"], ["b"]),
        ("^(?P<x>a)(?:b)$", ["ab"], ["a"]),
        (r"^\x41\+\[$", ["A+["], ["A"]),
        ("^a{,2}$", ["a{,2}"], ["aa"]),
        ("", ["", "x"], []),
        ("a||b", ["", "b"], []),
        ("^$", [""], ["a"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    for text, wanted in [(one, True) for one in yes] + [(one, False) for one in no]:
        quoted = text.replace("\n", "\\n")
        assert compiled(f"'{quoted}'.matches(r'{pattern}')").holds(A100) is wanted, text
