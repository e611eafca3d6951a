"""The HTTP process, forked from an interpreter that does not collect garbage by itself."""

import subprocess
import sys

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
