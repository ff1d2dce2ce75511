"""The one door to all formats."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from roost.errors import InvalidSpec, InvalidTrace, NotFound
from roost.files import TextFile
from roost.traces import FORMATS, bundled, read, recognise

SAMPLES = {
    "roost": "id,submitted_at,work_s\na,0,1\n",
    "philly-json": '[{"jobid": "a", "status": "Pass", "vc": "b", "attempts": [{'
    '"start_time": "2020-01-01 00:00:00", "end_time": null, "detail": [{"gpus": ["g"]}]}]}]',
    "philly-csv": "timestamp,duration,num_gpus,gpu_time,cluster\n2020-01-01 00:00:00,1,1,1,a\n",
    "helios": "job_id,user,vc,gpu_num,cpu_num,state,submit_time,duration\n1,a,b,1,1,FAILED,0,1\n",
    "openb": "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\n",
    "gavel": "LM\tx\t-n\t1\t600\t0\t1\n",
    "sia": "name,time,application,num_replicas,batch_size\na,0,bert,1,12\n",
}


def test_there_is_a_sample_of_every_format() -> None:
    assert SAMPLES.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognised_and_read(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps_per_s": 1.0} if name == "gavel" else {}
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(SAMPLES[name].encode()))

    assert recognise(TextFile("x", "\n" + SAMPLES[name])) == name
    assert len(read(path, **options).jobs) == 1
    assert read(path, format=name, **options) == read(path, **options)
    assert "\n" not in FORMATS[name].summary


def test_a_format_is_recognised_even_when_a_column_is_missing() -> None:
    with pytest.raises(InvalidTrace, match="line 1, column 'duration': expected this column"):
        read(TextFile("x.csv", "timestamp,num_gpus,cluster\n"))


@pytest.mark.parametrize("text", ["a,b\n1,2\n", '{"v100": {}}', "<html>", "a" * 300_000, '"'])
def test_what_looks_like_no_format_names_all_of_them(text: str) -> None:
    with pytest.raises(InvalidSpec, match="cannot tell the format of x; give one of: roost, ph"):
        read(TextFile("x", text))


def test_an_empty_file_a_folder_and_a_missing_file_say_so(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidSpec, match="the trace is empty"):
        read(tmp_path / "empty")
    with pytest.raises(InvalidSpec, match="is a folder"):
        read(tmp_path)
    with pytest.raises(NotFound, match="no such file"):
        read(tmp_path / "none")


def test_an_unknown_format_names_the_nearest_and_an_unknown_option_all() -> None:
    with pytest.raises(NotFound, match="did you mean 'helios'"):
        read("none", format="helio")
    with pytest.raises(InvalidSpec, match="no option 'nodes'; they have: cpus"):
        read(TextFile("x", SAMPLES["helios"]), nodes="n")


def test_bad_rows_are_skipped_on_demand() -> None:
    text = TextFile("x", SAMPLES["sia"] + "b,0,bert,0,12\n")
    assert len(read(text, skip_bad_rows=True).skipped) == 1
    with pytest.raises(InvalidTrace):
        read(text)


def test_an_unknown_bundled_workload_names_the_nearest() -> None:
    with pytest.raises(NotFound, match="did you mean 'demo'"):
        bundled("dmo")
