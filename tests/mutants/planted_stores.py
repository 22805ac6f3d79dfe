"""Defects planted in the stores: fences, locks, freshness, precedence, resolution of lost replies."""

from typing import Final

from tests.mutants.mutant import Mutant, mutant

_FENCES: Final = "belay_drivers/sql/statements/fences.py"
_HOT: Final = "belay_drivers/postgres/hot.py"
_BULK: Final = "belay_drivers/postgres/batch_parts.py"
_SQLITE_BULK: Final = "belay_drivers/sqlite/batch.py"
_SQLITE_HOT: Final = "belay_drivers/sqlite/hot.py"
_BASE: Final = "belay_drivers/sql/stores/base.py"
_OWNED: Final = "belay_drivers/sql/stores/attempts/record.py"
_ENDING: Final = "belay_drivers/sql/stores/runs/release.py"
_DECIDING: Final = "belay_drivers/sql/stores/approvals.py"
_CLAIMING: Final = "belay_drivers/sql/stores/runs/claim_and_own.py"
_OWNING: Final = "belay_drivers/sql/stores/runs/owned.py"
_ATTEMPTS: Final = "belay_drivers/sql/stores/attempts/contract.py"
_CANCELLING: Final = "belay_drivers/sql/stores/runs/request_cancel.py"

FENCES: Final[tuple[Mutant, ...]] = (
    mutant(
        "fence_by_plain_read",
        _BULK,
        ("WHERE {_FENCED} FOR NO KEY UPDATE) t\n), held", "WHERE {_FENCED}) t\n), held"),
        by="waited_for_a_takeover",
    ),
    mutant(
        "write_without_lock_first",
        _FENCES,
        (".with_for_update(key_share=True)", ""),
        by="a_decision_that_waited or an_attempt_that_waited",
    ),
    mutant(
        "fence_without_sequence",
        _BULK,
        (" AND r.epoch = a.epoch AND r.write_seq = a.seq", " AND r.epoch = a.epoch"),
        by="waited_for_another_of_its_lease",
    ),
    mutant(
        "fence_without_nonce",
        _BULK,
        (" AND r.owner_nonce = a.nonce AND", " AND"),
        by="single_part_of_the_lease",
    ),
    mutant(
        "fence_without_epoch",
        _BULK,
        (" AND r.epoch = a.epoch AND", " AND"),
        by="single_part_of_the_lease",
    ),
    mutant(
        "fence_without_nonce_in_a_file",
        _SQLITE_BULK,
        ("owner_nonce = ?\n", "? IS NOT NULL\n"),
        by="single_part_of_the_lease",
    ),
    mutant(
        "fence_without_epoch_in_a_file",
        _SQLITE_BULK,
        ("AND epoch = ? AND", "AND ? IS NOT NULL AND"),
        by="single_part_of_the_lease",
    ),
    mutant(
        "part_of_a_record_stored",
        _SQLITE_BULK,
        ('            cursor.execute("ROLLBACK TO several")\n', ""),
        by="all_are_stored_or_none",
    ),
    mutant(
        "part_of_a_record_stored_in_one_statement",
        _BULK,
        ("  WHERE k.state NOT IN", "  WHERE false AND k.state NOT IN"),
        by="all_are_stored_or_none",
    ),
    mutant(
        "parked_without_a_fence",
        _BULK,
        ("WHERE {_FENCED}\n      AND (a.ready", "WHERE r.run_id = a.run_id\n      AND (a.ready"),
        by="single_part_of_the_lease",
    ),
    mutant(
        "parked_without_a_fence_in_a_file",
        _SQLITE_BULK,
        ("WHERE {_FENCED} AND (? OR", "WHERE run_id = ? AND coalesce(?, ?, ?, ?, ?) IS NOT NULL AND (? OR"),
        by="single_part_of_the_lease",
    ),
    mutant(
        "parked_by_plain_read",
        _BULK,
        (" = a.seen)\n    FOR NO KEY UPDATE\n", " = a.seen)\n"),
        by="waited_for_a_takeover",
    ),
    mutant(
        "wait_begun_without_a_fence",
        _BULK,
        ("WHERE {_FENCED} AND NOT EXISTS (", "WHERE r.run_id = a.run_id AND NOT EXISTS ("),
        by="single_part_of_the_lease",
    ),
    mutant(
        "wait_begun_without_a_fence_in_a_file",
        _SQLITE_BULK,
        (
            "WHERE {_FENCED} AND NOT EXISTS (",
            "WHERE run_id = ? AND coalesce(?, ?, ?, ?, ?) IS NOT NULL AND NOT EXISTS (",
        ),
        by="single_part_of_the_lease",
    ),
    mutant(
        "wait_begun_over_another_in_a_file",
        _SQLITE_BULK,
        ("a WHERE a.run_id = belay_runs.run_id AND", "a WHERE false AND"),
        by="begun_before",
    ),
    mutant(
        "cancelled_waiter_takes_the_flush_along",
        "belay_drivers/sql/stores/group_commit.py",
        (
            "        if not waiting.sent:\n",
            "        if waiting.sent and self._flushing is not None:\n            self._flushing.cancel()\n        if not waiting.sent:\n",
        ),
        by="harms_nobody",
    ),
    mutant(
        "those_held_back_never_told",
        "belay_drivers/sql/stores/group_commit.py",
        (
            "            self._tell(len(self._ended) // 2)\n",
            "            self._tell(len(self._ended) // 2)\n            self._ended = []\n",
        ),
        by="come_back_at_once or before_its_outcome",
    ),
    mutant(
        "halves_kept_where_commits_are_slow",
        "belay_drivers/sql/stores/group_commit.py",
        ("        if self._idle > MOST_IDLE:\n", "        if self._idle > 1.0:\n"),
        by="go_together_and_halves",
    ),
    mutant(
        "decision_not_looked_at_again_under_the_lock",
        "belay_drivers/postgres/hot.py",
        (
            "AND decision IS NULL AND subject_digest = $2::text\n",
            "AND subject_digest = $2::text\n",
        ),
        by="waited or decision",
    ),
    mutant(
        "due_runs_found_by_reading_all",
        "belay_drivers/sql/stores/runs/acquire.py",
        ("if parts.group_commit is not None and (keys", "if parts.group_commit is None and (keys"),
        by="never_analysed",
    ),
    mutant(
        "conflict_taken_for_stored",
        _BASE,
        ("if answer.ambiguous and", "if False and"),
        by="conflict",
    ),
    mutant(
        "fence_without_sequence_in_steps",
        _FENCES,
        ('.where(OWNED, runs.c.write_seq == bindparam("b_seq"), *guards)', ".where(OWNED, *guards)"),
        by="backend_still_waits",
    ),
    mutant(
        "fence_without_nonce_in_steps",
        _FENCES,
        ('    runs.c.owner_nonce == bindparam("b_nonce"),\n    runs.c.epoch', "    runs.c.epoch"),
        by="single_part_of_the_lease",
    ),
    mutant(
        "fence_without_epoch_in_steps",
        _FENCES,
        ('    runs.c.epoch == bindparam("b_epoch"),\n', ""),
        by="single_part_of_the_lease",
    ),
    mutant(
        "renewal_bumps_the_sequence",
        _HOT,
        (
            "UPDATE belay_runs SET heartbeat_at = greatest(heartbeat_at, $1::bigint)\n  FROM held",
            "UPDATE belay_runs SET write_seq = write_seq + 1, heartbeat_at = greatest(heartbeat_at, $1::bigint)"
            "\n  FROM held",
        ),
        by="renew or lost_connection or reference",
        tests=("tests/drivers", "tests/model"),
    ),
    mutant(
        "batch_keyed_by_run_alone",
        _HOT,
        (
            " AND owner_host_id = asked.host_id\n      AND owner_pid = asked.pid AND owner_nonce = asked.nonce"
            " AND epoch = asked.epoch\n",
            "\n",
        ),
        by="renew or lease",
    ),
    mutant(
        "batch_keyed_by_run_alone_on_sqlite",
        _SQLITE_HOT,
        (
            " AND owner_nonce = ? AND epoch = ?\nRETURNING",
            " AND (owner_nonce = ? OR 1) AND (epoch = ? OR 1)\nRETURNING",
        ),
        by="renew or lease",
    ),
    mutant(
        "heartbeat_moves_back",
        _FENCES,
        ("    return case((column < moment, moment), else_=column)", "    return moment + 0 * column"),
        by="stamp_back or later_stamp",
    ),
)

CLAIMS: Final[tuple[Mutant, ...]] = (
    mutant(
        "freshness_off_by_one",
        _CLAIMING,
        (
            "return stamp < now_ms - limits.HEARTBEAT_STALE_AFTER",
            "return stamp <= now_ms - limits.HEARTBEAT_STALE_AFTER",
        ),
        by="thirty_seconds",
    ),
    mutant(
        "freshness_off_by_one_in_acquire",
        _HOT,
        ("AND (r.heartbeat_at < $2::bigint", "AND (r.heartbeat_at <= $2::bigint"),
        by="thirty_seconds",
    ),
    mutant(
        "freshness_off_by_one_on_sqlite",
        _SQLITE_HOT,
        ("AND (heartbeat_at < ? OR", "AND (heartbeat_at <= ? OR"),
        by="thirty_seconds",
    ),
    mutant(
        "claim_kept_after_a_suspension",
        _OWNING,
        ("**UNOWNED, **UNCLAIMED}", "**UNOWNED}"),
        by="stuck_claim or letting_go",
    ),
    mutant(
        "outcome_order_swapped",
        _CLAIMING,
        (
            """    if row["claim_host_id"] is not None:
        return AlreadyClaimed()
    if row["status"] == RunStatus.RUNNING.value and not is_stale(row["heartbeat_at"], now_ms):
        return HeartbeatFresh()
""",
            """    if row["status"] == RunStatus.RUNNING.value and not is_stale(row["heartbeat_at"], now_ms):
        return HeartbeatFresh()
    if row["claim_host_id"] is not None:
        return AlreadyClaimed()
""",
        ),
        by="reserved or evidence_is_asked_for",
    ),
    mutant(
        "guard_judged_before_the_fence",
        _OWNING,
        (
            """        if not is_owner(held.row, self._owner):
            return undone(tx, FenceLost())
        if not self._passes(held.row):
            return undone(tx, GuardFailed())
""",
            """        if not self._passes(held.row):
            return undone(tx, GuardFailed())
        if not is_owner(held.row, self._owner):
            return undone(tx, FenceLost())
""",
        ),
        by="guard",
    ),
    mutant(
        "reconfirmed_under_a_claim",
        _OWNING,
        ("_RECONFIRM: Final = _HEARTBEAT.where(runs.c.claim_nonce.is_(None))", "_RECONFIRM: Final = _HEARTBEAT"),
        by="in_doubt or claimed",
    ),
    mutant(
        "evidence_of_another_moment",
        "belay_core/stores/run_contract.py",
        (" or evidence.checked_at_ms != now_ms:", ":"),
        by="evidence",
        tests=("tests/drivers", "tests/ownership"),
    ),
    mutant(
        "reading_ahead_believed",
        "belay_core/limits.py",
        ("HEARTBEAT_SKEW_ALLOWANCE: Final = 10_000", "HEARTBEAT_SKEW_ALLOWANCE: Final = 10_001"),
        by="ten_seconds_ahead",
    ),
    mutant(
        "two_may_take_one_run",
        _HOT,
        ("    LIMIT $3::bigint\n    FOR NO KEY UPDATE SKIP LOCKED\n  ) t", "    LIMIT $3::bigint\n  ) t"),
        by="never_get_the_same_run",
    ),
    mutant(
        "takeover_keeps_its_epoch",
        _HOT,
        ("epoch = r.epoch + 1,", "epoch = r.epoch,"),
        by="acquir or taken or takeover or epoch",
    ),
    mutant(
        "takeovers_not_counted",
        _HOT,
        ("r.takeovers + CASE WHEN r.status = 'running' THEN 1 ELSE 0 END", "r.takeovers"),
        by="takeovers_count",
    ),
)

ANSWERS: Final[tuple[Mutant, ...]] = (
    mutant(
        "park_without_a_look_at_news",
        _ENDING,
        ("_PARK: Final = owned_update(not_(UNSEEN), ", "_PARK: Final = owned_update("),
        by="_signal",
    ),
    mutant(
        "parked_with_others_without_a_look_at_news",
        _BULK,
        ("AND (a.ready IS NOT NULL OR r.ready_at IS NULL OR", "AND (true OR r.ready_at IS NULL OR"),
        by="_signal",
    ),
    mutant(
        "parked_with_others_without_a_look_at_news_in_a_file",
        _SQLITE_BULK,
        ("AND (? OR ready_at IS NULL OR ready_at IS ?)", "AND (? OR true OR ready_at IS ?)"),
        by="_signal",
    ),
    mutant(
        "lost_reply_of_an_end_taken_for_a_failure",
        _ENDING,
        ("reread=ended_at, ", ""),
        by="lost_connection",
    ),
    mutant(
        "settle_without_a_look_at_news",
        _ENDING,
        ("_SETTLE: Final = owned_update(\n    not_(UNSEEN),\n", "_SETTLE: Final = owned_update(\n"),
        by="_signal",
    ),
    mutant(
        "completed_although_asked_to_stop",
        _ENDING,
        (
            '    or_(bindparam("b_status") == RunStatus.CANCELLED.value, runs.c.cancel_requested_at.is_(None)),\n',
            "",
        ),
        ("not_, or_, select", "not_, select"),
        by="asked_to_stop or asked_to or cancel",
    ),
    mutant(
        "second_decision_overwrites",
        _DECIDING,
        ("        if decided and not (self._command.replace and _is_unused(tx, asked, held)):", "        if False:"),
        by="first_decision or decided",
    ),
    mutant(
        "decision_after_the_lapse",
        _DECIDING,
        ('(asked["decision"] is not None or lapsed)', '(asked["decision"] is not None)'),
        by="lapse",
    ),
    mutant(
        "decision_on_another_subject",
        _DECIDING,
        ('        if asked["subject_digest"] != self._command.digest:', "        if False:"),
        by="another_subject",
    ),
    mutant(
        "decision_wakes_nobody",
        _DECIDING,
        (
            "        close_approval(tx, held, given.approval_id, changes)\n        mark(tx, held)\n",
            "        close_approval(tx, held, given.approval_id, changes)\n",
        ),
        by="wakes_the_run or ready_at_once or _signal",
    ),
    mutant(
        "decision_read_before_the_lock",
        _DECIDING,
        ("        asked = None if held is None else self._asked(tx)\n", ""),
        by="fifty or that_waited",
    ),
    mutant(
        "question_left_open_at_the_end",
        _ENDING,
        ("            withdraw_open(tx, held)\n", ""),
        (", withdraw_open", ""),
        by="end_of_a_run_withdraws or no_longer_shown",
    ),
    mutant(
        "second_end_of_an_attempt",
        _ATTEMPTS,
        (
            '            if row["state"] in self._options.in_progress_states:\n                change_attempt',
            "            if True:\n                change_attempt",
        ),
        by="first_end_is_kept",
    ),
    mutant(
        "loss_told_before_absence",
        _ATTEMPTS,
        (
            """            held, row = lock(tx, key_of(wanted.run_id), now_ms), _found(tx, wanted)
            if row is None:
                return undone(tx, NotFound())
            if held is None or not is_owner(held.row, owner):
                return undone(tx, FenceLost())
""",
            """            held, row = lock(tx, key_of(wanted.run_id), now_ms), _found(tx, wanted)
            if held is None or not is_owner(held.row, owner):
                return undone(tx, FenceLost())
            if row is None:
                return undone(tx, NotFound())
""",
        ),
        by="heartbeat",
    ),
    mutant(
        "true_is_one",
        "belay_core/values/json.py",
        ("    if isinstance(one, bool) or isinstance(other, bool):\n        return one is other\n", ""),
        by="conflict or same",
        tests=("tests/drivers", "tests/values"),
    ),
    mutant(
        "second_acknowledgement_overwrites",
        _CANCELLING,
        ('func.coalesce(runs.c.cancel_acknowledgement, bindparam("b_words"))', 'bindparam("b_words")'),
        by="acknowledgement",
    ),
    mutant(
        "lost_reply_taken_for_a_failure",
        _BASE,
        (
            "if unsure is not None and standing is not None and seq is not None and standing.arrived(lease, seq):",
            "if unsure is not None and standing is not None and seq is not None and standing.arrived(lease, -2):",
        ),
        by="lost_connection or reference",
        tests=("tests/drivers", "tests/model"),
    ),
    mutant(
        "lost_reply_taken_for_a_success",
        _BASE,
        (
            "return (self.last_nonce, self.epoch, self.seq) == (lease.owner.nonce, lease.epoch, seq + 1)",
            "return (self.last_nonce, self.epoch) == (lease.owner.nonce, lease.epoch)",
        ),
        by="lost_connection or reference",
        tests=("tests/drivers", "tests/model"),
    ),
    mutant(
        "write_given_up_not_shut_out",
        _BASE,
        ("        if not turn.unclear:\n            return None\n", "        if True:\n            return None\n"),
        by="given_up",
        tests=("tests/model", "tests/drivers"),
    ),
    mutant(
        "cancelled_writes_not_awaited",
        "belay_drivers/sql/connection/uncancelled.py",
        ("        await _end(task, patience)\n", "        task.cancel()\n"),
        by="cancelled_at_any_await or waited_for or idle_in_a_transaction",
    ),
    mutant(
        "sqlite_begins_deferred",
        "belay_drivers/sqlite/open.py",
        (
            'writer = ThreadRunner(_ready(engine, "BEGIN IMMEDIATE"), "belay-sqlite")\n    _quieten',
            'writer = ThreadRunner(_ready(engine, "BEGIN"), "belay-sqlite")\n    _quieten',
        ),
        by="two_processes or another_process or taking_the_write_lock",
    ),
    mutant(
        "open_approvals_sought_among_all",
        "belay_drivers/sql/stores/approvals.py",
        ("_STILL_ASKED.where(approvals.c.decided_at.is_(None))", "_STILL_ASKED.where(approvals.c.decision.is_(None))"),
        by="walks_its_index_and_stops",
    ),
    mutant(
        "approvals_of_a_run_sought_among_all_open",
        "belay_drivers/postgres/migrations/0004_open_approvals.sql",
        ("WHERE decided_at IS NULL", "WHERE decision IS NULL"),
        by="not_looked_for_among",
    ),
    mutant(
        "host_of_a_file_url_ignored",
        "belay_core/stores/file_url.py",
        ("if not slashes or host:", "if not slashes:"),
        by="names_a_host",
    ),
    mutant(
        "another_loop_served",
        "belay_drivers/sql/connection/database.py",
        ("        elif self._loop is not loop:\n", "        elif False:\n"),
        by="another_event_loop",
    ),
    mutant(
        "replaced_file_not_noticed",
        "belay_drivers/sqlite/open.py",
        (" and _identity_of(self._full_path) != self._identity:", " and _identity_of(self._full_path) is None:"),
        by="gone_or_replaced",
    ),
    mutant(
        "stepped_clock_trusted",
        "belay_drivers/sqlite/clock.py",
        ("            self._unsettled_until = elapsed + self._stale_after_ms\n", ""),
        by="keeps_its_runs",
        tests=("tests/drivers/test_stepped_clock.py",),
    ),
    mutant(
        "times_ahead_left_there",
        "belay_drivers/sqlite/clock.py",
        ("            await self._database.write(self._set_to_present)\n", "            pass\n"),
        by="taken_after_it or no_process_looked",
        tests=("tests/drivers/test_stepped_clock.py",),
    ),
)
