"""The vocabulary of row programs, beside `operations`: what folds an axis, what takes the result.

`{0}`, `{1}` are operands, `{dim}` is the axis, or the axes in parentheses. Reductions keep the
axis, so that their results broadcast back.
"""

from __future__ import annotations

from tests.fuzz.operations import Form

FOLDS: tuple[Form, ...] = (
    ("sum", "{0}.sum({dim}, keepdim=True)"),
    ("sum", "torch.sum({0}, dim={dim}, keepdim=True)"),
    ("sum", "({0} * {0}).sum({dim}, keepdim=True)"),
    ("mean", "{0}.mean({dim}, keepdim=True)"),
    ("mean", "torch.mean({0}.abs(), dim={dim}, keepdim=True)"),
    ("mean", "{0}.pow(2).mean({dim}, keepdim=True)"),
    ("amax", "{0}.amax({dim}, keepdim=True)"),
    ("amax", "torch.amax({0}.abs(), {dim}, keepdim=True)"),
    ("amin", "{0}.amin({dim}, keepdim=True)"),
    ("var", "{0}.var({dim}, keepdim=True)"),
    ("var", "torch.var({0}, dim={dim}, unbiased=False, keepdim=True)"),
    ("std", "{0}.std({dim}, keepdim=True)"),
    ("std", "torch.std({0}, dim={dim}, correction=0, keepdim=True)"),
    ("norm", "{0}.norm(dim={dim}, keepdim=True)"),
    ("norm", "torch.linalg.vector_norm({0}, ord=1, dim={dim}, keepdim=True)"),
    ("norm", "torch.linalg.vector_norm({0}, ord=3, dim={dim}, keepdim=True)"),
    ("norm", "torch.linalg.vector_norm({0}, ord=float('inf'), dim={dim}, keepdim=True)"),
    ("logsumexp", "torch.logsumexp({0}, dim={dim}, keepdim=True)"),
    ("count_nonzero", "({0} > 0.25).sum({dim}, keepdim=True)"),
    ("any", "torch.any({0} > 1.5, dim={dim}, keepdim=True)"),
    ("all", "torch.all({0} < 2.0, dim={dim}, keepdim=True)"),
)
# Of one axis alone.
FOLDS_OF_ONE: tuple[Form, ...] = (
    ("max dim", "{0}.max({dim}, keepdim=True)[0]"),
    ("max dim", "torch.max({0}, dim={dim}, keepdim=True).values"),
    ("min dim", "{0}.min({dim}, keepdim=True).values"),
    ("prod", "torch.tanh({0}).prod({dim}, keepdim=True)"),
    ("prod", "(1 + 0.01 * torch.tanh({0})).prod({dim}, keepdim=True)"),
    ("aminmax", "torch.aminmax({0}, dim={dim}, keepdim=True).max"),
)
INDICES: tuple[Form, ...] = (
    ("argmax", "{0}.argmax({dim}, keepdim=True)"),
    ("argmin", "torch.argmin({0}, dim={dim}, keepdim=True)"),
    ("max dim", "{0}.max({dim}, keepdim=True)[1]"),
    ("min dim", "torch.min({0}, dim={dim}, keepdim=True).indices"),
)
# Of all elements: no axis is kept, and none needs to be.
FOLDS_OF_ALL: tuple[Form, ...] = (
    ("sum", "{0}.sum()"),
    ("mean", "{0}.mean()"),
    ("max", "{0}.max()"),
    ("min", "torch.min({0})"),
    ("std", "{0}.std()"),
    ("var", "torch.var({0}, unbiased=False)"),
    ("norm", "{0}.norm()"),
    ("norm", "torch.linalg.vector_norm({0}, ord=1)"),
)
WHOLE: tuple[Form, ...] = (
    ("softmax", "torch.softmax({0}, dim={dim})"),
    ("softmax", "F.softmax({0} / 3, dim={dim})"),
    ("softmin", "F.softmin({0}, dim={dim})"),
    ("log_softmax", "F.log_softmax({0}, dim={dim})"),
    ("normalize", "F.normalize({0}, dim={dim})"),
    ("normalize", "F.normalize({0}, p=1.0, dim={dim})"),
    ("cumsum", "torch.cumsum({0}, {dim})"),
    ("cumsum", "{0}.flip({dim}).cumsum({dim}).flip({dim})"),
    ("cumprod", "torch.cumprod(torch.tanh({0}) + 0.4, dim={dim})"),
    ("cummax", "torch.cummax({0}, dim={dim}).values"),
    ("cummin", "{0}.cummin({dim})[0]"),
    ("logcumsumexp", "torch.logcumsumexp({0}, {dim})"),
    ("masked softmax", "torch.softmax({0}.masked_fill({0} > 1.2, float('-inf')), dim={dim})"),
    (
        "masked softmax",
        "{0}.masked_fill(torch.arange({0}.shape[{dim}], device={0}.device) % 3 == 1, -math.inf)"
        ".softmax({dim})",
    ),
    ("sort", "torch.sort({0}, dim={dim}).values"),
)
WHOLE_OF_AXES: tuple[Form, ...] = (
    ("centre", "{0} - {0}.mean({dim}, keepdim=True)"),
    ("standardise", "({0} - {0}.mean({dim}, keepdim=True)) / ({0}.std({dim}, keepdim=True) + 0.1)"),
    (
        "standardise",
        "({0} - {0}.mean({dim}, keepdim=True))"
        " * torch.rsqrt({0}.var({dim}, keepdim=True, unbiased=False) + 1e-5)",
    ),
    ("rms", "{0} * torch.rsqrt({0}.pow(2).mean({dim}, keepdim=True) + 1e-6)"),
    ("range", "({0} - {0}.amin({dim}, keepdim=True)) / ({0}.amax({dim}, keepdim=True) + 3)"),
    ("softmax", "({0} - {0}.amax({dim}, keepdim=True)).exp()"),
    ("exp sum", "{0}.exp() / (1 + {0}.exp().sum({dim}, keepdim=True))"),
)
LAST_AXIS: tuple[Form, ...] = (
    ("layer_norm", "F.layer_norm({0}, {0}.shape[-1:])"),
    ("rms_norm", "F.rms_norm({0}, {0}.shape[-1:])"),
    ("glu", "F.glu(torch.cat([{0}, {0}.tanh()], -1), dim=-1)"),
)
# The row and what was folded from it, or a vector that broadcasts to it.
TOGETHER: tuple[Form, ...] = (
    ("sub", "{0} - {1}"),
    ("add", "{0} + {1}"),
    ("mul", "{0} * {1}"),
    ("div", "{0} / ({1}.abs() + 0.5)"),
    ("div", "{1} / ({0} * {0} + 1.0)"),
    ("sub tanh", "torch.tanh({0} - {1})"),
    ("sub sigmoid", "torch.sigmoid({1} - {0})"),
    ("exp", "torch.exp(-({0} - {1}).abs())"),
    ("gt", "torch.where({0} > {1}, {0}, {1})"),
    ("where", "torch.where({0} < {1}, {0} * 0.5, -1.0)"),
    ("ge", "({0} >= {1}).to({0}.dtype) + {0}"),
    ("masked_fill", "{0}.masked_fill({0} < {1}, 0.25)"),
    ("maximum", "torch.maximum({0}, {1})"),
    ("minimum", "torch.minimum({1}, {0})"),
    ("addcmul", "torch.addcmul({0}, {0}, {1}, value=0.5)"),
    ("lerp", "torch.lerp({0}, {0} * {1}, 0.3)"),
    ("hypot", "torch.hypot({0}, {1})"),
    ("atan2", "torch.atan2({0}, {1})"),
    ("logaddexp", "torch.logaddexp({0}, {1})"),
)
WITH_BOOL: tuple[Form, ...] = (
    ("where", "torch.where({1}, {0}, -{0})"),
    ("masked_fill", "{0}.masked_fill({1}, 0.5)"),
    ("mul", "{0} * {1}"),
    ("bool", "{0} + (~{1}).to({0}.dtype)"),
)
WITH_INDEX: tuple[Form, ...] = (
    ("gather", "{0} - {0}.gather({dim}, {1})"),
    ("take_along_dim", "{0} * torch.take_along_dim({0}, {1}, dim={dim})"),
    ("add", "{0} + 0.01 * {1}"),
    ("eq", "torch.where({1} > {0}.shape[{dim}] // 2, {0}, {0}.tanh())"),
    ("gather", "torch.gather({0}.sigmoid(), {dim}, {1}) + {0}"),
)
# Dear enough for a walk over the row to keep what they give, and of a modest size.
BETWEEN: tuple[Form, ...] = (
    ("tanh", "torch.tanh({0})"),
    ("sigmoid", "torch.sigmoid({0})"),
    ("silu", "F.silu({0})"),
    ("gelu", "F.gelu({0})"),
    ("gelu tanh", 'F.gelu({0}, approximate="tanh")'),
    ("mish", "F.mish({0})"),
    ("softplus", "F.softplus({0})"),
    ("erf", "torch.erf({0})"),
    ("sin", "torch.sin({0})"),
    ("log1p", "torch.log1p({0}.abs())"),
    ("exp", "torch.exp({0}.clamp(-4.0, 4.0))"),
    ("sqrt", "torch.sqrt({0}.square() + 0.1)"),
    ("rsqrt", "torch.rsqrt({0}.abs() + 0.5)"),
    ("elu", "F.elu({0})"),
    ("relu", "F.relu({0})"),
    ("leaky_relu", "F.leaky_relu({0}, 0.1)"),
    ("affine", "{0} * 0.5 + 0.1"),
    ("mul", "{0} * 1.5"),
    ("add", "{0} + 0.3"),
    ("neg", "1 - {0}"),
    ("clamp", "{0}.clamp(-1.5, 1.5)"),
    ("pow", "{0} ** 2"),
    ("half and back", "{0}.half().float()"),
    ("bfloat16 and back", "{0}.to(torch.bfloat16).to({0}.dtype)"),
    ("double and back", "{0}.double().exp().clamp(max=9.0).to({0}.dtype)"),
    ("clone", "{0}.clone()"),
    ("tril", "torch.tril({0})"),
)
BEFORE: tuple[Form, ...] = (
    ("pad", "F.pad({0}, (1, 2))"),
    ("pad", "F.pad({0}, (2, 0), value=-1.5)"),
    ("pad", "F.pad({0}, (0, 1, 1, 0))"),
    ("pad reflect", 'F.pad({0}, (1, 1), mode="reflect")'),
    ("pad replicate", 'F.pad({0}, (1, 2), mode="replicate")'),
    ("pad circular", 'F.pad({0}, (2, 1), mode="circular")'),
    ("roll", "torch.roll({0}, 1, {dim})"),
    ("roll", "torch.roll({0}, -3, 0)"),
    ("flip", "{0}.flip({dim})"),
    ("flip", "{0}.flip(-1)"),
    ("transpose", "{0}.transpose(-1, -2)"),
    ("slice", "{0}[..., 1:]"),
    ("slice", "{0}[..., ::2]"),
    ("narrow", "{0}.narrow({dim}, 1, {0}.shape[{dim}] - 1)"),
    ("cat", "torch.cat([{0}, -{0}], dim={dim})"),
    ("cat", "torch.cat([{0}[..., :1], {0}], dim=-1)"),
    ("stack", "torch.stack([{0}, {0} * 2], dim=1)"),
    ("expand", "{0}.unsqueeze(0).expand(2, *{0}.shape)"),
    ("diff", "torch.diff({0}, dim={dim})"),
    ("repeat_interleave", "{0}.repeat_interleave(2, dim={dim})"),
    ("unfold", "{0}.unfold(-1, 3, 2)"),
)
ROW_IN_PLACE: tuple[Form, ...] = (
    ("mul_", "{0}.mul_(0.5)"),
    ("sub_", "{0} -= {0}.mean({dim}, keepdim=True)"),
    ("div_", "{0}.div_({0}.amax({dim}, keepdim=True).abs() + 1)"),
    ("exp_", "{0}.clamp_(-3, 3).exp_()"),
    ("masked_fill_", "{0}.masked_fill_({0} > 1, 0.5)"),
)
WINDOWS: tuple[Form, ...] = (
    ("max_pool1d", "F.max_pool1d({0}, 3, 2)"),
    ("max_pool1d", "F.max_pool1d({0}, 2, stride=1, padding=1)"),
    ("max_pool1d", "F.max_pool1d({0}, 3, stride=2, dilation=2, ceil_mode=True)"),
    ("max_pool2d", "F.max_pool2d({0}, 2)"),
    ("max_pool2d", "F.max_pool2d({0}, 3, stride=2, padding=1)"),
    ("max_pool2d", "F.max_pool2d({0}, (3, 1), stride=(1, 2), ceil_mode=True)"),
    ("max_pool2d", "F.max_pool2d({0}, 2, stride=1, dilation=2)"),
    ("avg_pool1d", "F.avg_pool1d({0}, 3, stride=1, padding=1)"),
    ("avg_pool1d", "F.avg_pool1d({0}, 4, count_include_pad=False, ceil_mode=True)"),
    ("avg_pool2d", "F.avg_pool2d({0}, 2)"),
    ("avg_pool2d", "F.avg_pool2d({0}, 3, stride=2, padding=1, count_include_pad=False)"),
    ("avg_pool2d", "F.avg_pool2d({0}, (1, 3), ceil_mode=True, divisor_override=2)"),
    ("adaptive_avg_pool1d", "F.adaptive_avg_pool1d({0}, 5)"),
    ("adaptive_avg_pool1d", "F.adaptive_avg_pool1d({0}, 1)"),
    ("adaptive_avg_pool2d", "F.adaptive_avg_pool2d({0}, (3, 2))"),
    ("adaptive_avg_pool2d", "F.adaptive_avg_pool2d({0}, 1)"),
    ("adaptive_max_pool1d", "F.adaptive_max_pool1d({0}, 4)"),
    ("adaptive_max_pool2d", "F.adaptive_max_pool2d({0}, (1, 3))"),
    ("lp_pool1d", "F.lp_pool1d({0}, 2, 3)"),
    ("lp_pool2d", "F.lp_pool2d({0}.abs(), 3, 2)"),
    ("interpolate", "F.interpolate({0}, scale_factor=2)"),
    ("local_response_norm", "F.local_response_norm({0}, 3)"),
)
# The channels are {c}, the last size {n}, the keyword of a type {kind}.
NORMS: tuple[Form, ...] = (
    ("BatchNorm1d", "nn.BatchNorm1d({c}{kind})"),
    ("BatchNorm1d", "nn.BatchNorm1d({c}, affine=False{kind})"),
    ("BatchNorm1d", "nn.BatchNorm1d({c}, track_running_stats=False{kind})"),
    ("BatchNorm2d", "nn.BatchNorm2d({c}{kind})"),
    ("BatchNorm2d", "nn.BatchNorm2d({c}, eps=1e-3{kind})"),
    ("GroupNorm", "nn.GroupNorm(1, {c}{kind})"),
    ("GroupNorm", "nn.GroupNorm(2, {c}, affine=False{kind})"),
    ("GroupNorm", "nn.GroupNorm({c}, {c}{kind})"),
    ("InstanceNorm1d", "nn.InstanceNorm1d({c}{kind})"),
    ("InstanceNorm1d", "nn.InstanceNorm1d({c}, affine=True{kind})"),
    ("InstanceNorm2d", "nn.InstanceNorm2d({c}, affine=True{kind})"),
    ("LayerNorm", "nn.LayerNorm({n}{kind})"),
    ("LayerNorm", "nn.LayerNorm({n}, elementwise_affine=False{kind})"),
    ("RMSNorm", "nn.RMSNorm({n}{kind})"),
    ("Softmax", "nn.Softmax(dim=1)"),
    ("Softmax2d", "nn.Softmax2d()"),
    ("PReLU", "nn.PReLU({c}{kind})"),
)
# Elements by number: {0} is a float, {1} an integer tensor.
GATHERS: tuple[Form, ...] = (
    ("embedding", "F.embedding({1}.long().abs() % {0}.shape[0], {0})"),
    ("index", "{0}[{1}.long().abs() % {0}.shape[0]]"),
    ("index_select", "{0}.index_select(0, {1}.long().flatten().abs() % {0}.shape[0])"),
    ("index_select", "torch.index_select({0}, -1, {1}.long().flatten().abs() % {0}.shape[-1])"),
    ("gather", "torch.gather({0}, -1, {1}.long().abs() % {0}.shape[-1])"),
    ("take_along_dim", "torch.take_along_dim({0}, {1}.long().abs() % {0}.shape[-1], -1)"),
    ("one_hot", "F.one_hot({1}.long().abs() % 5, 5) + {0}.mean()"),
    ("index", "{0}[..., {1}.long().abs() % {0}.shape[-1]]"),
)
# Without an integer tensor at hand.
GATHERS_OF_ONE: tuple[Form, ...] = (
    (
        "index_select",
        "{0}.index_select(-1, torch.arange({0}.shape[-1] - 1, -1, -1, device={0}.device))",
    ),
    ("index", "{0}[torch.arange({0}.shape[0], device={0}.device) // 2]"),
    ("index", "{0}[..., torch.arange(0, {0}.shape[-1], 3, device={0}.device)]"),
    ("gather", "{0}.gather(-1, {0}.argmax(-1, keepdim=True))"),
    ("one_hot", "F.one_hot({0}.argmax(-1), {0}.shape[-1]) * {0}"),
    ("one_hot", "F.one_hot({0}.argmin(-1), {0}.shape[-1]).to({0}.dtype)"),
)
# {1} gives the classes, or the target.
LOSSES: tuple[Form, ...] = (
    ("cross_entropy", "F.cross_entropy({0}, {1}.argmax(1))"),
    ("cross_entropy", 'F.cross_entropy({0}, {1}.argmin(1), reduction="none")'),
    ("cross_entropy", 'F.cross_entropy({0}, {1}.argmax(1), reduction="sum", label_smoothing=0.1)'),
    ("cross_entropy", "F.cross_entropy({0}, {1}.argmax(1), ignore_index=0)"),
    ("cross_entropy", "F.cross_entropy({0}, torch.softmax({1}, 1))"),
    ("nll_loss", "F.nll_loss(F.log_softmax({0}, 1), {1}.argmax(1))"),
    ("nll_loss", 'F.nll_loss({0}, {1}.argmax(1), reduction="none")'),
    ("kl_div", "F.kl_div(F.log_softmax({0}, -1), F.softmax({1}, -1), reduction='sum')"),
    ("kl_div", "F.kl_div({0}, F.softmax({1}, -1), reduction='none').sum(-1)"),
    ("bce logits", "F.binary_cross_entropy_with_logits({0}, torch.sigmoid({1}))"),
    (
        "bce logits",
        'F.binary_cross_entropy_with_logits({0}, ({1} > 0).to({0}.dtype), reduction="none")',
    ),
    ("bce", "F.binary_cross_entropy(torch.sigmoid({0}), torch.sigmoid({1}))"),
    ("mse_loss", "F.mse_loss({0}, {1})"),
    ("l1_loss", "F.l1_loss({0}, {1})"),
    ("smooth_l1_loss", "F.smooth_l1_loss({0}, {1}, reduction='sum')"),
    ("huber_loss", "F.huber_loss({0}, {1}, delta=0.5)"),
    ("poisson_nll_loss", "F.poisson_nll_loss({0}, {1}.abs())"),
    ("soft_margin_loss", "F.soft_margin_loss({0}, torch.where({1} > 0, 1.0, -1.0))"),
    ("hinge_embedding_loss", "F.hinge_embedding_loss({0}, torch.where({1} > 0, 1.0, -1.0))"),
    ("multi_margin_loss", "F.multi_margin_loss({0}, {1}.argmax(1))"),
    ("cosine_similarity", "F.cosine_similarity({0}, {1}, dim=-1)"),
    ("pairwise_distance", "F.pairwise_distance({0}, {1})"),
    ("triplet_margin_loss", "F.triplet_margin_loss({0}, {1}, {0}.tanh())"),
    ("cosine_embedding", "(1 - F.cosine_similarity({0}, {1}, dim=1)).mean()"),
)
