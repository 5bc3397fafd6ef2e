"""Run a program on a core of its own, and say what it took. One thing at a time: this program uses the other core."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.02  # seconds between two looks at the memory


@dataclass(frozen=True)
class Usage:
    """*seconds* by the clock, from the start of the process to its end; *cpu*: seconds, children included.

    *peak*: bytes, resident. *status*: the exit status, negative for a signal.
    """

    seconds: float
    cpu: float
    peak: int
    status: int


def two_cores() -> tuple[int, int]:
    """A core for the servers and one for the crawler; one and the same where there is no other."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[-1]


def measure(
    command: Sequence[str],
    *,
    directory: Path,
    log: Path,
    environment: Mapping[str, str] | None = None,
    look: Callable[[int], None] = lambda peak: None,
    time_limit: float = 3600,
) -> Usage:
    """Run *command* in *directory* on the crawler's core, and call *look* with its peak so far now and then.

    ``VmHWM`` is looked at while the program runs, since the peak that wait4(2) tells includes that of this program.
    What runs longer than *time_limit* seconds is killed.
    """
    _, core = two_cores()
    os.sync()  # what was written before is not to be waited for in this run
    peak = 0
    with log.open("wb") as out:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    end = os.pidfd_open(process.pid)
    try:
        while not select.select([end], [], [], INTERVAL)[0]:
            peak = max(peak, _high_water_mark(process.pid))
            look(peak)
            if time.monotonic() - started > time_limit:
                process.kill()
    except BaseException:
        process.send_signal(signal.SIGKILL)
        process.wait()
        raise
    finally:
        os.close(end)
    seconds = time.monotonic() - started
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Usage(seconds, usage.ru_utime + usage.ru_stime, peak, process.returncode)


def _high_water_mark(pid: int) -> int:
    """Bytes, 0 for a process that has just ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown, which can be read as it is; the first column to the left, the others to the right."""
    table = [heads, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    for n, row in enumerate(table):
        cells = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(f"| {' | '.join(cells)} |")
        if n == 0:
            print(f"| {' | '.join('-' * (w - 1) + (':' if i else '-') for i, w in enumerate(widths))} |")
