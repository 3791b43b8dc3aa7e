"""The faults, by their words."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.faults.base import Fault
from chaos.faults.clocks import ClientClock, Clock
from chaos.faults.disk import PowerLoss
from chaos.faults.network import Cut, Loss, Partition, Reset
from chaos.faults.processes import Cancel, Delay, Desert, Fork, Kill, Pause, Session
from chaos.faults.servers import Delete, Failover, Full, Leader, Pooler, Restart
from chaos.faults.wire import Renewals, Reply, Swallow

__all__ = ["FAULTS", "Fault"]

FAULTS: Mapping[str, type[Fault]] = {
    fault.word: fault
    for fault in (
        Pause,
        Reply,
        Delay,
        Swallow,
        Clock,
        ClientClock,
        Restart,
        PowerLoss,
        Cut,
        Loss,
        Reset,
        Partition,
        Leader,
        Failover,
        Session,
        Renewals,
        Delete,
        Fork,
        Desert,
        Cancel,
        Pooler,
        Kill,
        Full,
    )
}
