"""What a forward names several times below a module is looked up once."""

from __future__ import annotations

from opweld.emission.lookups import looked_up_once


def fresh(wish: str, taken: frozenset[str] = frozenset({"x", "down"})) -> str:
    return f"{wish}_2" if wish in taken else wish


def test_items_of_a_container() -> None:
    lines = [
        "# model.py:3: self.layers[0](x)",
        "y = f(x, self.layers[0].weight, self.layers[0].bias)",
        "y = f(y, self.layers[2].inner[0].weight, self.head[0].weight)",
    ]
    assert looked_up_once(lines, fresh) == [
        "layers = [*self.layers]",
        "# model.py:3: self.layers[0](x)",
        "y = f(x, layers[0].weight, layers[0].bias)",
        "y = f(y, layers[2].inner[0].weight, self.head[0].weight)",
    ]


def test_weights_that_are_read_again() -> None:
    lines = ["y = f(x, self.cell.fc.weight)", "return f(y, self.cell.fc.weight) + self.cell.bias"]
    assert looked_up_once(lines, fresh) == [
        "fc_weight = self.cell.fc.weight",
        "y = f(x, fc_weight)",
        "return f(y, fc_weight) + self.cell.bias",
    ]


def test_a_weight_of_an_item() -> None:
    lines = ["y = f(x, self.down[0].weight)", "return f(y, self.down[0].weight, self.down[1].bias)"]
    assert looked_up_once(lines, fresh) == [
        "down_2 = [*self.down]",
        "down_weight = down_2[0].weight",
        "y = f(x, down_weight)",
        "return f(y, down_weight, down_2[1].bias)",
    ]


def test_names_that_begin_alike_are_different() -> None:
    lines = ["y = f(self.fc.weight, self.fc.weight_g, self.fc.weight_v)", "return y"]
    assert looked_up_once(lines, fresh) == lines
