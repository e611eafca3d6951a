"""The generated pages of the reference say what the code says now."""

import pytest

from docs.generate.pages import PAGES, REFERENCE
from sidecar.settings import Settings


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), f"docs/reference/{name} is out of date: run 'make docs'"


def test_every_setting_stands_in_it_with_flag_variable_and_limits() -> None:
    text = PAGES["settings.md"]()
    for name in Settings.model_fields:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}`<br>"))
        assert f"`--{name.replace('_', '-')}`" in row
        assert f"`TIMEWHEEL_{name.upper()}`" in row
    assert "| duration, at least 1s | `10s` |" in text
    assert "| 1 to 256 | `1` |" in text
    assert "| `static` or `dynamic` | `static` |" in text


def test_every_command_stands_in_it_with_what_it_takes() -> None:
    text = PAGES["commands.md"]()
    section = text.partition("## timewheel dlq redrive\n")[2].partition("\n## ")[0]
    assert "`timewheel dlq redrive GROUP [OPTIONS]`" in section
    assert "| `--max-redrives INTEGER` |" in section
    rules, of_topics = (
        "`allowed_topics`, `denied_topics`, `allowed_groups`",
        "`replication_factor`, `dead_letter_retention`",
    )
    assert f"Settings: `bootstrap_servers`, `kafka`, `topic_prefix`, {rules}, {of_topics}." in section
