"""The front door: exactly the documented names, each with a docstring and an example, loaded when asked for."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from enum import EnumMeta
from pathlib import Path

import pytest

import lamina

DOCUMENTED = [
    *("Device", "CPU", "Accelerator", "accelerator_count", "DeviceMesh"),
    *("Placement", "Replicated", "Sharded", "Partial", "ReduceOp"),
    *("DeviceMapping", "PlacementMapping", "NamedMapping", "ShardingSpec", "SpecEntry", "DimSpec", "P"),
    *("TensorLayout", "DistributedType", "DistributedTensorType", "DistributedBufferType"),
    *("Dim", "SymbolicDim", "shard_shape", "local_shard_shape_from_global", "global_shape_from_local"),
    *("Tensor", "tensor", "from_jax", "from_shards", "from_local", "from_callback"),
    *("initialize", "shutdown"),
    *("shard", "reshard", "all_reduce", "all_gather", "all_to_all", "reduce_scatter", "distributed_broadcast"),
    *("ppermute", "to_device", "transfer_to", "cpu", "gpu", "accelerator", "explain"),
    *("calibrate", "Topology"),
    *("attention", "embedding", "layer_norm", "log_softmax", "rms_norm", "softmax"),
    *("softmax_cross_entropy_with_integer_labels", "unstack"),
    *("save", "load", "latest"),
    *("CheckpointError", "LaminaError", "LayoutError", "ConversionError", "PlanError", "DeviceError", "TransformError"),
    "ProcessError",
    *("ReshardError", "ImplicitReshard", "on_reshard"),
    *("apply", "here", "infer", "random", "spmd"),
    *(
        "absolute",
        "add",
        "angle",
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctan2",
        "arctanh",
    ),
    *(
        "astype",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "cbrt",
        "ceil",
        "clip",
        "conjugate",
        "copysign",
    ),
    *(
        "cos",
        "cosh",
        "divide",
        "equal",
        "erf",
        "exp",
        "exp2",
        "expm1",
        "float_power",
        "floor",
        "floor_divide",
    ),
    *(
        "fmax",
        "fmin",
        "fmod",
        "gelu",
        "greater",
        "greater_equal",
        "hypot",
        "imag",
        "invert",
        "isfinite",
    ),
    *(
        "isinf",
        "isnan",
        "left_shift",
        "less",
        "less_equal",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_sigmoid",
    ),
    *(
        "logaddexp",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "maximum",
        "minimum",
        "multiply",
    ),
    *(
        "negative",
        "not_equal",
        "positive",
        "power",
        "real",
        "reciprocal",
        "relu",
        "remainder",
        "right_shift",
    ),
    *(
        "rint",
        "rsqrt",
        "sigmoid",
        "sign",
        "signbit",
        "silu",
        "sin",
        "sinh",
        "softplus",
        "sqrt",
        "square",
    ),
    *(
        "subtract",
        "tan",
        "tanh",
        "trunc",
        "where",
    ),
    *(
        "dot",
        "einsum",
        "matmul",
        "outer",
        "tensordot",
    ),
    *(
        "all",
        "any",
        "argmax",
        "argmin",
        "logsumexp",
        "max",
        "mean",
        "min",
        "prod",
        "std",
        "sum",
        "var",
    ),
    *("array_split", "broadcast_to", "concatenate", "diff", "dynamic_update_slice", "expand_dims", "flip"),
    *("matrix_transpose", "moveaxis", "nonzero", "one_hot", "pad", "ravel", "repeat", "reshape", "roll", "split"),
    *("cummax", "cummin", "cumprod", "cumsum", "argsort", "searchsorted", "sort", "top_k"),
    *("squeeze", "stack", "swapaxes", "take", "take_along_axis", "tile", "transpose", "tril", "triu"),
]

# Nothing to run: bases that nobody makes, an annotation, and errors, which the catalogue in tests/errors shows.
WITHOUT_EXAMPLE = {"Device", "DeviceMapping", "DistributedType", "ImplicitReshard", "Placement", "SpecEntry"} | {
    name for name in DOCUMENTED if name.endswith("Error")
}
SOURCE = Path(lamina.__file__).parent.parent


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_is_the_documented_list():
    assert sorted(lamina.__all__) == sorted(DOCUMENTED)
    assert len(set(lamina.__all__)) == len(lamina.__all__)


def test_type_checkers_and_editors_see_every_home():
    """They don't run `__getattr__`: to them, a name that is not imported here is Any."""
    tree = ast.parse(Path(lamina.__file__).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {node.module for node in guarded.body if isinstance(node, ast.ImportFrom)}
    assert seen == {lamina._HOME_OF[name] for name in lamina.__all__}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_name_resolves_to_itself(name):
    value = getattr(lamina, name)
    assert value is getattr(lamina, name)  # the second time it is there already
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__name__ == (name if name != "ShardingSpec" else "NamedMapping")
        assert value.__module__.startswith("lamina.")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_name_has_a_docstring_of_its_own(name):
    if name == "SpecEntry":
        pytest.skip("an annotation")
    value = getattr(lamina, name)
    documented = value.__doc__ or ""
    assert documented.strip() and not documented.startswith(f"{name}("), "a dataclass writes its signature there"


@pytest.mark.parametrize("name", [name for name in DOCUMENTED if name not in WITHOUT_EXAMPLE])
def test_every_name_has_a_runnable_example(name):
    """The examples themselves run as doctests."""
    assert ">>>" in (getattr(lamina, name).__doc__ or "")


PUBLIC_MEMBERS = [
    (kind, member)
    for kind in DOCUMENTED
    if inspect.isclass(getattr(lamina, kind)) and not kind.endswith("Error") and kind != "ShardingSpec"
    for member, value in vars(getattr(lamina, kind)).items()
    if not member.startswith("_")
    and (inspect.isfunction(value) or isinstance(value, classmethod | staticmethod))
    and not isinstance(getattr(lamina, kind), EnumMeta)
]


@pytest.mark.parametrize("kind, member", PUBLIC_MEMBERS)
def test_every_public_method_is_documented(kind, member):
    assert inspect.getdoc(getattr(getattr(lamina, kind), member))


def test_every_parameter_has_the_seeds_name():
    """DESIGN sections 1 to 3: the names that users may pass by keyword."""
    expected = {
        "shard": "x mesh dim_specs replicated_axes kwargs",
        "reshard": "args kwargs",
        "all_reduce": "sharded_tensor reduce_op reduce_axes",
        "all_gather": "sharded_tensor axis physical_axis",
        "all_to_all": "sharded_tensor split_axis concat_axis tiled",
        "reduce_scatter": "sharded_tensor axis reduce_op reduce_axes",
        "distributed_broadcast": "x mesh",
        "ppermute": "sharded_tensor permutation axis",
        "to_device": "x device sharding",
        "transfer_to": "x device sharding",
        "cpu": "x",
        "gpu": "x",
        "accelerator": "x device_id",
        "save": "path tree step keep wait",
        "load": "path like step",
        "latest": "path",
        "DeviceMesh": "devices mesh_shape axis_names",
        "PlacementMapping": "mesh placements",
        "NamedMapping": "mesh spec unreduced priorities memory_kind",
        "DimSpec": "axes is_open priority",
        "TensorLayout": "dtype shape mapping",
        "Sharded": "axis",
        "Partial": "reduce_op",
    }
    found = {name: " ".join(inspect.signature(getattr(lamina, name)).parameters) for name in expected}
    assert found == expected


def test_dir_lists_every_name():
    assert set(DOCUMENTED) <= set(dir(lamina))
    assert "__version__" in dir(lamina)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="^module 'lamina' has no attribute 'shrad'"):
        _ = lamina.shrad
    with pytest.raises(ImportError):
        from lamina import shrad  # noqa: F401


def test_star_import():
    space: dict[str, object] = {}
    exec("from lamina import *", space)
    assert set(DOCUMENTED) <= set(space)


def test_version_is_the_projects():
    project = (SOURCE.parent / "pyproject.toml").read_text()
    assert f'version = "{lamina.__version__}"' in project


def test_import_loads_neither_jax_nor_numpy():
    code = "import lamina, sys; dir(lamina); print({'jax', 'numpy'} & set(sys.modules))"
    assert in_a_fresh_process(code) == "set()"


def test_the_vocabulary_loads_neither_jax_nor_numpy():
    names = ["CPU", "DeviceMesh", "NamedMapping", "P", "Sharded", "TensorLayout", "SymbolicDim", "shard_shape"]
    code = f"import lamina, sys; [getattr(lamina, n) for n in {names}]; print({{'jax', 'numpy'}} & set(sys.modules))"
    assert in_a_fresh_process(code) == "set()"


def test_the_verbs_load_jax():
    assert in_a_fresh_process("import lamina, sys; lamina.shard; print('jax' in sys.modules)") == "True"


def test_an_editor_sees_the_same_names():
    """Under TYPE_CHECKING the front door imports with stars: a room must export what the table takes from it."""
    from importlib import import_module

    for room, names in lamina._HOMES.items():
        exported = getattr(import_module(room), "__all__", None)
        if exported is not None:
            wanted = names.split() if isinstance(names, str) else names
            assert set(wanted) - {"ConversionError"} <= {*exported, "ConversionError"}, room
