"""Styles in which any forward can be written again: how each is done, and for which models it is.

A style writes the methods of ModelNew that stand in the place of the original's `forward`, which is
there as `{steps}`, and statements before the class. `{params}` are the forward's parameters as they
are declared, `{args}` as they are passed on, `{first}` is the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """One way to write ModelNew around the original's steps."""

    name: str
    models: tuple[str, ...]
    forward: str
    before: str = ""
    imports: tuple[str, ...] = ()
    # Where the steps are a function of the module's, they are put before the class, not into it.
    as_function: bool = False
    for_inference: bool = False


STYLES = (
    Style(
        "rows_in_chunks",
        ("gated", "mlp", "conv_relu", "layer_norm", "rotary", "pooling", "running_mean"),
        """
def forward({params}):
    return torch.cat([self.steps(part) for part in {first}.split(7)])
""",
    ),
    Style(
        "rows_filled_up",
        ("linear_gelu", "rms_norm", "log_softmax", "attention", "conv_gate"),
        """
def forward({params}):
    num_rows = {first}.shape[0]
    missing = -num_rows % 8 if num_rows else 8
    wide = torch.cat([{first}, {first}.new_zeros(missing, *{first}.shape[1:])])
    return self.steps(wide)[:num_rows]
""",
    ),
    Style(
        "rows_in_another_order",
        ("mlp", "attention", "layer_norm", "group_norm", "pooling"),
        """
def forward({params}):
    return self.steps({first}.flip(0)).flip(0)
""",
    ),
    Style(
        "vmap",
        ("gated", "linear_gelu", "layer_norm", "rotary", "running_mean", "log_softmax"),
        """
def one(self, row):
    return self.steps(row.unsqueeze(0)).squeeze(0)

def forward({params}):
    if {first}.shape[0] == 0:
        return self.steps({args})
    return torch.func.vmap(self.one)({args})
""",
    ),
    Style(
        "contiguous_at_entry",
        ("rms_norm", "conv_gate", "causal", "distances", "huber", "gru_cell"),
        """
def forward({params}):
    return self.steps(*[t.contiguous() for t in ({args},)])
""",
    ),
    Style(
        "in_float64",
        ("gated", "running_mean", "log_softmax", "huber"),
        """
def forward({params}):
    return self.steps(*[t.double() for t in ({args},)]).to({first}.dtype)
""",
    ),
    Style(
        "scripted",
        ("gated", "log_softmax", "huber", "distances", "running_mean"),
        """
def forward({params}):
    return scripted({args})
""",
        before="scripted = torch.jit.script(steps)",
        as_function=True,
    ),
    Style(
        "symbolically_traced",
        ("gated", "log_softmax", "distances"),
        """
def forward({params}):
    return traced({args})
""",
        before="traced = torch.fx.symbolic_trace(steps)",
        imports=("import torch.fx",),
        as_function=True,
    ),
    Style(
        "compiled",
        ("gated", "log_softmax"),
        """
@torch.compile(dynamic=True)
def forward({params}):
    return self.steps({args})
""",
    ),
    Style(
        "compiled_without_kernels",
        ("mlp", "layer_norm", "distances"),
        """
@torch.compile(backend="aot_eager", dynamic=True)
def forward({params}):
    return self.steps({args})
""",
    ),
    Style(
        "checkpointed",
        ("mlp", "attention", "dropout", "gru_cell", "rms_norm"),
        """
def forward({params}):
    return checkpoint(self.steps, {args}, use_reentrant=False)
""",
        imports=("from torch.utils.checkpoint import checkpoint",),
    ),
    Style(
        "named_for_the_profiler",
        ("conv_gate", "embedding", "moments", "centred", "in_place"),
        """
def forward({params}):
    with torch.profiler.record_function("ModelNew.forward"):
        return self.steps({args})
""",
    ),
    Style(
        "autocast_off",
        ("linear_gelu", "attention", "embedding", "cross_entropy"),
        """
def forward({params}):
    with torch.autocast(device_type={first}.device.type, enabled=False):
        return self.steps({args})
""",
    ),
    Style(
        "no_grad",
        ("mlp", "conv_relu", "group_norm", "moments", "cross_entropy", "embedding", "rotary"),
        """
@torch.no_grad()
def forward({params}):
    return self.steps({args})
""",
        for_inference=True,
    ),
    Style(
        "inference_mode",
        ("pooling", "gru_cell", "attention"),
        """
@torch.inference_mode()
def forward({params}):
    return self.steps({args})
""",
        for_inference=True,
    ),
    Style(
        "as_in_a_tutorial",
        ("linear_gelu", "causal", "gru_cell", "huber", "pooling", "dropout", "in_place", "rotary"),
        '''
def forward({params}):
    """
    Optimised forward pass.

    Returns the same result as the reference implementation.
    """
    assert isinstance({first}, torch.Tensor), "expected a tensor"
    assert {first}.dim() >= 2, f"expected a batch, got shape {{tuple({first}.shape)}}"
    output = self.steps({args})
    return output
''',
        before="""
logger = logging.getLogger(__name__)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
""",
        imports=("import logging",),
    ),
)
# Other ways to come by a file: a subclass of a copy of the original, and what opweld emits.
SUBCLASSES = (
    "mlp",
    "dropout",
    "centred",
    "conv_norm",
    "embedding",
    "moments",
    "integers",
    "cross_entropy",
)
EMITTED = ("gated", "layer_norm", "log_softmax")
