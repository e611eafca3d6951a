"""Opening the directory of a wheel partition as `recovery` says, and looking at one that is at rest."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from zlib_ng.zlib_ng import crc32

from sidecar.store import checkpoint as checkpoints
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.errors import CorruptFile, StoreError, UnknownFormatVersion, WrongFileSize, is_unreadable
from sidecar.store.files import FileSystem, read_full
from sidecar.store.payload_log import PayloadLog
from sidecar.store.recovery import Case, Owner, judge, owner_of
from sidecar.store.timer_log import TimerLog
from sidecar.store.timer_store import (
    CHECKPOINT,
    PAYLOAD_LOG,
    PAYLOAD_LOG_SEGMENT_BYTES,
    TIMER_LOG,
    TIMER_LOG_SEGMENT_BYTES,
    WHEEL,
    TimerStore,
    boot_id,
)
from sidecar.store.timer_wheel import TimerWheel

_READ_BYTES = 1 << 20


class Opened(NamedTuple):
    """A store, how its directory was found, and from where Kafka has to be read."""

    store: TimerStore
    case: Case
    complete_to_offset: int
    extra: dict[str, Any]
    was_of: Owner | None = None
    """Whose the files were that were of no use because they are another's."""


def open_store(
    directory: Path,
    fs: FileSystem,
    owner: Owner,
    *,
    slots_total: int,
    precision_ms: int,
    committed_offset: int,
    lowest_needed_offset: int,
    live_from_ms: int,
    quota_bytes: int | None = None,
    was_unreadable: bool = False,
) -> Opened:
    """Open a directory as `recovery` says; what is of no use is removed.

    Args:
        committed_offset, lowest_needed_offset: I and L.
        live_from_ms: the watermark's time; slots before it are done.
        quota_bytes: the most that `put` lets the store grow to, but never less than `quota_bytes_min`.
        was_unreadable: whether the try before has met a sector that cannot be read: a second time counts as damage.

    Raises OSError: nothing is held open, and another try may succeed.
    """
    fs.makedirs(directory)
    try:
        case, checkpoint = _examine(directory, fs, owner, committed_offset, lowest_needed_offset)
    except OSError as error:
        if not _is_damage(error, was_unreadable):
            raise
        case, checkpoint = Case.CORRUPT, None
    if checkpoint is not None and case.is_usable:
        try:
            store, is_wheel_whole = _open(directory, fs, owner, slots_total, precision_ms, quota_bytes, checkpoint)
            with ExitStack() as closing:
                closing.callback(store.close, None, {})
                store.take_in(live_from_ms, is_wheel_whole=is_wheel_whole)
                store.mark_dirty(checkpoint)
                closing.pop_all()
        except (StoreError, OSError) as error:
            if not _is_damage(error, was_unreadable):
                raise
            case = Case.CORRUPT
        else:
            case = case if is_wheel_whole else Case.UNCLEAN
            return Opened(store, case, checkpoint.complete_to_offset, checkpoint.extra)
    _remove(directory, fs)
    store, _ = _open(directory, fs, owner, slots_total, precision_ms, quota_bytes, None)
    store.advance(live_from_ms)
    was_of = owner_of(checkpoint) if checkpoint is not None and case is Case.FOREIGN else None
    return Opened(store, case, lowest_needed_offset, {}, was_of)


def _is_damage(error: StoreError | OSError, was_unreadable: bool) -> bool:
    return isinstance(error, StoreError) or (was_unreadable and is_unreadable(error))


def check_store(directory: Path, fs: FileSystem) -> list[str]:
    """What is wrong with a directory at rest.

    Args:
        fs: one that changes nothing, such as `ReadOnlyFileSystem`.
    """
    try:
        checkpoint = checkpoints.load(directory / CHECKPOINT, fs)
        if checkpoint is None:
            return ["there is no checkpoint: the sidecar would rebuild from Kafka"]
        with ExitStack() as closing:
            timer_log = _open_timer_log(directory, fs, checkpoint, only_look=True)
            closing.callback(timer_log.close)
            payload_log = _open_payload_log(directory, fs, checkpoint, only_look=True)
            closing.callback(payload_log.close)
            problems = timer_log.check(checkpoint.precision_ms) + payload_log.check()
            if checkpoint.wheel_crc is not None:
                wheel = _whole_wheel(directory, fs, checkpoint)
                if wheel is None:
                    return [
                        *problems,
                        f"{directory / WHEEL}: not what the last stop left, the sidecar would make it anew",
                    ]
                closing.callback(wheel.close)
                problems += wheel.check(timer_log.end_position)
            return problems
    except StoreError as error:
        return [str(error)]
    except OSError as error:
        return [f"{error.filename or directory} cannot be read: {error.strerror or error}"]


def _examine(
    directory: Path, fs: FileSystem, owner: Owner, committed_offset: int, lowest_needed_offset: int
) -> tuple[Case, Checkpoint | None]:
    try:
        checkpoint = checkpoints.load(directory / CHECKPOINT, fs)
    except UnknownFormatVersion:
        return Case.UNKNOWN, None
    except CorruptFile:
        return Case.CORRUPT, None
    return judge(checkpoint, owner, boot_id(), committed_offset, lowest_needed_offset), checkpoint


def _open(
    directory: Path,
    fs: FileSystem,
    owner: Owner,
    slots_total: int,
    precision_ms: int,
    quota_bytes: int | None,
    checkpoint: Checkpoint | None,
) -> tuple[TimerStore, bool]:
    """The store, and whether its wheel is as a clean stop left it, else empty. Raises StoreError, OSError."""
    with ExitStack() as closing:
        timer_log = _open_timer_log(directory, fs, checkpoint)
        closing.callback(timer_log.close)
        payload_log = _open_payload_log(directory, fs, checkpoint)
        closing.callback(payload_log.close)
        wheel = None if checkpoint is None else _whole_wheel(directory, fs, checkpoint)
        is_wheel_whole = wheel is not None
        if wheel is None:
            fs.unlink(directory / WHEEL)
            wheel = TimerWheel(directory / WHEEL, slots_total, precision_ms, fs)
        closing.pop_all()
    return TimerStore(directory, fs, timer_log, wheel, payload_log, owner, quota_bytes), is_wheel_whole


def _open_timer_log(
    directory: Path, fs: FileSystem, checkpoint: Checkpoint | None, *, only_look: bool = False
) -> TimerLog:
    return TimerLog(
        directory / TIMER_LOG,
        TIMER_LOG_SEGMENT_BYTES,
        fs,
        end_position=checkpoint.timer_log_end if checkpoint else None,
        start_position=checkpoint.timer_log_start if checkpoint else 0,
        crcs=checkpoint.timer_log_crcs if checkpoint else (),
        only_look=only_look,
    )


def _open_payload_log(
    directory: Path, fs: FileSystem, checkpoint: Checkpoint | None, *, only_look: bool = False
) -> PayloadLog:
    return PayloadLog(
        directory / PAYLOAD_LOG,
        PAYLOAD_LOG_SEGMENT_BYTES,
        fs,
        end_position=checkpoint.payload_log_end if checkpoint else None,
        start_position=checkpoint.payload_log_start if checkpoint else 0,
        only_look=only_look,
    )


def _whole_wheel(directory: Path, fs: FileSystem, checkpoint: Checkpoint) -> TimerWheel | None:
    """The wheel as a clean stop left it; None where there was none, or it is not what was left.

    It is read before it is mapped: of a sector that cannot be read a call tells, and a mapping ends the process.
    """
    path = directory / WHEEL
    if checkpoint.wheel_crc is None or fs.size(path) is None:
        return None
    try:
        if _crc_of(path, fs) != checkpoint.wheel_crc:
            return None
        return TimerWheel(path, checkpoint.slots_total, checkpoint.precision_ms, fs)
    except WrongFileSize:
        return None
    except OSError as error:
        if not is_unreadable(error):
            raise
        return None


def _crc_of(path: Path, fs: FileSystem) -> int:
    crc, file = 0, fs.open(path)
    try:
        for position in range(0, file.size(), _READ_BYTES):
            crc = crc32(read_full(file, _READ_BYTES, position), crc)
    finally:
        file.close()
    return crc


def _remove(directory: Path, fs: FileSystem) -> None:
    """The checkpoint first: files without one are never taken for whole."""
    checkpoints.remove(directory / CHECKPOINT, fs)
    for name in (TIMER_LOG, PAYLOAD_LOG):
        fs.makedirs(directory / name)
        for entry in fs.listdir(directory / name):
            fs.unlink(directory / name / entry)
    fs.unlink(directory / WHEEL)
