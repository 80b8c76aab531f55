"""Reads xgboost's UBJSON (https://ubjson.org, draft 12) and checks its trees; trusts nothing in it.

xgboost's own reader crashes, hangs, or reads beyond its memory where a file states wrong lengths or
node numbers. So each model file is read here before xgboost gets it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

MAX_DEPTH: Final = 16
_NUMBERS: Final = {
    b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8",
}  # fmt: skip
_WORDS: Final = {b"T": True, b"F": False, b"Z": None, b"N": None}
_OF_NODES: Final = (
    "left_children", "right_children", "parents", "split_indices", "split_conditions",
    "split_type", "default_left", "base_weights", "loss_changes", "sum_hessian",
)  # fmt: skip


def parse(data: bytes) -> dict[str, Any]:
    """Return the object in `data`; arrays of numbers become numpy's. Raises ValueError."""
    reader = _Reader(data)
    if reader.take(1) != b"{":
        raise ValueError("it does not begin with an object")
    found = reader.members(0)
    if reader.at != len(data):
        raise ValueError("something comes after its end")
    return found


class _Reader:
    """A position in the bytes that never moves beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self.at:
            raise ValueError("it ends too early, or states a length that cannot be")
        self.at += count
        return self._data[self.at - count : self.at]

    def members(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._skip(b"}"):
            name = self._text()
            if name in found:
                raise ValueError("a name comes twice in it")
            found[name] = self._value(self.take(1), depth + 1)
        return found

    def _value(self, kind: bytes, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if kind in _NUMBERS:
            return self._numbers(kind, 1)[0].item()
        if kind in _WORDS:
            return _WORDS[kind]
        match kind:
            case b"S":
                return self._text()
            case b"{":
                return self.members(depth)
            case b"[":
                return self._array(depth)
        raise ValueError(f"it has a value of no kind, {kind!r}")

    def _array(self, depth: int) -> Any:
        if self._skip(b"$"):
            kind = self.take(1)
            if kind not in _NUMBERS or not self._skip(b"#"):
                raise ValueError("it has an array of no kind")
            return self._numbers(kind, self._length())
        if self._skip(b"#"):
            # Each value takes a byte at least: a wrong count soon meets the end of the data.
            return [self._value(self.take(1), depth + 1) for _ in range(self._length())]
        items = []
        while not self._skip(b"]"):
            items.append(self._value(self.take(1), depth + 1))
        return items

    def _skip(self, mark: bytes) -> bool:
        found = self._data[self.at : self.at + 1] == mark
        self.at += found
        return found

    def _text(self) -> str:
        return self.take(self._length()).decode("utf-8", "replace")

    def _length(self) -> int:
        kind = self.take(1)
        if kind not in _NUMBERS or kind in b"dD":
            raise ValueError("it has a length that is no number")
        return int(self._numbers(kind, 1)[0])

    def _numbers(self, kind: bytes, count: int) -> Any:
        form = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self.take(count * form.itemsize), form)


def check_trees(document: dict[str, Any], features: int) -> None:
    """Raise ValueError unless each path ends at a leaf and splits by one of `features`."""
    try:
        whole = _are_trees(document["learner"], features)
    except (LookupError, TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError("its trees are none")


def _are_trees(learner: dict[str, Any], features: int) -> bool:
    booster, told = learner["gradient_booster"], learner["learner_model_param"]
    trees, groups = booster["model"]["trees"], np.asarray(booster["model"]["tree_info"])
    until = np.asarray(booster["model"]["iteration_indptr"], dtype=np.int64)
    return (
        booster["name"] == "gbtree"
        and (int(told["num_feature"]), int(told["num_target"])) == (features, 1)
        and groups.shape == (len(trees),)
        and bool(((groups >= 0) & (groups < max(1, int(told["num_class"])))).all())
        and (until[0], until[-1]) == (0, len(trees))
        and bool((np.diff(until) >= 0).all())
        and all(tree["id"] == number for number, tree in enumerate(trees))
        and all(_is_tree(tree, features) for tree in trees)
    )


def _is_tree(tree: dict[str, Any], features: int) -> bool:
    arrays = {name: np.asarray(tree[name]) for name in _OF_NODES}
    nodes = int(tree["tree_param"]["num_nodes"])
    asked = arrays["split_indices"]
    return (
        all(one.shape == (nodes,) for one in arrays.values())
        and int(tree["tree_param"]["size_leaf_vector"]) <= 1
        and not arrays["split_type"].any()
        and bool(((asked >= 0) & (asked < features)).all())
        and _is_connected(arrays["left_children"], arrays["right_children"], arrays["parents"])
    )


def _is_connected(left: Any, right: Any, parents: Any) -> bool:
    """Whether each node but the root is the child of one other, which it names as its parent."""
    inner = np.flatnonzero(left != -1)
    children = np.concatenate([left[inner], right[inner]])
    return (
        len(left) > 0
        and np.array_equal(left == -1, right == -1)
        and np.array_equal(np.sort(children), np.arange(1, len(left)))
        and np.array_equal(parents[children], np.concatenate([inner, inner]))
    )
