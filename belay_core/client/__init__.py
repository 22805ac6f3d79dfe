"""The client: starts runs, answers gates, and says how things stand."""

from belay_core.client.client import Client
from belay_core.client.explaining import Explanation
from belay_core.client.handle import RunHandle
from belay_core.client.observing import observe

__all__ = ["Client", "Explanation", "RunHandle", "observe"]
