"""Connections to an Elastic IP address reach the machine that has it, and are cut when it moves."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from tgi_deploy.sandbox.addresses import Forwarding, Routes, can_bind

PORT = 7790
ELASTIC, FIRST, SECOND, ABSENT = (f"127.77.254.{number}" for number in (250, 251, 252, 253))
pytestmark = [
    pytest.mark.skipif(not can_bind(ELASTIC), reason="only Linux answers on all of 127/8"),
    pytest.mark.xdist_group("forwarding"),  # of the same addresses
]


@pytest.fixture
def routes():
    """Routes to two machines, each of which answers with its own address."""
    with contextlib.ExitStack() as held:
        for address in (FIRST, SECOND):
            listener = held.enter_context(socket.create_server((address, PORT)))
            held.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=answer, args=(listener, address), daemon=True).start()
        opened = Routes()
        yield opened
        opened.sync(set())


def answer(listener, address):
    with contextlib.suppress(OSError):
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=serve, args=(caller, address), daemon=True).start()


def serve(caller, address):
    with caller, contextlib.suppress(OSError):
        while asked := caller.recv(100):
            caller.sendall(asked + address.encode())
        caller.sendall(b"bye")


def to(machine):
    return {Forwarding(address=ELASTIC, port=PORT, machine=machine)}


def connect():
    return socket.create_connection((ELASTIC, PORT), timeout=30)


def test_a_connection_follows_the_address_until_it_moves(routes):
    routes.sync(to(FIRST))
    with connect() as caller:
        for _ in range(2):
            caller.sendall(b"I am ")
            assert caller.recv(100) == f"I am {FIRST}".encode()
            routes.sync(to(FIRST))
        routes.sync(to(SECOND))
        assert caller.recv(100) == b""
    with connect() as caller:
        caller.sendall(b"I am ")
        assert caller.recv(100) == f"I am {SECOND}".encode()


def test_the_end_of_a_request_is_passed_on(routes):
    routes.sync(to(FIRST))
    with connect() as caller:
        caller.shutdown(socket.SHUT_WR)
        assert caller.recv(100) == b"bye"


def test_nothing_answers_for_a_machine_that_refuses(routes):
    routes.sync(to(ABSENT))
    with connect() as caller, contextlib.suppress(ConnectionResetError):
        assert caller.recv(100) == b""
    routes.sync(set())
    with pytest.raises(ConnectionRefusedError):
        connect()


def test_no_connection_hangs_while_the_address_moves(routes):
    over, hanging = threading.Event(), []

    def ask_again_and_again():
        while not over.is_set():
            try:
                with connect() as caller:
                    caller.settimeout(5)
                    caller.sendall(b"I am ")
                    caller.recv(100)
            except TimeoutError as error:
                hanging.append(error)
            except OSError:  # it was cut or refused, as it should be
                time.sleep(0.001)

    callers = [threading.Thread(target=ask_again_and_again) for _ in range(20)]
    for caller in callers:
        caller.start()
    for machine in (FIRST, SECOND) * 50:
        routes.sync(to(machine))
        time.sleep(0.01)
    over.set()
    for caller in callers:
        caller.join()
    assert hanging == []
