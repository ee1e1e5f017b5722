"""Options: refusals in one sentence, environment variables, and the generated table."""

from dataclasses import fields

import pytest

from opweld.errors import UnsupportedPrecision, UnsupportedTarget, UserError
from opweld.options import Options, environment_table, from_environment, listed


@pytest.mark.parametrize(
    ("choices", "kind", "says"),
    [
        ({"target": "tpu"}, UnsupportedTarget, "there is no target 'tpu'; use one of auto, cpu"),
        ({"precision": "tf32"}, UnsupportedPrecision, "precision 'tf32' is not there yet; use"),
        ({"batch": 0}, UserError, "--batch must be at least 1, not 0"),
        ({"time_limit_s": 0.0}, UserError, "the time limit must be above 0 seconds, not 0"),
        ({"mode": "train"}, UserError, "there is no mode 'train'; use own, eval, training or both"),
        (
            {"autocast": ("float16", "half")},
            UserError,
            "--autocast cannot be 'half'; use bfloat16 or float16",
        ),
        (
            {"dtype": ("int8",)},
            UserError,
            "--dtype cannot be 'int8'; use float16, bfloat16, float32 or float64",
        ),
        ({"debug": 6}, UserError, "OPWELD_DEBUG must be 0 to 5, not 6"),
    ],
)
def test_refused(choices: dict, kind: type[UserError], says: str) -> None:
    with pytest.raises(kind) as caught:
        Options(**choices)
    assert str(caught.value).startswith(says)
    assert caught.value.exit_code == 2


def test_environment_fills_what_was_not_chosen() -> None:
    environ = {"OPWELD_DEBUG": "3", "OPWELD_DUMP": "/d", "OPWELD_TIME_LIMIT": "2.5"}
    options = from_environment(environ, time_limit_s=9.0)
    assert (options.debug, options.dump, options.time_limit_s) == (3, "/d", 9.0)


def test_what_may_be_repeated_may_have_commas_too() -> None:
    assert listed(None) is None
    assert listed("float16") == listed(["float16", "float16"]) == ("float16",)
    assert listed(["float16, bfloat16", "float64"]) == ("float16", "bfloat16", "float64")


def test_environment_of_the_wrong_type() -> None:
    with pytest.raises(UserError) as caught:
        from_environment({"OPWELD_DEBUG": "much"})
    assert str(caught.value) == "OPWELD_DEBUG must be of type int, not 'much'"


def test_every_variable_is_in_the_table_and_every_option_has_help() -> None:
    table = environment_table()
    for item in fields(Options):
        assert item.metadata["help"].endswith(".")
        if item.metadata["env"]:
            assert f"| `{item.metadata['env']}` | `{item.name}` |" in table
