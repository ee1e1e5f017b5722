"""Where no graph holds a model, its submodules have kernels, and the rest runs as it is."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models import by_submodules
from tests.models.emitted import Emitted, emit_module
from torch import nn

from opweld.errors import CaptureError
from opweld.interface.why import why


def made(model: Any, tmp_path: Path, training: bool = False, **asked: Any) -> Emitted:
    torch.manual_seed(3)
    return emit_module(model().train(training), ((torch.randn(64, 8),), {}), tmp_path, **asked)


def adopted(emitted: Emitted) -> Any:
    return type(emitted.new).adopt(copy.deepcopy(emitted.original))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("model", "names"), by_submodules.FUSED, ids=lambda value: str(value)[-20:]
)
def test_results_gradients_and_buffers_are_the_originals(
    model: Any, names: tuple[str, ...], training: bool, tmp_path: Path
) -> None:
    emitted = made(model, tmp_path, training)
    module = adopted(emitted)
    assert {type(child).__name__ for child in module.modules()} >= set(names)
    for rows in (64, 1 if not training else 5, 0 if model is by_submodules.Nested else 7):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            assert kernels_in(partial(copy.deepcopy(module), x)) > 0
        agrees(module, emitted.original, x)


def agrees(new: nn.Module, old: nn.Module, x: torch.Tensor) -> None:
    new, old = copy.deepcopy(new), copy.deepcopy(old)
    for record in (False, True):
        found = []
        for module in (new, old):
            given = x.clone().requires_grad_(record)
            with torch.set_grad_enabled(record):
                result = module(given)
            if record:
                result.sum().backward()
            grads = [each.grad for each in (given, *module.parameters())]
            found.append((result.detach(), grads, list(module.buffers())))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_gradients_of_many_rows_come_from_kernels(tmp_path: Path) -> None:
    emitted = made(by_submodules.Routed, tmp_path)
    module, x = adopted(emitted), torch.randn(20000, 8, requires_grad=True)
    assert kernels_in(lambda: module(x)) > 0
    agrees(module, emitted.original, x.detach())


def test_a_new_model_has_the_kernels_and_the_originals_own_stays_as_it_is(tmp_path: Path) -> None:
    emitted = made(by_submodules.Routed, tmp_path)
    before = copy.deepcopy(emitted.original)
    module = adopted(emitted)
    assert type(before.experts[0]) is by_submodules.Expert
    held = copy.deepcopy(emitted.original)
    twin = type(emitted.new).adopt(held)
    assert type(held.experts[0]) is by_submodules.Expert and type(held.norm) is nn.LayerNorm
    assert twin.experts[0].up.weight is held.experts[0].up.weight
    assert twin.gate is held.gate
    torch.manual_seed(1)
    fresh = type(emitted.new)()
    torch.manual_seed(1)
    plain = by_submodules.Routed()
    assert list(fresh.state_dict()) == list(plain.state_dict())
    fresh.load_state_dict(module.state_dict())
    x = torch.randn(32, 8)
    with torch.no_grad():
        torch.testing.assert_close(fresh(x), module(x))
        assert kernels_in(lambda: fresh(x)) > 0
        assert isinstance(fresh.experts[0], by_submodules.Expert)


def test_it_is_copied_and_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = made(by_submodules.Routed, tmp_path)
    module, x = adopted(emitted), torch.randn(32, 8)
    file = sys.modules.get(type(module).__module__) or _module_of(module)
    monkeypatch.setitem(sys.modules, type(module).__module__, file)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        with torch.no_grad():
            assert kernels_in(partial(twin, x)) > 0
            torch.testing.assert_close(twin(x), module(x))


def _module_of(module: nn.Module) -> Any:
    import types

    found = types.ModuleType(type(module).__module__)
    found.__dict__.update(type(module).adopt.__func__.__globals__)
    return found


def test_the_plan_says_what_is_fused_and_why_the_rest_is_not(tmp_path: Path) -> None:
    compiled = made(by_submodules.Nested, tmp_path).compiled
    left = {row.module: row.reason for row in compiled.plan_rows if row.name == "forward"}
    assert "decides by the elements of a tensor" in left[""]
    assert "decides by the elements of a tensor" in left["inner"]
    assert {row.module.split(".")[0] for row in compiled.fused} == {"before", "inner"}
    assert "inner: as it is, " in compiled.stages["plan"]
    assert "ExpertNew: inner.first, inner.second." in compiled.text


def test_a_part_that_writes_to_its_input_stays_as_it_is(tmp_path: Path) -> None:
    compiled = made(by_submodules.Aliasing, tmp_path).compiled
    left = {row.module: row.reason for row in compiled.plan_rows if row.name == "forward"}
    assert "changes its input x" in left["writes"]


def test_one_capture_is_for_all_of_a_kind(tmp_path: Path) -> None:
    text = made(by_submodules.Routed, tmp_path).compiled.text
    assert text.count("class ExpertNew(") == 1 and "ExpertNew_2" not in text
    assert '"experts.0-3"' in text or "experts.3" in text


def test_other_values_make_another_class_and_what_is_not_called_is_of_one(tmp_path: Path) -> None:
    module = adopted(made(by_submodules.Scaled, tmp_path))
    names = [type(block).__name__ for block in module.blocks]
    assert names == ["ScaleNew", "ScaleNew_2"] * 3
    with torch.no_grad():
        assert kernels_in(lambda: module(torch.full((64, 8), 200.0))) == 6


def test_why_tells_of_each_class(tmp_path: Path) -> None:
    emitted = made(by_submodules.Routed, tmp_path)
    module, text = adopted(emitted), emitted.compiled.text
    with torch.no_grad():
        said = why(module, text, (torch.randn(64, 8),), {})
    assert said.count("the kernels run") == 2
    with torch.no_grad():
        said = why(module.double(), text, (torch.randn(64, 8).double(),), {})
    assert "LayerNormNew: the original runs: " in said


def test_autocast_and_modes_that_were_not_asked_for_run_the_original(tmp_path: Path) -> None:
    emitted = made(by_submodules.Counted, tmp_path)
    module, old, x = adopted(emitted), emitted.original, torch.randn(64, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(module(x), old(x))
    with pytest.warns(UserWarning, match="--mode both"), torch.no_grad():
        module.train()(x)


def test_what_is_given_back_leaves_the_others_and_at_last_the_original(tmp_path: Path) -> None:
    compiled = made(by_submodules.Routed, tmp_path).compiled
    names = {row.name for row in compiled.fused}
    assert len(names) == 2
    one = min(names)
    rest = made(by_submodules.Routed, tmp_path, exclude=frozenset((one,))).compiled
    assert {row.name for row in rest.fused} == names - {one}
    none = made(by_submodules.Routed, tmp_path, exclude=frozenset(names)).compiled
    assert not none.fused and "ModelNew is the original" in none.text


def test_without_a_kernel_in_any_of_them_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="decides by the elements"):
        made(by_submodules.Nothing, tmp_path)


def test_all_parts_run_their_kernels(tmp_path: Path) -> None:
    emitted = made(by_submodules.Spare, tmp_path)
    module = adopted(emitted)
    assert type(module.reads.spare) is by_submodules.Expert  # no call of it is another's
    with torch.no_grad():
        assert kernels_in(partial(module, torch.randn(64, 8))) == emitted.num_kernels


def test_a_part_of_another_class_stays_what_it_is(tmp_path: Path) -> None:
    emitted = made(by_submodules.Routed, tmp_path)
    held = copy.deepcopy(emitted.original)
    held.experts[0] = nn.Linear(8, 8)
    module, x = type(emitted.new).adopt(held), torch.randn(64, 8)
    assert type(module.experts[0]) is nn.Linear
    with torch.no_grad():
        torch.testing.assert_close(module(x), held(x), rtol=1e-4, atol=1e-5)


def test_a_part_of_another_width_than_the_first_is_not_warned_of(tmp_path: Path) -> None:
    module = adopted(made(by_submodules.Widths, tmp_path)).double()
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        module(torch.randn(64, 8).double())
    said = " ".join(str(each.message) for each in caught)
    assert "float64" in said and "an input is of" not in said
