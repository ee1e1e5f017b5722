"""A Ray cluster: an actor for each slot, which is a supervisor of it on its node.

Ray finds the nodes, starts the actors, and tells of those that were lost; which GPU gets what is
the driver's to say, as a GPU that failed must get nothing more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from opweld.errors import UserError
from opweld.judge.values import from_plain, to_plain
from opweld.process.worker import child_environment
from opweld.suite.engines.slots import AUTO, CPU, slots_of
from opweld.suite.optional import optional
from opweld.suite.values import NODE_LOST, Gpu, Outcome, Slot, Task
from opweld.suite.worker.gpus import visible_gpus
from opweld.suite.worker.supervisor import Supervisor

START = (
    "start it by `ray start --head`, set RAY_AUTH_TOKEN where it asks for a token, or leave "
    "--address out"
)
_HERE = "127.0.0.1"
# Without it Ray takes the loopback for a mistake, and listens on the machine's own address. It is
# read when Ray is imported.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_START_S, _ANSWER_S = 120.0, 10.0
# A place in an actor for the task, and one for what is to be said to it meanwhile.
_CALLS_AT_ONCE = 2


class Keeper:
    """What runs in an actor: the supervisor of one slot."""

    def __init__(self, slot: str) -> None:
        self._slot: Slot = from_plain(Slot, json.loads(slot))
        self._supervisor = Supervisor(self._slot)

    def run(self, task: str) -> str:
        return json.dumps(to_plain(self._supervisor.run(from_plain(Task, json.loads(task)))))

    def cancel(self, task: str) -> None:
        self._supervisor.cancel(task)

    def close(self) -> None:
        """Before the actor is killed, so that what it started ends with it."""
        self._supervisor.close()


class RayEngine:
    """All nodes of a cluster. Without an `address` one of this machine alone is started, which
    listens on the loopback only, and ends with this process.

    Raises:
        UserError: Ray is not installed, or there is no cluster at the address.
    """

    name = "ray"

    def __init__(
        self,
        device: str = AUTO,
        jobs: int | None = None,
        builders: int | None = None,
        exclusive: bool = True,
        address: str | None = None,
    ) -> None:
        if address is None or address.startswith(_HERE):
            os.environ |= _LOOPBACK
        self._ray, self._strategies = (
            optional(name, "--engine ray", "ray")
            for name in ("ray", "ray.util.scheduling_strategies")
        )
        self._connect(address)
        self._nodes: dict[str, str] = {}
        self._actors: dict[str, Any] = {}
        self._running: dict[Any, tuple[Task, Slot]] = {}
        self._slots: dict[str, Slot] = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                self._add_node(node, device, jobs, builders, exclusive)

    @property
    def address(self) -> str:
        """Where others can join the cluster."""
        return str(self._ray.get_runtime_context().gcs_address)

    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots.values())

    def submit(self, task: Task, slot: Slot) -> None:
        actor = self._actors.get(slot.id) or self._actor(slot)
        self._running[actor.run.remote(json.dumps(to_plain(task)))] = (task, slot)

    def finished(self, wait_s: float) -> list[Outcome]:
        if not self._running:
            return []
        num = len(self._running)
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=wait_s)
        if done and num > 1:
            done, _ = self._ray.wait(list(self._running), num_returns=num, timeout=0)
        return [self._outcome(reference) for reference in done]

    def cancel(self, task: str) -> None:
        for running, slot in self._running.values():
            if running.id == task and slot.id in self._actors:
                self._actors[slot.id].cancel.remote(task)

    def set_aside(self, slot: Slot, node: str) -> None:
        """The actor stays, and so keeps what it has from others of this suite; it gets no task."""

    def close(self) -> None:
        closing = [actor.close.remote() for actor in self._actors.values()]
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.wait(closing + list(self._running), num_returns=len(closing), timeout=10)
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._ray.shutdown()

    def _connect(self, address: str | None) -> None:
        """Joins the cluster, or starts one; its workers find the same opweld as this process."""
        path = {"PYTHONPATH": child_environment()["PYTHONPATH"]}
        shared = {"runtime_env": {"env_vars": path}, "log_to_driver": False}
        own: dict[str, Any] = {
            "address": "local",
            "include_dashboard": False,
            "_node_ip_address": _HERE,
            "num_cpus": len(os.sched_getaffinity(0)),
            "configure_logging": False,
        }
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        logging.getLogger("ray").setLevel(logging.ERROR)
        _answers(address)
        try:
            self._ray.init(**(own if address is None else {"address": address}), **shared)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(
                f"no Ray at {address or 'this machine'}: {error}",
                next_step=START,
            ) from error
        listens = {node["NodeManagerAddress"] for node in self._ray.nodes()}
        if address is None and listens != {_HERE}:
            self._ray.shutdown()
            raise UserError(
                f"Ray, which was imported before, listens on {', '.join(sorted(listens))}",
                next_step="start the suite before Ray is imported, or name its address",
            )

    def _add_node(
        self, node: Any, device: str, jobs: int | None, builders: int | None, exclusive: bool
    ) -> None:
        resources, place = node["Resources"], node["NodeID"]
        found: tuple[Gpu, ...] = ()
        if device != CPU and resources.get("GPU"):
            found = tuple(from_plain(Gpu, gpu) for gpu in self._ask(place, _gpus))
        name = f"{node['NodeManagerHostname']}-{place[:6]}"
        processors = int(resources.get("CPU", 1)) or 1
        for slot in slots_of(name, found, processors, jobs, builders, exclusive):
            self._slots[slot.id] = slot
            self._nodes[slot.id] = place

    def _on(self, node: str, **needs: Any) -> dict[str, Any]:
        strategy = self._strategies.NodeAffinitySchedulingStrategy
        return {"scheduling_strategy": strategy(node, soft=False), **needs}

    def _ask(self, node: str, question: Callable[[], Any]) -> Any:
        remote = self._ray.remote(question).options(**self._on(node, num_cpus=0))
        return self._ray.get(remote.remote(), timeout=_START_S)

    def _actor(self, slot: Slot) -> Any:
        """On the slot's node. GPUs are counted by Ray, and chosen by the supervisor."""
        needs = {"num_cpus": 0, "num_gpus": 1 if slot.gpu else 0}
        options = self._on(self._nodes[slot.id], **needs, max_concurrency=_CALLS_AT_ONCE)
        actor = self._ray.remote(Keeper).options(**options).remote(json.dumps(to_plain(slot)))
        self._actors[slot.id] = actor
        return actor

    def _outcome(self, reference: Any) -> Outcome:
        task, slot = self._running.pop(reference)
        try:
            return from_plain(Outcome, json.loads(self._ray.get(reference)))
        except self._ray.exceptions.RayError as error:
            actor = self._actors.pop(slot.id, None)
            if actor is not None:
                self._ray.kill(actor)
            detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            return Outcome(task.id, slot.id, fault=NODE_LOST, detail=detail, node=slot.node)


def _answers(address: str | None) -> None:
    """That somebody listens there: Ray itself tries for a quarter of an hour.

    Raises:
        UserError: nobody does.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except OSError as error:
        raise UserError(
            f"no Ray at {address}: {error.strerror or error}", next_step=START
        ) from error


def _gpus() -> list[dict[str, Any]]:
    """On a node: its GPUs, as their driver names them, whatever Ray shows of them."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    return [to_plain(gpu) for gpu in visible_gpus()]
