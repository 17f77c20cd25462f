"""What stands in an instance's metadata, as notices: a table of what AWS documents, and of what it was seen to write."""

import json
from typing import Any

import pytest

from rebalancer.machines.aws.agent import (
    INSTANCE_ID,
    LIFECYCLE,
    MAINTENANCE,
    REBALANCE,
    SPOT,
    ImdsError,
    InstanceNotices,
)

SPOT_NOTICE = '{"action": "terminate", "time": "2026-11-20T10:00:00Z"}'
EVENT = {
    "NotBefore": "21 Jan 2019 09:00:43 GMT",
    "Code": "system-reboot",
    "Description": "scheduled reboot",
    "EventId": "instance-event-0d59937288b749b32",
    "NotAfter": "21 Jan 2019 09:17:23 GMT",
    "State": "active",
}


class Said(dict[str, Any]):
    """Metadata without a service."""

    def read(self, path):
        text = self.get(path, "i-1" if path == INSTANCE_ID else None)
        if isinstance(text, Exception):
            raise text
        return text


def first(notices):
    notice = notices.first
    return notice and (notice.kind, notice.deadline, notice.reason, notice.id)


SPOT_READ = ("spot", "2026-11-20T10:00:00Z", "terminate", "imds/i-1/spot/2026-11-20T10:00:00Z")
REBOOT_READ = (
    "system-reboot",
    "2019-01-21T09:00:43Z",
    "system-reboot",
    "imds/i-1/instance-event-0d59937288b749b32",
)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({}, None),
        ({MAINTENANCE: "[]", LIFECYCLE: "InService"}, None),
        *(
            ({LIFECYCLE: f"Warmed:{how}"}, ("scale-in", "", f"Warmed:{how}", "imds/i-1/warm-pool"))
            for how in ("Stopped", "Hibernated", "Running")
        ),
        ({LIFECYCLE: "Warmed:Terminated"}, ("scale-in", "", "terminate", "imds/i-1/terminated")),
        ({LIFECYCLE: "Standby"}, None),
        ({SPOT: SPOT_NOTICE}, SPOT_READ),
        (
            {REBALANCE: '{"noticeTime": "2026-11-20T09:00:00Z"}'},
            ("rebalance", "", "", "imds/i-1/rebalance/2026-11-20T09:00:00Z"),
        ),
        ({LIFECYCLE: "Terminated\n"}, ("scale-in", "", "terminate", "imds/i-1/terminated")),
        ({MAINTENANCE: json.dumps([EVENT])}, REBOOT_READ),
        ({MAINTENANCE: json.dumps([{k: EVENT[k] for k in EVENT if k != "NotAfter"}])}, REBOOT_READ),
        ({MAINTENANCE: json.dumps([{**EVENT, "State": "completed"}])}, None),
        ({MAINTENANCE: json.dumps([{**EVENT, "State": "canceled"}])}, None),
        (
            {MAINTENANCE: json.dumps([{**EVENT, "Description": "[Canceled] scheduled reboot"}])},
            None,
        ),
        (
            {MAINTENANCE: json.dumps([{**EVENT, "Description": "[Completed] scheduled reboot"}])},
            None,
        ),
        (
            {
                MAINTENANCE: json.dumps(
                    [EVENT, {**EVENT, "EventId": "e2", "NotBefore": "2 Jan 2019 00:00:00 GMT"}]
                )
            },
            ("system-reboot", "2019-01-02T00:00:00Z", "system-reboot", "imds/i-1/e2"),
        ),
        ({MAINTENANCE: json.dumps([EVENT]), SPOT: SPOT_NOTICE}, SPOT_READ),
    ],
)
def test_the_first_notice_of(said, wanted):
    notices = InstanceNotices(Said(said))
    for _ in range(2):
        # Looked at again, each is the same one.
        assert notices.read() == ""
        assert first(notices) == wanted
    assert notices.complete


def test_a_window_ends_where_the_metadata_say_so():
    notices = InstanceNotices(Said({MAINTENANCE: json.dumps([EVENT])}))
    assert notices.read() == ""
    assert notices.first is not None
    assert notices.first.until == "2019-01-21T09:17:23Z"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (SPOT, "<html>"),
        (SPOT, '{"action": "terminate"}'),
        (SPOT, '{"action": "terminate", "time": "soon"}'),
        (REBALANCE, "[]"),
        (MAINTENANCE, "{}"),
        (MAINTENANCE, json.dumps([{**EVENT, "NotBefore": "2019-01-21T09:00:43Z"}])),
        (MAINTENANCE, json.dumps([{**EVENT, "NotBefore": "31 Feb 2019 09:00:43 GMT"}])),
        (MAINTENANCE, json.dumps([{**EVENT, "NotBefore": "21 Jan 2019 09:00:43 CET"}])),
        (MAINTENANCE, "[" * 100_000),
    ],
)
def test_what_cannot_be_understood_is_named_and_withdraws_nothing(path, text):
    standing = {REBALANCE: '{"noticeTime": "2026-11-20T09:00:00Z"}'}
    said = Said(standing)
    notices = InstanceNotices(said)
    notices.read()
    before = first(notices)
    said[path] = text
    assert path in notices.read()
    assert first(notices) == before


def test_one_path_that_cannot_be_read_does_not_hide_another():
    said = Said({MAINTENANCE: ImdsError("broken"), SPOT: SPOT_NOTICE})
    notices = InstanceNotices(said)
    assert notices.read() == "broken"
    assert first(notices) == SPOT_READ
    assert not notices.complete


def test_an_instance_without_an_id_is_none():
    with pytest.raises(ImdsError, match=INSTANCE_ID):
        InstanceNotices(Said({INSTANCE_ID: ""})).read()
