"""The line from model to delivered file, with a compiler and a judge that say what we choose."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opweld import account
from opweld.compiled import Compiled, PlanRow
from opweld.errors import MissingCompiler
from opweld.give_back import Decision, Loss, decide, excluded_for, losses_of
from opweld.judge.measure.significance import compare
from opweld.judge.values import (
    Check,
    Comparison,
    Environment,
    Errors,
    Event,
    Judgement,
    KernelTiming,
    Samples,
    Settings,
    Timing,
    Verdict,
    to_plain,
)
from opweld.options import Options
from opweld.pipeline import Delivery, NotEquivalent, optimize

EMITTED = '"""ModelNew for m.py."""\nkernels = {names!r}\n'
ENVIRONMENT = Environment(
    "cpu", "A CPU", "A CPU", 2, "3.11", "2.13.0", None, None, "glibc", "highest"
)
CHECK = Check(
    "own-inputs", True, "", error_vs_f64=Errors(1e-8, 3e-7), eager_error_vs_f64=Errors(1e-8, 4e-7)
)


PAIRS = 30


def samples(median: float) -> Samples:
    return Samples(median, median, median, 9)


def beside_eager(ratio: float, noisy: bool = False) -> Comparison:
    """All pairs have this ratio; where it is noisy, every second one is tenfold the other way."""
    swings = [0.1 if noisy and turn % 2 else 1.0 for turn in range(PAIRS)]
    comparison = compare([(ratio * swing, 1.0) for swing in swings])
    assert comparison is not None
    return comparison


def compiler(*names: str, **replaced: float) -> Callable[..., Compiled]:
    """A kernel for each of these groups that is not excluded; `replaced`: how many copies it is."""

    def compile_file(path: Path, options: Options, on_stage: Callable[[str], None]) -> Compiled:
        on_stage("capture")
        left = [name for name in names if name not in options.exclude]
        rows = tuple(
            PlanRow(
                name,
                "pointwise",
                ("exp", "mul"),
                "reads one input",
                replaced_copies=replaced.get(name),
            )
            for name in left
        )
        return Compiled(EMITTED.format(names=left), "cpu", rows, rules=(("mul-one", "EXACT"),))

    return compile_file


class Judge:
    """Passes; times ModelNew by `cost_ms` of the kernels that it finds in the file; eager is 10.

    `beside_ms` is what ModelNew takes beside its kernels; a `noisy` machine lets nothing be told.
    """

    def __init__(
        self,
        passed: bool = True,
        cost_ms: dict[str, float] | None = None,
        calls: bool = True,
        suffix: str = "",
        beside_ms: float = 0.0,
        noisy: bool = False,
    ) -> None:
        self.passed, self.cost_ms, self.calls = passed, cost_ms or {}, calls
        self.suffix, self.beside_ms, self.noisy = suffix, beside_ms, noisy
        self.judged: list[str] = []
        self.settings: list[Settings] = []

    def __call__(
        self, model: Path, new: Path, settings: Settings, on_progress: Callable[[Event], None]
    ) -> Judgement:
        on_progress(Event("verify", "own inputs"))
        self.judged.append(new.read_text())
        self.settings.append(settings)
        kernels = ast.literal_eval(self.judged[-1].splitlines()[1].removeprefix("kernels = "))
        ours = sum(self.cost_ms.get(name, 1.0) for name in kernels) if kernels else 10.0
        changed = "# algebra = exact" in self.judged[-1]
        ours += self.beside_ms if kernels or changed else 0.0
        timing = Timing(
            samples(10.0),
            samples(6.0),
            samples(ours),
            0.5,
            "bytes",
            "interleaved",
            60.0,
            None,
            "cpu",
            vs_eager=beside_eager(ours / 10.0, self.noisy),
        )
        timings = tuple(
            KernelTiming(
                name + self.suffix,
                self.cost_ms.get(name, 1.0),
                8,
                100 / self.cost_ms.get(name, 1.0),
            )
            for name in kernels
        )
        verdict = Verdict(self.passed, "A", (CHECK,), "" if self.passed else "output 0 is wrong")
        calls = {name: 1 for name in kernels if self.calls}
        return Judgement(verdict, timing, timings, ENVIRONMENT, 5, calls)


COMPILED = compiler("k1", "k2")(Path("m.py"), Options(), lambda stage: None)


def judged(comparison: Comparison | None) -> Judgement:
    """A judgement of two kernels without figures of their own."""
    timing = Timing(
        samples(10.0), None, samples(10.0), 0.5, "", "", 60.0, None, "cpu", vs_eager=comparison
    )
    return Judgement(Verdict(True, "A", (CHECK,), ""), timing, (), ENVIRONMENT, 5)


class Listener:
    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.said: list[str] = []

    def step(self, stage: str, message: str = "") -> None:
        self.steps.append((stage, message))

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def run(
    folder: Path, judge: Judge, compile_file: Callable[..., Compiled], **choices: object
) -> Delivery:
    (folder / "m.py").write_text("model = 1\n")
    out = folder / "m_new.py"
    model, options = folder / "m.py", Options(**choices)
    return optimize(model, out, options, Listener(), compile_file, lambda *args: 0.5, judge)


def test_a_faster_file_is_delivered_with_its_figures(tmp_path: Path) -> None:
    judge = Judge()
    delivery = run(tmp_path, judge, compiler("k1"), batch=4, seed=5, target="cpu")
    text = delivery.out.read_text()
    head = ast.get_docstring(ast.parse(text))
    assert head is not None and "eager 10 ms, torch.compile 6 ms, ModelNew 1 ms" in head
    assert "Largest error against float64: 3e-07, of the original 4e-07." in head
    assert text.splitlines()[-1] == judge.judged[0].splitlines()[-1] == "kernels = ['k1']"
    assert judge.settings == [Settings(device="cpu", seed=5, batch=4, scope="full")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.py", "m_new.py"]


def test_a_wrong_file_is_not_delivered(tmp_path: Path) -> None:
    (tmp_path / "m_new.py").write_text("what was there before")
    with pytest.raises(NotEquivalent) as caught:
        run(tmp_path, Judge(passed=False), compiler("k1"))
    assert caught.value.exit_code == 1
    assert "is not equivalent: output 0 is wrong" in str(caught.value)
    assert (tmp_path / "m_new.py").read_text() == "what was there before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.py", "m_new.py"]


class RefusesRewritten(Judge):
    """Refuses a file whose mathematics was changed, as its text says."""

    def __call__(self, model: Path, new: Path, *args: Any) -> Judgement:
        self.passed = "algebra = off" in new.read_text()
        return super().__call__(model, new, *args)


def rewriting(path: Path, options: Options, on_stage: Callable[[str], None]) -> Compiled:
    made = compiler("k1")(path, options, on_stage)
    told = () if options.algebra == "off" else ("a sum: computed as another.",)
    text = f"{made.text}# algebra = {options.algebra}\n"
    return replace(made, text=text, rewritten=told)


def test_mathematics_that_is_refused_is_undone(tmp_path: Path) -> None:
    judge = RefusesRewritten()
    delivery = run(tmp_path, judge, rewriting)
    assert len(judge.judged) == 2
    assert not delivery.compiled.rewritten
    assert delivery.notes[0] == (
        "the mathematics is as it was (--algebra off): rewritten, it was refused: output 0 is wrong"
    )
    assert "algebra = off" in delivery.out.read_text()


def test_a_file_that_is_wrong_without_algebra_is_not_delivered(tmp_path: Path) -> None:
    judge = Judge(passed=False)
    with pytest.raises(NotEquivalent):
        run(tmp_path, judge, rewriting)
    assert len(judge.judged) == 2


def test_calls_that_are_slower_when_rewritten_are_undone(tmp_path: Path) -> None:
    """First the kernel goes back; PyTorch's calls alone, rewritten, are slower still."""

    class Slow(Judge):
        def __call__(self, model: Path, new: Path, *args: Any) -> Judgement:
            self.beside_ms = 0.0 if "algebra = off" in new.read_text() else 15.0
            return super().__call__(model, new, *args)

    judge = Slow(cost_ms={"k1": 9.0})
    delivery = run(tmp_path, judge, rewriting)
    assert [decision.undoes for decision in delivery.decisions] == [False, True, False]
    assert not delivery.compiled.rewritten
    assert [row.name for row in delivery.compiled.fused] == ["k1"]
    assert delivery.notes[0].startswith(
        "the mathematics is as it was (--algebra off): rewritten, ModelNew took 2.5 times eager's"
    )


def test_calls_that_are_faster_when_rewritten_stand(tmp_path: Path) -> None:
    def without_kernels(path: Path, *args: Any) -> Compiled:
        return replace(rewriting(path, *args), plan_rows=())

    delivery = run(tmp_path, Judge(), without_kernels)
    assert delivery.compiled.rewritten and not delivery.decisions[-1].undoes
    assert not any("is the original" in note for note in delivery.notes)


def test_the_worst_kernel_goes_back_first(tmp_path: Path) -> None:
    judge = Judge(cost_ms={"k1": 1.0, "k2": 20.0})
    delivery = run(tmp_path, judge, compiler("k1", "k2"))
    assert len(judge.judged) == 2
    assert [row.name for row in delivery.compiled.plan_rows] == ["k1"]
    assert delivery.notes == (
        "k2: given back to PyTorch, because ModelNew took 2.1 times eager's time (2.1 to 2.1 with"
        " 98 % confidence, p = 9.3e-10, 30 pairs), significantly slower; it loses most, 20 ms for"
        " an estimated 1 ms",
    )
    assert [decision.given_back for decision in delivery.decisions] == [("k2",), ()]
    assert delivery.decisions[1].reason.startswith("the plan stands: ModelNew took 0.1 times")


@pytest.mark.parametrize("slower", [1.05, 3.0])
def test_a_noisy_machine_gives_nothing_back(tmp_path: Path, slower: float) -> None:
    """Its pairs are as often the other way, however much slower the others say."""
    judge = Judge(cost_ms={"k1": 1.0, "k2": 10 * slower - 1.0}, noisy=True)
    delivery = run(tmp_path, judge, compiler("k1", "k2"))
    assert len(judge.judged) == 1
    assert [row.name for row in delivery.compiled.fused] == ["k1", "k2"]
    (decision,) = delivery.decisions
    assert decision.given_back == () and not decision.comparison.slower


def test_few_pairs_give_nothing_back_and_say_so() -> None:
    few = compare([(3.0, 1.0)] * 4)
    decision = decide(COMPILED, judged(few), 0)
    assert decision == Decision(
        (),
        "the plan stands: ModelNew took 3 times eager's time (4 pairs, too few to tell, of 7),"
        " not significantly slower",
        few,
    )
    assert decision.is_worth_telling


def test_what_is_not_measured_stands() -> None:
    for judgement in (judged(None), replace(judged(None), timing=None)):
        decision = decide(COMPILED, judgement, 0)
        assert decision.given_back == () and "was not timed beside eager" in decision.reason
        assert not decision.is_worth_telling


def test_the_original_has_nothing_to_give_back() -> None:
    slower = judged(beside_eager(1.5))
    assert decide(replace(COMPILED, plan_rows=()), slower, 0).given_back == ()
    assert decide(COMPILED, slower, 0).given_back != ()


def test_a_product_far_from_the_limit_of_its_bytes_stays_where_it_gains(tmp_path: Path) -> None:
    """Its 8 ms replace 30 copies of 1 ms; the 6 ms of the other one replace two."""
    judge = Judge(cost_ms={"product": 8.0, "tail": 6.0})
    delivery = run(tmp_path, judge, compiler("product", "tail", product=30.0, tail=2.0))
    assert [row.name for row in delivery.compiled.plan_rows] == ["product"]


@pytest.mark.parametrize(("calls", "first"), [(1, "large"), (40, "small")])
def test_a_kernel_loses_in_every_call(calls: int, first: str) -> None:
    """6 ms for 4 copies of 1 ms; 0.4 ms for 3 of 0.1 ms, which is worse in proportion only."""
    rows = tuple(
        PlanRow(name, "pointwise", ("exp",), "", replaced_copies=copies)
        for name, copies in (("large", 4.0), ("small", 3.0))
    )
    large = KernelTiming("large", 6.0, 8, limit_percent=100 / 6.0)
    small = KernelTiming("small", 0.4, 8, limit_percent=25.0, calls=calls)
    losses = losses_of(rows, (large, small))
    assert [loss.lost_ms for loss in losses] == pytest.approx([2.0, 0.1 * calls])
    assert max(losses, key=lambda loss: loss.lost_ms).name == first


def test_a_groups_launches_of_every_shape_count_together() -> None:
    rows = (PlanRow("k1", "pointwise", ("exp",), "", replaced_copies=2.0),)
    shapes = (KernelTiming("k1", 3.0, 8, 50.0, 2), KernelTiming("k1_into", 1.0, 8, 25.0))
    assert losses_of(rows, shapes) == (Loss("k1", 7.0, 6.5),)
    assert losses_of(rows, (replace(shapes[0], limit_percent=None),)) == ()


def test_reductions_go_back_as_the_calls_that_the_user_wrote() -> None:
    softmax = PlanRow("k1_softmax", "reduction", ("amax", "sum"), "", lines=("m.py:7", "m.py:9"))
    scale = PlanRow("k2_mul", "pointwise", ("mul",), "")
    rows, none = (softmax, scale), frozenset[str]()
    assert excluded_for(["k1_softmax"], rows, none) == {"m.py:7", "m.py:9"}
    assert excluded_for(["k1_softmax", "k2_mul"], rows, frozenset(["m.py:7"])) == {
        "m.py:9",
        "k2_mul",
    }
    lines = frozenset(softmax.lines)
    assert excluded_for(["k1_softmax"], rows, lines) == {"k1_softmax"}, "it must end"


def test_where_nothing_is_gained_the_original_is_delivered(tmp_path: Path) -> None:
    judge = Judge(cost_ms={"k1": 30.0, "k2": 20.0, "k3": 25.0})
    delivery = run(tmp_path, judge, compiler("k1", "k2", "k3"))
    assert len(judge.judged) == 3
    assert delivery.compiled.fused == ()
    assert delivery.notes[0].startswith("k1: given back")
    assert delivery.notes[1].startswith("k2, k3: given back")
    assert delivery.notes[2].startswith("Nothing is gained by fusing this model here")
    assert "kernels = []" in delivery.out.read_text()


def test_what_gains_by_its_own_measurement_goes_back_last(tmp_path: Path) -> None:
    """k1 loses most, k2 loses, and k3 replaces thirty copies, but ModelNew stays slower."""
    judge = Judge(cost_ms={"k1": 30.0, "k2": 20.0, "k3": 5.0}, beside_ms=40.0)
    delivery = run(tmp_path, judge, compiler("k1", "k2", "k3", k3=30.0))
    given_back = [decision.given_back for decision in delivery.decisions]
    assert given_back == [("k1",), ("k2",), ("k3",), ()]


def test_the_account_says_what_was_decided_and_why(tmp_path: Path) -> None:
    judge = Judge(cost_ms={"k1": 1.0, "k2": 20.0})
    data = to_plain(account.of_delivery(run(tmp_path, judge, compiler("k1", "k2"))))
    first, last = data["decisions"]
    assert first["given_back"] == ["k2"] and "significantly slower" in first["reason"]
    assert first["comparison"] == {
        "ratio": 2.1,
        "low": 2.1,
        "high": 2.1,
        "p": 2.0**-PAIRS,
        "pairs": PAIRS,
        "slower": True,
        "sets": 1,
    }
    assert last["given_back"] == [] and last["comparison"] == data["timing"]["vs_eager"]


def test_kernels_that_do_not_run_are_told(tmp_path: Path) -> None:
    assert run(tmp_path, Judge(), compiler("k1")).notes == ()
    notes = run(tmp_path, Judge(calls=False), compiler("k1")).notes
    assert notes == ("ModelNew ran the original on the model's own inputs, none of its kernels",)


def test_a_missing_compiler_stops_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(MissingCompiler) as caught:
        run(tmp_path, Judge(), compiler("k1"))
    assert str(caught.value).startswith(
        "the kernels cannot be built: c++ compiler /no/such/compiler not found; install g++"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["m.py"]
    assert run(tmp_path, Judge(), compiler("k1"), check=False).out.exists()


def test_without_a_check_the_file_says_so(tmp_path: Path) -> None:
    judge = Judge()
    delivery = run(tmp_path, judge, compiler("k1"), check=False)
    assert judge.judged == []
    assert "Not verified" in (ast.get_docstring(ast.parse(delivery.out.read_text())) or "")


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(*args: object) -> Judgement:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted, compiler("k1"))
    assert [path.name for path in tmp_path.iterdir()] == ["m.py"]


@pytest.mark.parametrize("suffix", ["", "_into"])
def test_a_kernel_has_the_plans_account(tmp_path: Path, suffix: str) -> None:
    (kernel,) = run(tmp_path, Judge(suffix=suffix), compiler("k1")).kernels
    assert (kernel.name, kernel.kind, kernel.ops) == ("k1", "pointwise", ("exp", "mul"))
    assert (kernel.ms, kernel.bytes) == (1.0, 8)


def test_the_account_has_what_the_contract_names(tmp_path: Path) -> None:
    delivery = run(tmp_path, Judge(), compiler("k1"))
    data = to_plain(account.of_delivery(delivery))
    assert (data["schema_version"], data["target"], data["device"]) == (1, "cpu", "A CPU")
    assert data["verdict"]["checks"][0]["error_vs_f64"] == {"rms": 1e-8, "max": 3e-7}
    assert {"eager_error_vs_f64", "max_ulp"} <= data["verdict"]["checks"][0].keys()
    assert data["timing"]["eager_ms"]["median"] == 10.0
    assert {"compile_ms", "opweld_ms", "limit_ms"} <= data["timing"].keys()
    kernel = data["kernels"][0]
    assert (kernel["name"], kernel["kind"], kernel["ops"]) == ("k1", "pointwise", ["exp", "mul"])
    assert {"bytes", "flops", "ms", "limit_percent", "registers", "spills"} <= kernel.keys()
    assert data["rules"] == [{"name": "mul-one", "numerics": "EXACT"}]
    assert data["library"] == []
    assert data["seconds"] == {"build": 0.5}


def test_both_accounts_have_the_same_fields(tmp_path: Path) -> None:
    delivery = run(tmp_path, Judge(), compiler("k1"))
    assert delivery.judgement is not None
    judged = to_plain(account.of_judgement(delivery.model, delivery.out, delivery.judgement))
    unjudged = to_plain(account.of_delivery(replace(delivery, judgement=None)))
    assert list(to_plain(account.of_delivery(delivery))) == list(unjudged)
    assert set(judged) == set(unjudged)
