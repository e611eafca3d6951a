"""Counts per topic against plain counting, also where there are more topics than places."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sidecar.store.topic_counts import TopicCounts

STEPS = st.lists(st.tuples(st.booleans(), st.lists(st.integers(-4, 4), max_size=8)), max_size=30)


@given(steps=STEPS, topics_max=st.integers(0, 10))
def test_counts_are_exact_or_not_told(steps: list[tuple[bool, list[int]]], topics_max: int) -> None:
    counts, model = TopicCounts(topics_max), Counter[int]()
    for comes, topics in steps:
        if comes:
            counts.add(np.array(topics, np.int32))
            model.update(topics)
        else:
            leaving = list((Counter(topics) & model).elements())
            counts.remove(np.array(leaving, np.int32))
            model.subtract(leaving)
        model = +model
        assert counts.total == model.total()
        told = {topic: counts.of(topic) for topic in range(-5, 6)}
        assert all(count in (None, model[topic]) for topic, count in told.items())
        assert counts.of_other_topics == sum(model[topic] for topic, count in told.items() if count is None)
        if topics_max >= 9:
            assert None not in told.values()
        highest = counts.highest(3)
        assert [count for _, count in highest] == sorted((count for count in told.values() if count), reverse=True)[:3]
        assert all(told[topic] == count for topic, count in highest)


def test_memory_is_bounded() -> None:
    counts = TopicCounts(100)
    counts.add(np.arange(10_000, dtype=np.int32))
    assert len(counts.highest(10_000)) == 100
    assert counts.total == 10_000
    assert counts.of(9_999) is None
    counts.remove(np.arange(10_000, dtype=np.int32))
    counts.add(np.array([9_999], np.int32))
    assert counts.of(9_999) == 1
