"""The client of the instance metadata service: version 2 only, a token that is renewed, bounded answers."""

import pytest

from rebalancer.base.stop import Stop
from rebalancer.machines.aws.agent import TOKEN_SECONDS, Imds, ImdsError
from tests.aws.imds import INSTANCE, metadata_service
from tests.support.clocks import HandClock

ID = "meta-data/instance-id"


@pytest.fixture
def clock():
    return HandClock(1000.0)


@pytest.fixture
def service(clock):
    with metadata_service(clock.now) as metadata:
        yield metadata


@pytest.fixture
def imds(service, clock):
    return Imds(service.url, Stop(clock))


def test_one_token_serves_many_reads(imds, service):
    assert [imds.read(ID), imds.read(ID), imds.read("meta-data/spot/instance-action")] == [
        INSTANCE,
        INSTANCE,
        None,
    ]
    assert [method for method, _ in service.asked] == ["PUT", "GET", "GET", "GET"]


def test_a_token_is_renewed_before_its_end(imds, service, clock):
    imds.read(ID)
    clock.seconds += TOKEN_SECONDS - 30
    assert imds.read(ID) == INSTANCE
    # No request was ever refused.
    assert [method for method, _ in service.asked] == ["PUT", "GET", "PUT", "GET"]


def test_a_token_that_is_refused_is_replaced_once(imds, service):
    imds.read(ID)
    service.forget_tokens()
    assert imds.read(ID) == INSTANCE
    assert [method for method, _ in service.asked[2:]] == ["GET", "PUT", "GET"]


def test_a_service_that_refuses_every_token_is_asked_twice_and_no_more(imds, service, clock):
    imds.read(ID)
    service.broken[ID] = 401
    with pytest.raises(ImdsError, match="answered 401"):
        imds.read(ID)
    assert [method for method, _ in service.asked[2:]] == ["GET", "PUT", "GET"]


@pytest.mark.parametrize("status", [403, 404, 500])
def test_without_a_token_nothing_is_read(imds, service, status):
    service.status = status
    with pytest.raises(ImdsError, match=f"no token of version 2: it answered {status}"):
        imds.read(ID)
    assert service.asked == [("PUT", "api/token")]


def test_a_fault_is_not_taken_for_nothing(imds, service):
    service.broken[ID] = 503
    with pytest.raises(ImdsError, match="answered 503"):
        imds.read(ID)


def test_a_service_that_cannot_be_reached_is_named_with_what_to_do(clock):
    with metadata_service(clock.now) as metadata:
        url = metadata.url
    with pytest.raises(ImdsError, match=r"could not be reached.*hostNetwork"):
        Imds(url, Stop(clock)).read(ID)


def test_metadata_never_goes_over_a_proxy(imds, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert imds.read(ID) == INSTANCE
