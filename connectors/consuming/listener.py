"""The user's function: one message or a batch, plain or a coroutine, and what its answer means."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from connectors.consuming.message import ConsumeContext, ConsumedMessage, ConsumeResult
from connectors.durations import format_duration
from connectors.event_log import EventLog, named

_log = EventLog(logging.getLogger(__name__))

Answer = ConsumeResult | None

MessageListener = Callable[[ConsumedMessage], Answer] | Callable[[ConsumedMessage], Awaitable[Answer]]
BatchListener = (
    Callable[[Sequence[ConsumedMessage], ConsumeContext], Answer]
    | Callable[[Sequence[ConsumedMessage], ConsumeContext], Awaitable[Answer]]
)


class Listener:
    """A listener of either kind, called alike.

    Args:
        batch_size: how many messages it is given at most; None: it takes one, and no context.

    Raises:
        TypeError: it cannot be called so; every message would be sent back, until it is a dead letter.
    """

    def __init__(self, function: Callable[..., Any], batch_size: int | None = None) -> None:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"a batch of {batch_size} messages is none; the smallest batch is 1")
        self._function = function
        self._is_batch = batch_size is not None
        self.batch_size = batch_size or 1
        self.is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        self.name = getattr(function, "__qualname__", repr(function))
        self._check(function)

    def _check(self, function: Callable[..., Any]) -> None:
        given = ("messages", "context") if self._is_batch else ("message",)
        if not callable(function):
            raise TypeError(f"the listener is {function!r}; give a function of ({', '.join(given)})")
        try:
            taken = inspect.signature(function, follow_wrapped=False)  # a decorator may give the rest
        except (TypeError, ValueError):  # some that are written in C do not tell
            return
        try:
            taken.bind(*given)
        except TypeError as error:
            raise TypeError(
                f"the listener {self.name}{taken} cannot be called with ({', '.join(given)}): {error}"
            ) from None

    def call(self, messages: Sequence[ConsumedMessage], context: ConsumeContext) -> Any:
        """Its answer, or what is to be awaited for it."""
        return self._function(messages, context) if self._is_batch else self._function(messages[0])

    def result(self, answer: object, error: BaseException | None, messages: Sequence[ConsumedMessage]) -> Answer:
        """The answer, if it is one; what else has happened is logged and means RECONSUME_LATER."""
        if error is not None:
            _log.error(
                "listener failed",
                "the listener %s failed on %s",
                self.name,
                named(messages),
                operator_action="see its exception; the messages come again, later each time, or become dead letters",
                exc_info=error,
            )
        elif isinstance(answer, ConsumeResult):
            return answer
        else:
            _log.warning(
                "listener gave no result",
                "the listener %s returned %s for %s, which is taken for RECONSUME_LATER",
                self.name,
                "nothing" if answer is None else f"a {type(answer).__name__}",
                named(messages),
                operator_action="have it return ConsumeResult.CONSUME_SUCCESS for what is done",
            )
        return None

    def log_timeout(self, messages: Sequence[ConsumedMessage], timeout_ms: int) -> None:
        _log.error(
            "listener timed out",
            "the listener %s takes longer than %s for %s",
            self.name,
            format_duration(timeout_ms),
            named(messages),
            operator_action="its messages come again; raise consume_timeout, or make the listener faster",
        )
