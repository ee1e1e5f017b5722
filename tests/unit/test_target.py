"""Data sheets: each GPU gets its own or the nearest, and what is too old is refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from opweld.errors import UnsupportedTarget
from opweld.ir.kernels.product import Mode
from opweld.options import TARGETS as NAMES
from opweld.target import ALIASES, CPU, OTHERS, SM_80, SM_90A, TARGETS, choose_target


@pytest.mark.parametrize(
    ("capability", "gpu", "name"),
    [
        ((9, 0), "NVIDIA H200", "sm_90a"),
        ((9, 0), "NVIDIA H100 80GB HBM3", "h100"),
        ((9, 0), "NVIDIA GH200 480GB", "sm_90a"),
        ((8, 0), "NVIDIA A100-SXM4-80GB", "sm_80"),
        ((8, 0), "NVIDIA A30", "sm_80"),
        ((8, 9), "NVIDIA L40S", "l40s"),
        ((8, 9), "NVIDIA GeForce RTX 4090", "rtx4090"),
        ((8, 9), "NVIDIA L4", "l40s"),
        ((10, 0), "NVIDIA B200", "b200"),
    ],
)
def test_a_gpu_gets_the_data_sheet_of_its_name(
    capability: tuple[int, int], gpu: str, name: str
) -> None:
    for asked in ("auto", "cuda"):
        assert choose_target(asked, capability, gpu).name == name


def test_without_a_gpu() -> None:
    assert choose_target("auto", None) is CPU
    assert choose_target("cuda", None) is SM_90A
    assert choose_target("sm_80", None) is SM_80


def test_an_architecture_without_a_data_sheet_is_planned_by_the_nearest() -> None:
    found = choose_target("auto", (8, 6), "NVIDIA GeForce RTX 3090")
    assert (found.name, found.arch, found.measured_as) == ("sm_86", "sm_86", "sm_86")
    assert found.product_rates == TARGETS["l40s"].product_rates
    assert choose_target("sm_80", (8, 6), "NVIDIA GeForce RTX 3090") is SM_80
    assert choose_target("sm_90", None) is SM_90A


def test_what_is_too_old_or_unknown_is_refused_with_a_next_step() -> None:
    with pytest.raises(UnsupportedTarget, match="sm_75; use --target cpu"):
        choose_target("auto", (7, 5), "Tesla T4")
    with pytest.raises(UnsupportedTarget) as caught:
        choose_target("auto", (13, 7), "a GPU to come")
    said = str(caught.value)
    assert "sm_137" in said and all(name in said for name in TARGETS if name != "cpu")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_every_architecture_that_nvcc_names_is_a_target() -> None:
    listed = subprocess.run(["nvcc", "--list-gpu-arch"], capture_output=True, text=True, check=True)
    named = {line.strip().replace("compute_", "sm_") for line in listed.stdout.split()}
    missing = {arch for arch in named if int(arch[3:]) >= 80} - set(NAMES)
    assert not missing


def test_every_target_can_be_named() -> None:
    assert set(NAMES) == {"auto", "cuda", *TARGETS, *OTHERS, *ALIASES}


@pytest.mark.parametrize("name", TARGETS)
def test_data_sheets_are_of_one_piece(name: str) -> None:
    target = TARGETS[name]
    assert target.multiprocessors <= target.rows_in_flight
    assert target.device_blocks in (0, target.multiprocessors)
    assert target.measured_as in (target.arch, target.name)
    assert all(rates.ours > 0 and rates.library > 0 for rates in target.product_rates.values())
    assert target.products <= set(target.product_rates)


def test_rates_of_mma_sync() -> None:
    """A float32 product is three of 16 bits, at two thirds of their rate."""
    faithful = SM_80.product_rates[Mode.FAITHFUL]
    assert faithful.ours == pytest.approx(312e12 / 3 * 2 / 3)
    for name in ("l40s", "rtx4090", "b200"):
        rates = TARGETS[name].product_rates
        assert rates[Mode.FAITHFUL].ours == pytest.approx(rates[Mode.HALF].ours * 2 / 9)
    b200 = TARGETS["b200"].product_rates[Mode.HALF]
    assert b200.ours < b200.library
