"""The order in which Maven repositories are asked."""

import pytest

from connectors.embedded.repositories import in_order, maven_mirrors

SETTINGS = """<settings xmlns="urn:maven:settings"><mirrors><mirror>
<id>office</id><url>https://mirror.example/maven/</url><mirrorOf>{}</mirrorOf></mirror></mirrors></settings>"""


@pytest.mark.parametrize("mirror_of", ["central", "*", "external:*", "*,!internal", "snapshots, central"])
def test_a_mirror_of_the_central_repository_is_asked_first(mirror_of: str) -> None:
    mirrors = maven_mirrors(SETTINGS.format(mirror_of))
    assert list(in_order(mirrors, {}, {"central": "https://central.example"}).values()) == [
        "https://mirror.example/maven",
        "https://central.example",
    ]


@pytest.mark.parametrize("mirror_of", ["snapshots", "*,!central", ""])
def test_a_mirror_of_something_else_is_not_asked(mirror_of: str) -> None:
    assert maven_mirrors(SETTINGS.format(mirror_of)) == {}


@pytest.mark.parametrize("text", ["", "<settings/>", "<settings><mirrors>", "<settings><mirrors/></settings>"])
def test_settings_without_a_mirror_change_nothing(text: str) -> None:
    assert maven_mirrors(text) == {}


def test_a_repository_configured_as_central_replaces_it() -> None:
    assert in_order({}, {"central": "https://a.example"}, {"central": "https://b.example"}) == {
        "central": "https://a.example"
    }
