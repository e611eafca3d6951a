"""The page as it is served: whole, under a policy, and without a word to anybody else."""

import asyncio
import re
from importlib.resources import files

import httpx
import pytest
from fastapi import FastAPI

from sidecar.web.page import FILES, POLICY, page_router

PACKAGE = files("sidecar.web.page")
SOURCES = {path: PACKAGE.joinpath(name).read_text() for path, (name, _) in FILES.items()}


def ask(method: str, path: str, **headers: str) -> httpx.Response:
    app = FastAPI()
    app.include_router(page_router())

    async def request() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sidecar") as client:
            return await client.request(
                method, path, headers={name.replace("_", "-"): v for name, v in headers.items()}
            )

    return asyncio.run(request())


@pytest.mark.parametrize("path", FILES)
def test_every_file_is_served_under_the_policy(path: str) -> None:
    answer = ask("GET", path)
    assert answer.status_code == 200
    assert answer.text == SOURCES[path]
    assert answer.headers["content-type"] == FILES[path][1]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ask("HEAD", path).status_code == 200


def test_nothing_is_sent_twice_and_nothing_old_is_shown() -> None:
    first = ask("GET", "/static/script.js")
    assert first.headers["cache-control"] == "no-cache"
    again = ask("GET", "/static/script.js", if_none_match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    assert ask("GET", "/static/style.css", if_none_match=first.headers["etag"]).status_code == 200


@pytest.mark.parametrize("path", ["/static/", "/static/__init__.py", "/static/../__init__.py", "/static/%2e%2e/app.py"])
def test_nothing_else_is_served(path: str) -> None:
    assert ask("GET", path).status_code == 404


@pytest.mark.parametrize("path", ["/", "/static/script.js"])
def test_it_is_not_to_be_written(path: str) -> None:
    assert ask("POST", path).status_code == 405


def test_the_policy_allows_no_inline_script_and_no_other_place() -> None:
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    assert "*" not in POLICY
    assert "http" not in POLICY


@pytest.mark.parametrize("path", FILES)
def test_no_file_names_another_place_or_makes_markup_of_text(path: str) -> None:
    source = SOURCES[path].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", source)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", source)
    assert not re.search(r"\son[a-z]+=|style=|<style|javascript:", source)


def test_every_part_that_is_asked_for_is_there() -> None:
    page = SOURCES["/"]
    for asked in re.findall(r'(?:src|href)="(static/[^"]+)"', page):
        assert f"/{asked}" in FILES
    for path, source in SOURCES.items():
        for asked in re.findall(r'from "\./([a-z]+\.js)"', source):
            assert f"/static/{asked}" in FILES, f"{path} wants {asked}"
    names = set(re.findall(r'\bid="([^"]+)"', page))
    assert len(names) == page.count(' id="'), "an id stands for one thing"
    wanted = {name for source in SOURCES.values() for name in re.findall(r'byId\("([^"]+)"\)', source)}
    assert wanted <= names, wanted - names
    described = re.findall(r'aria-(?:labelledby|describedby)="([^"]+)"', page)
    assert {name for one in described for name in one.split()} <= names
