"""Jobs of a real scrapyd: deployed, scheduled by curl, cancelled, killed and continued, by the README's commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from packaging.requirements import Requirement

from conftest import REPOSITORY, CrawlCommand, Result, read_page_files
from mockserver import MockServer, Reply, Request, page

TIME_LIMIT = 120.0  # seconds for anything that is waited for
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## scrapyd\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^ {4}(.+)$", SECTION.replace(" \\\n   ", ""), re.MULTILINE)

# A site's file of the copy that is deployed: it gets to the jobs only as part of the egg.
SITE_FILE = """\
[crawl]
exclude = "^/private"

[settings]
DOWNLOAD_DELAY = 0.02
"""


def wait_until(is_true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while not is_true():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {TIME_LIMIT:.0f} s in vain: {what}")
        time.sleep(0.05)


def read_requirements(path: Path) -> Iterator[str]:
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            yield from read_requirements(path.with_name(line.removeprefix("-r ")))
        elif line and not line.startswith("#"):
            yield line


def make_environment(folder: Path) -> None:
    """A virtual environment that has the packages of requirements-scrapyd.txt, what they require, and no others."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    wanted = [Requirement(line) for line in read_requirements(REPOSITORY / "requirements-scrapyd.txt")]
    seen: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        if requirement.name.lower() in seen or not (requirement.marker is None or requirement.marker.evaluate()):
            continue
        seen.add(requirement.name.lower())
        installed = distribution(requirement.name)
        assert requirement.specifier.contains(installed.version), f"{requirement}: {installed.version} is installed"
        wanted += [Requirement(line) for line in installed.requires or ()]
        for name in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(installed.locate_file(name))


class Service:
    """A copy of the project, with an environment of its own and a scrapyd that looks at its queue often."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.data = project / "scrapyd-data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        project.mkdir()
        for name in ("Makefile", "pyproject.toml", "scrapy.cfg", "scrapyd.conf", "service.py"):
            text = (REPOSITORY / name).read_text()
            (project / name).write_text(self.adapt(text).replace("poll_interval = 2.0", "poll_interval = 0.1"))
        for path in REPOSITORY.glob("requirements*.txt"):
            shutil.copy(path, project)
        shutil.copytree(REPOSITORY / "tinycrawl", project / "tinycrawl", ignore=shutil.ignore_patterns("__pycache__"))
        (project / "tinycrawl" / "sites" / "127.0.0.1.toml").write_text(SITE_FILE)
        make_environment(project / ".venv")
        for stamp in ("run.stamp", "scrapyd.stamp"):  # in the order in which they depend on each other
            (project / ".venv" / stamp).touch()
        self.output = project.with_suffix(".log")
        self.started: list[subprocess.Popen[bytes]] = []

    def adapt(self, command: str) -> str:
        return command.replace("6800", str(self.port))

    def start(self) -> None:
        with self.output.open("ab") as output:
            make = subprocess.Popen(
                shlex.split(COMMANDS[0]), cwd=self.project, stdout=output, stderr=output, start_new_session=True
            )
            self.started.append(make)
        wait_until(self.is_listening, "scrapyd listens")

    def is_listening(self) -> bool:
        if self.started[-1].poll() is not None:
            pytest.fail(f"scrapyd did not start:\n{self.output.read_text()}")
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """Kill scrapyd itself, as kill -9 and the kernel do: its jobs go on."""
        make = self.started[-1]
        children = Path(f"/proc/{make.pid}/task/{make.pid}/children").read_text().split()
        (scrapyd,) = [int(child) for child in children]
        os.kill(scrapyd, signal.SIGKILL)
        make.wait(TIME_LIMIT)

    def close(self) -> None:
        """End scrapyd and every job, those too that have lost their scrapyd."""
        for make in self.started:
            with suppress(ProcessLookupError):
                os.killpg(make.pid, signal.SIGKILL)
            make.wait(TIME_LIMIT)

    def deploy(self, target: str = "local", **environment: str) -> subprocess.CompletedProcess[str]:
        """`make deploy`, called in another folder."""
        return subprocess.run(
            ["make", "-s", "-C", self.project, "deploy", f"TARGET={target}"],
            cwd="/",
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )

    def curl(self, command: str, *options: str) -> dict[str, Any]:
        """What scrapyd answers; its status must be `ok`."""
        url = f"http://127.0.0.1:{self.port}/{command}"
        netrc = ["--netrc-file", str(self.data / "netrc")]
        shown = subprocess.run(["curl", "-sS", *netrc, url, *options], capture_output=True, check=True, cwd="/")
        answer: dict[str, Any] = json.loads(shown.stdout)
        assert answer["status"] == "ok", answer
        return answer

    def schedule(self, *settings: str, **arguments: object) -> str:
        """The id of the new job."""
        fields = {"project": "tinycrawl", "spider": "site", **arguments}
        options = [f"{name}={value}" for name, value in fields.items()] + [f"setting={text}" for text in settings]
        answer = self.curl("schedule.json", *(part for option in options for part in ("--data-urlencode", option)))
        return str(answer["jobid"])

    def cancel(self, job: str) -> None:
        assert self.curl("cancel.json", "-d", "project=tinycrawl", "-d", f"job={job}")["prevstate"] == "running"

    def wait(self, job: str, times: int = 1) -> None:
        """Until *job* has ended that often, since the service was made."""

        def has_ended() -> bool:
            finished = self.curl("listjobs.json?project=tinycrawl")["finished"]
            return [entry["id"] for entry in finished].count(job) == times

        wait_until(has_ended, f"job {job} ends")

    def log(self, job: str) -> list[str]:
        path = self.data / "logs" / "tinycrawl" / "site" / f"{job}.log"
        return path.read_text().splitlines() if path.exists() else []

    def facts(self, job: str) -> dict[str, Any]:
        """The JSON at the end of a job's log."""
        facts: dict[str, Any] = json.loads(self.log(job)[-1].partition("INFO: ")[2])
        return facts

    def pages(self, name: str) -> list[str]:
        """Paths of the pages in a directory below scrapyd-data/data, in their order."""
        return [re.sub("^http://[^/]+", "", url) for url, _ in read_page_files(self.data / "data" / name)]

    def eggs(self) -> list[Path]:
        return list((self.data / "eggs" / "tinycrawl").iterdir())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Started and deployed to."""
    service = Service(tmp_path_factory.mktemp("scrapyd") / "project")
    try:
        service.start()
        deployed = service.deploy()
        assert deployed.returncode == 0, deployed.stderr
        assert deployed.stdout.endswith("; spiders: site\n")
        yield service
    finally:
        service.close()


ODD = "/%C3%BC?q=%C3%A9"  # /ü?q=é
SITE = {
    ODD: page("/b", "/private/x", "c?d=1"),
    "/b": page("/d"),
    "/c?d=1": page("/b"),
    "/d": page("/e"),
}
ODD_PAGES = [ODD, "/b", "/c?d=1", "/d"]


class Ended:
    """Jobs that ran at the same time, all of one seed but one, by their ids."""

    def __init__(self, service: Service, site: MockServer) -> None:
        self.seed = site.url("/ü?q=é")
        arguments: dict[str, object] = {"seed": self.seed, "depth": 2}
        feed = json.dumps({"feed.jl": {"format": "jsonlines"}})
        self.feed = service.data / "feed.jl"
        self.plain = service.schedule(**arguments)
        self.other = service.schedule("LOG_LEVEL=WARNING", **arguments)
        self.odd = service.schedule(
            *("USER_AGENT=crawler-ß/1", "TINYCRAWL_OUTPUT_DIR=größer", f"FEEDS={feed}", "DEPTH_LIMIT=2"),
            **arguments,
            jobid="ü b",
        )
        self.bad = service.schedule(seed=self.seed, depth="zwei")
        self.unreachable = service.schedule("RETRY_TIMES=0", seed="http://127.0.0.1:1/", depth=2)
        for job in (self.plain, self.other, self.odd, self.bad, self.unreachable):
            service.wait(job)


@pytest.fixture(scope="module")
def ended(service: Service) -> Iterator[Ended]:
    with MockServer(SITE) as site:
        yield Ended(service, site)


def files_of(directory: Path) -> dict[str, bytes]:
    return Result(0, "", "", directory).files


# Deploying


def test_service_has_the_packages_that_the_readme_names_and_lists_site(service: Service) -> None:
    """Y3."""
    (packages,) = (service.project / ".venv").glob("lib/python*/site-packages")

    assert not list(packages.glob("*pytest*"))
    assert service.curl("listspiders.json?project=tinycrawl")["spiders"] == ["site"]
    assert service.curl("listprojects.json")["projects"] == ["tinycrawl"]


def test_egg_holds_every_file_of_the_package(service: Service) -> None:
    with zipfile.ZipFile(service.eggs()[0]) as egg:
        packed = {name for name in egg.namelist() if not name.endswith(".pyc")}

    package = service.project / "tinycrawl"
    paths = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    files = {f"tinycrawl/{path.relative_to(package)}" for path in paths}
    assert {name for name in packed if name.startswith("tinycrawl/")} == files
    assert {"tinycrawl/sites/127.0.0.1.toml", "tinycrawl/demo/site/letters/index.html"} <= packed


def test_password_is_made_for_this_service_alone_and_nobody_else_may_read_it(service: Service) -> None:
    netrc = service.data / "netrc"
    password = netrc.read_text().split()[-1]
    url = f"http://127.0.0.1:{service.port}/daemonstatus.json"
    status = ["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", url]

    assert stat.S_IMODE(netrc.stat().st_mode) == 0o600
    assert len(password) == 32
    assert password not in service.output.read_text()
    assert subprocess.run(status, capture_output=True, check=True).stdout == b"401"


def test_deploying_with_a_wrong_password_fails_in_one_line(service: Service) -> None:
    result = service.deploy(SCRAPYD_PASSWORD="wrong")

    assert result.returncode == 2  # of make
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == (
        f"service.py: http://127.0.0.1:{service.port}/: Deploy failed (401): Unauthorized;"
        f" the password is that of {service.data}/netrc, or SCRAPYD_PASSWORD"
    )


def test_deploying_a_broken_egg_fails_in_one_line_and_leaves_the_egg_before_in_place(service: Service) -> None:
    before = service.eggs()
    spider = service.project / "tinycrawl" / "spiders" / "site.py"
    code = spider.read_text()
    spider.write_text("import no_such_module\n")
    try:
        result = service.deploy()
    finally:
        spider.write_text(code)

    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == (
        f"service.py: http://127.0.0.1:{service.port}/: ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert service.eggs() == before
    assert service.curl("listspiders.json?project=tinycrawl")["spiders"] == ["site"]


def test_deploying_to_what_is_no_scrapyd_or_not_there_fails_in_one_line(service: Service) -> None:
    with MockServer({"/addversion.json": Reply(body=b"<p>\nIt works!")}) as web:
        targets = (
            f"[deploy:web]\nurl = {web.url('/')}\nproject = p\n[deploy:none]\nurl = http://127.0.0.1:1/\nproject = p\n"
        )
        configuration = service.project / "scrapy.cfg"
        text = configuration.read_text()
        configuration.write_text(f"{text}\n{targets}")
        try:
            results = [service.deploy(target) for target in ("web", "none", "nosuch")]
        finally:
            configuration.write_text(text)

    assert [result.returncode for result in results] == [2, 2, 2]
    web_line, none_line, unknown_line = (result.stderr.splitlines()[0] for result in results)
    assert web_line == f"service.py: {web.url('/')}: no answer of scrapyd: 'It works!'"
    assert none_line.startswith("service.py: http://127.0.0.1:1/: Deploy failed: ")
    assert "Connection refused" in none_line
    assert unknown_line == "service.py: target 'nosuch': expected one of those in scrapy.cfg: local, web, none"


def test_starting_where_the_port_is_taken_or_none_fails_in_one_line(service: Service) -> None:
    """And nothing is made: no second password."""
    netrc = (service.data / "netrc").read_text()

    def start(**environment: str) -> tuple[int, str]:
        done = subprocess.run(
            ["make", "-s", "scrapyd"],
            cwd=service.project,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
        error, make = done.stderr.splitlines()
        assert make.endswith("Error 1")  # the exit status of service.py
        return done.returncode, error

    elsewhere = "; another one is set by http_port in scrapyd.conf, and by url in scrapy.cfg"
    assert start() == (
        2,  # of make
        f"service.py: port {service.port} of 127.0.0.1: it is taken, maybe by a scrapyd that runs already{elsewhere}",
    )
    assert start(SCRAPYD_HTTP_PORT="http") == (
        2,
        "service.py: http_port in scrapyd.conf: expected a number from 1 to 65535, got 'http'",
    )
    assert start(SCRAPYD_BIND_ADDRESS="192.0.2.1") == (
        2,
        f"service.py: port {service.port} of 192.0.2.1: Cannot assign requested address{elsewhere}",
    )
    assert (service.data / "netrc").read_text() == netrc


# Jobs


def test_a_job_that_scrapyd_would_lose_is_refused_in_one_line(service: Service) -> None:
    """It could not be started, and scrapyd would have one place less for jobs."""
    refused = {
        "a/b": "'a/b'",
        "../x": "'../x'",
        "a\nb": r"'a\nb'",
        "a\0b": None,
        "": "''",
        "é" * 101: repr("é" * 100),
    }

    def ask(name: str, value: str) -> dict[str, Any]:
        fields = [f"project=tinycrawl&spider=site&depth=0&{name}={quote(value)}"]
        netrc = ["--netrc-file", str(service.data / "netrc")]
        url = f"http://127.0.0.1:{service.port}/schedule.json"
        done = subprocess.run(["curl", "-sS", *netrc, url, "-d", *fields], capture_output=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["status"] == "error"
        return answer

    for job, shown in refused.items():
        expected = f"jobid: expected 1 to 200 bytes of printable text without /, got {shown}"
        assert ask("jobid", job)["message"] == (expected if shown else "jobid: expected text without NUL")
    assert ask("seed", "http://h.test/\0")["message"] == "seed: expected text without NUL"

    for job in ("..", "ü" * 100):
        assert service.schedule(seed="x", depth=0, jobid=job) == job
        service.wait(job)
        assert service.facts(job)["ending"] == "refused"
    assert service.curl("daemonstatus.json")["pending"] == 0


def test_a_job_leaves_the_directory_that_the_command_leaves(
    service: Service, ended: Ended, crawl: CrawlCommand
) -> None:
    """Y1, Y2, Y4: the egg is deployed and the jobs are scheduled in another folder; each job has its directory."""
    command = crawl(ended.seed, 2, exclude="^/private")

    port = ended.seed.rpartition(":")[2].partition("/")[0]
    names = [f"127.0.0.1_{port}-2-{job}" for job in (ended.plain, ended.other)]
    assert service.pages(names[0]) == ODD_PAGES
    assert [files_of(service.data / "data" / name) for name in names] == [command.files, command.files]


def test_the_absolute_path_is_in_the_log_before_the_first_request(service: Service, ended: Ended) -> None:
    """Y4."""
    facts = service.facts(ended.plain)
    directory = Path(facts["directory"])

    assert directory.parent == service.data / "data"
    lines = [line.partition("INFO: ")[2] for line in service.log(ended.plain)]
    assert lines.index(f"Page directory: {directory}") < lines.index("Closing spider (finished)")
    assert (facts["ending"], facts["exit_status"], facts["reason"]) == ("complete", 0, None)
    assert (facts["saved"], facts["failed"], facts["skipped"]) == (4, {}, {"excluded": 1})


def test_the_json_line_is_in_a_log_that_holds_warnings_only(service: Service, ended: Ended) -> None:
    (line,) = service.log(ended.other)

    assert json.loads(line.partition("INFO: ")[2])["saved"] == 4


def test_unicode_ids_and_settings_and_a_feed(service: Service, ended: Ended, crawl: CrawlCommand) -> None:
    facts = service.facts(ended.odd)

    port = ended.seed.rpartition(":")[2].partition("/")[0]
    assert facts["directory"] == str(service.data / "größer" / f"127.0.0.1_{port}-2-%C3%BC%20b")
    assert [entry["doc_id"] for entry in map(json.loads, ended.feed.read_text().splitlines())] == [1, 2, 3, 4]


def test_a_bad_argument_ends_the_job_with_a_line_in_its_log(service: Service, ended: Ended) -> None:
    """Y1."""
    reason = "spider argument `depth`: expected an integer from 0 to 10, got 'zwei'"
    log = service.log(ended.bad)

    assert [line.partition("] ")[2] for line in log[:-1]] == [f"ERROR: The crawl was refused: {reason}"]
    assert service.facts(ended.bad) == {
        "ending": "refused",
        "exit_status": 2,
        "reason": reason,
        "saved": 0,
        "failed": {},
        "skipped": {},
    }
    assert re.search(rf"Process died: exitstatus=2 .* job='{ended.bad}'", service.output.read_text())


def test_an_unreachable_seed_ends_the_job_with_its_cause(service: Service, ended: Ended) -> None:
    """Y5."""
    facts = service.facts(ended.unreachable)

    assert (facts["ending"], facts["exit_status"], facts["saved"]) == ("failed", 1, 0)
    assert facts["reason"] == "seed http://127.0.0.1:1/: robots.txt unreachable: connection refused"
    assert re.search(rf"Process died: exitstatus=1 .* job='{ended.unreachable}'", service.output.read_text())


@pytest.mark.parametrize(
    ("setting", "value", "ending", "status", "reason"),
    [
        ("FEEDS", "no JSON", "refused", 2, "setting `FEEDS`: expected a JSON object, got what is not shown"),
        ("EXTENSIONS", '{"tinycrawl.logs.SafeFormatter": 1}', "failed", 1, "the crawl could not begin, see the log"),
    ],
)
def test_what_scrapy_itself_refuses_is_at_the_end_of_the_log_too(
    crawl: CrawlCommand, tmp_path: Path, setting: str, value: str, ending: str, status: int, reason: str
) -> None:
    log = tmp_path / "job.log"

    crawl("http://127.0.0.1:1/", 0, settings={setting: value, "LOG_FILE": log}, check=status)

    facts = json.loads(log.read_text().splitlines()[-1].partition("INFO: ")[2])
    assert (facts["ending"], facts["exit_status"], facts["reason"]) == (ending, status, reason)


class Gate:
    """A site of `/`, `/gate`, `/c` and `/d`, whose `/gate` is answered when :meth:`open` says so."""

    def __init__(self) -> None:
        self.is_open = False
        self.server = MockServer(self.answer)

    def answer(self, request: Request) -> Reply | None:
        if request.target == "/gate" and not self.is_open:
            return Reply(never=True)
        return {"/": page("/gate", "/c", "/d"), "/gate": page(), "/c": page(), "/d": page()}.get(request.target)

    def open(self, *, for_those_who_wait: bool = True) -> None:
        self.is_open = True
        for connection in list(self.server.connections) if for_those_who_wait else ():
            if connection.busy:
                self.server.loop.call_soon_threadsafe(connection.send, page())

    def wait_for_visitors(self, count: int = 1) -> None:
        wait_until(lambda: self.server.targets().count("/gate") == count, "the gate is asked for")


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    with gate.server:
        yield gate


def test_readme_commands_schedule_and_cancel_a_job_which_then_goes_on(
    service: Service, gate: Gate, crawl: CrawlCommand
) -> None:
    """What is in flight is finished; the same id continues the same directory, and asks for nothing twice."""
    start, deploy, schedule, ending, cancel = COMMANDS
    assert (start, deploy) == ("make scrapyd", "make deploy TARGET=local")
    seed = gate.server.url("/")

    def run(command: str) -> str:
        command = service.adapt(command).replace("https://example.org/", seed)
        command = command.replace("DOWNLOAD_DELAY=2", "DOWNLOAD_DELAY=0.02")
        done = subprocess.run(command, shell=True, cwd=service.project, capture_output=True, text=True, check=True)
        return done.stdout

    assert json.loads(run(schedule))["jobid"] == "first"
    gate.wait_for_visitors()
    assert json.loads(run(cancel))["prevstate"] == "running"
    wait_until(lambda: any("shutting down gracefully" in line for line in service.log("first")), "the signal is there")
    gate.open()
    service.wait("first")
    facts = json.loads(run(ending))
    assert (facts["ending"], facts["exit_status"], facts["saved"]) == ("stopped", 3, 2)
    assert gate.server.targets() == ["/", "/gate"]

    run(schedule)
    service.wait("first", times=2)

    facts = json.loads(run(ending))
    assert (facts["ending"], facts["exit_status"], facts["saved"]) == ("complete", 0, 4)
    assert gate.server.targets() == ["/", "/gate", "/c", "/d"]
    name = f"127.0.0.1_{gate.server.port}-2-first"
    assert facts["directory"] == str(service.data / "data" / name)
    assert files_of(service.data / "data" / name) == crawl(seed, 2, exclude="^/private").files


def test_cancelled_twice_a_job_ends_at_once_and_still_says_how(service: Service, gate: Gate) -> None:
    job = service.schedule(seed=gate.server.url("/"), depth=1)
    gate.wait_for_visitors()

    service.cancel(job)
    wait_until(lambda: any("shutting down gracefully" in line for line in service.log(job)), "the signal is there")
    service.cancel(job)
    service.wait(job)

    facts = service.facts(job)
    assert (facts["ending"], facts["exit_status"], facts["saved"]) == ("stopped", 3, 1)


def test_scrapyd_killed_while_jobs_run(service: Service, gate: Gate, crawl: CrawlCommand) -> None:
    """An orphan keeps its directory until it ends. Killed too, its job goes on from there when scheduled again."""
    seed = gate.server.url("/")
    jobs = {job: service.schedule(seed=seed, depth=1, jobid=job) for job in ("survivor", "victim")}
    gate.wait_for_visitors(2)
    running = {entry["id"]: entry["pid"] for entry in service.curl("listjobs.json")["running"]}
    assert running.keys() == jobs.keys()
    netrc = (service.data / "netrc").read_text()

    service.kill()
    service.start()

    assert (service.data / "netrc").read_text() == netrc
    service.schedule(seed=seed, depth=1, jobid="victim")
    service.wait("victim")
    directory = service.data / "data" / f"127.0.0.1_{gate.server.port}-1-victim"
    refusal = service.facts("victim")
    assert (refusal["ending"], refusal["exit_status"]) == ("failed", 1)
    assert refusal["reason"] == f"page directory {directory} is being written by another crawl"
    assert service.log("victim")[-4].endswith(f"ERROR: The crawl failed: {refusal['reason']}")
    assert service.pages(directory.name) == ["/"]
    assert sorted(gate.server.targets()) == ["/", "/", "/gate", "/gate"]

    os.kill(running["victim"], signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{running['victim']}/fd").is_dir(), "the orphan is gone")
    gate.open(for_those_who_wait=False)
    service.schedule(seed=seed, depth=1, jobid="victim")
    service.wait("victim", times=2)
    assert service.facts("victim")["ending"] == "complete"
    assert gate.server.targets()[4:] == ["/gate", "/c", "/d"]
    whole = crawl(seed, 1, exclude="^/private").files
    assert files_of(directory) == whole

    gate.open()
    wait_until(lambda: '"exit_status"' in service.log("survivor")[-1], "the orphan ends")
    facts = service.facts("survivor")
    assert (facts["ending"], facts["exit_status"], facts["saved"]) == ("complete", 0, 4)
    assert files_of(Path(facts["directory"])) == whole
