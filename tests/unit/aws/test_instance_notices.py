"""What stands in an instance's metadata, as notices: a table of what AWS documents, and of what it was seen to write."""

import json

import pytest

from rebalancer.aws.imds import ImdsError
from rebalancer.aws.instance_notices import LIFECYCLE, MAINTENANCE, REBALANCE, SPOT, read_notices

SPOT_NOTICE = '{"action": "terminate", "time": "2026-11-20T10:00:00Z"}'
EVENT = {
    "NotBefore": "21 Jan 2019 09:00:43 GMT",
    "Code": "system-reboot",
    "Description": "scheduled reboot",
    "EventId": "instance-event-0d59937288b749b32",
    "NotAfter": "21 Jan 2019 09:17:23 GMT",
    "State": "active",
}


class Said(dict):
    """Metadata without a service."""

    def read(self, path):
        return self.get(path)


def read(said):
    return [
        (notice.kind, notice.deadline, notice.reason, notice.id)
        for notice in read_notices(Said(said), "i-1")
    ]


SPOT_READ = ("spot", "2026-11-20T10:00:00Z", "terminate", "i-1/spot/2026-11-20T10:00:00Z")
REBOOT_READ = (
    "maintenance",
    "2019-01-21T09:00:43Z",
    "system-reboot",
    "i-1/instance-event-0d59937288b749b32",
)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({}, []),
        ({MAINTENANCE: "[]", LIFECYCLE: "InService"}, []),
        ({LIFECYCLE: "Warmed:Stopped"}, []),
        ({SPOT: SPOT_NOTICE}, [SPOT_READ]),
        (
            {REBALANCE: '{"noticeTime": "2026-11-20T09:00:00Z"}'},
            [("rebalance", "", "", "i-1/rebalance/2026-11-20T09:00:00Z")],
        ),
        ({LIFECYCLE: "Terminated\n"}, [("scale-in", "", "terminate", "i-1/terminated")]),
        ({MAINTENANCE: json.dumps([EVENT])}, [REBOOT_READ]),
        ({MAINTENANCE: json.dumps([{k: EVENT[k] for k in EVENT if k != "NotAfter"}])}, [REBOOT_READ]),
        ({MAINTENANCE: json.dumps([{**EVENT, "State": "completed"}])}, []),
        ({MAINTENANCE: json.dumps([{**EVENT, "State": "canceled"}])}, []),
        ({MAINTENANCE: json.dumps([{**EVENT, "Description": "[Canceled] scheduled reboot"}])}, []),
        ({MAINTENANCE: json.dumps([{**EVENT, "Description": "[Completed] scheduled reboot"}])}, []),
        (
            {
                MAINTENANCE: json.dumps(
                    [EVENT, {**EVENT, "EventId": "e2", "NotBefore": "2 Jan 2019 00:00:00 GMT"}]
                ),
                SPOT: SPOT_NOTICE,
            },
            [
                SPOT_READ,
                ("maintenance", "2019-01-02T00:00:00Z", "system-reboot", "i-1/e2"),
                REBOOT_READ,
            ],
        ),
    ],
)
def test_notices_of(said, wanted):
    assert read(said) == wanted
    # Looked at again, each is the same one.
    assert read(said) == wanted


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
    with pytest.raises(ImdsError, match=path):
        read({path: text})
