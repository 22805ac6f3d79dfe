"""The client: starts runs, decides at gates, and reads runs."""

from belay_core.client.client import Client
from belay_core.client.explanation import Explanation
from belay_core.client.handle import Completed, Ended, RunHandle, Unfinished, Waiting
from belay_core.client.observation import observe
from belay_core.client.starts import JoinedClient

__all__ = [
    "Client",
    "Completed",
    "Ended",
    "Explanation",
    "JoinedClient",
    "RunHandle",
    "Unfinished",
    "Waiting",
    "observe",
]
