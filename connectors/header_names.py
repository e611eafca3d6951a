"""The names of `Header` as plain text, for whoever looks at every record: members of an enum hash by Python code."""

from typing import Final

from connectors.contract import Header

REAL_TOPIC: Final = Header.REAL_TOPIC.value
REAL_QID: Final = Header.REAL_QID.value
DELAY: Final = Header.DELAY.value
TIMER_DELAY_SEC: Final = Header.TIMER_DELAY_SEC.value
TIMER_DELAY_MS: Final = Header.TIMER_DELAY_MS.value
TIMER_DELIVER_MS: Final = Header.TIMER_DELIVER_MS.value
UNIQ_KEY: Final = Header.UNIQ_KEY.value
TIMER_DEL_UNIQKEY: Final = Header.TIMER_DEL_UNIQKEY.value
TIMER_REPLACE_UNIQKEY: Final = Header.TIMER_REPLACE_UNIQKEY.value
TAGS: Final = Header.TAGS.value
KEYS: Final = Header.KEYS.value
TIMER_OUT_MS: Final = Header.TIMER_OUT_MS.value
TIMER_ROLL_TIMES: Final = Header.TIMER_ROLL_TIMES.value
TIMER_ORIGIN_OFFSET: Final = Header.TIMER_ORIGIN_OFFSET.value
TIMER_ROLL_PROOF: Final = Header.TIMER_ROLL_PROOF.value
TIMER_NOT_BEFORE_MS: Final = Header.TIMER_NOT_BEFORE_MS.value
TIMER_ROLL_AFTER_MS: Final = Header.TIMER_ROLL_AFTER_MS.value
TIMER_ENQUEUE_MS: Final = Header.TIMER_ENQUEUE_MS.value
TIMER_DEQUEUE_MS: Final = Header.TIMER_DEQUEUE_MS.value
CONSUMER_GROUP: Final = Header.CONSUMER_GROUP.value
RETRY_TOPIC: Final = Header.RETRY_TOPIC.value
RECONSUME_TIME: Final = Header.RECONSUME_TIME.value
MAX_RECONSUME_TIMES: Final = Header.MAX_RECONSUME_TIMES.value
ORIGIN_MESSAGE_ID: Final = Header.ORIGIN_MESSAGE_ID.value
REDRIVE_COUNT: Final = Header.REDRIVE_COUNT.value
ERROR_CODE: Final = Header.ERROR_CODE.value
ERROR_MESSAGE: Final = Header.ERROR_MESSAGE.value
ERROR_TOPIC: Final = Header.ERROR_TOPIC.value
ERROR_PARTITION: Final = Header.ERROR_PARTITION.value
ERROR_OFFSET: Final = Header.ERROR_OFFSET.value
ERROR_OMITTED: Final = Header.ERROR_OMITTED.value
