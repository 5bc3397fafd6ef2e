"""The address guard: no connection to a private address, whichever way a site leads there, seen by who listens there.

The crawls run in a network namespace, where a public address can be one of this machine's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import FAST_SETTINGS, REPOSITORY
from publicnet import PORT, PUBLIC, PUBLIC_6
from tinycrawl.guard import is_private_host, is_public

SEED = f"http://public.test:{PORT}/"
PRIVATE = [
    *("127.0.0.1", "2130706433", "0x7f.1", "017700000001", "127.1", "0", "localhost", "www.localhost", "10.0.0.5"),
    *("172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "168.63.129.16"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:a00:5]", "[64:ff9b::7f00:1]", "[fd00:ec2::254]", "[::10.0.0.5]"),
    *("loopback.test", "loopback-six.test", "mapped.test", "ten.test", "metadata.test", "any.test"),
]


def html(*links: str, extra: str = "") -> str:
    body = f"<p>{extra}" + "".join(f"<a href='{link}'>x</a>" for link in links)
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    )


def moved(target: str) -> str:
    return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def run_in_public_network(pages: dict[str, str], *crawls: dict[str, Any], tmp_path: Path) -> list[dict[str, Any]]:
    """What `publicnet.py` says; a crawl is arguments, and settings as ``settings``, environment as ``env``."""
    jobs = []
    for number, crawl in enumerate(crawls):
        settings = {**FAST_SETTINGS, "TWISTED_DNS_RESOLVER": "publicnet.ChangingResolver", "DOWNLOAD_TIMEOUT": 5}
        arguments = {"seed": SEED, "depth": 2, "scope": "all", "pagedir": str(tmp_path / str(number))}
        environment = crawl.pop("env", {})
        settings.update({"RETRY_TIMES": 0, **crawl.pop("settings", {})})
        jobs.append({"arguments": {**arguments, **crawl}, "settings": settings, "env": environment})
    unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    path = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"
    ended = subprocess.run(
        [*unshare, sys.executable, REPOSITORY / "tests" / "publicnet.py"],
        input=json.dumps({"pages": pages, "crawls": jobs}),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    answers: list[dict[str, Any]] = json.loads(ended.stdout)
    return answers


def reasons(answer: dict[str, Any]) -> dict[str, str]:
    return {line["url"]: line["reason"] for line in answer["manifest"][1:-1] if "reason" in line}


def saved(answer: dict[str, Any]) -> list[str]:
    return [line["url"] for line in answer["manifest"][1:-1] if "docID" in line]


def test_no_way_leads_to_a_private_address(tmp_path: Path) -> None:
    """By links, redirects, refreshes, robots.txt; by names, numbers of every spelling, and answers that change."""
    inside = [f"http://{host}:{PORT}/secret" for host in PRIVATE]
    pages = {
        "/": html(
            *inside,
            *(f"/to/{number}" for number in range(len(inside))),
            *("/chain", "/refresh", f"http://six.test:{PORT}/", f"http://both.test:{PORT}/"),
            *(f"http://rebinding.test:{PORT}/{number}" for number in range(3)),
        ),
        **{f"/to/{number}": moved(url.replace("/secret", "/moved")) for number, url in enumerate(inside)},
        "/moved": html(),
        "/chain": moved("/chain-2"),
        "/chain-2": moved(f"http://loopback.test:{PORT}/secret"),
        "/refresh": html(extra=f"<meta http-equiv=refresh content='0; url=http://127.0.0.1:{PORT}/secret'>"),
        "six.test/robots.txt": moved(f"http://ten.test:{PORT}/robots.txt"),
        "six.test/": html(),
        "both.test/": html(),
        "rebinding.test/0": html(),
        "rebinding.test/1": html(),
        "rebinding.test/2": html(),
        "/secret": html(),
    }

    guarded, seeds, job, job_at_home, off, by_proxy = run_in_public_network(
        pages,
        {"settings": {"TINYCRAWL_ADDRESS_GUARD": 1}},
        {"settings": {"TINYCRAWL_ADDRESS_GUARD": 1}, "seed": f"http://ten.test:{PORT}/secret"},
        {"_job": "a1"},
        {"_job": "a1", "seed": f"http://127.0.0.1:{PORT}/secret"},
        {"depth": 1},
        {"_job": "a1", "settings": {"TINYCRAWL_PROXY": f"http://ten.test:{PORT}"}},
        tmp_path=tmp_path,
    )

    for answer in (guarded, job):
        assert answer["status"] == 0, answer["stderr"]
        assert set(answer["connected"]) == {PUBLIC, PUBLIC_6}
        assert saved(answer) == [SEED, f"{SEED}refresh", f"http://both.test:{PORT}/", f"http://rebinding.test:{PORT}/0"]
        refused = reasons(answer)
        # Some are two spellings of one host, the later of which is a duplicate.
        ends = Counter(refused[f"{SEED}to/{number}"] for number in range(len(inside)))
        assert ends == {"private address": 23, "duplicate": len(inside) - 23}
        assert refused[f"http://ten.test:{PORT}/secret"] == "private address"
        assert refused[f"http://six.test:{PORT}/"] == "private address"
        assert refused[f"http://rebinding.test:{PORT}/1"] == "private address"
        assert "Traceback" not in answer["stderr"]
    assert (seeds["status"], seeds["connected"], saved(seeds)) == (1, [], [])
    assert "its address is private; TINYCRAWL_ADDRESS_GUARD=0 allows that" in seeds["stderr"]
    assert (job_at_home["status"], job_at_home["connected"]) == (0, ["127.0.0.1"])
    # A proxy is chosen by the operator, and what is looked at is what the URLs say.
    assert (by_proxy["status"], by_proxy["connected"]) == (0, ["10.0.0.5"])
    assert len(saved(by_proxy)) > 4
    assert f"http://127.0.0.1:{PORT}/secret" not in saved(by_proxy)
    assert off["status"] == 0
    assert {"10.0.0.5", "127.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254"} < set(off["connected"])


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.255.255.255", "100.64.0.1", "127.0.0.53", "169.254.169.254", "172.31.0.1", "192.0.0.192"),
        *("192.0.2.1", "192.168.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("::", "::1", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::7f00:1"),
        *("2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe"),
        *("4000::1", "5000::5", "200::1", "e000::1", "::5efe:7f00:1", "fec0::1"),
    ],
)
def test_private_addresses(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1", "64:ff9b::808:808", "::ffff:1.1.1.1"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("host", "is_private"),
    [("localhost", True), ("a.localhost", True), ("[::1]", True), ("mylocalhost", False), ("10.test", False)],
)
def test_private_hosts(host: str, is_private: bool) -> None:
    assert is_private_host(host) == is_private
