"""Which topics each query of ``audit stream`` reads, for life: a list in its checkpoint (Delta)."""

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from connectors.contract import Place
from spark import tables
from spark.batch import shortened
from spark.cluster import Cluster
from spark.errors import AuditError

_SCHEMA = T.StructType(
    [
        T.StructField("query", T.IntegerType()),
        T.StructField("topic", T.StringType()),
        T.StructField("id", T.StringType()),  # Kafka's, where it is known
    ]
)


class QueryTopics:
    """The list, with a row a topic: the number of its query, and its id, for in a topic made anew a query goes on where
    the one before had ended, and does not see that.

    Args:
        checkpoint: whose ``topics`` it is.
        facts: the path of the table of facts that it goes with.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, checkpoint: str, facts: str) -> None:
        self._spark = spark
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._path = f"{checkpoint}/topics"
        self._facts = facts
        self._topics: dict[int, list[str]] = {}
        self._ids: dict[str, str] = {}

    @property
    def is_begun(self) -> bool:
        """Whether there is a list."""
        return tables.read_or_none(self._spark, self._path) is not None

    @property
    def numbers(self) -> set[int]:
        """Of the queries."""
        return set(self._topics)

    @property
    def topics(self) -> set[str]:
        """The topics of all queries."""
        return {topic for topics in self._topics.values() for topic in topics}

    def of(self, number: int) -> list[str]:
        """The topics of one query."""
        return self._topics[number]

    def load(self) -> None:
        """Read what there is of the list.

        Raises:
            AuditError: it goes with another table, or a topic was made anew.
        """
        known = tables.read_or_none(self._spark, self._path)
        if known is None:
            return
        self._check_pair()
        for row in known.sort("query", "topic").collect():
            told = row.asDict()
            topics = self._topics.setdefault(told["query"], [])
            if told["topic"] not in topics:
                topics.append(told["topic"])
            if told.get("id") is not None:
                self._ids[told["topic"]] = told["id"]
        ids = self.check_ids()
        for number, topics in self._topics.items():  # an earlier version has noted no ids
            self._note(number, [topic for topic in topics if topic in ids and topic not in self._ids], ids)

    def give(self, topics: Sequence[str]) -> None:
        """Note topics that nobody reads yet, for one more query."""
        number = max(self._topics, default=-1) + 1
        self._note(number, topics, self._cluster.topic_ids(topics))
        self._topics[number] = list(topics)

    def check_ids(self) -> dict[str, str]:
        """What Kafka calls the topics by now.

        Raises:
            AuditError: one was made anew.
        """
        now = self._cluster.topic_ids(self.topics)
        anew = sorted(topic for topic, told in now.items() if self._ids.get(topic, told) != told)
        if anew:
            raise AuditError(
                f"deleted and made anew: {shortened(anew)}; what is in the table stays. Operator action: a query reads "
                "its topics for life; to go on with the new ones, begin a new table and checkpoint"
            )
        return now

    def places(self, *numbers: int) -> list[Place]:
        """The partitions of the topics of these queries, as there are now."""
        existing = self._cluster.topics()
        topics = [topic for number in numbers for topic in self._topics[number]]
        return [(topic, partition) for topic in topics for partition in existing.get(topic, [])]

    def gone(self, number: int) -> list[str]:
        """The topics of a query that do not exist any more."""
        return sorted(set(self._topics[number]) - self._cluster.topics().keys())

    def _note(self, number: int, topics: Sequence[str], ids: dict[str, str]) -> None:
        if not topics:
            return
        rows = [{"query": number, "topic": topic, "id": ids.get(topic)} for topic in topics]
        given = tables.of_rows(self._spark, rows, _SCHEMA)
        given.write.format("delta").mode("append").option("mergeSchema", "true").save(self._path)
        self._ids |= {topic: ids[topic] for topic in topics if topic in ids}
        self._check_pair()

    def _check_pair(self) -> None:
        """With another table's checkpoint, facts would be there twice, or never. One that goes with none is bound to
        this table: it was begun just now, or by an earlier version.

        Raises:
            AuditError: they were not begun together.
        """
        facts_id = tables.id_of(self._spark, self._facts)
        goes_with = tables.goes_with(self._spark, self._path)
        if goes_with is None:
            tables.bind(self._spark, self._path, facts_id)
        elif goes_with != facts_id:
            raise AuditError(
                f"{self._checkpoint} goes with another table than {self._facts}. Operator action: name the two that "
                "were begun together, or new ones"
            )
