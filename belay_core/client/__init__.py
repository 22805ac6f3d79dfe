"""The client: starts runs, answers gates, and says how things stand."""

from belay_core.client.client import Client
from belay_core.client.explaining import Explanation
from belay_core.client.handle import RunHandle
from belay_core.client.observing import observe
from belay_core.client.starting import JoinedClient

__all__ = ["Client", "Explanation", "JoinedClient", "RunHandle", "observe"]
