"""Hostile files: archives that are bombs, models that are none, names that lead elsewhere."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from agent.trainer.common.checkpoint import Keeper, tensors_from_bytes
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.ubjson import MAX_DEPTH, check_trees, parse
from agent.trainer.inference.bundle_files import read_model_files
from agent.trainer.inference.stored_model import load_model
from agent.trainer.training.networks import check_size
from broker.errors import BadStream, ConfigError
from broker.file_names import is_plain
from broker.pki.identity import folder_name
from broker.system.archive import Limits, unpack

MIB = 1024 * 1024


def _bundle(path: Path, tar: bytes) -> Path:
    path.write_bytes(zstandard.ZstdCompressor().compress(tar))
    return path


def _sparse(name: str, size_bytes: int) -> bytes:
    """A tar of 2 KiB whose one file is said to be mostly a hole (PAX 1.0)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo(f"GNUSparseFile.0/{name}")
        entry.pax_headers = {
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0",
            "GNU.sparse.name": name, "GNU.sparse.realsize": str(size_bytes),
        }  # fmt: skip
        body = b"1\n%d\n1\n" % (size_bytes - 1)
        body += bytes(512 - len(body)) + b"x"
        entry.size = len(body)
        tar.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def _declared(name: str, size_bytes: int) -> bytes:
    """A tar whose one file is said to be large, and is not there."""
    entry = tarfile.TarInfo(name)
    entry.size = size_bytes
    return entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def _extended(kind: bytes, content: bytes, size_bytes: int | None = None) -> bytes:
    """A tar whose first entry has more to say of the second: `content`, and zeros up to a size."""
    entry = tarfile.TarInfo("././@PaxHeader")
    entry.type, entry.size = kind, len(content) if size_bytes is None else size_bytes
    padding = bytes(entry.size - len(content) + -entry.size % 512)
    file = tarfile.TarInfo("model.ubj").tobuf(tarfile.USTAR_FORMAT)
    return entry.tobuf(tarfile.USTAR_FORMAT) + content + padding + file + bytes(1024)


@pytest.mark.parametrize(
    "tar",
    [
        _extended(tarfile.XHDTYPE, b"22 GNU.sparse.map=a,b\n"),
        _extended(tarfile.XHDTYPE, b"25 GNU.sparse.offset=a,b\n"),
        *(_extended(kind, b"", 64 * MIB) for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)),
    ],
    ids=["holes that are none", "holes at nowhere", "a huge header", "a huge name"],
)
def test_what_an_archive_says_beside_its_files_is_not_taken(tar: bytes, tmp_path: Path) -> None:
    bundle = _bundle(tmp_path / "b.tar.zst", tar)
    tracemalloc.start()
    try:
        with pytest.raises(BadStream):
            unpack(bundle, tmp_path / "out" / "x")
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert not list((tmp_path / "out").iterdir())


def test_a_file_of_less_than_nothing_is_none(tmp_path: Path) -> None:
    """A size may be written as a number below zero (base 256)."""
    entry = tarfile.TarInfo("model.ubj")
    entry.size = -512
    tar = entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    with pytest.raises(BadStream):
        unpack(_bundle(tmp_path / "b.tar.zst", tar), tmp_path / "out" / "x")


@pytest.mark.parametrize(
    "tar",
    [_sparse("model.ubj", 64 * MIB), _declared("model.ubj", 1 << 50), _declared("x", 64 * MIB)],
    ids=["a sparse file", "a huge size", "a file that is not there"],
)
def test_a_tar_that_says_more_than_it_holds_is_refused(tar: bytes, tmp_path: Path) -> None:
    bundle = _bundle(tmp_path / "b.tar.zst", tar)
    assert bundle.stat().st_size < 4096
    with pytest.raises(BadStream):
        unpack(bundle, tmp_path / "out" / "x", Limits(entries=4, total_bytes=MIB))
    assert not list((tmp_path / "out").iterdir())
    with pytest.raises(BadInputError):
        read_model_files(bundle)


def test_a_frame_that_wants_a_huge_window_is_refused(tmp_path: Path) -> None:
    """A frame of some bytes may ask for gigabytes of memory to be read."""
    window_log = 31
    head = b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3])
    path = tmp_path / "window.tar.zst"
    path.write_bytes(head + b"\x03\x00\x00" + b"a" * 10)
    with pytest.raises(BadStream):
        unpack(path, tmp_path / "out")
    with pytest.raises(BadInputError, match="no whole bundle"):
        read_model_files(path)


@pytest.mark.parametrize(
    "name",
    ["CON", "nul", "aux.txt", "com1", "LPT9.tar.gz", "com\u00b9", "CONOUT$", "a.", "a ", "...",
     "a:b", "a:$DATA", "..", ".", "", "a/b", "a\\b", "a\0b", "a\nb", "x" * 201],
)  # fmt: skip
def test_a_name_that_windows_understands_otherwise_is_none(name: str) -> None:
    """Devices, streams, and what is left off at the end; as a host's name neither."""
    assert not is_plain(name)
    with pytest.raises(ConfigError):
        folder_name(name.lower())


@pytest.mark.parametrize("name", ["console", "auxiliary", "com10", "nul-1", ".hidden", "a b", "é"])
def test_a_name_that_only_looks_like_one_is_taken(name: str) -> None:
    assert is_plain(name)


# Weights


def _safetensors(header: Any, data: bytes = bytes(64), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _tensor(begin: int, end: int, shape: tuple[int, ...] = (8,)) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x05cos\nsystem\n(S'true'\ntR.",
        b"PK\x03\x04" + bytes(100),
        _safetensors({}, length=(1 << 63)),
        _safetensors({}, length=100_000_001),
        _safetensors({"a": _tensor(0, 32), "b": _tensor(16, 48)}),
        _safetensors({"a": _tensor(0, 1 << 40)}),
        _safetensors({"a": _tensor(32, 0)}),
        _safetensors({"a": _tensor(0, 32, (1 << 40, 1 << 40))}),
        _safetensors(b'{"a":' * 10_000),
        b"",
    ],
    ids=["a pickle", "a zip of torch's", "a length of 2^63", "a length beyond its end",
         "offsets that overlap", "offsets beyond the end", "offsets turned round",
         "a shape that overflows", "a header nested too deeply", "nothing"],
)  # fmt: skip
def test_poisoned_tensors_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are safetensors' own
        tensors_from_bytes(data)


def _key(name: bytes) -> bytes:
    return b"L" + struct.pack(">q", len(name)) + name


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{" + (_key(b"a") + b"{") * 100_000, "nested too deeply"),
        (b"{" + _key(b"a") + b"[" * 100_000, "nested too deeply"),
        (b"{" + _key(b"a") + b"[", "ends too early"),
        (b"{L" + struct.pack(">q", 1 << 62) + b"a", "ends too early"),
        (b"{L" + struct.pack(">q", -1) + b"a", "ends too early"),
        (b"{" + _key(b"a") + b"[$l#L" + struct.pack(">q", 1 << 60), "ends too early"),
        (b"{" + _key(b"a") + b"[$Z#L" + struct.pack(">q", 1 << 60), "array of no kind"),
        (b"{" + _key(b"a") + b"[#L" + struct.pack(">q", 1 << 60), "ends too early"),
        (b'{"a":' * 100_000, "length that is no number"),
        (b"binf" + b"\xff" * 500, "does not begin"),
        (b"{" + _key(b"a") + b"Z" + _key(b"a") + b"Z}", "comes twice"),
        (b"{}x", "comes after its end"),
        (b"", "ends too early"),
    ],
)
def test_poisoned_trees_are_refused(data: bytes, words: str) -> None:
    """Xgboost's own reader would crash on some of these, and never come back from others."""
    with pytest.raises(ValueError, match=words):
        parse(data)


@pytest.fixture(scope="module")
def trees() -> bytes:
    import xgboost as xgb

    rng = np.random.default_rng(1)
    features = rng.random((200, 3), dtype=np.float32)
    classes = (features[:, 0] > 0.5).astype(int) + (features[:, 1] > 0.7)
    made = xgb.train(
        {"objective": "multi:softprob", "num_class": 3, "max_depth": 3, "nthread": 1},
        xgb.DMatrix(features, classes), 3,
    )  # fmt: skip
    return bytes(made.save_raw("ubj"))


Change = Callable[[dict[str, Any]], object]


def _model(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["learner"]["gradient_booster"]["model"]
    return found


def _of_tree(name: str, at: int, value: int) -> Change:
    def change(document: dict[str, Any]) -> None:
        tree = _model(document)["trees"][0]
        tree[name] = np.array(tree[name], dtype=np.int64)
        tree[name][at] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _of_tree("left_children", 0, 0), _of_tree("left_children", 0, 1 << 30),
        _of_tree("left_children", 0, -2), _of_tree("left_children", 0, -1),
        _of_tree("right_children", 0, 1), _of_tree("split_indices", 0, 3),
        _of_tree("split_indices", 0, -1), _of_tree("split_type", 0, 1),
        _of_tree("parents", 1, 1 << 30), _of_tree("parents", 1, -1), _of_tree("parents", 2, 1),
        lambda document: _model(document)["trees"][0].update(id=1),
        lambda document: _model(document)["trees"][0].update(split_conditions=[]),
        lambda document: _model(document)["trees"][0]["tree_param"].update(num_nodes="99999999"),
        lambda document: _model(document).update(tree_info=[7] * len(_model(document)["trees"])),
        lambda document: _model(document).update(iteration_indptr=[0, 1 << 30]),
        lambda document: _model(document).update(trees=7),
        lambda document: document["learner"]["learner_model_param"].update(num_feature="999"),
        lambda document: document["learner"].pop("gradient_booster"),
    ],
)  # fmt: skip
def test_trees_that_lead_out_of_themselves_are_refused(trees: bytes, change: Change) -> None:
    document = parse(trees)
    check_trees(document, 3)
    change(document)
    with pytest.raises(ValueError, match="trees are none"):
        check_trees(document, 3)


@pytest.mark.parametrize("model", ["gbt", "gru"])
def test_a_poisoned_model_is_told_in_a_line(model: str, tmp_path: Path) -> None:
    weights = "model.ubj" if model == "gbt" else "model.safetensors"
    description = {
        "version": 1, "model": model, "mode": "oracle", "task": "binary", "classes": ["a", "b"],
        "inputs": ["cpu"], "window": 4, "stride": 1, "period_s": 1.0,
        "size": {"inputs": 1, "layers": 1 << 40},
        "thresholds": {"decision": None, "alarm": None}, "weights": weights, "class_weights": None,
    }  # fmt: skip
    if model == "gbt":
        from agent.trainer.data.features import STATISTICS

        description["inputs"] = [f"cpu__{one}" for one in STATISTICS]
        description["size"] = {"inputs": len(STATISTICS)}
    (tmp_path / "model.json").write_text(json.dumps(description))
    poison = (
        b"{" + (_key(b"a") + b"{") * (MAX_DEPTH + 2) if model == "gbt" else _safetensors({}, b"")
    )
    (tmp_path / weights).write_bytes(poison)
    with pytest.raises(BadInputError, match=r"nested too deeply|cannot be"):
        load_model(tmp_path, 1)
    (tmp_path / "model.json").write_text("[" * 100_000)
    with pytest.raises(BadInputError, match="is not JSON"):
        load_model(tmp_path, 1)


@pytest.mark.parametrize("size", [{"width": -1}, {"layers": 257}, {"inputs": 1 << 40}])
def test_a_network_of_an_absurd_size_is_not_built(size: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        check_size(size)


def test_a_poisoned_checkpoint_is_left_aside(tmp_path: Path) -> None:
    """It comes from another host; the training starts anew."""
    said: list[str] = []

    class Says:
        def log(self, message: str) -> None:
            said.append(message)

    for content in (b"[" * 100_000, b"{}", b"\x80\x05.", b'{"fingerprint": NaN}\n', b""):
        (tmp_path / "training.checkpoint").write_bytes(content)
        keeper = Keeper(Says(), tmp_path, fingerprint="f", resume=True)  # type: ignore[arg-type]
        assert keeper.load() is None
    assert len(said) == 5
    assert all("starts anew" in one for one in said)
