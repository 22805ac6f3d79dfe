"""Type-checked, never run: what the function form infers, and what it refuses."""

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never, assert_type

from belay_core import (
    Approved,
    Client,
    Context,
    Lapsed,
    NotNeeded,
    Rejected,
    RunHandle,
    step,
    workflow,
)


@dataclass(frozen=True)
class Draft:
    text: str


@step(retries=3, idempotent=True)
async def fetch(url: str) -> str:
    return url


@step
def count(text: str, *, least: int = 0) -> int:
    return max(len(text), least)


async def plain(number: int) -> Draft:
    return Draft(str(number))


def synchronous(number: int) -> Draft:
    return Draft(str(number))


async def people(ctx: Context, person: str) -> Draft:
    return await ctx.step(plain, len(person))


async def left(ctx: Context) -> str:
    return await ctx.step(fetch, "x")


async def right(ctx: Context) -> Draft:
    return await ctx.step(plain, 1)


@workflow("typed")
async def typed(ctx: Context, topic: str) -> int:
    assert_type(await ctx.step(fetch, topic), str)
    assert_type(await ctx.step(count, topic, least=3), int)
    assert_type(await ctx.step(plain, 1), Draft)
    assert_type(await ctx.step(synchronous, 1), Draft)
    assert_type(await ctx.map(fetch, [topic]), list[str])
    assert_type(await ctx.map(people, [topic]), list[Draft])
    assert_type(await ctx.map(plain, [1]), list[Draft])
    assert_type(await ctx.gather(left, right), tuple[str, Draft])
    await ctx.step(fetch, 5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    fetch("x")  # type: ignore[operator]  # pyright: ignore[reportCallIssue]

    answer = await ctx.gate("editor", subject=Draft(topic))
    match answer:
        case Approved(subject=subject):
            assert_type(subject, Draft)
        case Rejected(reason=reason):
            assert_type(reason, str | None)
        case _:
            assert_never(answer)

    bounded = await ctx.gate("editor", subject=topic, lapse_after=timedelta(days=1))
    match bounded:
        case Approved() | Rejected() | Lapsed():
            pass
        case _:
            assert_never(bounded)

    conditional = await ctx.gate("editor", subject=topic, when=lambda text: len(text) > 1)
    match conditional:
        case Approved(subject=shown) | NotNeeded(subject=shown):
            assert_type(shown, str)
        case Rejected():
            pass
        case _:
            assert_never(conditional)
    return 1


@workflow("bare")
async def bare(ctx: Context) -> None:
    await ctx.sleep(timedelta(seconds=1))


async def client(client: Client) -> None:
    run = await client.start(typed, "climbing")
    assert_type(run, RunHandle[int])
    assert_type(await run.result(), int)
    assert_type(await client.start(bare), RunHandle[None])
    await client.start(typed, 5)  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await client.start(typed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
