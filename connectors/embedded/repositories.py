"""Which Maven repositories to ask, in which order.

First the user's own: mirrors of `~/.m2/settings.xml` that stand for the central repository, then `[repositories]` of
jgo's configuration file; last, unless one of them replaces it by its name `central`, the repository jgo asks anyway.
"""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree


def maven_mirrors(settings_xml: str) -> dict[str, str]:
    """Name to URL of the mirrors in a Maven `settings.xml` that cover the central repository.

    An unreadable file names none: it is Maven's to complain about.
    """
    try:
        root = ElementTree.fromstring(settings_xml)
    except ElementTree.ParseError:
        return {}
    mirrors: dict[str, str] = {}
    for mirror in root.iterfind("./{*}mirrors/{*}mirror"):
        url = (mirror.findtext("{*}url") or "").strip()
        name = (mirror.findtext("{*}id") or url).strip()
        if url and _covers_central(mirror.findtext("{*}mirrorOf") or ""):
            mirrors[name] = url.rstrip("/")
    return mirrors


def in_order(mirrors: Mapping[str, str], configured: Mapping[str, str], default: Mapping[str, str]) -> dict[str, str]:
    """All repositories, the user's first."""
    chosen = {**mirrors, **configured}
    return chosen | {name: url for name, url in default.items() if name not in chosen}


def user_settings_xml() -> str:
    """The text of the user's Maven settings, or an empty document."""
    try:
        return (Path.home() / ".m2" / "settings.xml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "<settings/>"


def _covers_central(mirror_of: str) -> bool:
    patterns = {pattern.strip() for pattern in mirror_of.split(",")}
    return "!central" not in patterns and bool(patterns & {"*", "central", "external:*"})
