"""``timewheel status --watch``: the status once a second, until Ctrl-C; also while the sidecar is away."""

import json
import time

import typer
from rich.console import Console
from rich.live import Live

from sidecar.cli.sidecar_api import NoAnswerError, SidecarApi
from sidecar.cli.status_view import in_a_line, nothing_known, render
from sidecar.errors import TimewheelError
from sidecar.settings import Settings

EVERY_S = 1.0


def watch(settings: Settings, *, as_json: bool) -> None:
    """On a terminal a screen of its own; elsewhere, and as JSON, a line a second."""
    console = Console()
    try:
        with SidecarApi(settings) as api:
            if console.is_terminal and not as_json:
                _on_a_screen(api, console)
            else:
                _line_by_line(api, as_json=as_json)
    except KeyboardInterrupt:
        return  # the way to end it


def _on_a_screen(api: SidecarApi, console: Console) -> None:
    told, fault = nothing_known("asking ..."), ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            began_s = time.monotonic()
            try:
                told, fault = api.get("/api/v1/status").json(), ""
            except NoAnswerError as error:
                fault = str(error)
            except TimewheelError as error:  # it answers, but not that: a token is missing, or it is starting
                told, fault = nothing_known(str(error)), ""
            live.update(render(told, console.size.height, fault), refresh=True)
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))


def _line_by_line(api: SidecarApi, *, as_json: bool) -> None:
    while True:
        try:
            told = api.get("/api/v1/status").json()
        except TimewheelError as error:
            told = nothing_known(str(error))
        typer.echo(json.dumps(told) if as_json else in_a_line(told))
        time.sleep(EVERY_S)
