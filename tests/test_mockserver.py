"""What the tests themselves stand on: the mock server's oddities, the oracles, the name resolver's table, nginx."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from hypothesis import HealthCheck, given, settings
from twisted.internet import defer, reactor
from twisted.internet.error import DNSLookupError

from graph import Link, Node, Site, files_oracle, sites
from mockserver import MockServer, Reply, Request, page, redirect, robots
from testresolver import TestResolver

ServerFactory = Callable[..., MockServer]


@contextmanager
def connect(server: MockServer) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as client:
        yield client


def get(client: http.client.HTTPConnection, target: str, **headers: str) -> tuple[int, bytes]:
    client.request("GET", target, headers=headers)
    response = client.getresponse()
    return response.status, response.read()


def read_to_the_end(server: MockServer, target: str) -> bytes:
    """Every byte the server sends for one request, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: h.test:{server.port}\r\n\r\n".encode())
        with client.makefile("rb") as file:
            return file.read()


def test_a_table_answers_by_target_and_by_host(server: ServerFactory) -> None:
    started = server({"/": page("/a"), "h.test/": redirect("/b", 301), "/r": lambda request: robots(request.target)})

    with connect(started) as client:
        assert get(client, "/") == (
            200,
            b'<!DOCTYPE html>\n<html><head><title></title></head>\n<body>\n<a href="/a">link</a>\n</body></html>\n',
        )
        assert get(client, "/", Host=f"h.test:{started.port}") == (301, b"")
        assert get(client, "/r") == (200, b"/r")
        assert get(client, "/robots.txt")[0] == 404


def test_a_list_answers_successive_requests(server: ServerFactory) -> None:
    with connect(server({"/a": [Reply(503), Reply(503), page()]})) as client:
        assert [get(client, "/a")[0] for _ in range(4)] == [503, 503, 200, 200]


def test_requests_are_recorded_as_sent(server: ServerFactory) -> None:
    started = server({"/a?x=%3d": page()})

    with connect(started) as client:
        get(client, "/a?x=%3d", Host="H.test:81", Cookie="a=1")
        get(client, "/a?x=%3d", Host="H.test:81")
    with connect(started) as client:
        get(client, "/a?x=%3d")

    assert [(r.method, r.target, r.host, r.number, r.connection) for r in started.requests] == [
        ("GET", "/a?x=%3d", "H.test", 0, 0),
        ("GET", "/a?x=%3d", "H.test", 1, 0),
        ("GET", "/a?x=%3d", "127.0.0.1", 0, 1),
    ]
    assert started.requests[0].headers["cookie"] == "a=1"
    assert ("Cookie", "a=1") in started.requests[0].raw_headers
    assert started.requests[0].time <= started.requests[1].time <= time.monotonic()


def test_a_request_counts_from_when_it_came_however_late_it_is_read(server: ServerFactory) -> None:
    began, may_end = threading.Event(), threading.Event()

    def block(_: Request) -> Reply:
        began.set()
        may_end.wait(10)
        return page()

    started = server({"/block": block, "/late": page()})
    with connect(started) as blocking, connect(started) as late:
        blocking.request("GET", "/block")
        began.wait(10)
        late.request("GET", "/late")
        sent = time.monotonic()
        time.sleep(0.3)  # the server's thread is busy meanwhile
        may_end.set()
        late.getresponse().read()

    assert [request.target for request in started.requests] == ["/block", "/late"]
    assert started.requests[1].time - sent < 0.15


def test_close_ends_the_connection(server: ServerFactory) -> None:
    expected = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\nConnection: close\r\nX-A: \xff\r\n\r\nx"
    )

    assert read_to_the_end(server({"/": Reply(body=b"x", close=True, headers=[("X-A", b"\xff")])}), "/") == expected


def test_raw_is_sent_as_it_is(server: ServerFactory) -> None:
    assert read_to_the_end(server({"/": Reply(raw=b"HTTP/1.1 200\n\nhello")}), "/") == b"HTTP/1.1 200\n\nhello"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(Reply(body=b"0123456789", cut=4), b"Content-Length: 10\r\n\r\n0123", id="length"),
        pytest.param(
            Reply(body=b"0123456789", cut=4, chunked=True), b"Encoding: chunked\r\n\r\n4\r\n0123\r\n", id="chunked"
        ),
        pytest.param(Reply(body=b"0123", cut=2, drip=0.001), b"Content-Length: 4\r\n\r\n01", id="drip"),
        pytest.param(
            Reply(body=b"ab", cut=2, headers=[("Content-Length", "5000000000")]),
            b"Content-Length: 5000000000\r\n\r\nab",
            id="length-that-lies",
        ),
    ],
)
def test_a_cut_body_ends_before_its_end(reply: Reply, expected: bytes, server: ServerFactory) -> None:
    assert read_to_the_end(server({"/": reply}), "/").endswith(expected)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_dripped_body_arrives_byte_by_byte(chunked: bool, server: ServerFactory) -> None:
    with connect(server({"/": Reply(body=b"abc", drip=0.02, chunked=chunked)})) as client:
        start = time.monotonic()

        assert get(client, "/") == (200, b"abc")
        assert time.monotonic() - start >= 0.06
        assert get(client, "/") == (200, b"abc")  # over the same connection


@pytest.mark.parametrize("drip", [None, 0.001])
def test_an_endless_body_goes_on_until_the_client_leaves(drip: float | None, server: ServerFactory) -> None:
    started = server({"/": Reply(body=b"<p>", endless=True, drip=drip), "/a": page()})

    with connect(started) as client:
        client.request("GET", "/")
        assert client.getresponse().read(300) == b"<p>" * 100
    with connect(started) as client:
        assert get(client, "/a")[0] == 200


def test_never_keeps_one_client_waiting_but_no_other(server: ServerFactory) -> None:
    started = server({"/": Reply(never=True), "/a": page()})

    with connect(started) as waiting, connect(started) as other:
        waiting.request("GET", "/")
        assert get(other, "/a")[0] == 200
        assert waiting.sock is not None
        waiting.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            waiting.getresponse()


def test_slow_answers_do_not_add_up(server: ServerFactory) -> None:
    started = server({"/": page(delay=0.2)})
    clients = [socket.create_connection(("127.0.0.1", started.port), timeout=10) for _ in range(50)]
    start = time.monotonic()

    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\nHost: h.test\r\n\r\n")
    answers = [client.recv(100) for client in clients]
    for client in clients:
        client.close()

    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert 0.2 <= time.monotonic() - start < 5


def test_an_outage_refuses_and_resets_and_can_end(server: ServerFactory) -> None:
    started = server({"/": page()})

    with connect(started) as client:
        assert get(client, "/")[0] == 200
        started.stop_listening()
        with pytest.raises((ConnectionError, http.client.BadStatusLine)):
            get(client, "/")
    with connect(started) as client, pytest.raises(ConnectionRefusedError):
        get(client, "/")
    started.start_listening()
    with connect(started) as client:
        assert get(client, "/")[0] == 200


def test_reset_serves_another_site_at_the_same_address(server: ServerFactory) -> None:
    started = server({"/": [page(), Reply(410)]})

    with connect(started) as client:
        get(client, "/")
        started.reset({"/": [Reply(403), Reply(410)]})
        assert get(client, "/")[0] == 403
    assert started.targets() == ["/"]


def test_an_exception_in_a_handler_is_raised_at_the_end() -> None:
    def handler(request: Request) -> Reply:
        raise LookupError(request.target)

    with pytest.raises(LookupError, match="/a"), MockServer(handler) as started, connect(started) as client:
        assert get(client, "/a")[0] == 500


def make_site(*nodes: Node) -> Site:
    return Site(nodes)


def leads_to(*numbers: int, **fields: bool) -> Node:
    return Node(links=tuple(Link(number) for number in numbers), **fields)  # type: ignore[arg-type]


def moves_to(number: int) -> Node:
    return Node("redirect", target=Link(number))


@pytest.mark.parametrize(
    ("site", "depth", "expected"),
    [
        pytest.param(
            make_site(leads_to(1, 2), moves_to(2), leads_to(3), leads_to()),
            1,
            [("/n0", 0), ("/n2", 1)],
            id="redirect-before-direct-link",
        ),
        pytest.param(
            make_site(leads_to(3, 1, 2), moves_to(3), moves_to(4), leads_to(), leads_to()),
            1,
            [("/n0", 0), ("/n3", 1), ("/n4", 1)],
            id="direct-link-before-redirect",
        ),
        pytest.param(
            make_site(leads_to(1, 2), moves_to(3), moves_to(3), leads_to(4), leads_to()),
            2,
            [("/n0", 0), ("/n3", 1), ("/n4", 2)],
            id="two-redirects-to-one-target",
        ),
        pytest.param(
            make_site(leads_to(1, 2), leads_to(3, 4), moves_to(3), leads_to(5), leads_to(), leads_to()),
            3,
            [("/n0", 0), ("/n1", 1), ("/n3", 1), ("/n4", 2), ("/n5", 2)],
            id="target-held-for-the-next-level",
        ),
        pytest.param(
            make_site(leads_to(1, 3), moves_to(2), moves_to(1), leads_to(2, 0)),
            5,
            [("/n0", 0), ("/n3", 1)],
            id="loop",
        ),
        pytest.param(
            make_site(leads_to(1), *(moves_to(number) for number in range(2, 22)), leads_to()),
            1,
            [("/n0", 0), ("/n21", 1)],
            id="chain-of-20",
        ),
        pytest.param(
            make_site(leads_to(1), *(moves_to(number) for number in range(2, 23)), leads_to()),
            1,
            [("/n0", 0)],
            id="chain-of-21",
        ),
        pytest.param(
            make_site(leads_to(1, 2), leads_to(3, noindex=True), leads_to(4, nofollow=True), leads_to(), leads_to()),
            3,
            [("/n0", 0), ("/n2", 1), ("/n3", 2)],
            id="noindex-and-nofollow",
        ),
        pytest.param(make_site(leads_to(0, 1), leads_to()), 0, [("/n0", 0)], id="the-seed-alone"),
        pytest.param(
            make_site(leads_to(1, 2, 3), Node("missing"), Node("pdf"), moves_to(1)),
            5,
            [("/n0", 0)],
            id="nothing-to-save",
        ),
        pytest.param(make_site(moves_to(1), leads_to(0, 1)), 5, [("/n1", 0)], id="seed-that-moved"),
    ],
)
def test_oracle(site: Site, depth: int, expected: list[tuple[str, int]]) -> None:
    assert site.oracle(depth) == expected


def test_a_site_is_served_as_its_oracle_sees_it(server: ServerFactory) -> None:
    site = make_site(
        Node(links=(Link(1, "absolute"), Link(2, "dotted"), Link(0, "external")), failures=1, noindex=True),
        Node("redirect", target=Link(2), status=308, failures=1, retry_after=True),
        Node(links=(Link(0, "empty-query"),), nofollow=True, robots_header=True),
    )
    started = server(site.handler(random.Random(0)))
    host = f"127.0.0.1:{started.port}"

    with connect(started) as client:
        assert [get(client, "/n0")[0], get(client, "/n1")[0], get(client, "/n1")[0]] == [503, 503, 308]
        assert get(client, "/n0") == (
            200,
            b'<!DOCTYPE html>\n<html><head><title>page</title><meta name="robots" content="noindex"></head>\n<body>\n'
            b'<p><a href="http://%b/n1">a link</a></p>\n'
            % host.encode()
            + b'<p><a href="/./n2">a link</a></p>\n<p><a href="http://other.invalid/">a link</a></p>\n</body></html>',
        )
        client.request("GET", "/n2")
        response = client.getresponse()
        assert response.headers["X-Robots-Tag"] == "nofollow"
        assert response.read() == site.bodies(host)["/n2"]
        assert get(client, "/n3")[0] == 404


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(site=sites(max_padding=1000))
def test_a_shallower_oracle_is_the_beginning_of_a_deeper_one(site: Site) -> None:
    full = site.oracle(100)

    assert len({path for path, _ in full}) == len(full)
    for depth in range(6):
        assert site.oracle(depth) == [(path, level) for path, level in full if level <= depth]


def test_files_oracle_reads_what_a_web_server_would_serve(tmp_path: Path, nginx: Callable[[Path], str]) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="dir">dir</a><a href="empty/">no index</a><a href="a.txt">text</a><a href="http://h.test/">out</a>'
        '<!-- <a href="hidden.html"> --><area href="b.html#x"><iframe src="b.html?x=1"></iframe><a href="gone.html">'
    )
    (tmp_path / "dir" / "index.html").write_text('<base href="/"><a href=".\\c.html">from the base</a>')
    (tmp_path / "b.html").write_text('<meta http-equiv="refresh" content="0; url=d.html"><a href=" ./dir/ ">again</a>')
    for name in ("a.txt", "c.html", "d.html", "hidden.html"):
        (tmp_path / name).write_text("<p>text</p>")
    expected = [("/", 0), ("/dir/", 1), ("/b.html", 1), ("/b.html?x=1", 1), ("/c.html", 2), ("/d.html", 2)]
    base = nginx(tmp_path)

    assert files_oracle(tmp_path, "/", 2) == expected
    assert files_oracle(tmp_path, "/", 1) == expected[:4]
    for path, _ in [*expected, ("/dir", 1)]:
        with urlopen(base + path, timeout=10) as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html")


def test_names_of_tests_need_no_name_server() -> None:
    resolver = TestResolver(reactor, cache_size=0, timeout=1)
    found: list[str] = []
    failed: list[type[BaseException] | None] = []

    for name in ("h.test", "WWW.h.TEST."):
        resolver.getHostByName(name).addCallback(found.append)
    failure: defer.Deferred[str] = resolver.getHostByName("other.invalid")
    failure.addErrback(lambda reason: failed.append(reason.type))

    assert found == ["127.0.0.1", "127.0.0.1"]
    assert failed == [DNSLookupError]
