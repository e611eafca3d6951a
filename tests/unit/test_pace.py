"""Questions to those who deliver: one at a time, with rests, and none answered with what was known before."""

import asyncio
from itertools import count

import pytest

from sidecar.workers import pace as module
from sidecar.workers.pace import Pace


class Asked:
    """Answers with the number of the question; each takes a while."""

    def __init__(self, takes_s: float = 0.01) -> None:
        self.numbers = count(1)
        self.takes_s = takes_s
        self.under_way = 0
        self.most = 0

    async def __call__(self) -> int:
        number = next(self.numbers)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.takes_s)
        self.under_way -= 1
        return number


def test_who_asks_the_same_at_the_same_time_shares_an_answer() -> None:
    async def main() -> None:
        asked, pace = Asked(), Pace[int](1.0)
        assert await asyncio.gather(*(pace.ask("a", asked) for _ in range(50))) == [1] * 50
        assert await pace.ask("a", asked) == 2

    asyncio.run(main())


def test_an_answer_is_never_older_than_its_question() -> None:
    async def main() -> None:
        asked, pace = Asked(), Pace[int](1.0)
        first = asyncio.create_task(pace.ask("a", asked))
        while asked.under_way == 0:
            await asyncio.sleep(0)
        later = [asyncio.create_task(pace.ask("a", asked)) for _ in range(10)]
        assert await first == 1
        assert await asyncio.gather(*later) == [2] * 10

    asyncio.run(main())


def test_different_questions_come_one_after_another_with_rests_between_them() -> None:
    async def main() -> float:
        asked, pace = Asked(), Pace[int](4.0)
        began_s = asyncio.get_running_loop().time()
        assert sorted(await asyncio.gather(*(pace.ask(key, asked) for key in range(5)))) == [1, 2, 3, 4, 5]
        assert asked.most == 1
        return asyncio.get_running_loop().time() - began_s

    assert asyncio.run(main()) >= 5 * 0.01 + 4 * 0.04


def test_a_rest_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST_MAX_S", 0.01)

    async def main() -> float:
        asked, pace = Asked(0.1), Pace[int](100.0)
        began_s = asyncio.get_running_loop().time()
        for key in range(2):
            await pace.ask(key, asked)
        return asyncio.get_running_loop().time() - began_s

    assert asyncio.run(main()) < 2.0


def test_a_question_that_nobody_waits_for_any_more_is_not_asked() -> None:
    async def main() -> None:
        asked, pace = Asked(), Pace[int](0.0)
        first = asyncio.create_task(pace.ask("first", asked))
        waiting = [asyncio.create_task(pace.ask(number // 2, asked)) for number in range(6)]
        while asked.under_way == 0:
            await asyncio.sleep(0)
        for task in waiting[1:]:  # of the first question one still waits
            task.cancel()
        last = asyncio.create_task(pace.ask("last", asked))
        assert await asyncio.gather(first, waiting[0], last) == [1, 2, 3]
        assert await pace.ask(2, asked) == 4, "it can be asked again"

    asyncio.run(main())


def test_a_question_that_fails_fails_those_who_asked_it_and_no_others() -> None:
    async def fails() -> int:
        raise OSError("no")

    async def main() -> None:
        asked, pace = Asked(), Pace[int](0.0)
        answers = await asyncio.gather(*(pace.ask("a", fails) for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [OSError] * 3
        assert await pace.ask("a", asked) == 1

    asyncio.run(main())


def test_who_goes_away_takes_the_answer_from_nobody_else() -> None:
    async def main() -> None:
        asked, pace = Asked(), Pace[int](1.0)
        gone, stays = (asyncio.create_task(pace.ask("a", asked)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == 1

    asyncio.run(main())
