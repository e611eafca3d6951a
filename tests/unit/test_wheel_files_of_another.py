"""A wheel partition that finds the files of another topic in its directory."""

from pathlib import Path

from tests.support.logged import logged
from tests.support.one_wheel import NOW_MS, due, opened, sent


def test_where_a_prefix_was_changed_the_log_tells_whose_messages_wait_elsewhere(tmp_path: Path) -> None:
    wheel = opened(tmp_path, topic_id="before")
    wheel.offer([due(0, NOW_MS + 60_000)], NOW_MS)
    _, committed = sent(wheel, NOW_MS)
    wheel.close()
    with logged() as logs:
        opened(tmp_path, *committed, 1, topic_id="before").close()
    assert [line for line in logs if line["event"] == "files of another"] == []
    with logged() as logs:
        wheel = opened(tmp_path, topic_id="after")
    (told,) = [line for line in logs if line["event"] == "files of another"]
    assert (told["topic_id"], told["cluster_id"], told["group_id"]) == ("before", "cluster", "group")
    assert "topic_prefix" in told["operator_action"]
    wheel.tick(NOW_MS + 60_000)
    assert sent(wheel, NOW_MS + 60_000)[0] == []
    wheel.close()
