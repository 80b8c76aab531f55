"""Two jobs of one name, as a reload of a changed job leaves them: which one is meant."""

from __future__ import annotations

from typing import Any


def _is_another(row: dict[str, Any], old: dict[str, Any]) -> bool:
    return row["job_id"] != old["job_id"] and row["state"] == "completed"


def test_a_job_that_was_changed_leaves_one_of_its_name(fleet: Any, cli: Any, short: str) -> None:
    """The name means that of the manifest, in every verb; the other is told, and has its id."""
    fleet.plan(short)
    fleet.coordinator()
    old = fleet.until("gbt-oracle", "pending")["job_id"][:12]
    fleet.plan(short + "\nseed = 7")
    fate = f"`fleet cancel {old}` ends it"
    assert fate in cli("plan", str(fleet.manifest)).stdout
    assert cli("reload").returncode == 0
    new = cli("show", "gbt-oracle", "--json").json()["job_id"][:12]
    assert new != old
    assert f"Namesake    {old}, pending, no longer in the manifest\n" in cli("show", "gbt-o").stdout
    shown = cli("show", old).stdout
    assert f"Namesake    {new}, pending\n" in shown
    assert "State       pending, no longer in the manifest\n" in shown
    assert f"that with * is {old}" in cli("list").stdout
    assert f"Another job has this name: {old}, " in cli("why", "gbt-oracle").stdout
    for verb in ("logs", "cancel", "requeue"):
        said = cli(verb, "gbt-oracle").stderr
        assert f"by its name {new} was meant; another is so called: {old}, pending" in said, verb
    assert "so called" not in cli("cancel", old).stderr


def test_of_two_results_with_one_name_each_can_be_fetched(
    fleet: Any, cli: Any, short: str
) -> None:  # fmt: skip
    """The name means that of the manifest, and the other is told; its id fetches that."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    old = fleet.until("gbt-oracle", "completed")
    fleet.plan(short + "\nseed = 7")
    fleet.reload()
    new = fleet.until("gbt-oracle", lambda row: _is_another(row, old))
    ids = [row["job_id"][:12] for row in (old, new)]
    by_name = cli("get", "gbt-oracle", "-o", str(fleet.tmp / "new"), "--raw", "--json")
    assert by_name.json()["artifact_id"] == new["artifact_id"]
    words = f"by its name {ids[1]} was meant; another is so called: {ids[0]}, completed"
    assert words in by_name.stderr
    by_id = cli("get", ids[0], "-o", str(fleet.tmp / "old"), "--raw", "--json")
    assert (by_id.json()["artifact_id"], by_id.stderr) == (old["artifact_id"], "")
