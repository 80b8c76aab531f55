"""Addresses that nobody types: whatever stands in one, the web page says that there is nothing."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.harness.browser import Browser
from tests.harness.shown import WITH_BROWSER, Shown, slow_fleet

pytestmark = WITH_BROWSER
PLACES = (
    "/{}", "/job/{}", "/jobs/{}", "/jobs?text={}&state={}", "/host/{}", "/timeline?{}",
    "/report/{}", "/artifact/{}", "/artifact/JOB/{}", "/fleet/{}", "/login?next={}",
    "/login?next=/{}", "/_nicegui/{}",
)  # fmt: skip
ODD = {
    "many-digits": "9" * 5000, "nul": "%00", "nul-within": "a%00b", "no-utf-8": "%ff%fe",
    "surrogate": "%ed%a0%80", "half-a-percent": "%", "long": "x" * 300, "longer": "x" * 5000,
    "above": "..%2f..%2f..%2fetc%2fpasswd", "a-line": "%0d%0aX-Y: z", "negative": "-1",
    "other-digits": "%d9%a3", "brackets": "%5b%5d[", "blank": "%20", "emoji": "%f0%9f%98%80",
}  # fmt: skip


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, system_broker: str, browser: Browser
) -> Iterator[Shown]:
    """One simulated host, a few jobs."""
    tmp = tmp_path_factory.mktemp("fleet")
    with slow_fleet(tmp, system_broker, browser, hosts=1, jobs=3) as made:
        yield made


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_no_address_is_an_error_of_ours(shown: Shown, odd: str) -> None:
    """Neither to whoever asks nor in what the process says."""
    job = shown.job("running")["job_id"]
    where = urlsplit(shown.url).netloc
    told, before = {}, len(shown.program.said())
    for place in PLACES:
        connection = http.client.HTTPConnection(where, timeout=60)
        path = place.replace("JOB", job).replace("{}", odd)
        connection.request("GET", path.replace(" ", "%20"))
        told[place] = connection.getresponse().status
        connection.close()
    assert {place: code for place, code in told.items() if code >= 500} == {}
    assert "Traceback" not in shown.program.said()[before:]
