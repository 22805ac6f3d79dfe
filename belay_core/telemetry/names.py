"""Every name of a span, an attribute or a counter.

Store spans and counters use the names of the store contract: its operations, and its parameters as keys without a
prefix. Spans of workflows are mixed with spans of other libraries, so their keys begin with ``belay.``. ``outcome``
has the same values everywhere, so that one query finds every span that ended in the same way.
"""

from typing import Final

SCOPE: Final = "belay"
"""The instrumentation scope of every span and counter."""

# Spans of the stores.

# Spans of workflows; a name follows.

START: Final = "start"
INVOKE: Final = "invoke_workflow"
EXECUTE: Final = "execute"
STEP: Final = "step"
GATE: Final = "gate"

# How an operation ended.

OUTCOME: Final = "outcome"
SUCCESS: Final = "success"
FAILURE: Final = "failure"
INTERRUPT: Final = "interrupt"
MIXED: Final = "mixed"
ASKED: Final = "asked"
ACQUIRED: Final = "acquired"

# Keys of store spans and counters.

OP: Final = "op"
TO: Final = "to"
INVALID: Final = "invalid"
RUN_ID: Final = "run_id"
OWNER_HOST_ID: Final = "owner_host_id"
CLAIMANT_HOST_ID: Final = "claimant_host_id"
OBSERVER_HOST_ID: Final = "observer_host_id"
STEP_KEY_DIGEST: Final = "step_key_digest"
STEP_KEY: Final = "step_key"
ATTEMPT: Final = "attempt"
EPOCH: Final = "epoch"
WORKFLOW: Final = "workflow"
WAITING_REASON: Final = "waiting_reason"
APPROVAL_ID: Final = "approval_id"
DECISION: Final = "decision"
RESOLUTION: Final = "resolution"
COUNT: Final = "count"

# Keys of workflow spans.

BELAY_RUN_ID: Final = "belay.run.id"
BELAY_WORKFLOW: Final = "belay.workflow"
BELAY_EPOCH: Final = "belay.epoch"
BELAY_HOST_ID: Final = "belay.host_id"
BELAY_STEP_NAME: Final = "belay.step.name"
BELAY_STEP_KEY: Final = "belay.step.key"
BELAY_STEP_ATTEMPT: Final = "belay.step.attempt"
BELAY_STEP_IDEMPOTENT: Final = "belay.step.idempotent"
BELAY_GATE_NAME: Final = "belay.gate.name"
BELAY_GATE_ANSWER: Final = "belay.gate.answer"

# The GenAI conventions are still in development: version 0.1.0 of their own repository names a workflow by
# `gen_ai.agent.name`, what came before by `gen_ai.workflow.name`. Viewers read either, so both are set.
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_WORKFLOW_NAME: Final = "gen_ai.workflow.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
OPENINFERENCE_SPAN_KIND: Final = "openinference.span.kind"
OPENINFERENCE_CHAIN: Final = "CHAIN"

# Counters.

CLAIMS: Final = "belay.run.claims"
HEARTBEATS: Final = "belay.run.heartbeats"
TRANSITIONS: Final = "belay.run.transitions"
THROUGHPUT: Final = "belay.run.throughput"
WRITE_RETRIES: Final = "belay.db.write_retries"
QUEUED_WRITES: Final = "belay.db.queued_writes"
