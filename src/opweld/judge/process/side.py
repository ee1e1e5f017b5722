"""ModelNew in the process that holds it: what it can be asked to do.

The candidate process serves one of these to the referee; a test asks it directly. The names of the
methods and their arguments are those of `RemoteSide`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from opweld.judge.build.locks import BUILDS
from opweld.judge.inputs.layouts import with_weight
from opweld.judge.load import (
    Call,
    build_new,
    guard_new,
    import_model_file,
    import_new_file,
    is_device_lost,
    is_out_of_memory,
    raised,
)
from opweld.judge.measure import kernels
from opweld.judge.measure.blocks import LocalTimed, Order, Timed, compact
from opweld.judge.measure.clock import Action, WallClock, clock_of, nothing
from opweld.judge.numerics.differentiate import (
    Backward,
    GradOutputs,
    NoGradients,
    differentiate,
    record,
)
from opweld.judge.process.environment import global_settings, settings_changed
from opweld.judge.process.protocol import SIDE_STREAM, Files, How, Raised
from opweld.judge.tree import tensors
from opweld.judge.values import KernelTiming
from opweld.judge.verify.aliases import are_written_over, overwrite
from opweld.judge.verify.changes import change_weights
from opweld.judge.verify.guards import GuardedInputs, GuardedResults
from opweld.judge.verify.modes import OWN, Modes
from opweld.judge.verify.run import (
    Fingerprint,
    Forward,
    Overwritten,
    Run,
    autocast_to,
    filled_memory,
    fingerprint,
    plainly,
    poison,
    run,
    state_tensors,
)
from opweld.judge.verify.signature import Signature, parameters_of
from opweld.judge.verify.stream_races import BehindWork, Leftovers
from opweld.judge.verify.weights import State, copy_state, load_state
from opweld.judge.witness.integrity import Integrity


class Side:
    """ModelNew, loaded from its file."""

    # no dictionary, in which a method could be hidden
    __slots__ = (
        *(
            "_model",
            "_modes",
            "_mode",
            "_seed",
            "_function",
            "_module",
            "_new_module",
            "_new_path",
            "_device",
        ),
        *("_last", "_left", "_settings", "_integrity", "_launches", "_timed", "_leftovers"),
        "_side_stream",
    )

    def __init__(self) -> None:
        self._model: nn.Module | None = None
        self._modes: Modes | None = None
        self._mode = OWN
        self._seed, self._function = 0, ""
        self._module: ModuleType | None = None
        self._new_module: ModuleType | None = None
        self._new_path = Path()
        self._device = torch.device("cpu")
        self._last: Call | None = None
        self._left: Fingerprint = ()
        self._settings: dict[str, str] = {}
        self._integrity: Integrity | None = None
        self._launches: tuple[kernels.Launch, ...] = ()
        self._timed = LocalTimed(nothing, WallClock())
        self._leftovers = Leftovers()
        self._side_stream: torch.cuda.Stream | None = None

    @property
    def model(self) -> nn.Module:
        assert self._model is not None
        return self._model

    @property
    def device(self) -> torch.device:
        return self._device

    def load(self, files: Files, meanwhile: Action = nothing) -> None:
        """Imports both files and builds ModelNew.

        `meanwhile` is for a side in another process: what to do here until it is ready there.

        Raises:
            CandidateError: the file cannot be imported, or ModelNew not built.
            ModelFileError: it has no ModelNew at all.
        """
        self.begin(files)
        self.import_new()
        self.build_first()

    def begin(self, files: Files) -> None:
        """All that there is to do before anything of the candidate's file runs."""
        self._new_path, self._device = Path(files.new_path), torch.device(files.device)
        self._mode = files.mode
        if files.builds:
            os.environ[BUILDS] = files.builds
        named = files.reference, files.module_name
        self._module = import_model_file(Path(files.model_path), *named)
        if self._device.type == "cuda":
            # settings of the context are looked at below, so there has to be one
            begin = partial(torch.cuda.synchronize, self._device)
            guard_new(self._new_path, "beginning to use the device", begin)
        self._settings, self._integrity = self.settings(), Integrity()
        self._seed, self._function = files.seed, files.candidate

    def import_new(self) -> None:
        """Imports the candidate's file, which may build its kernels."""
        self._new_module = import_new_file(self._new_path, self._function)

    def build_first(self) -> None:
        """ModelNew as the files say."""
        self.build(self._seed)

    def build(self, seed: int) -> None:
        """ModelNew anew, with the parameters that `seed` gives."""
        assert self._module and self._new_module
        self._last = None
        files = self._module, self._new_module, self._new_path
        self._model = build_new(*files, seed, self._device, self._mode)
        self._modes = Modes(self._model)

    def state(self, like: State | None = None) -> State:
        """The tensors of the state dictionary; of `like`, the original's, another process has need.

        There, an entry that differs from it in shape or dtype comes without its data.
        """
        with self._guard():
            return copy_state(self.model)

    def load_state(self, state: State) -> None:
        with self._guard():
            load_state(self.model, state)

    def change_weights(self, seed: int, way: str) -> None:
        """Other weights, past `load_state_dict`; the model may be another object then."""
        with self._guard():
            self._model = change_weights(self.model, seed, way)
            self._modes = Modes(self._model)

    def signature(self) -> Signature:
        """What the constructor and the forward take."""
        with self._guard():
            assert self._new_module
            constructor = parameters_of(self._new_module.ModelNew)
            return constructor, parameters_of(self.model.forward)

    def train(self, mode: str) -> None:
        """ModelNew in another mode, or (OWN) in the one that it is judged in."""
        with self._guard():
            assert self._modes
            self._modes.put(mode)

    def convert(self, dtype: str) -> None:
        """Floating-point parameters and buffers in another dtype, until it is built anew."""
        with self._guard():
            self._last = None
            self.model.to(getattr(torch, dtype))

    def settings(self) -> dict[str, str]:
        """Torch's global settings."""
        return {name: str(value) for name, value in global_settings().items()}

    def settings_changed(self) -> dict[str, tuple[str, str]]:
        """Torch's global settings that differ from those before the file was imported."""
        return settings_changed(self._settings, self.settings())

    def process_changed(self) -> list[str]:
        """What of Python and the system differs: in one process it is not looked at."""
        return []

    @property
    def reads_memory(self) -> bool:
        """Whether anybody looks into the memory of the process."""
        return False

    def patched(self) -> list[str]:
        """What of torch, the clock and the built-ins is not what it was before the import."""
        return self._integrity.broken() if self._integrity else []

    def busy(self) -> str | None:
        """What calls leave running on the device; the process itself can be seen from outside."""
        return self._leftovers.clause()

    def step(self, what: str) -> None:
        """In one process a crash is everybody's."""

    def run(self, call: Call, how: How, like: Run | None = None, lazy: bool = False) -> Run:
        """One forward. With `lazy` the leaves are the candidate's own tensors, which may change;
        here they always are.

        Raises:
            Raised: the candidate raised, or wrote where it must not.
        """
        with self._guard():
            self._require_untouched()
            call = self._placed(call, how.same_memory)
            if how.weight:
                call = with_weight(call, dict(state_tensors(self.model))[how.weight])
            if how.guarded:
                found = self._run_guarded(call, how, like)
            elif how.stream and self._device.type == "cuda":
                found = self._run_behind_work(call, how, like)
            else:
                found = self._run(call, how, like, self._leftovers.forward)
            self._left = fingerprint(call.tensors())
            return found

    def _run(self, call: Call, how: How, like: Run | None, forward: Forward) -> Run:
        if like is not None:
            poison(like.leaves, self._device)
        with (
            filled_memory() if how.filled else contextlib.nullcontext(),
            autocast_to(how.autocast, self._device),
        ):
            asked = how.seed, how.grad, like, how.watch_state, forward, how.inference
            return run(self.model, call, *asked)

    def _run_behind_work(self, call: Call, how: How, like: Run | None) -> Run:
        """On a stream that has other work to do first: another one, or the current one."""
        if how.stream == SIDE_STREAM:
            self._side_stream = self._side_stream or torch.cuda.Stream(self._device)
            work = BehindWork(self._side_stream)
        else:
            work = BehindWork(torch.cuda.current_stream(self._device))
        if not how.watch_state:
            work.warm_up(self.model, call)
        found = self._run(call, how, like, work.forward)
        work.take(found.leaves)
        return found

    def _run_guarded(self, call: Call, how: How, like: Run | None) -> Run:
        """With a watch on the bytes beside inputs and results."""
        inputs = GuardedInputs(call)
        results = GuardedResults(tensors(like.leaves) if like else (), self._device)
        found = self._run(inputs.call, how, like, plainly)
        beside = {"inputs": inputs.num_changed(), "results": results.num_changed()}
        for what, count in beside.items():
            if count:
                raise Overwritten(f"writes beyond its memory: {count} bytes beside its {what}")
        return found

    def last_inputs(self) -> list[Tensor]:
        """The tensors of the last call, as they are now."""
        return self._last.tensors() if self._last else []

    def overwrite(self, number: int) -> None:
        """Changes each element of an input of the last call; done twice, it is as before."""
        assert self._last is not None
        overwrite(self._last.tensors()[number])
        self._left = ()

    def gradients(
        self, calls: Sequence[Call], grad_outputs: GradOutputs, seed: int, how: Backward, like: Run
    ) -> Run:
        """The gradients of forwards for given output gradients, the leaves those of `like`."""
        with self._guard():
            graphs = record(self.model, calls, seed, how)
            return differentiate(graphs, grad_outputs, how, like)

    def launches(self, call: Call) -> dict[str, int]:
        """Calls of each registered kernel in one forward."""
        with self._guard():
            self._launches = kernels.record(self.model, call)
        return kernels.count(self._launches)

    def time_kernels(self, copy_gbps: float, num_runs: int | None) -> tuple[KernelTiming, ...]:
        """The kernels of the last `launches`, each timed alone; untimed where `copy_gbps` is 0."""
        if not copy_gbps:
            return tuple(map(kernels.untimed, self._launches))
        with self._guard():
            return tuple(
                kernels.time_launch(launch, self._device, copy_gbps, num_runs)
                for launch in self._launches
            )

    @property
    def timed(self) -> Timed:
        """Blocks of timed calls."""
        return self

    def prepare(self, calls: Sequence[Call], step: bool = False) -> None:
        """The pool of inputs for timed calls; this and what follows are the methods of `Timed`."""
        with self._guard():
            self._timed = LocalTimed(self.model, clock_of(self._device))
            self._timed.prepare(calls, step)

    def arm(self, order: Order) -> None:
        with self._guard():
            self._timed.arm(order)

    def block(self, run: bool) -> list[float]:
        with self._guard():
            return self._timed.block(run)

    def result(self, number: int) -> Run:
        return self._timed.result(number)

    def release(self) -> None:
        self._timed.release()

    def pause(self) -> None:
        """In one process there is nobody to stop."""

    def resume(self) -> None:
        """Nor to go on."""

    def pin(self, processor: int | None) -> None:
        self._timed.pin(processor)

    def busy_s(self) -> float:
        """Nor to use a processor beside."""
        return 0.0

    def _require_untouched(self) -> None:
        """The inputs of the last call are as it left them: no thread wrote to them since."""
        last, left = self._last, self._left
        self._left = ()
        if last is not None and left and fingerprint(last.tensors()) != left:
            raise Overwritten("writes to its inputs after it has returned")

    def _placed(self, call: Call, same_memory: bool) -> Call:
        if (
            same_memory
            and self._last is not None
            and are_written_over(self._last.tensors(), call.tensors())
        ):
            for old, fresh in zip(self._last.tensors(), call.tensors(), strict=True):
                compact(old.data).copy_(compact(fresh))
            return self._last
        self._last = call
        return call

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Whatever the candidate raises, as one sentence."""
        try:
            yield
        except Overwritten as error:
            raise Raised(f"ModelNew {error}", overwrote=True) from error
        except NoGradients as error:
            raise Raised("its outputs carry no gradients", without_gradients=True) from error
        except BaseException as error:
            raise Raised(
                raised(self._new_path, error, "ModelNew raised").partition("\n")[0],
                lost=is_device_lost(error),
                no_memory=is_out_of_memory(error),
            ) from error
