"""Reads UBJSON as xgboost writes it (https://ubjson.org, draft 12), trusting nothing in it.

xgboost's own reader is recursive, believes the lengths that a file states and the node numbers in
its trees: a file of a few bytes ends the process, hangs it, or has it read beyond its memory. So a
file is read here first.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

MAX_DEPTH: Final = 16
_NUMBERS: Final = {
    b"i": "b", b"U": "B", b"I": "h", b"l": "i", b"L": "q", b"d": "f", b"D": "d",
}  # fmt: skip
_WORDS: Final = {b"T": True, b"F": False, b"Z": None, b"N": None}


def parse(data: bytes) -> dict[str, Any]:
    """Return the object in `data`; arrays of one type of number become numpy's (n,).

    Raises ValueError for anything that is not one whole object, or is nested too deeply.
    """
    reader = _Reader(data)
    if reader.take(1) != b"{":
        raise ValueError("it does not begin with an object")
    found = reader.members(0)
    if reader.at != len(data):
        raise ValueError("something comes after its end")
    return found


def check_trees(document: dict[str, Any], features: int) -> None:
    """Raise ValueError unless the trees of an xgboost model lead somewhere, by these features.

    Every way from a root ends at a leaf, and asks for features below `features` alone.
    """
    try:
        learner = document["learner"]
        booster, told = learner["gradient_booster"], learner["learner_model_param"]
        trees, groups = booster["model"]["trees"], np.asarray(booster["model"]["tree_info"])
        until = np.asarray(booster["model"]["iteration_indptr"], dtype=np.int64)
        whole = (
            booster["name"] == "gbtree"
            and (int(told["num_feature"]), int(told["num_target"])) == (features, 1)
            and groups.shape == (len(trees),)
            and bool(((groups >= 0) & (groups < max(1, int(told["num_class"])))).all())
            and (until[0], until[-1]) == (0, len(trees))
            and bool((np.diff(until) >= 0).all())
            and all(_is_tree(tree, features) for tree in trees)
        )
    except (LookupError, TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError("its trees are none")


_OF_NODES: Final = (
    "left_children", "right_children", "parents", "split_indices", "split_conditions",
    "split_type", "default_left", "base_weights", "loss_changes", "sum_hessian",
)  # fmt: skip


def _is_tree(tree: dict[str, Any], features: int) -> bool:
    arrays = {name: np.asarray(tree[name]) for name in _OF_NODES}
    nodes = int(tree["tree_param"]["num_nodes"])
    asked = arrays["split_indices"]
    return (
        all(one.shape == (nodes,) for one in arrays.values())
        and int(tree["tree_param"]["size_leaf_vector"]) <= 1
        and not arrays["split_type"].any()
        and bool(((asked >= 0) & (asked < features)).all())
        and _leads_on(arrays["left_children"], arrays["right_children"])
    )


def _leads_on(left: Any, right: Any) -> bool:
    """Whether each node but the root has one parent at most: then no way comes back to itself."""
    nodes = len(left)
    if not nodes or not np.array_equal(left == -1, right == -1):
        return False
    children = np.concatenate([left[left != -1], right[right != -1]])
    inside = bool(((children > 0) & (children < nodes)).all())
    return inside and len(np.unique(children)) == len(children)


class _Reader:
    """A place in the bytes, which never moves beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self._data):
            raise ValueError("it ends too early, or states a length that cannot be")
        found = self._data[self.at : end]
        self.at = end
        return found

    def value(self, kind: bytes, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if kind in _NUMBERS:
            return self._number(kind)
        if kind in _WORDS:
            return _WORDS[kind]
        match kind:
            case b"S":
                return self._text()
            case b"C":
                return self.take(1).decode("latin-1")
            case b"{":
                return self.members(depth)
            case b"[":
                return self._array(depth)
        raise ValueError(f"it has a value of no kind, {kind!r}")

    def members(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._data[self.at : self.at + 1] != b"}":
            name = self._text()
            if name in found:
                raise ValueError("a name comes twice in it")
            found[name] = self.value(self.take(1), depth + 1)
        self.take(1)
        return found

    def _array(self, depth: int) -> Any:
        kind = b""
        if self._data[self.at : self.at + 1] == b"$":
            kind = self.take(2)[1:]
            if kind not in _NUMBERS or self._data[self.at : self.at + 1] != b"#":
                raise ValueError("it has an array of no kind")
        if self._data[self.at : self.at + 1] == b"#":
            self.take(1)
            count = self._length()
            if kind:
                form = np.dtype(_NUMBERS[kind]).newbyteorder(">")
                return np.frombuffer(self.take(count * form.itemsize), form)
            # Each takes a byte at least, so that the length is true or the end comes soon.
            return [self.value(self.take(1), depth + 1) for _ in range(count)]
        items = []
        while (kind := self.take(1)) != b"]":
            items.append(self.value(kind, depth + 1))
        return items

    def _text(self) -> str:
        return self.take(self._length()).decode("utf-8", "replace")

    def _length(self) -> int:
        kind = self.take(1)
        if kind not in {b"i", b"U", b"I", b"l", b"L"}:
            raise ValueError("it has a length that is no number")
        return int(self._number(kind))

    def _number(self, kind: bytes) -> Any:
        form = ">" + _NUMBERS[kind]
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]
