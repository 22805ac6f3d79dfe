"""Every name telemetry gives to a span, an attribute or a counter, spelled once.

Store spans and counters speak the words of the store contract: its operations, and its parameters as keys without a
prefix. Spans of workflows stand among spans of other libraries, so their keys begin with ``belay.``. ``outcome`` is
one word everywhere, so that one query finds every span that ended in the same way.
"""

from typing import Final

SCOPE: Final = "belay"
"""The instrumentation scope of every span and counter."""

# Spans of the stores.

RUN_CREATE: Final = "belay.run_store.create"
RUN_GET: Final = "belay.run_store.get"
RUN_LINEAGE: Final = "belay.run_store.lineage"
RUN_LATEST_ROUND: Final = "belay.run_store.latest_round"
RUN_REQUEST_CANCEL: Final = "belay.run_store.request_cancel"
RUN_REQUEST_CANCEL_LINEAGE: Final = "belay.run_store.request_cancel_lineage"
RUN_ACKNOWLEDGE_CANCEL: Final = "belay.run_store.acknowledge_cancel"
RUN_CLAIM: Final = "belay.run_store.claim"
RUN_ACTIVATE: Final = "belay.run_store.activate"
RUN_ABANDON_CLAIM: Final = "belay.run_store.abandon_claim"
RUN_RECOVER_CLAIM: Final = "belay.run_store.recover_claim"
RUN_STEAL: Final = "belay.run_store.steal"
RUN_RECONFIRM: Final = "belay.run_store.reconfirm"
RUN_CLAIM_AND_OWN: Final = "belay.run_store.claim_and_own"
RUN_HEARTBEAT: Final = "belay.run_store.heartbeat"
RUN_TRANSITION_OWNED: Final = "belay.run_store.transition_owned"

ATTEMPT_PUT: Final = "belay.attempt_store.put"
ATTEMPT_GET: Final = "belay.attempt_store.get"
ATTEMPT_FINISH: Final = "belay.attempt_store.finish"
ATTEMPT_HEARTBEAT: Final = "belay.attempt_store.heartbeat"
ATTEMPT_PATCH: Final = "belay.attempt_store.patch"

ENGINE_RENEW: Final = "belay.engine_store.renew"
ENGINE_RECORD: Final = "belay.engine_store.record"
ENGINE_ASK: Final = "belay.engine_store.ask"
ENGINE_SLEEP: Final = "belay.engine_store.sleep"
ENGINE_WITHDRAW: Final = "belay.engine_store.withdraw"
ENGINE_LAPSE: Final = "belay.engine_store.lapse"
ENGINE_PARK: Final = "belay.engine_store.park"
ENGINE_SETTLE: Final = "belay.engine_store.settle"
ENGINE_START: Final = "belay.engine_store.start"
ENGINE_ACQUIRE: Final = "belay.engine_store.acquire"
ENGINE_WAKE: Final = "belay.engine_store.wake"
ENGINE_DECIDE: Final = "belay.engine_store.decide"
ENGINE_CANCEL: Final = "belay.engine_store.cancel"
ENGINE_RESOLVE: Final = "belay.engine_store.resolve"
ENGINE_HISTORY: Final = "belay.engine_store.history"
ENGINE_FIND_RUN: Final = "belay.engine_store.find_run"
ENGINE_LIST_RUNS: Final = "belay.engine_store.list_runs"
ENGINE_LIST_APPROVALS: Final = "belay.engine_store.list_approvals"
ENGINE_FIND_APPROVAL: Final = "belay.engine_store.find_approval"
ENGINE_JOURNAL: Final = "belay.engine_store.journal"
ENGINE_RUNNING_OWNERS: Final = "belay.engine_store.running_owners"

WAITING_PARK: Final = "belay.waiting_store.park"
WAITING_WAKE: Final = "belay.waiting_store.wake"
WAITING_WAITING: Final = "belay.waiting_store.waiting"
WAITING_RUNS: Final = "belay.waiting_store.waiting_runs"

JOURNAL_APPEND: Final = "belay.journal.append"
JOURNAL_READ: Final = "belay.journal.read"
JOURNAL_OWNERSHIP: Final = "belay.journal.ownership"

CHANGES_CURRENT: Final = "belay.changes.current"
CHANGES_SINCE: Final = "belay.changes.changes_since"
CHANGES_SNAPSHOT: Final = "belay.changes.snapshot"
CHANGES_LIST_RUNS: Final = "belay.changes.list_runs"
CHANGES_CANCELLATION: Final = "belay.changes.cancellation"

RETENTION_DELETE: Final = "belay.retention.delete"

WRITER_WRITE: Final = "belay.writer.write"

# Spans of workflows; a name follows the word.

START: Final = "start"
INVOKE: Final = "invoke_workflow"
DRAIN: Final = "drain"
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
