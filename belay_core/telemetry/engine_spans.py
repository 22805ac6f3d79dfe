"""The spans of workflows: starts, executions, steps and gates, in one trace a run."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType

from opentelemetry.trace import SpanKind, Tracer, TracerProvider
from typing_extensions import override

from belay_core.telemetry import names, trace_context
from belay_core.telemetry.current_span import CurrentSpan, finish, is_unseen, open_span
from belay_core.telemetry.execution_span import ERRORS, ExecutionSpan, ending
from belay_core.telemetry.instruments import tracer
from belay_core.telemetry.operation_span import nanoseconds
from belay_core.workflows.middleware import Close, ExecutionFacts, GateFacts, Middleware, StartFacts, StepFacts


class EngineSpans(Middleware):
    """Makes one trace a run: its start, its executions over crash and wait, and in them the steps and gates.

    A replayed step leaves no span, and no span waits for a person: a gate is one short span when it is asked and
    one when it is decided. With ``linked`` every execution is a trace of its own, with a link to the start: for runs
    that last longer than a viewer keeps a trace together.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, linked: bool = False) -> None:
        self._tracer = tracer(tracer_provider)
        self._linked = linked

    @property
    @override
    def idle(self) -> bool:
        return is_unseen(self._tracer)

    @override
    def start(self, facts: StartFacts) -> AbstractContextManager[str | None]:
        # Without a recorded span there is no trace to keep with the run either.
        return nullcontext() if self.idle else self._started(facts)

    @contextmanager
    def _started(self, facts: StartFacts) -> Generator[str | None]:
        attributes = {names.BELAY_RUN_ID: facts.run_id, names.BELAY_WORKFLOW: facts.workflow}
        name = f"{names.START} {facts.workflow}"
        with _SpanScope(self._tracer, name, attributes, kind=SpanKind.PRODUCER):
            yield trace_context.written()

    @override
    def execution(self, facts: ExecutionFacts) -> AbstractContextManager[Close]:
        return ExecutionSpan(self._tracer, facts, linked=self._linked)

    @override
    def step(self, facts: StepFacts) -> AbstractContextManager[Close]:
        attributes: dict[str, str | int] = {
            names.BELAY_RUN_ID: facts.run_id,
            names.BELAY_WORKFLOW: facts.workflow,
            names.BELAY_STEP_NAME: facts.step,
            names.BELAY_STEP_KEY: facts.step_key,
            names.BELAY_STEP_ATTEMPT: facts.attempt,
            names.BELAY_STEP_IDEMPOTENT: facts.idempotent,
        }
        return _SpanScope(self._tracer, f"{names.STEP} {facts.step}", attributes, for_others=True)

    @override
    def gate(self, facts: GateFacts) -> None:
        moment = nanoseconds()
        span = self._tracer.start_span(f"{names.GATE} {facts.gate}", start_time=moment)
        if span.is_recording():
            attributes = {
                names.BELAY_RUN_ID: facts.run_id,
                names.BELAY_WORKFLOW: facts.workflow,
                names.BELAY_GATE_NAME: facts.gate,
                names.BELAY_STEP_KEY: facts.step_key,
            }
            if facts.answer is not None:
                attributes[names.BELAY_GATE_ANSWER] = facts.answer
            finish(span, facts.answer or names.ASKED, attributes=attributes, end_time=moment)


class _SpanScope:
    """A context manager whose span is current inside, and ends with the outcome that it was closed with."""

    __slots__ = ("_attributes", "_for_others", "_kind", "_name", "_outcome", "_span", "_tracer")

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        attributes: Mapping[str, str | int],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        for_others: bool = False,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = attributes
        self._kind = kind
        self._for_others = for_others
        self._outcome: str | None = None
        self._span: CurrentSpan | None = None

    def __enter__(self) -> Close:
        self._span = open_span(
            self._tracer, self._name, kind=self._kind, attributes=self._attributes, for_others=self._for_others
        )
        return self._close

    def _close(self, outcome: str) -> None:
        self._outcome = outcome

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        outcome = ending(self._outcome, error)
        self._span.close(outcome, error=outcome if outcome in ERRORS else None)
