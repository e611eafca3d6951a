"""The HTTP process, forked from an interpreter that does not collect garbage by itself."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, os, signal, socket, sys
from sidecar.front import serve
from sidecar.front.process import FrontProcess
from sidecar.garbage import tame_collector
from sidecar.settings import load_settings

told, tell = os.pipe()

class Kafka:
    def __init__(self, settings):
        os.write(tell, b"collects" if gc.isenabled() else b"does not collect")
        signal.pause()

serve.FrontKafka = Kafka
tame_collector()
public, own = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
front = FrontProcess(load_settings({}), public, own)
front.start()
front._process.join(1)
assert front._process.is_alive(), "it does not wait until the identity is the sidecar's own"
with front:
    print(os.read(told, 100).decode(), front._process.pid != os.getpid(), own.fileno() > 0)
"""


def test_a_forked_process_waits_for_its_turn_and_collects_garbage() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.stdout, ended.returncode) == ("collects True True\n", 0), ended.stderr


TERMINATED_AT_ONCE = """
import multiprocessing.util, os, signal, socket
from sidecar.front.process import FrontProcess
from sidecar.settings import load_settings

signal.signal(signal.SIGTERM, lambda *_: None)  # as the sidecar's, which asks its loop to stop
sent, send = os.pipe()
public, own = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
multiprocessing.util.register_after_fork(public, lambda _: os.read(sent, 1))
front = FrontProcess(load_settings({}), public, own)
front.start()
front._process.terminate()  # while the child has our handler still
os.write(send, b"1")
front._process.join(20)
print(front._process.exitcode)
front._process.kill()
"""


def test_a_stop_that_comes_before_the_forked_process_has_begun_ends_it() -> None:
    command = [sys.executable, "-c", TERMINATED_AT_ONCE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "-15\n", ended.stderr


STOPPED = """
import os, signal, socket
from sidecar.front import serve
from sidecar.front.process import FrontProcess
from sidecar.settings import load_settings

told, tell = os.pipe()

class Kafka:
    def __init__(self, settings):
        pass

    def settle_earlier_life(self):
        pass

class Jobs(serve.Jobs):
    def close(self):
        super().close()
        os.write(tell, b"closed")

async def app(scope, receive, send):
    os.write(tell, b"asked")
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})

serve.FrontKafka, serve.Jobs, serve.make_front = Kafka, Jobs, lambda *_: app
public, own = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
front = FrontProcess(load_settings({}), public, own)
front.start()
with front:
    client = socket.create_connection(public.getsockname())
    client.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    print(os.read(told, 100).decode())
    process = front._process
print(os.read(told, 100).decode(), process.exitcode)
"""


def test_a_stop_waits_for_the_transactions_of_redrives() -> None:
    """Uvicorn raises the signal once more at its end, and whoever handled it before has the last word."""
    ended = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "asked\nclosed 0\n", ended.stderr


NOT_FORKED = """
import socket
from structlog.testing import capture_logs
from sidecar.front.process import FrontProcess
from sidecar.settings import load_settings
from tests.support.waiting import wait_until

class Starved(FrontProcess):
    failures = 0

    def start(self):
        if self._process is not None and self.failures < 2:
            self.failures += 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        super().start()

public, own = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
front = Starved(load_settings({}), public, own)
front.start()
with capture_logs() as logs, front:
    first = front._process
    first.kill()
    wait_until(lambda: front._process is not first, "another has been started")
    print(front.failures, front._process.is_alive(), [log["event"] for log in logs])
"""


def test_a_process_that_cannot_be_had_is_tried_for_again() -> None:
    ended = subprocess.run([sys.executable, "-c", NOT_FORKED], capture_output=True, text=True, timeout=60, check=False)
    told = ["http process ended", "http process not started", "http process not started"]
    assert ended.stdout.splitlines()[-1:] == [f"2 True {told}"], ended.stderr


KILLED = """
import socket, sys
from pathlib import Path
from sidecar.front.process import FrontProcess
from sidecar.settings import load_settings
from tests.support.waiting import wait_until

public, own = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
front = FrontProcess(load_settings({}, Path(sys.argv[1])), public, own)
front.start()
with front:
    first = front._process
    first.kill()
    wait_until(lambda: front._process is not first, "another has been started")
    print(front._process.is_alive())
"""


def test_a_killed_process_is_started_anew_where_settings_are_of_a_file(tmp_path: Path) -> None:
    config_file = tmp_path / "timewheel.yaml"
    config_file.write_text("group_id: billing\n")
    command = [sys.executable, "-c", KILLED, str(config_file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.splitlines()[-1:] == ["True"], ended.stderr


ALL_END = """
import socket
from structlog.testing import capture_logs
from sidecar.front.process import FrontProcess
from sidecar.settings import load_settings

public, own = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
front = FrontProcess(load_settings({}), public, own, ends=lambda: True)
front.start()
with capture_logs() as logs, front:
    front._process.terminate()
    front._thread.join(30)
    print(front._thread.is_alive(), front._process.is_alive(), [log["event"] for log in logs])
"""


def test_a_stop_that_each_process_is_told_of_is_no_event() -> None:
    """As systemd tells every process of a service."""
    ended = subprocess.run([sys.executable, "-c", ALL_END], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "False False []\n", ended.stderr
