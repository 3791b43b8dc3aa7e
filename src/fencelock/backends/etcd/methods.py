"""The calls that locks make, by their names on the wire.

LeaseKeepAlive is a stream in etcd's description. One request that is sent and then closed is a stream too,
and gets one answer: so it is called like all others here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fencelock.backends.etcd import rpc_pb2 as pb

__all__ = [
    "AUTHENTICATE",
    "DELETE",
    "GRANT",
    "KEEP_ALIVE",
    "MEMBERS",
    "RANGE",
    "REVOKE",
    "STATUS",
    "TIME_TO_LIVE",
    "TXN",
    "WATCH",
    "Method",
]


class Method(NamedTuple):
    """One call: its path, and how its messages become bytes."""

    path: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def _method(service: str, name: str, request: Any, response: Any) -> Method:
    return Method(f"/etcdserverpb.{service}/{name}", request.SerializeToString, response.FromString)


RANGE = _method("KV", "Range", pb.RangeRequest, pb.RangeResponse)
TXN = _method("KV", "Txn", pb.TxnRequest, pb.TxnResponse)
DELETE = _method("KV", "DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse)
GRANT = _method("Lease", "LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE = _method("Lease", "LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
KEEP_ALIVE = _method("Lease", "LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
TIME_TO_LIVE = _method("Lease", "LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse)
WATCH = _method("Watch", "Watch", pb.WatchRequest, pb.WatchResponse)
AUTHENTICATE = _method("Auth", "Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)
STATUS = _method("Maintenance", "Status", pb.StatusRequest, pb.StatusResponse)
MEMBERS = _method("Cluster", "MemberList", pb.MemberListRequest, pb.MemberListResponse)
