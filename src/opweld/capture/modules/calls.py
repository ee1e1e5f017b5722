"""The calls of submodules in which an exported node ran, as export notes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx, nn

from opweld.ir.graph import ModuleCall

from .access import weight_access
from .attributes import qualified_name
from .origins import forward_lines, is_users


def _writes(module: nn.Module) -> bool:
    """Whether the forward of a module is the user's own."""
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and is_users(code.co_filename)


@dataclass(slots=True)
class Calls:
    """The calls of one export of `module`, each known by the key that export gives it."""

    module: nn.Module
    known: dict[str, ModuleCall | None] = field(default_factory=dict)

    def of(self, node: fx.Node) -> tuple[ModuleCall, ...]:
        """Outermost first, the module's own left out; none below one that has no place in it."""
        stack = list((node.meta.get("nn_module_stack") or {}).items())[1:]
        found: list[ModuleCall] = []
        for key, (path, _) in stack:
            if key not in self.known:
                self.known[key] = self._call(key, path, node, found)
            call = self.known[key]
            if call is None:
                break
            found.append(call)
        return tuple(found)

    def _call(
        self, key: str, path: str, node: fx.Node, callers: list[ModuleCall]
    ) -> ModuleCall | None:
        module = self._module(path)
        if module is None:
            return None
        tensors = (*module._parameters.values(), *module._buffers.values())
        return ModuleCall(
            key=key,
            path=path,
            access=weight_access(self.module, path),
            type_name=qualified_name(type(module)),
            num_tensors=sum(each is not None for each in tensors),
            line=self._line(node, callers),
            writes=_writes(module),
        )

    def _module(self, path: str) -> nn.Module | None:
        try:
            return self.module.get_submodule(path)
        except AttributeError:  # one that export made
            return None

    def _line(self, node: fx.Node, callers: list[ModuleCall]) -> tuple[str, str] | None:
        """The line of the innermost of the user's forwards around the call, where each of the
        user's modules around the node has one.
        """
        paths = [path for path, _ in node.meta["nn_module_stack"].values()]
        modules = [self._module(path) for path in paths]
        num_forwards = sum(module is not None and _writes(module) for module in modules)
        lines = forward_lines(node)
        if len(lines) != num_forwards or not _writes(self.module):
            return None
        return lines[sum(call.writes for call in callers)]
