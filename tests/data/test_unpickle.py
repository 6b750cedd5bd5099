"""The pickle reader: plain data comes out, and nothing else happens."""

import collections
import contextlib
import pickle
import zlib

import hostile
import numpy as np
import pytest
from hostile import array as array_code
from hostile import little_memory, name, program, resident_bytes, text

from omrl.data.formats import pickle_machine, unpickle
from omrl.errors import InputError


@pytest.fixture
def load(tmp_path):
    """What a file with this content holds."""

    def load(content):
        path = tmp_path / "file.pkl"
        path.write_bytes(content)
        with little_memory():
            return unpickle.read(path)

    return load


# --- Plain data ---

PLAIN = [
    None,
    True,
    [1, -1, 255, 256, 65536, -(2**31), 2**40, -(2**70)],
    (1.5, float("inf")),
    ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    {"a": {"b": [[], {}]}, 3: "ü" * 300, 2.5: False},
]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", PLAIN, ids=str)
def test_plain_values(load, protocol, value):
    assert load(pickle.dumps(value, protocol)) == value


def test_references_stay_references(load):
    inner = [1]
    first, second = load(pickle.dumps([inner, inner]))
    assert first is second
    cycle = []
    cycle.append(cycle)
    loaded = load(pickle.dumps(cycle))
    assert loaded[0] is loaded


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(6, dtype=np.float16)[::2],
        np.zeros((0, 3)),
        np.array(7, np.int8),
        np.array([True, False]),
        np.arange(3, dtype=">f4"),
        np.arange(300, dtype=np.uint64),
    ],
    ids=lambda value: f"{value.dtype.str}{value.shape}",
)
def test_arrays(load, protocol, value):
    again = [value, value]
    first, second = (unpickle.array(each, "") for each in load(pickle.dumps(again, protocol)))
    assert first is second
    assert first.dtype == value.dtype
    assert not first.flags.writeable
    np.testing.assert_array_equal(first, value)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_scalars_and_ordered_dicts(load, protocol):
    value = collections.OrderedDict(a=np.float64(1.5), b=np.int32(-3), c=np.bool_(True))
    assert load(pickle.dumps(value, protocol)) == {"a": 1.5, "b": -3, "c": True}


def test_arrays_are_views_of_the_file(load):
    value = np.zeros(1 << 26, np.uint8)  # 64 MiB
    content = pickle.dumps(value, 4)
    before = resident_bytes()
    assert len(unpickle.array(load(content), "")) == len(value)
    assert resident_bytes() - before < len(content) / 2


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_of_objects(tmp_path, protocol):
    rows = np.empty((2, 2), object)
    rows[:] = [[np.arange(2.0), 0.5], [np.arange(2.0) + 1, 1.5]]
    path = tmp_path / "rows.npy"
    path.write_bytes(hostile.npy_of_objects(pickle.dumps(rows, protocol), (2, 2)))
    loaded = unpickle.read_npy(path)
    assert loaded.shape == (2, 2)
    assert loaded.items[1::2] == [0.5, 1.5]
    np.testing.assert_array_equal(unpickle.array(loaded.items[2], ""), [1, 2])


# --- Programs ---


def test_nothing_is_ever_called(tmp_path, load):
    target = tmp_path / "made"
    for protocol in range(6):
        content = pickle.dumps({"a": [hostile.Runs(target)]}, protocol)
        with pytest.raises(InputError):
            load(content)
    assert not target.exists()
    function, arguments = hostile.Runs(target).__reduce__()
    function(*arguments)  # As Python's own reader would have.
    assert target.exists()


@pytest.mark.parametrize(
    "full",
    [
        "os.system",
        "posix.system",
        "builtins.eval",
        "builtins.getattr",
        "builtins.list",
        "subprocess.Popen",
        "numpy.load",
        "numpy.core.multiarray.frombuffer",
        "numpy.memmap",
        "torch._utils._rebuild_tensor_v2",
        "joblib.numpy_pickle.NDArrayWrapper",
        "rlkitten.Buffer",
        "numpy.core.multiarray.scalar.__globals__",
    ],
)
def test_other_names_are_refused_by_name(load, full):
    module, _, attribute = full.rpartition(".")
    for code in (name(full), text(module) + text(attribute) + b"\x93"):
        with pytest.raises(InputError, match=f"holds '{full}', which is refused"):
            load(program(code + b")R"))


def test_a_holder_does_nothing(load, monkeypatch):
    """Names below the packages whose buffers are read: never imported, calling makes a holder."""
    loaded = load(program(name("rlkit.os.system") + text("exit 1") + b"\x85R"))
    assert loaded == unpickle.Inert("rlkit.os.system")
    code = name("gym.spaces.box.Box") + b")\x81}" + text("low") + b"K\x01sb"
    assert load(program(code)) == unpickle.Inert("gym.spaces.box.Box", {"low": 1})
    for use in (b"K\x01a", b"(K\x01e", b"K\x01K\x02s"):
        with pytest.raises(InputError, match=r"only (lists|dicts) are filled"):
            load(program(name("gym.A") + b")R" + use))


@pytest.mark.parametrize(
    ("code", "opcode"),
    [
        (b"Pxy\n", "PERSID"),
        (b"NQ", "BINPERSID"),
        (b"\x82\x01", "EXT1"),
        (b"(cos\nsystem\no", "OBJ"),
        (b"(ios\nsystem\n", "INST"),
        (b"I1\n", "INT"),
        (b"S'a'\n", "STRING"),
        (b"U\x01a", "SHORT_BINSTRING"),
        (b"N2", "DUP"),
        (b"cgym\nA\n)}\x92", "NEWOBJ_EX"),
        (b"\x97", "NEXT_BUFFER"),
        (b"\x8f", "EMPTY_SET"),
        (b"\xff", "0xff"),
    ],
)
def test_other_opcodes_are_refused_by_name(load, code, opcode):
    with pytest.raises(InputError, match=rf"(opcode {opcode} is refused|holds 'os.system')"):
        load(program(code))


# --- Damage, and sizes that are lies ---


def test_every_truncation_is_one_message(load):
    content = pickle.dumps({"a": np.arange(3.0), "b": [1, (2, "x")]}, 4)
    for length in range(len(content)):
        with pytest.raises(InputError):
            load(content[:length])


def test_a_changed_byte_is_data_or_one_message(load):
    content = pickle.dumps([{"a": np.arange(2.0), "b": np.float32(1)}, 1, "x"], 4)
    rng = np.random.default_rng(0)
    for position in range(2, len(content)):
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        with contextlib.suppress(InputError):
            load(bytes(changed))


HUGE = b"\x8a\x06" + (2**40).to_bytes(6, "little")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"\x8e" + (2**62).to_bytes(8, "little"), "bytes announced"),
        (b"\x8d" + (2**62).to_bytes(8, "little"), "bytes announced"),
        (b"\x96" + (2**62).to_bytes(8, "little"), "bytes announced"),
        (b"\x8b" + (2**31 - 1).to_bytes(4, "little"), "bytes announced"),
        (b"\x8a\xff" + bytes(255), "more than 128 bits"),
        (array_code(HUGE + b"\x85"), r"shape \(1099511627776,\) and dtype <f8 with 8 bytes"),
        (array_code(HUGE * 3 + b"\x87"), "with 8 bytes"),
        (array_code(b"(" + HUGE * 33 + b"t"), "shape is no tuple of sizes"),
        (array_code(b"J\xff\xff\xff\xff\x85"), "shape is no tuple of sizes"),
        (array_code(b"\x88\x85"), "shape is no tuple of sizes"),
        (array_code(b"K\x01"), "shape is no tuple of sizes"),
        (array_code(b"K\x01\x85", raw=b"C\x07" + bytes(7)), "with 7 bytes"),
        (array_code(b"K\x01\x85", raw=text("a" * 8)), "with 0 bytes"),
        (array_code(b"K\x01\x85", b"O8"), "1 objects announced"),
        (array_code(HUGE + b"\x85", b"O8", raw=b"]"), "objects announced for an array"),
        (array_code(b"K\x01\x85", b"V8"), "dtype 'V8'; only plain numbers"),
        (array_code(b"K\x01\x85", b"U2"), "dtype 'U2'; only plain numbers"),
        (array_code(b"K\x01\x85", b"M8"), "dtype 'M8'; only plain numbers"),
        (array_code(b"K\x01\x85", b"f8,f8"), "only plain numbers"),
        (array_code(b"K\x01\x85") + b"N" + b"b", "sets the state of a ndarray"),
        (name("numpy.dtype") + b"]\x89\x88\x87R", "only plain numbers"),
        (b"NN\x81", "an instance of a NoneType"),
        (b"N)R", "calls a NoneType"),
        (b"}]Ns", "a key is a list"),
        (b"}" + b")" + b"\x85" * 100_000 + b"Ns", "a key is a tuple"),
        (b"h\x07", "damaged"),
        (b"t", "damaged"),
        (b"", "damaged"),
    ],
)
def test_sizes_and_states_that_are_lies(load, code, message):
    with pytest.raises(InputError, match=message):
        load(program(code))


def test_a_memo_of_any_index_takes_no_room(load):
    assert load(program(b"K\x05r\xff\xff\xff\xff0j\xff\xff\xff\xff")) == 5


def test_copies_of_text_are_counted(load):
    """Each call would copy a megabyte that the file holds once."""
    long = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20) + b"q\x000"
    once = name("_codecs.encode") + b"h\x00" + text("latin1") + b"\x86R0"
    with pytest.raises(InputError, match="encodes more text than it holds"):
        load(program(long + once * 1000))


def test_opcodes_are_counted(load, monkeypatch):
    monkeypatch.setattr(pickle_machine, "MAX_OPCODES", 1000)
    with pytest.raises(InputError, match="more than 1,000 pickle opcodes"):
        load(program(b"]" * 2000))


def test_references_do_not_multiply_arrays(load):
    """A thousand arrays of one megabyte that the file holds once are views of it."""
    long = b"B" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20) + b"q\x000"
    one = array_code(b"J" + (1 << 20).to_bytes(4, "little") + b"\x85", b"u1", b"h\x00")
    assert len(load(program(long + b"(" + one * 1000 + b"l"))) == 1000


def test_a_compressed_bomb_is_refused(load, monkeypatch):
    monkeypatch.setattr(unpickle, "MAX_INFLATED", 1 << 24)
    content = zlib.compress(bytes(1 << 26))
    with pytest.raises(InputError, match="expands to more than 16,777,216 bytes"):
        load(content)
    with pytest.raises(InputError, match="damaged"):
        load(content[:2] + b"\xff" * 100)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"\x93NUMPY", b"\x80"])
def test_other_files_are_refused(load, content):
    with pytest.raises(InputError):
        load(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (hostile.npy_of_objects(program(b"]")), "the pickle in it is not an array of objects"),
        (hostile.npy_of_objects(b""), "damaged"),
    ],
)
def test_npy_files_that_are_not_of_objects(tmp_path, content, message):
    path = tmp_path / "file.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        unpickle.read_npy(path)
    np.save(path, np.zeros(3))
    with pytest.raises(InputError, match="dtype float64, must be object"):
        unpickle.read_npy(path)
