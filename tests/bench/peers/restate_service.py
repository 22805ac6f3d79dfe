# pyright: reportMissingImports=false
"""The service that Restate's server calls; ``hypercorn tests.bench.peers.restate_service:app`` serves it."""

import restate

from tests.bench.peers.workload import RESULT

bench = restate.Service("Bench")


async def answer() -> str:
    return RESULT


@bench.handler()
async def flow(ctx: restate.Context, steps: int) -> int:
    for number in range(steps):
        await ctx.run_typed(f"step-{number}", answer)
    return steps


app = restate.app([bench])
