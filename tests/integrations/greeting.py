"""The workflow of these tests."""

from belay_core import Approved, Context, step, workflow


@step
def greet(name: str) -> str:
    return f"hello {name}"


@workflow("greeting")
async def greeting(ctx: Context, name: str) -> str:
    answer = await ctx.gate("editor", subject=name)
    if isinstance(answer, Approved):
        return await ctx.step(greet, answer.subject)
    return "rejected"
