"""A newsletter: written, approved by an editor, sent to everybody once."""

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from belay_core import Approved, Context, Lapsed, Rejected, step, workflow

outbox: list[str] = []
"""What has gone out."""


@dataclass(frozen=True)
class Letter:
    """A letter to some readers."""

    text: str
    readers: list[str]


@step(idempotent=True, retries=2)
async def write(topic: str) -> Letter:
    """The draft."""
    return Letter(f"All about {topic}", ["ada", "bob"])


@step(idempotent=True)
async def send(text: str, reader: str) -> str:
    """Send it; sending the same to the same reader again does no harm."""
    sent = f"{reader}: {text}"
    outbox.append(sent)
    return sent


@workflow("newsletter")
async def newsletter(ctx: Context, topic: str) -> int:
    """How many letters were sent."""
    letter = await ctx.step(write, topic)
    answer = await ctx.gate("editor", subject=letter, lapse_after=timedelta(days=2))
    match answer:
        case Approved(subject=approved):
            for reader in approved.readers:
                await ctx.step(send, approved.text, reader)
            return len(approved.readers)
        case Rejected() | Lapsed():
            return 0
        case _:
            assert_never(answer)
