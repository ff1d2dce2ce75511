"""Profile tables: what they say exactly, between the lines, and where they are wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.oracles.profiled import BATCHES, NAME, step, toy_tables, write_profiles

from roost.errors import Fatal, InvalidSpec, NotFound
from roost.traces.profiles import (
    MACHINES,
    Application,
    Choice,
    Tables,
    contiguous,
    read_profiles,
)

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("ROOST_DATA", ROOT.parent / "shared" / "data")) / "sia"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no tables of Sia in {DATA}")

#: Hours alone on 1, 2, 4, 8, 16 and 24 GPUs of each kind, from the artifact's own tables.
ALONE = {
    ("cifar10", "T4"): "1.859 1.058 .550 .377 .218 .236",
    ("cifar10", "RTX2080Ti"): ".903 .463 .270 .171 .143 .133",
    ("cifar10", "A100"): ".350 .174 .103 .067 .049",
    ("deepspeech2", "T4"): "5.511 3.018 1.620 1.075 .653 .614",
    ("deepspeech2", "RTX2080Ti"): "3.237 2.002 1.168 .664 .442 .393",
    ("deepspeech2", "A100"): "2.943 1.630 1.048 .651 .416",
    ("bert", "T4"): "4.511 2.179 1.103 .820 .441 .388",
    ("bert", "RTX2080Ti"): "2.188 1.075 .569 .340 .229 .216",
    ("bert", "A100"): ".425 .204 .105 .055 .037",
    ("yolov3", "T4"): "10.32 5.576 3.821 4.686 2.847 2.746",
    ("yolov3", "RTX2080Ti"): "20.37 10.05 5.684 3.191 2.311 2.047",
    ("yolov3", "A100"): "4.094 3.438 2.756 1.753 1.243",
    ("imagenet", "T4"): "177.5 91.79 50.09 26.76 14.04 10.20",
    ("imagenet", "RTX2080Ti"): "89.02 45.42 23.50 13.62 7.775 5.756",
    ("imagenet", "A100"): "40.14 20.60 11.73 6.429 4.313",
}


@pytest.fixture
def toy(tmp_path: Path) -> Application:
    return toy_tables(tmp_path)[NAME]


@pytest.fixture(scope="module")
def published() -> Tables:
    return read_profiles(DATA / "profiles")


def test_a_profiled_setting_is_told_as_it_stands(toy: Application) -> None:
    assert toy.steps["T4"].time((4, 4), 16) == step("T4", 2, 8, 16)


def test_between_batches_times_lie_on_a_line(toy: Application) -> None:
    assert toy.steps["A100"].time((8,), 40) == pytest.approx(step("A100", 1, 8, 40))


def test_placements_that_differ_by_rotation_are_the_same(toy: Application) -> None:
    steps = toy.steps["A100"]
    assert steps.time((8, 4), 8) == steps.time((4, 8), 8)


def test_sizes_without_a_placement_lie_between_those_that_were_tried(toy: Application) -> None:
    found = toy.steps["T4"].time((4, 4, 4, 4), 12)
    assert found == pytest.approx(step("T4", 4, 16, 12))


def test_sizes_outside_of_all_that_was_tried_are_refused(toy: Application) -> None:
    with pytest.raises(Fatal, match="no step time of toy on T4"):
        toy.steps["T4"].time((1,) * 20, 8)


def test_beyond_the_profiled_batches_nothing_is_made_up(toy: Application) -> None:
    with pytest.raises(Fatal, match="beyond what was profiled"):
        toy.steps["T4"].time((4,), 65)


def test_the_most_samples_are_those_of_the_placement_or_of_the_nearest_sizes(
    toy: Application,
) -> None:
    steps = toy.steps["T4"]
    assert steps.most_local((4, 4)) == 64
    assert steps.most_local((8, 8, 8)) == 16
    assert steps.most_local((4, 4, 4, 4, 2)) == 16  # 18 GPUs: between 16 and 24


def test_epochs_end_where_the_first_batch_size_ends_them(toy: Application) -> None:
    assert toy.progress == [1000.0, 2000.0, 3000.0]
    assert (toy.work, toy.epochs) == (3000.0, 3)
    assert (toy.batch, toy.batch_max) == (BATCHES[0], BATCHES[-1])


def test_a_step_is_worth_what_the_gradient_says(toy: Application) -> None:
    assert toy.gain(16, 2) == pytest.approx(1.0)
    assert toy.gain(64, 1) == pytest.approx(4.0 / (3.0 / 4 + 1))
    assert toy.noise(64, 1) == pytest.approx(48.0)


def test_gradients_between_batch_sizes_lie_on_a_line(tmp_path: Path) -> None:
    folder = write_profiles(tmp_path) / NAME
    rows = "progress,grad_sqr,grad_var\n100,2,5\n200,2,5\n300,2,5\n"
    (folder / "validation-64.csv").write_text(rows)
    toy = read_profiles(tmp_path, [NAME])[NAME]
    assert toy.gradient(40, 0) == pytest.approx((1.5, 3.0))
    assert toy.gradient(16, 0) == (1.0, 1.0)
    assert toy.gradient(1000, 0) == (1.0, 1.0)


def test_a_gradient_of_noise_alone_is_worth_the_whole_batch(tmp_path: Path) -> None:
    folder = write_profiles(tmp_path) / NAME
    for batch in BATCHES:
        rows = "progress,grad_sqr,grad_var\n100,0,5\n200,0,0\n300,1,1\n"
        (folder / f"validation-{batch}.csv").write_text(rows)
    toy = read_profiles(tmp_path, [NAME])[NAME]
    assert toy.gain(64, 0) == pytest.approx(4.0)
    assert toy.gain(64, 1) == 1.0
    assert 0 < toy.noise(64, 0) < float("inf")


def test_accumulation_repeats_all_but_the_synchronisation(toy: Application) -> None:
    once = toy.rate("T4", (2,), Choice(16, 0), 0)
    thrice = toy.rate("T4", (2,), Choice(16, 2), 0)
    seconds, sync = step("T4", 1, 2, 16)
    assert once == pytest.approx(toy.gain(32, 0) / seconds)
    assert thrice == pytest.approx(toy.gain(96, 0) / (3 * seconds - 2 * sync))


def test_contiguous_gpus_fill_nodes_first() -> None:
    assert contiguous("T4", 10) == (4, 4, 2)
    assert contiguous("A100", 8) == (8,)


def _replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_replace("placements-aws.csv", "step_time", "time"), "step_time"),
        (_replace("placements-rtx.csv", "\n2,", "\n20,"), "column 'placement'"),
        (_replace("placements-rtx.csv", "\n1,8,", "\n1,x,"), "line 2, column 'local_bsz'"),
        (_replace("scalability-aws.csv", ",3,3", ",0,3"), "column 'num_nodes'"),
        (_replace("validation-64.csv", "2001.0", "1001.0"), "line 3, column 'progress'"),
        (_replace("validation-64.csv", "3001.0,3,0.5,1.0,9.0\n", ""), "expected 3 epochs"),
        (lambda folder: (folder / "placements-aws.csv").unlink(), "placements-aws.csv"),
        (lambda folder: (folder / "scalability-dgx-ext.csv").unlink(), "scalability-dgx-ext.csv"),
        (lambda folder: (folder / "validation-64.csv").rename(folder / "validation-x.csv"), "'x'"),
    ],
)
def test_a_bad_table_is_named(spoil: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    spoil(write_profiles(tmp_path) / NAME)
    with pytest.raises((InvalidSpec, NotFound), match=said):
        read_profiles(tmp_path, [NAME])


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no profiles of application 'cifar10'"):
        read_profiles(tmp_path)
    with pytest.raises(NotFound, match="nowhere"):
        read_profiles(tmp_path / "nowhere")


def test_an_unknown_application_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"'gpt'.*toy"):
        toy_tables(tmp_path)["gpt"]


@needs_data
@pytest.mark.parametrize(("name", "kind"), ALONE)
def test_jobs_alone_take_as_long_as_is_known(published: Tables, name: str, kind: str) -> None:
    hours = [float(text) for text in ALONE[name, kind].split()]
    found = [
        published.isolated_hours(name, kind, gpus) for gpus in (1, 2, 4, 8, 16, 24)[: len(hours)]
    ]
    assert found == pytest.approx(hours, rel=0.02)


@needs_data
@pytest.mark.parametrize("kind", MACHINES)
def test_every_size_that_can_be_had_has_a_step_time(published: Tables, kind: str) -> None:
    """Whole nodes and a rest on one more: also with the largest batch that a job may use there."""
    most = {"T4": 64, "RTX2080Ti": 24, "A100": 16}[kind]
    for application in published.applications.values():
        steps = application.steps[kind]
        for gpus in range(1, most + 1):
            counts = contiguous(kind, gpus)
            for spread in (counts, counts[::-1]):
                for local in (steps.local_min, steps.most_local(spread)):
                    time = steps.time(spread, local)
                    assert 0 <= time.sync_s <= time.step_s
                    assert time.step_s > 0


@needs_data
def test_the_limits_are_those_of_the_simulation(published: Tables) -> None:
    assert published["deepspeech2"].steps["RTX2080Ti"].local_max == 57
    assert published["cifar10"].steps["A100"].local_max == 4096
    assert published["imagenet"].work == pytest.approx(576_525.6, abs=0.1)
    assert [published[name].batch for name in ("cifar10", "yolov3")] == [128, 8]
