"""The service that Restate calls: steps in sequence, and a saga whose last step fails, compensated by hand."""

import restate

service = restate.Service("bench")


async def nothing() -> int:
    """Do nothing."""
    return 0


async def fail() -> int:
    """Fail for good."""
    raise restate.TerminalError("as it should")


@service.handler()
async def chain(context: restate.Context, steps: int) -> int:
    """Steps in sequence."""
    for number in range(steps):
        await context.run_typed(f"step {number}", nothing)
    return steps


@service.handler()
async def failing(context: restate.Context, steps: int) -> int:
    """The last step fails; those before are compensated."""
    for number in range(steps - 1):
        await context.run_typed(f"step {number}", nothing)
    try:
        await context.run_typed("the last", fail)
    except restate.TerminalError:
        for number in reversed(range(steps - 1)):
            await context.run_typed(f"undo {number}", nothing)
    return steps


app = restate.app([service])
