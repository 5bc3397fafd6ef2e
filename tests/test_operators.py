"""The page for operators, done: its commands in their order, with a real scrapyd, and its schedules fired.

What needs a running systemd or cron is done in its place: the command of a service is run, the lines of a crontab are
read by the library.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cronsim import CronSim

from conftest import REPOSITORY
from mockserver import MockServer, page
from test_schedule import cron_command, service_command
from test_scrapyd import Service, wait_until
from tinycrawl.pagedir import PageDirectory

PAGE = (REPOSITORY / "docs" / "operators.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^ {4}(\S.*)$", re.sub(r"```toml.*?```", "", PAGE, flags=re.DOTALL), re.MULTILINE)
FILES = re.findall(r"^`~/crawls/sites/(\S+)\.toml`.*?```toml\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)

# The page's sites, all at the loopback interface, under three names that it has.
HOSTS = {"www.example.org": "127.0.0.1", "docs.example.com": "localhost", "shop.example.net": "::ffff:7f00:1"}
SITE = {
    "/": page("/a", "/search/x"),
    "/a": page(),
    "/search/x": page(),
    "/manual/": page("/manual/b", "/a"),
    "/manual/b": page(),
}


class Operator:
    """Who does what the page says, on a machine of their own: a home, a copy of the project, a scrapyd."""

    def __init__(self, folder: Path, site: MockServer) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.site = site
        self.service = Service(folder / "project")
        project = self.service.project
        (project / "tinycrawl" / "sites" / "127.0.0.1.toml").unlink()
        self.edit(project / "tinycrawl" / "settings.py", "DOWNLOAD_DELAY = 1.0 ", "DOWNLOAD_DELAY = 0.02 ")
        scrapy = project / ".venv" / "bin" / "scrapy"
        scrapy.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scrapy "$@"\n')
        scrapy.chmod(0o755)
        self.sites = self.home / "crawls" / "sites"
        self.pages = self.home / "crawls" / "pages"
        self.units = self.home / ".config" / "systemd" / "user"

    @staticmethod
    def edit(path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def adapt(self, text: str) -> str:
        """What the page says, with this machine's names, ports and delays."""
        text = text.replace("DOWNLOAD_DELAY = 2.0", "DOWNLOAD_DELAY = 0.02").replace("6800", str(self.service.port))
        text = re.sub(r"tinycrawl-(\S+?)\.(timer|service)", self._unit, text)
        for host, ours in HOSTS.items():
            place = f"[{ours}]" if ":" in ours else ours
            text = text.replace(f"https://{host}/", f"http://{place}:{self.site.port}/").replace(host, ours)
        return text

    @staticmethod
    def _unit(match: re.Match[str]) -> str:
        return f"tinycrawl-{HOSTS[match[1]].replace(':', '_')}.{match[2]}"

    def write_files(self) -> None:
        for host, text in FILES:
            (self.sites / f"{HOSTS[host]}.toml").write_text(self.adapt(text))

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.service.project,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def start(self, unit: str) -> str:
        """Start a service as systemd does, and return the id of the job."""
        command = service_command((self.units / unit).read_text())
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return str(json.loads(done.stdout)["jobid"])

    def listed(self, host: str) -> list[str]:
        folder = self.pages / host.replace(":", "_").replace("[", "_").replace("]", "_")
        return sorted(path.name for path in folder.iterdir() if path.suffix != ".jsonl" and path.name[0] != ".")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("operator")
    with MockServer(SITE) as site, pytest.MonkeyPatch.context() as patch:
        operator = Operator(folder, site)
        patch.setenv("HOME", str(operator.home))
        try:
            yield operator
        finally:
            operator.service.close()


def test_every_command_of_the_page_works_in_its_order(operator: Operator) -> None:
    service, commands = operator.service, [operator.adapt(command) for command in COMMANDS]
    outputs: dict[str, str] = {}
    jobs: list[str] = []
    for command in commands:
        match command.split():
            case ["make", "scrapyd"]:
                service.start()
            case ["make", "deploy", "TARGET=local"]:
                done = service.deploy()
                assert done.returncode == 0, done.stderr
            case ["systemctl", "--user", "start", unit]:
                jobs.append(operator.start(unit))
                service.wait(jobs[-1])
            case ["systemctl", "--user", "enable", "--now", unit]:
                assert (operator.units / unit).read_text().endswith("[Install]\nWantedBy=timers.target\n")
            case ["systemctl", "--user", "daemon-reload"] | ["systemctl", "--user", "list-timers", "'tinycrawl-*'"]:
                pass
            case ["crontab", path]:
                outputs["crontab"] = Path(path).expanduser().read_text()
            case _:
                outputs[command] = operator.run(command)
                if command.startswith("mkdir"):
                    operator.write_files()

    def output(start: str) -> str:
        return next(text for command, text in outputs.items() if command.startswith(start))

    assert output(".venv/bin/scrapy sites check") == "3 files, 3 schedules: no faults\n"
    shown = output(".venv/bin/scrapy sites show")
    assert f"  DOWNLOAD_DELAY                  0.02  ({operator.sites}/127.0.0.1.toml:7)\n" in shown
    assert "  30 3 * * 1 Europe/Berlin: next " in shown
    runs = operator.listed("127.0.0.1")
    assert len(runs) == 2  # by hand, and by its service
    assert output("ls ~/crawls/pages").splitlines() == [runs[0], runs[1], f"{runs[1]}.diff.jsonl"]
    urls = [
        page.url.removeprefix(operator.site.url("")) for page in PageDirectory(operator.pages / "127.0.0.1" / runs[1])
    ]
    assert urls == ["/", "/a"]  # exclude is of the file
    assert (operator.pages / "127.0.0.1" / f"{runs[1]}.diff.jsonl").read_text() == ""
    facts = json.loads(output("tail").partition("INFO: ")[2])
    assert (facts["ending"], facts["exit_status"], facts["saved"]) == ("complete", 0, 2)
    assert [job["id"] for job in json.loads(output("curl"))["finished"]] == jobs
    lines = [line for line in outputs["crontab"].splitlines() if line[0] != "#"]
    assert lines[::2] == ["CRON_TZ=Europe/Berlin", "CRON_TZ=UTC", "CRON_TZ=UTC"]
    start = datetime(2026, 12, 1, tzinfo=UTC)
    assert [f"{next(CronSim(' '.join(line.split()[:5]), start)):%a %H:%M}" for line in lines[1::2]] == [
        "Mon 03:30",
        "Tue 04:15",
        "Sun 22:00",
    ]


def test_schedules_fire(operator: Operator) -> None:
    """Two of them, each every three seconds, twice: by the service's command and by the line for cron."""
    service = operator.service
    crontab = (operator.home / "crawls" / "tinycrawl.cron").read_text().splitlines()
    (line,) = [line for line in crontab if "localhost" in line]
    commands = {
        "localhost": cron_command(line),
        "::ffff:7f00:1": service_command((operator.units / "tinycrawl-__ffff_7f00_1.service").read_text()),
    }
    now = datetime.now(UTC)
    times = CronSim("*/3 * * * * *", now)
    jobs: dict[str, list[str]] = {host: [] for host in commands}
    for moment in (next(times), next(times)):
        time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
        for host, command in commands.items():
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            jobs[host].append(json.loads(done.stdout)["jobid"])
    for started in jobs.values():
        for job in started:
            service.wait(job)

    endings = {host: [service.facts(job)["ending"] for job in started] for host, started in jobs.items()}
    assert endings["localhost"][0] == endings["::ffff:7f00:1"][0] == "complete"
    assert endings["::ffff:7f00:1"][1] in ("complete", "skipped")  # where the machine was slow
    assert len(operator.listed("[::ffff:7f00:1]")) == endings["::ffff:7f00:1"].count("complete")
    directory = PageDirectory(operator.pages / "docs")
    assert [page.url.rpartition("/manual/")[2] for page in directory] == ["", "b"]
    assert directory.end is not None
    assert directory.end["end"] == "complete"


def test_a_run_that_overlaps_is_skipped_by_scrapyd_too(operator: Operator) -> None:
    service, unit = operator.service, "tinycrawl-127.0.0.1.service"
    before = operator.listed("127.0.0.1")
    operator.site.reset({**SITE, "/a": page()})
    path = operator.sites / "127.0.0.1.toml"
    operator.edit(path, "DOWNLOAD_DELAY = 0.02", "DOWNLOAD_DELAY = 600")
    first = operator.start(unit)
    wait_until(lambda: len(operator.listed("127.0.0.1")) > len(before), "the run begins")

    second = operator.start(unit)
    service.wait(second)
    service.cancel(first)
    service.cancel(first)
    service.wait(first)

    facts = service.facts(second)
    (working,) = set(operator.listed("127.0.0.1")) - set(before)
    assert (facts["ending"], facts["exit_status"]) == ("skipped", 4)
    assert facts["reason"] == f"the run in {operator.pages}/127.0.0.1/{working} is still working; nothing was done"
    assert facts["directory"] == f"{operator.pages}/127.0.0.1/{working}"
    operator.edit(path, "DOWNLOAD_DELAY = 600", "DOWNLOAD_DELAY = 0.02")
    third = operator.start(unit)
    service.wait(third)
    assert (service.facts(third)["ending"], service.facts(third)["directory"]) == ("complete", facts["directory"])
