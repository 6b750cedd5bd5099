"""A pickle interpreter that knows plain data only: containers, numbers, text and numpy arrays.

It has the opcodes that plain data needs (protocols 2 to 5) and calls nothing. The names that
numpy's arrays and joblib's files are made with stand for code here; instances of the classes of
rlkit, oyster and gym become `Inert` holders of their attributes (a replay buffer holds its
environment, and that its spaces); every other name is refused.
"""

from __future__ import annotations

import math
import pickletools
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from omrl.errors import InputError

MAX_OPCODES = 4_000_000
"""Each makes an object of at most about a hundred bytes; replay buffers take some hundreds."""
_INERT_PACKAGES = ("rlkit", "gym", "gymnasium", "rand_param_envs")
_INERT_NAMES = (
    "builtins.object",
    "joblib.numpy_pickle.NumpyArrayWrapper",
    "numpy.ndarray",
    "numpy.random._pickle.__randomstate_ctor",
    "numpy.random._pickle.__bit_generator_ctor",
    "numpy.random._pickle.__generator_ctor",
    "numpy.random.__RandomState_ctor",
)
_RENAMED = {"numpy._core": "numpy.core", "__builtin__": "builtins", "copy_reg": "copyreg"}
"""Modules that moved, by prefix."""
_MAX_AXES = 32
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|O8?)")


@dataclass
class Inert:
    """What would be an instance of a class: its name and the attributes, without behaviour."""

    name: str
    attributes: Any = None


@dataclass
class ObjectArray:
    """What would be a numpy array of objects."""

    shape: tuple[int, ...]
    items: list[Any]


@dataclass
class _Name:
    """An imported name."""

    name: str


@dataclass
class _Dtype:
    """A dtype under construction."""

    code: str

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(self.code)


@dataclass
class ArrayHolder:
    """An array under construction, and what stands for it wherever it is referred to."""

    value: np.ndarray | ObjectArray | None = None


class Machine:
    """One run over one file. Malformed input raises whatever Python does."""

    def __init__(self, data: memoryview, position: int, path: Path):
        self.data = data
        self.position = position
        self.path = path
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.copied = 0

    def run(self) -> Any:
        for _ in range(MAX_OPCODES):
            code = self.take(1)[0]
            if code == ord("."):
                return self.stack.pop()
            operation = _OPERATIONS.get(code)
            if operation is None:
                names = {ord(known.code): known.name for known in pickletools.opcodes}
                name = names.get(code, hex(code))
                raise InputError(
                    f"{self.path}: pickle opcode {name} is refused; plain data in protocol 2 to 5 "
                    "does without"
                )
            operation(self)
        raise InputError(f"{self.path}: more than {MAX_OPCODES:,} pickle opcodes; not arrays")

    def take(self, size: int) -> memoryview:
        """The next bytes of the file."""
        if size > len(self.data) - self.position:
            raise ValueError(f"{size} bytes announced, {len(self.data) - self.position} are left")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def sized(self, code: str) -> memoryview:
        """The bytes behind their count."""
        return self.take(self.number(code))

    def text(self, code: str) -> str:
        return str(self.sized(code), "utf-8", "surrogatepass")

    def integer(self, code: str) -> int:
        content = self.sized(code)
        if len(content) > 16:
            raise ValueError("an integer of more than 128 bits")
        return int.from_bytes(content, "little", signed=True)

    def pop_to_mark(self) -> list[Any]:
        first = self.marks.pop()
        items = self.stack[first:]
        del self.stack[first:]
        return items

    def remember(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    # --- Containers ---

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise InputError(f"{self.path}: items for a {_kind(target)}; only lists are filled")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise InputError(f"{self.path}: keys for a {_kind(target)}; only dicts are filled")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | float):
                raise InputError(f"{self.path}: a key is a {_kind(key)}, must be text or a number")
            target[key] = value

    # --- Names and what they would do ---

    def line(self) -> str:
        for length in range(1, min(257, len(self.data) - self.position + 1)):
            if self.data[self.position + length - 1] == ord("\n"):
                return str(self.take(length)[:-1], "utf-8")
        raise ValueError("a name without an end")

    def find_name(self, module: Any, name: Any) -> None:
        for old, new in _RENAMED.items():
            if module == old or module.startswith(old + "."):
                module = new + module.removeprefix(old)
        full = f"{module}.{name}"
        inert = full in _INERT_NAMES or module.split(".")[0] in _INERT_PACKAGES
        if not inert and full not in _CALLS:
            raise InputError(
                f"{self.path}: holds {full[:200]!r}, which is refused; only numbers, numpy arrays "
                "and the replay buffers of rlkit and oyster are read: save these alone"
            )
        self.stack.append(_Name(full))

    def call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise InputError(f"{self.path}: calls a {_kind(function)}; refused")
        made = _CALLS.get(function.name)
        self.stack.append(made(self, *arguments) if made else Inert(function.name))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, ArrayHolder) and target.value is None:
            _, shape, dtype, fortran_order, raw = state
            target.value = self.make_array(raw, dtype, shape, "F" if fortran_order else "C")
        elif isinstance(target, _Dtype):
            _, order, subarray, names, fields = state[:5]
            if (subarray, names, fields) != (None, None, None) or order not in "<>|=":
                raise InputError(f"{self.path}: a structured dtype; only plain numbers are read")
            target.code = order + target.code.lstrip("<>|=")
        elif isinstance(target, Inert):
            target.attributes = state
            if target.name == "joblib.numpy_pickle.NumpyArrayWrapper":
                self.stack[-1] = ArrayHolder(self.trailing_array(state))
        else:
            raise InputError(f"{self.path}: sets the state of a {_kind(target)}; refused")

    def make_array(self, raw: Any, dtype: Any, shape: Any, order: str) -> np.ndarray | ObjectArray:
        if not isinstance(dtype, _Dtype):
            raise InputError(f"{self.path}: an array whose dtype is a {_kind(dtype)}")
        count = self.count(shape)
        if dtype.numpy.hasobject:
            if not isinstance(raw, list) or len(raw) != count:
                raise InputError(
                    f"{self.path}: {count} objects announced for an array, others came"
                )
            return ObjectArray(shape, raw)
        if not isinstance(raw, memoryview) or len(raw) != count * dtype.numpy.itemsize:
            size = len(raw) if isinstance(raw, memoryview) else 0
            raise InputError(
                f"{self.path}: an array of shape {str(shape)[:80]} and dtype {dtype.code} with "
                f"{size} bytes; copy the file again from its source"
            )
        flat = np.frombuffer(raw, dtype.numpy, count)
        return flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)

    def count(self, shape: Any) -> int:
        """Elements of an array of that shape."""
        sizes = shape if isinstance(shape, tuple) and len(shape) <= _MAX_AXES else (-1,)
        if any(type(size) is not int or size < 0 for size in sizes):
            raise InputError(f"{self.path}: an array whose shape is no tuple of sizes")
        return math.prod(sizes)

    def trailing_array(self, state: Any) -> np.ndarray | ObjectArray:
        """The array that joblib wrote behind its description."""
        dtype, shape = state["dtype"], state["shape"]
        if not isinstance(dtype, _Dtype) or dtype.numpy.hasobject:
            raise InputError(f"{self.path}: an array of objects by joblib; only numbers are read")
        if state.get("numpy_array_alignment_bytes") is not None:
            self.take(self.take(1)[0])
        raw = self.take(self.count(shape) * dtype.numpy.itemsize)
        return self.make_array(raw, dtype, shape, state["order"])

    def encode(self, text: str, encoding: str) -> memoryview:
        """How protocol 2 writes bytes: as text in Latin-1."""
        self.copied += len(text)
        if encoding != "latin1" or self.copied > len(self.data):
            raise InputError(f"{self.path}: encodes more text than it holds; refused")
        return memoryview(text.encode(encoding))

    def dtype(self, code: Any, *_: Any) -> _Dtype:
        if not isinstance(code, str) or not _DTYPE.fullmatch(code):
            raise InputError(f"{self.path}: dtype {str(code)[:40]!r}; only plain numbers are read")
        return _Dtype(code)

    def scalar(self, dtype: Any, raw: Any) -> float | int | bool:
        value = self.make_array(raw, dtype, (), "C")
        if isinstance(value, ObjectArray):
            raise InputError(f"{self.path}: a scalar of dtype object; only numbers are read")
        return value.item()

    def reconstruct(self, subtype: Any, *_: Any) -> ArrayHolder:
        if not isinstance(subtype, _Name) or subtype.name != "numpy.ndarray":
            raise InputError(f"{self.path}: an array of another class than numpy.ndarray; refused")
        return ArrayHolder()

    def instance(self, kind: Any, *_: Any) -> Inert:
        if not isinstance(kind, _Name):
            raise InputError(f"{self.path}: an instance of a {_kind(kind)}; refused")
        return Inert(kind.name)


def _kind(value: Any) -> str:
    if isinstance(value, _Name | Inert):
        return value.name
    return "ndarray" if isinstance(value, ArrayHolder) else type(value).__name__


_CALLS: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray._reconstruct": Machine.reconstruct,
    "numpy.core.multiarray.scalar": Machine.scalar,
    "numpy.core.numeric._frombuffer": lambda machine, *a: ArrayHolder(machine.make_array(*a)),
    "numpy.dtype": Machine.dtype,
    "_codecs.encode": Machine.encode,
    "builtins.bytes": lambda machine: memoryview(b""),
    "collections.OrderedDict": lambda machine: {},
    "copyreg._reconstructor": Machine.instance,
}
"""What stands here for the functions that plain data is pickled with."""


def _push(value: Callable[[Machine], Any]) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(value(machine))


def _tuple_of(size: int) -> Callable[[Machine], None]:
    def make(machine: Machine) -> None:
        items = machine.stack[-size:]
        if len(items) != size:
            raise IndexError("stack underflow")
        machine.stack[-size:] = [tuple(items)]

    return make


def _global(machine: Machine) -> None:
    module = machine.line()
    machine.find_name(module, machine.line())


def _stack_global(machine: Machine) -> None:
    name = machine.stack.pop()
    machine.find_name(machine.stack.pop(), name)


def _call(machine: Machine) -> None:
    arguments = machine.stack.pop()
    machine.call(machine.stack.pop(), arguments)


def _new(machine: Machine) -> None:
    machine.stack.pop()
    machine.stack.append(machine.instance(machine.stack.pop()))


def _pop_pair(machine: Machine) -> list[Any]:
    value = machine.stack.pop()
    return [machine.stack.pop(), value]


def _to_dict(machine: Machine) -> None:
    items = machine.pop_to_mark()
    machine.stack.append({})
    machine.set_items(items)


_OPERATIONS: dict[int, Callable[[Machine], Any]] = {
    0x80: lambda m: m.take(1),  # PROTO
    0x95: lambda m: m.take(8),  # FRAME
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("0"): lambda m: m.stack.pop(),
    ord("1"): lambda m: m.pop_to_mark(),
    ord("N"): _push(lambda m: None),
    0x88: _push(lambda m: True),
    0x89: _push(lambda m: False),
    ord("J"): _push(lambda m: m.number("<i")),
    ord("K"): _push(lambda m: m.number("<B")),
    ord("M"): _push(lambda m: m.number("<H")),
    0x8A: _push(lambda m: m.integer("<B")),  # LONG1
    0x8B: _push(lambda m: m.integer("<I")),  # LONG4
    ord("G"): _push(lambda m: m.number(">d")),
    ord("X"): _push(lambda m: m.text("<I")),
    0x8C: _push(lambda m: m.text("<B")),  # SHORT_BINUNICODE
    0x8D: _push(lambda m: m.text("<Q")),  # BINUNICODE8
    ord("B"): _push(lambda m: m.sized("<I")),
    ord("C"): _push(lambda m: m.sized("<B")),
    0x8E: _push(lambda m: m.sized("<Q")),  # BINBYTES8
    0x96: _push(lambda m: m.sized("<Q")),  # BYTEARRAY8
    ord(")"): _push(lambda m: ()),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("t"): _push(lambda m: tuple(m.pop_to_mark())),
    ord("]"): _push(lambda m: []),
    ord("l"): _push(lambda m: m.pop_to_mark()),
    ord("a"): lambda m: m.append([m.stack.pop()]),
    ord("e"): lambda m: m.append(m.pop_to_mark()),
    ord("}"): _push(lambda m: {}),
    ord("d"): _to_dict,
    ord("s"): lambda m: m.set_items(_pop_pair(m)),
    ord("u"): lambda m: m.set_items(m.pop_to_mark()),
    ord("q"): lambda m: m.remember(m.number("<B")),
    ord("r"): lambda m: m.remember(m.number("<I")),
    0x94: lambda m: m.remember(len(m.memo)),  # MEMOIZE
    ord("h"): _push(lambda m: m.memo[m.number("<B")]),
    ord("j"): _push(lambda m: m.memo[m.number("<I")]),
    ord("c"): _global,
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _new,
    ord("b"): lambda m: m.build(),
}
"""By opcode. Without: protocols 0 and 1, Python 2 strings, persistent and extension objects, sets,
keyword arguments, buffers kept elsewhere, DUP."""
