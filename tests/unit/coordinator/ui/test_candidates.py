"""What is offered at Tab is a word for any shell, whatever the coordinator calls a job."""

from __future__ import annotations

import pytest

from coordinator.ui import candidates


@pytest.mark.parametrize("name", ["x $(touch evil)", "a;b", "a`b`", "*", "a\nb", "", "\x1b[2J"])
def test_a_name_that_a_shell_would_act_on_is_not_offered(name: str) -> None:
    row = {"name": name, "job_id": "a" * 64, "state": "running", "host": "pi"}
    (item,) = candidates._items([candidates._of_job(row, "")], "")
    assert item.value == "a" * 12
    assert "running on pi" in (item.help or "")
    assert "\x1b" not in (item.help or "")
    assert candidates._items([(name, "")], "") == []
