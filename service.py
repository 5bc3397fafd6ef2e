"""The scrapyd of this project: `service.py start`, and `service.py deploy [TARGET]` with the answer checked.

`make scrapyd` and `make deploy TARGET=...` call it. It needs the packages of requirements-scrapyd.txt.
"""

from __future__ import annotations

import configparser
import errno
import json
import netrc
import os
import re
import secrets
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from scrapyd import webservice
from scrapyd.__main__ import main as run_scrapyd
from scrapyd_client.utils import get_auth, get_config
from twisted.web import error, http

PROJECT = Path(__file__).resolve().parent
DATA = PROJECT / "scrapyd-data"
NETRC = DATA / "netrc"
TIME_LIMIT = 120  # seconds for an answer; scrapyd starts a process to list the spiders
_LONGEST_ID = 200  # bytes of a job's id; <id>.log has to be the name of a file


class ServiceError(Exception):
    """Raised where the service cannot be started or the egg not be deployed, with one line that says why."""


class Schedule(webservice.Schedule):  # type: ignore[misc]  # scrapyd has no types
    """scrapyd's schedule.json, by scrapyd.conf, which refuses a job that could not be started.

    scrapyd itself would take it, lose it, and have one place less for jobs from then on.
    """

    def render_POST(self, txrequest: Any) -> Any:
        problem = refuse_job(txrequest.args)
        if problem:
            raise error.Error(code=http.OK, message=problem.encode())
        return super().render_POST(txrequest)


def refuse_job(fields: dict[bytes, list[bytes]]) -> str:
    """Why a job of these *fields* could not be started; empty if it could be."""
    for name, values in fields.items():
        if any(b"\0" in value for value in values):
            return f"{name.decode(errors='replace')}: expected text without NUL"
    for value in fields.get(b"jobid", [])[:1]:
        job = value.decode(errors="replace")  # what is not UTF-8 is scrapyd's matter
        if not job or "/" in job or not job.isprintable() or len(value) > _LONGEST_ID:
            return f"jobid: expected 1 to {_LONGEST_ID} bytes of printable text without /, got {job[:100]!r}"
    return ""


def check_port(host: str, port: str) -> None:
    """Can scrapyd listen there? Else it would end with a traceback.

    :raises ServiceError: it cannot.
    """
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ServiceError(f"http_port in scrapyd.conf: expected a number from 1 to 65535, got {port!r}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, int(port)), family=family).close()
    except OSError as fault:
        reason = os.strerror(fault.errno) if isinstance(fault.errno, int) and fault.errno > 0 else str(fault)
        if fault.errno == errno.EADDRINUSE:
            reason = "it is taken, maybe by a scrapyd that runs already"
        another = "another one is set by http_port in scrapyd.conf, and by url in scrapy.cfg"
        raise ServiceError(f"port {port} of {host}: {reason}; {another}") from None


def start() -> None:
    """Run scrapyd, in the foreground."""
    conf = configparser.ConfigParser()
    conf.read(PROJECT / "scrapyd.conf")
    host, username = conf["scrapyd"]["bind_address"], conf["scrapyd"]["username"]
    # As scrapyd does, by whose variables of the environment both may be given too.
    check_port(
        os.environ.get("SCRAPYD_BIND_ADDRESS") or host,
        os.environ.get("SCRAPYD_HTTP_PORT") or conf["scrapyd"]["http_port"],
    )
    DATA.mkdir(exist_ok=True)
    # Of all its files scrapyd reads the nearest scrapy.cfg last. Were that the project's own, it would serve a second
    # project, `default`, from the working tree.
    link = DATA / "scrapy.cfg"
    link.unlink(missing_ok=True)
    link.symlink_to(PROJECT / "scrapyd.conf")
    password = os.environ.get("SCRAPYD_PASSWORD") or read_password(host)
    if not password and not NETRC.exists():
        password = secrets.token_urlsafe(24)
        write_privately(NETRC, f"machine {host} login {username} password {password}\n")
        print(f"scrapyd: made a password for the user {username}, in {NETRC}", flush=True)
    if not username or not password:  # without both, scrapyd would let everybody in
        raise ServiceError(f"no username in scrapyd.conf, or no password for {host} in {NETRC}")
    os.chdir(DATA)
    os.environ["SCRAPYD_PASSWORD"] = password
    sys.modules["service"] = sys.modules[__name__]  # by which scrapyd.conf names Schedule
    # No pidfile: one that a crash left would keep it from starting where another process has that number by now.
    sys.argv = ["scrapyd", "--pidfile="]
    run_scrapyd()


def deploy(target: str) -> None:
    """Build the egg, upload it to *target* of scrapy.cfg, and print the spiders that scrapyd finds in it."""
    os.chdir(PROJECT)
    config = get_config()
    section = f"deploy:{target}"
    if not config.has_section(section):
        known = ", ".join(name.removeprefix("deploy:") for name in config.sections() if name.startswith("deploy:"))
        raise ServiceError(f"target {target!r}: expected one of those in scrapy.cfg: {known}")
    url, project = config.get(section, "url"), config.get(section, "project")
    if "SCRAPYD_PASSWORD" not in os.environ:
        os.environ["SCRAPYD_PASSWORD"] = read_password(urlsplit(url).hostname or "")
    client = subprocess.run(
        [sys.executable, "-m", "scrapyd_client.deploy", target], capture_output=True, text=True, check=False
    )
    if client.returncode:
        hint = f"; the password is that of {NETRC}, or SCRAPYD_PASSWORD" if "(401)" in client.stderr else ""
        raise ServiceError(f"{url}: {_last_line(client.stderr)} {_last_line(client.stdout)}".rstrip() + hint)
    username, password = (config.get(section, name, fallback="") for name in ("username", "password"))
    packed = re.search(r"^Packing version (.+)", client.stderr, re.MULTILINE)
    version = packed[1] if packed else ""

    def ask(method: str, command: str, **parameters: dict[str, str]) -> dict[str, Any]:
        try:
            response = requests.request(
                method,
                urljoin(url, command),
                auth=get_auth(url, username, password),
                timeout=TIME_LIMIT,
                **parameters,  # type: ignore[arg-type]  # params or data
            )
        except requests.RequestException as error:
            raise ServiceError(f"{url}: {error}") from None
        return _read_answer(url, response.text)

    which = {"project": project, "version": version}
    try:
        _read_answer(url, client.stdout)  # the client takes every answer with status 200 for success
    except ServiceError:
        # scrapyd keeps an egg that it cannot use, and would run it from now on.
        with suppress(ServiceError):
            ask("POST", "delversion.json", data=which)
        raise
    spiders = ask("GET", "listspiders.json", params={"project": project, "_version": version})["spiders"]
    print(f"deployed {project} {version} to {url}; spiders: {' '.join(spiders)}")


def read_password(host: str) -> str:
    """The password for *host* in scrapyd-data/netrc; empty without one."""
    try:
        entry = netrc.netrc(NETRC).authenticators(host)
    except FileNotFoundError:
        return ""
    except netrc.NetrcParseError as error:
        raise ServiceError(str(error)) from None
    return entry[2] or "" if entry else ""


def write_privately(path: Path, text: str) -> None:
    """Make the file *path*, which from its first moment on nobody else may read, and which is whole or not there."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.rename(path)


def _read_answer(url: str, text: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(text)
        if answer["status"] == "ok":
            return answer
        message = _last_line(str(answer["message"]))  # of a broken egg it is a traceback
    except (ValueError, KeyError, TypeError):
        message = f"no answer of scrapyd: {_last_line(text)[:200]!r}"
    raise ServiceError(f"{url}: {message}")


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["start"]:
                start()
            case ["deploy", target]:
                deploy(target)
            case _:
                raise ServiceError("expected: start, or deploy TARGET")
    except (ServiceError, configparser.Error) as error:
        print(f"service.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
