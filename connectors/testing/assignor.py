"""Spreads partitions over members: evenly, and moving as few as can be."""

from collections.abc import Mapping, Sequence

from connectors.contract import Place


def spread(
    places: Mapping[str, Sequence[Place]], wanted: Mapping[str, Sequence[str]], owned: Mapping[str, set[Place]]
) -> dict[str, list[Place]]:
    """An assignment per member.

    Args:
        places: the partitions of each topic.
        wanted: the topics of each member, members in order of joining.
        owned: what each member has now; it keeps what evenness allows.
    """
    candidates = {place: [member for member in wanted if topic in wanted[member]] for topic in places
                  for place in places[topic]}  # fmt: skip
    result: dict[str, list[Place]] = {member: [] for member in wanted}
    taken: set[Place] = set()
    for member in wanted:
        for place in sorted(owned.get(member, ())):
            if place not in taken and member in candidates.get(place, ()):
                result[member].append(place)
                taken.add(place)
    for place, members in candidates.items():
        if place not in taken and members:
            least = min(members, key=lambda member: len(result[member]))
            result[least].append(place)
    while _move_one(result, candidates):
        pass
    return {member: sorted(assigned) for member, assigned in result.items()}


def _move_one(result: dict[str, list[Place]], candidates: Mapping[Place, Sequence[str]]) -> bool:
    """Move a partition to a member that has at least two fewer; whether there was one to move."""
    for member in sorted(result, key=lambda name: -len(result[name])):
        for place in sorted(result[member]):
            least = min(candidates[place], key=lambda name: len(result[name]))
            if len(result[member]) - len(result[least]) >= 2:
                result[member].remove(place)
                result[least].append(place)
                return True
    return False
