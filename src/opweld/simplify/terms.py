"""The variables and operations that rules are written with."""

from __future__ import annotations

from ..ir.ops import Op
from ..ir.pattern import Const, Var, call

x, y, z = Var("x"), Var("y"), Var("z")
a, b, c = Const("a"), Const("b"), Const("c")

absolute = call(Op.ABS)
bitwise_and = call(Op.BITWISE_AND)
bitwise_not = call(Op.BITWISE_NOT)
bitwise_or = call(Op.BITWISE_OR)
cast = call(Op.CAST)
cat = call(Op.CAT)
ceil = call(Op.CEIL)
clamp_max = call(Op.CLAMP_MAX)
clamp_min = call(Op.CLAMP_MIN)
equal = call(Op.EQ)
expand = call(Op.EXPAND)
flip = call(Op.FLIP)
floor = call(Op.FLOOR)
logical_and = call(Op.LOGICAL_AND)
logical_not = call(Op.LOGICAL_NOT)
logical_or = call(Op.LOGICAL_OR)
maximum = call(Op.MAXIMUM)
minimum = call(Op.MINIMUM)
neg = call(Op.NEG)
nan_to_num = call(Op.NAN_TO_NUM)
not_equal = call(Op.NE)
pad = call(Op.PAD)
permute = call(Op.PERMUTE)
reciprocal = call(Op.RECIPROCAL)
relu = call(Op.RELU)
reshape = call(Op.RESHAPE)
round_half_even = call(Op.ROUND)
rsqrt = call(Op.RSQRT)
sign = call(Op.SIGN)
slice_axis = call(Op.SLICE)
sqrt = call(Op.SQRT)
trunc = call(Op.TRUNC)
where = call(Op.WHERE)
