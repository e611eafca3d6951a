"""The test of the pages cannot be cheated: what nobody runs is noticed, and so is what prints something else."""

from pathlib import Path

import pytest

from tests.docs.markdown import Page, PageError, Use, read_page
from tests.docs.session import Session, contains, matches

HERE = Path("page.md")


def page(text: str) -> Page:
    return read_page(HERE, text if "<!-- page" in text else f"<!-- page: nothing -->\n\n{text}")


def uses(text: str) -> list[Use]:
    return [block.use for block in page(text).blocks]


def test_a_command_is_run_and_what_follows_directly_is_its_output() -> None:
    assert uses("```sh\ntrue\n```\n```text\nout\n```\n") == [Use.RUN, Use.OUTPUT]
    assert uses("```sh\ntrue\n```\n\nprints\n\n```text\nout\n```\n") == [Use.RUN, Use.SHOWN]
    assert uses("```sh\ntrue\n```\n\nprints\n\n<!-- output -->\n```text\nout\n```\n") == [Use.RUN, Use.OUTPUT]


def test_a_block_in_a_list_is_a_block() -> None:
    assert uses("- first\n\n  ```sh\n  true\n  ```\n") == [Use.RUN]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```\ntrue\n```\n", "'' is not among the languages"),
        ("```bash\ntrue\n```\n", "'bash' is not among the languages"),
        ("```java\nclass A {}\n```\n", "java is not run as it stands"),
        ("<!-- run by -->\n```sh\ntrue\n```\n", "has to say what"),
        ("<!-- leave running: now -->\n```sh\ntrue\n```\n", "says nothing more"),
        ("<!-- leave running -->\n```text\ntrue\n```\n", "does not fit a block of text"),
        ("<!-- output -->\n```text\nout\n```\n", "does not fit a block of text"),
        ("<!-- file: a -->\n<!-- output -->\n\n```sh\ntrue\n```\n", "has to say what|two comments|does not fit"),
        ("```sh\ntrue\n```\n\n<!-- output -->\n", "belongs to no block"),
        ("<!-- page: kafka, docker -->\n", "not 'docker'"),
        ("<!-- page: sidecar -->\n", "need kafka"),
        ("```sh\ntrue\n```\n\n<!-- page: kafka -->\n", "before its first block"),
    ],
)
def test_what_breaks_the_rules_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(PageError, match=told):
        page(text)


def test_what_is_not_declared_to_be_run_is_refused_and_not_run() -> None:
    with pytest.raises(PageError, match=r"page\.md:1: say with a comment 'run by"):
        read_page(HERE, "```sh\ndocker compose up\n```\n")
    assert not read_page(HERE, "<!-- run by: make test-compose -->\n```sh\ndocker compose up\n```\n").is_run


def test_an_ellipsis_stands_for_anything_and_nothing_else_does() -> None:
    assert matches('{"id": "…", "n": …}', '{"id": "a1", "n": 7}\n')
    assert matches("first\n…\nlast", "first\nsecond\nthird\nlast\n")
    assert matches("a.c", "a.c")
    assert not matches("a.c", "abc")
    assert not matches("first", "first\nsecond")
    assert not matches("first\nsecond", "first")
    assert not matches("a…c", "a\nc")
    assert contains("b\nc…", "a\nb\ncd\ne\n")
    assert not contains("b\nd", "a\nb\nc\nd\n")
    assert not contains("b", "abc")


def run(text: str, directory: Path) -> None:
    read = page(text)
    with Session(read, directory, kafka_port=19_092, http_port=18_080) as session:
        for block in read.blocks:
            session.do(block)


def test_commands_share_a_shell_and_a_directory(tmp_path: Path) -> None:
    text = "```sh\nname=orders; cd /; cd - >/dev/null\n```\n<!-- file: a/b.txt -->\n```text\nsaved\n```\n"
    text += "```sh\necho $name localhost:9092 :8080 19092\ncat a/b.txt\n```\n"
    text += "```text\norders localhost:9092 :8080 19092\nsaved\n```\n"
    text += "```python\nprint(open('a/b.txt').read().strip())\n```\n```text\nsaved\n```\n"
    run(text, tmp_path)


@pytest.mark.parametrize("command", ["false\ntrue", "true\nfalse | cat", "no-such-program", "(exit 3)", "if then"])
def test_a_command_that_fails_is_noticed(command: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:3"):
        run(f"```sh\n{command}\n```\n", tmp_path)


def test_another_output_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="prints\nanother"):
        run("```sh\necho another\n```\n```text\nout\n```\n", tmp_path)


def test_a_program_runs_on_and_its_output_is_waited_for(tmp_path: Path) -> None:
    text = "<!-- leave running -->\n```sh\nwhile ! test -e go; do sleep 0.05; done; echo gone; sleep 60\n```\n"
    text += "```sh\ntouch go\n```\n<!-- output of: sleep 60 -->\n```text\ngone\n```\n"
    run(text, tmp_path)


def test_a_program_that_ends_instead_is_noticed(tmp_path: Path) -> None:
    text = "<!-- leave running -->\n```sh\necho no; exit 3\n```\n```text\nyes\n```\n"
    with pytest.raises(AssertionError, match=r"has ended:\nno"):
        run(text, tmp_path)
