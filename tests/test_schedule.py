"""Schedules: what is accepted, when they come, and what they are for systemd, cron and the shell."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import pytest
from cronsim import CronSim

from many import run_scrapy
from tinycrawl.exceptions import TinycrawlError, UsageError
from tinycrawl.schedule import (
    MARK,
    Schedule,
    Target,
    find_schedule_faults,
    on_calendar,
    parse_target,
    read_cron,
    read_schedule,
    render_cron,
    render_systemd,
    write_generated,
)

CRAWL = {"depth": 2, "pagedir": "/data/{host}/{date}"}
LOCAL = Target("http://127.0.0.1:6800/", "tinycrawl")
START = datetime(2026, 12, 1, tzinfo=UTC)


def unit_value(unit: str, key: str) -> str:
    (value,) = re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)
    return value


def service_command(unit: str) -> list[str]:
    """The words that systemd makes of ExecStart (systemd.service, systemd.syntax): quotes, backslashes, %% and $$."""
    words = shlex.split(unit_value(unit, "ExecStart").replace("$$", "$").replace("%%", "%"))
    assert words[:2] == ["/bin/sh", "-c"]
    return words


def cron_command(line: str) -> list[str]:
    """What cron runs of a line (crontab(5)): the sixth field up to a %, where one after a backslash is a plain one."""
    command = line.split(" ", 5)[5]
    first = re.split(r"(?<!\\)%", command)[0]
    return ["/bin/sh", "-c", first.replace(r"\%", "%")]


def system_calendar() -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.fail("systemd-analyze is not installed (Debian: apt-get install systemd)")
    return program


def systemd_times(specs: list[list[str]], start: datetime, count: int) -> list[list[datetime]]:
    """The next *count* times of each of *specs*, which are the OnCalendar lines of a timer."""
    lines = [line for spec in specs for line in spec]
    shown = subprocess.run(
        [system_calendar(), "calendar", f"--iterations={count}", f"--base-time={start:%Y-%m-%d %H:%M:%S} UTC", *lines],
        env={"TZ": "UTC", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    blocks = re.split(r"\n\n", shown.strip())
    times = [
        [
            datetime.strptime(found, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            for found in re.findall(r"(?:Next elapse|Iter\. #\d+): \w{3} (\S+ \S+) UTC", block)
        ]
        for block in blocks
    ]
    assert len(times) == len(lines)
    following = iter(times)
    return [sorted({time for _ in spec for time in next(following)})[:count] for spec in specs]


def random_field(draw: random.Random, low: int, high: int, names: tuple[str, ...] = ()) -> str:
    def number(value: int) -> str:
        return (
            draw.choice([names[value - low], names[value - low].upper()])
            if names and draw.random() < 0.4 and (value - low < len(names))
            else str(value)
        )

    def term() -> str:
        first, last = sorted(draw.choices(range(low, high + 1), k=2))
        step = draw.randint(1, 6)
        return draw.choice(
            [number(first), f"{first}-{last}", f"{number(first)}-{last}", f"{first}-{last}/{step}", f"*/{step}"]
        )

    return "*" if draw.random() < 0.35 else ",".join(term() for _ in range(draw.choice([1, 1, 1, 2, 3])))


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def random_crons(count: int, seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    while count:
        fields = [random_field(draw, *limits) for limits in ((0, 59), (0, 23), (1, 31), (1, 12, MONTHS), (0, 7, DAYS))]
        cron = " ".join(fields)
        try:
            read_cron(cron)
        except ValueError:
            continue
        count -= 1
        yield cron


def test_random_cron_expressions_come_at_the_same_times_under_systemd() -> None:
    crons = list(random_crons(150, seed=7))
    zones = ["UTC", "Asia/Kolkata", "America/Bogota"]  # without summer time, on whose nights they differ

    expected, specs = [], []
    for number, cron in enumerate(crons):
        schedule = Schedule("h.test", "http://h.test/", cron, zones[number % 3])
        expected.append([time.astimezone(UTC) for time in schedule.next_times(START, 5)])
        specs.append(on_calendar(cron, schedule.timezone))

    shown = systemd_times(specs, START, 5)
    assert dict(zip(crons, shown, strict=True)) == dict(zip(crons, expected, strict=True))


def test_random_cron_expressions_come_at_the_same_times_in_plain_numbers() -> None:
    for cron in random_crons(300, seed=8):
        schedule = Schedule("h.test", "http://h.test/", cron)
        line = render_cron([schedule], LOCAL).splitlines()[-1]
        plain = CronSim(" ".join(line.split(" ")[:5]), START)

        assert [next(plain) for _ in range(5)] == schedule.next_times(START, 5), cron


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        pytest.param("30 3 * * 1", ["Mon *-*-* 3:30:00 UTC"], id="weekly"),
        pytest.param("0 0 13 * 5", ["Fri *-*-* 0:0:00 UTC", "*-*-13 0:0:00 UTC"], id="either-day"),
        pytest.param("0 0 */2 * 5", ["Fri *-*-1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 0:0:00 UTC"], id="star-both"),
        pytest.param("0 0 13 * *", ["*-*-13 0:0:00 UTC"], id="day-of-month"),
        pytest.param("0 0 1-31 * 5", ["*-*-* 0:0:00 UTC"], id="every-day-by-either"),
        pytest.param("0 0 * 2 SUN,7", ["Sun *-2-* 0:0:00 UTC"], id="two-sundays"),
        pytest.param("*/30 */12 * * *", ["*-*-* 0,12:0,30:00 UTC"], id="steps"),
    ],
)
def test_cron_becomes_calendar_lines(cron: str, expected: list[str]) -> None:
    assert on_calendar(cron) == expected


def test_next_times_are_in_the_time_zone() -> None:
    schedule = Schedule("h.test", "http://h.test/", "30 3 * * 1", "Europe/Berlin")

    times = schedule.next_times(datetime(2027, 3, 20, tzinfo=UTC), 2)

    assert [time.isoformat() for time in times] == ["2027-03-22T03:30:00+01:00", "2027-03-29T03:30:00+02:00"]


@pytest.mark.parametrize(
    "cron",
    [
        *("", "* * * *", "* * * * * *", "@weekly", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *("*/0 * * * *", "5-1 * * * *", "a * * * *", "0 0 L * *", "0 0 LW * *", "0 0 * * 5L", "0 0 * * 5#3"),
        *("0 0 30 2 *", "0 0 31 4 *", "0 0 * * *\n* * * * *", "0 0 * * 1;id", 5, None, ["0 0 * * *"]),
    ],
)
def test_what_is_no_cron_expression_is_refused(cron: object) -> None:
    with pytest.raises(ValueError, match=r"^a cron expression of five fields"):
        read_cron(cron)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        pytest.param({"seed": None}, ("", "[schedule] needs `seed`"), id="no-seed"),
        pytest.param({"cron": None}, ("", "[schedule] needs `cron`"), id="no-cron"),
        pytest.param(
            {"seed": "http://other.test/"},
            (
                "seed",
                "`seed` in [schedule]: expected a URL at h.test, which names the file, got 'http://other.test/'",
            ),
            id="seed-elsewhere",
        ),
        pytest.param(
            {"seed": "http://me:secret@h.test/"},
            (
                "seed",
                "`seed` in [schedule]: expected a URL without user and password; TINYCRAWL_HTTP_USER is for that,"
                " got 'http://***@h.test/'",
            ),
            id="seed-with-password",
        ),
        pytest.param(
            {"timezone": "Europe"},
            (
                "timezone",
                "`timezone` in [schedule]: expected a time zone that is known here, like Europe/Berlin, got 'Europe'",
            ),
            id="folder-of-zones",
        ),
        pytest.param(
            {"timezone": "../etc/passwd"},
            ("timezone", "`timezone` in [schedule]: expected a time zone, like Europe/Berlin, got '../etc/passwd'"),
            id="zone-elsewhere",
        ),
        pytest.param(
            {"keep": 0}, ("keep", "`keep` in [schedule]: expected a number of runs, 1 or more, got 0"), id="keep-none"
        ),
        pytest.param(
            {"diff": "yes"},
            ("diff", "`diff` in [schedule]: expected 0 or 1, or true or false, got 'yes'"),
            id="diff-text",
        ),
        pytest.param(
            {"fresh": True},
            (
                "fresh",
                "`fresh` in [schedule]: expected none where `pagedir` has {date}, which is new each time",
            ),
            id="fresh-and-date",
        ),
    ],
)
def test_fault_of_a_schedule_names_its_key(change: dict[str, Any], fault: tuple[str, str]) -> None:
    table = {"seed": "http://h.test/", "cron": "0 0 * * *", **change}

    faults = find_schedule_faults("h.test", {key: value for key, value in table.items() if value is not None}, CRAWL)

    assert list(faults) == [fault]


def test_schedule_without_dates_says_whether_each_run_is_fresh() -> None:
    table = {"seed": "http://h.test/", "cron": "0 0 * * *"}
    crawl = {"depth": 1, "pagedir": "/data/h"}

    assert [key for key, _ in find_schedule_faults("h.test", table, crawl)] == [""]
    assert not list(find_schedule_faults("h.test", {**table, "fresh": False}, crawl))
    assert [key for key, _ in find_schedule_faults("h.test", {**table, "fresh": True, "keep": 3}, crawl)] == ["keep"]
    assert [problem for _, problem in find_schedule_faults("h.test", table, {})] == [
        "[schedule] needs `depth` in [crawl]",
        "[schedule] needs `pagedir` in [crawl]",
    ]


# What is generated


NASTY = "http://h.test/?q='\";$(touch%20pwned)`id`%25d%n$HOME&a=\\1#x"


class Recorder(BaseHTTPRequestHandler):
    """Writes down what is posted, and answers as scrapyd does."""

    posted: ClassVar[list[tuple[str, str, list[tuple[str, str]]]]] = []
    status = "ok"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.posted.append((self.path, self.headers.get("Authorization", ""), parse_qsl(body, strict_parsing=True)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"node_name": "n", "status": "%s"}\n' % self.status.encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[str]:
    """The URL of a server that records; what it gets is in Recorder.posted."""
    Recorder.posted, Recorder.status = [], "ok"
    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_generated_commands_say_exactly_what_the_file_says(recorder: str, tmp_path: Path) -> None:
    netrc = tmp_path / "it's $HOME %n netrc"
    netrc.touch(0o600)
    netrc.write_text("machine 127.0.0.1 login me password geheim\n")
    sites = ("TINYCRAWL_SITES_DIR", "/srv/a b/'%s\"$x")
    target = parse_target(recorder, "tinycrawl", str(netrc), (sites,))
    table = {"seed": NASTY, "cron": "0 0 * * *", "fresh": True}
    schedule = read_schedule("h.test", table)

    units = render_systemd([schedule], target)
    crontab = render_cron([schedule], target)

    commands = [service_command(units["tinycrawl-h.test.service"]), cron_command(crontab.splitlines()[-1])]
    for command in commands:
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    seed = "http://h.test/?q=%27%22;$(touch%20pwned)`id`%25d%n$HOME&a=\\1"
    fields = [("project", "tinycrawl"), ("spider", "site"), ("seed", seed), ("fresh", "1")]
    fields.append(("setting", "TINYCRAWL_SITES_DIR=/srv/a b/'%s\"$x"))
    assert Recorder.posted == [("/schedule.json", "Basic bWU6Z2VoZWlt", fields)] * 2
    assert "geheim" not in "".join([crontab, *units.values()])
    assert [path.name for path in tmp_path.iterdir()] == [netrc.name]


def test_command_fails_where_scrapyd_says_so_or_is_not_there(recorder: str) -> None:
    schedule = Schedule("h.test", "http://h.test/", "0 0 * * *")
    Recorder.status = "error"
    for url in (recorder, "http://127.0.0.1:9/"):
        unit = render_systemd([schedule], parse_target(url, "tinycrawl", None))["tinycrawl-h.test.service"]

        done = subprocess.run(service_command(unit), capture_output=True, text=True, check=False)

        assert done.returncode == 1
        assert '"status": "error"' in done.stdout or "curl" in done.stderr


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    schedules = [
        Schedule("h.test", NASTY.partition("#")[0], "*/7 3 1-7 jan,feb 1", "Europe/Berlin"),
        Schedule("::1", "http://[::1]/", "0 0 * * 7"),
    ]
    units = render_systemd(schedules, LOCAL)
    write_generated(tmp_path, units, suffixes=(".timer", ".service"))

    verified = subprocess.run(
        [system_calendar(), "verify", "--user", "--recursive-errors=no", *(tmp_path / name for name in units)],
        env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert sorted(units) == [f"tinycrawl-{host}.{kind}" for host in ("__1", "h.test") for kind in ("service", "timer")]
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if "tinycrawl" in line]) == (0, [])


def test_cron_lines_are_of_five_fields_with_the_time_zone_before() -> None:
    schedules = [
        Schedule("a.test", "http://a.test/", "30 3 * * mon", "Europe/Berlin"),
        Schedule("b.test", "http://b.test/", "*/20 0-5 1,15 * *"),
    ]

    rows = render_cron(schedules, LOCAL).splitlines()

    assert rows[0] == MARK
    assert [row.split(" curl ")[0] for row in rows if not row.startswith("#")] == [
        "CRON_TZ=Europe/Berlin",
        "30 3 * * 1",
        "CRON_TZ=UTC",
        "*/20 0,1,2,3,4,5 1,15 * *",
    ]


def test_cron_line_that_is_too_long_is_refused() -> None:
    schedule = Schedule("h.test", f"http://h.test/{'%20' * 200}", "0 0 * * *")

    with pytest.raises(TinycrawlError, match=r"^schedule of h\.test: its command has \d+ characters, cron takes 990"):
        render_cron([schedule], LOCAL)


@pytest.mark.parametrize(
    ("url", "project", "message"),
    [
        ("http://me:secret@h.test/", "p", "--target: expected a URL without user and password"),
        ("h.test:6800", "p", "--target: expected the URL of a scrapyd"),
        ("file:///x", "p", "--target: expected the URL of a scrapyd"),
        ("http://h.test/?a", "p", "--target: expected the URL of a scrapyd"),
        ("http://h.test/", "a b", "--project: expected the name of a project, got 'a b'"),
    ],
)
def test_target_that_is_wrong_is_refused(url: str, project: str, message: str) -> None:
    with pytest.raises(UsageError) as info:
        parse_target(url, project, None)

    assert str(info.value).startswith(message)
    assert "secret" not in str(info.value)


def test_netrc_that_others_may_read_is_refused(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.touch(0o640)

    with pytest.raises(UsageError, match=r"expected a file that you alone may read \(chmod 600 "):
        parse_target("http://h.test/", "p", str(netrc))


@pytest.mark.parametrize(
    ("text", "url", "expected"),
    [
        ("machine h.test login me password x\n", "https://h.test:6800/", True),
        ("machine localhost login me password x\n", "http://127.0.0.1/", False),
        ("default login me password x\n", "http://127.0.0.1/", True),
        ("machine ::1 login me password x\n", "http://[::1]:6800/", True),
        ("", "http://127.0.0.1/", False),
        ("what only curl understands\n", "http://127.0.0.1/", True),
    ],
)
def test_netrc_without_a_password_for_the_target_is_told(text: str, url: str, expected: bool, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.touch(0o600)
    netrc.write_text(text)

    assert parse_target(url, "p", str(netrc)).has_password() is expected


def test_only_our_own_files_are_replaced_and_removed(tmp_path: Path) -> None:
    (tmp_path / "tinycrawl-mine.timer").write_text("[Timer]\n")
    suffixes = (".timer", ".service")

    first = write_generated(tmp_path, {"tinycrawl-a.timer": f"{MARK}\n1\n", "b.timer": f"{MARK}\n"}, suffixes=suffixes)
    second = write_generated(tmp_path, {"tinycrawl-a.timer": f"{MARK}\n2\n"}, suffixes=suffixes)
    third = write_generated(tmp_path, {"tinycrawl-a.timer": f"{MARK}\n2\n"}, suffixes=suffixes)
    with pytest.raises(TinycrawlError, match=r"tinycrawl-mine\.timer: expected a file of"):
        write_generated(tmp_path, {"new.timer": MARK, "tinycrawl-mine.timer": MARK}, suffixes=suffixes)

    assert first == [f"wrote {tmp_path}/b.timer", f"wrote {tmp_path}/tinycrawl-a.timer"]
    assert second == [f"wrote {tmp_path}/tinycrawl-a.timer", f"removed {tmp_path}/b.timer"]
    assert third == []
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "tinycrawl-mine.timer": "[Timer]\n",
        "tinycrawl-a.timer": f"{MARK}\n2\n",
    }


def run_sites(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_scrapy("sites", *arguments)


def test_command_makes_timers_of_the_files_and_nothing_of_faulty_ones(tmp_path: Path) -> None:
    sites, units = tmp_path / "sites", tmp_path / "units"
    sites.mkdir()
    for host in ("a.test", "b.test"):
        (sites / f"{host}.toml").write_text(
            f'[crawl]\ndepth = 1\npagedir = "{tmp_path}/{{host}}/{{date}}"\n'
            f'[schedule]\nseed = "http://{host}/"\ncron = "0 0 * * *"\n'
        )
    options = ["schedule", "-s", f"TINYCRAWL_SITES_DIR={sites}", "--target", "http://127.0.0.1:6800", "-o", units]

    netrc = tmp_path / "netrc"
    netrc.touch(0o600)
    netrc.write_text("machine localhost login me password geheim\n")

    made = run_sites(*options)
    (sites / "b.test.toml").write_text("[schedul]\n")
    refused = run_sites(*options)
    (sites / "b.test.toml").unlink()
    forgotten = run_sites(*options[:1], *options[3:])
    removed = run_sites(*options[:-2], "--netrc", netrc, "-o", units)

    names = [f"tinycrawl-{host}.{kind}" for host in ("a.test", "b.test") for kind in ("service", "timer")]
    assert made.returncode == 0
    assert made.stderr == (
        "tinycrawl: without --netrc, jobs are asked for without the password that scrapyd.conf demands;"
        " it is in scrapyd-data/netrc\n"
    )
    assert made.stdout.splitlines() == [*(f"wrote {units}/{name}" for name in names), f"2 schedules in {units}"]
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[0].startswith(f"{sites}/b.test.toml:1: 'schedul': unknown")
    assert forgotten.returncode == 1
    assert forgotten.stderr == (
        "tinycrawl: setting `TINYCRAWL_SITES_DIR`: expected the folder of the sites' files, got nothing,"
        " and no packaged file has a schedule; none was made or removed\n"
    )
    assert removed.stderr == f"tinycrawl: --netrc: {netrc} has no user and password for 127.0.0.1\n"
    assert (
        removed.stdout.splitlines()
        == [
            f"wrote {units}/{names[0]}",  # --netrc is new
            *(f"removed {units}/{name}" for name in names[2:]),
            f"1 schedules in {units}",
        ]
    )
    assert sorted(path.name for path in units.iterdir()) == names[:2]


def test_a_timer_that_was_missed_is_made_up_for_and_begins_within_a_second() -> None:
    unit = render_systemd([Schedule("h.test", "http://h.test/", "0 0 * * *")], LOCAL)["tinycrawl-h.test.timer"]

    assert (unit_value(unit, "Persistent"), unit_value(unit, "AccuracySec")) == ("true", "1s")
    assert unit_value(unit, "OnCalendar") == "*-*-* 0:0:00 UTC"
    assert START + timedelta(days=1) == Schedule("h", "", "0 0 * * *").next_times(START, 1)[0]
