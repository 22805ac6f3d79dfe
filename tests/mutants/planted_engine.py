"""Defects planted in the engine: keys, order of answers, waiting, unwinding, orphans, leases."""

from typing import Final

from tests.mutants.mutant import Mutant, mutant

_ENGINE: Final = ("tests/engine",)

KEYS: Final[tuple[Mutant, ...]] = (
    mutant(
        "nonce_per_process",
        "belay_core/ownership/identity.py",
        ('f"{self.start}-{ids.nonce()}"', 'f"{self.start}-{self.pid}"'),
        by="owners_differ or zombie or takes_over_its_own",
        tests=("tests/engine", "tests/ownership"),
    ),
    mutant(
        "key_taken_when_awaited",
        "belay_core/engine/context_backend.py",
        (
            "            key = scope.key(self.name_of(scope, step) if step.was else step.name)\n",
            "            key = step.name\n",
        ),
        ("        scope.unopened += 1\n        call = self._opened(", "        call = self._opened("),
        ("        execution.unawaited[key] = call\n        return call\n", "        return call\n"),
        (
            """        call = execution.replay.open(key, scope)
""",
            """        key = key if "#" in key else self._key(scope, key)
        call = execution.replay.open(key, scope)
""",
        ),
        by="when_the_call_is_made",
        tests=_ENGINE,
    ),
    mutant(
        "names_counted_over_the_whole_run",
        "belay_core/workflows/scope.py",
        (
            "self._counts: dict[str, int] = {}",
            "self._counts: dict[str, int] = parent._counts if parent else {}",
        ),
        ('return f"{self.path}{name}#{count}"', 'return f"{name}#{count}"'),
        by="keys_of_its_own or scope_of_its_own",
        tests=_ENGINE,
    ),
    mutant(
        "replay_out_of_the_recorded_order",
        "belay_core/engine/replay.py",
        (
            "heapq.heappush(self._ready, (recorded, self._count, call, at, turn, answer))",
            "heapq.heappush(self._ready, (0, self._count, call, at, turn, answer))",
        ),
        by="first_of_two or same_story or keeps_its_place",
        tests=_ENGINE,
    ),
    mutant(
        "answers_without_a_turn",
        "belay_core/engine/replay.py",
        (
            "        if not self._ready and not self._busy and not self._is_early(recorded):\n",
            "        if True:\n",
        ),
        by="first_of_two or same_story",
        tests=_ENGINE,
    ),
    mutant(
        "answer_before_the_calls_that_were_open",
        "belay_core/engine/recorded_order.py",
        ("self._expected[-1][0] < place:\n            return key", "False:\n            return key"),
        ("if self.count < self._counts.get(place, 0):", "if False:"),
        by="foreign or takes_the_branch",
        tests=_ENGINE,
    ),
    mutant(
        "unrecorded_call_before_the_replay_has_caught_up",
        "belay_core/engine/replay.py",
        (
            "        while (missing := self.order.missing()) is not None:\n",
            "        while (missing := None) is not None:\n",
        ),
        by="takes_no_other_branch or reproduced_or_stops",
        tests=_ENGINE,
    ),
    mutant(
        "turns_counted_twice",
        "belay_core/engine/loop_iterations.py",
        (
            "        self.count += 1\n        for turned in self._waiting.pop(self.count, ()):\n",
            "        self.count += 2\n        for turned in self._waiting.pop(self.count, ()):\n",
        ),
        by="its_turns_of_the_loop",
        tests=_ENGINE,
    ),
    mutant(
        "other_payment_stands_in",
        "belay_core/engine/body_execution.py",
        ("        if name in self.suspects:\n", "        if False:\n"),
        ("            if self.records.namesakes(key) > 1:\n", "            if False:\n"),
        by="stands_in_for_another",
        tests=_ENGINE,
    ),
)

WAITING: Final[tuple[Mutant, ...]] = (
    mutant(
        "parking_before_unwinding",
        "belay_core/engine/run_executor.py",
        (
            "            await unwind(execution, body, let_steps_end=end is not End.CANCELLED, hurry=lambda: self._grace_over)\n",
            "            early = await self._close(end, execution, body, waits) if end is End.IDLE else None\n"
            "            await unwind(execution, body, let_steps_end=end is not End.CANCELLED, hurry=lambda: self._grace_over)\n"
            "            if early is not None:\n"
            "                return early\n",
        ),
        by="finally_blocks_run",
        tests=_ENGINE,
    ),
    mutant(
        "waiting_as_an_exception",
        "belay_core/engine/body_execution.py",
        (
            "        self.replay.waits(call, waiting)\n        tasks: list",
            '        if waiting.reason == "approval":\n            raise DefinitionError("parked")\n'
            "        self.replay.waits(call, waiting)\n        tasks: list",
        ),
        by="approval_lets or decision",
        tests=_ENGINE,
    ),
    mutant(
        "idle_while_a_scope_is_busy",
        "belay_core/engine/replay.py",
        ("            elif not (rest := self._rest()):\n", "            elif not (rest := 0):\n"),
        by="would_be_parked or lose or lost or sleep",
        tests=_ENGINE,
    ),
    mutant(
        "news_never_read",
        "belay_core/engine/run_executor.py",
        (
            "        if history is not None:\n            execution.arrived(history)\n",
            "        if history is not None:\n            pass\n",
        ),
        by="without_parking or is_heard_there or being_parked",
        tests=_ENGINE,
    ),
    mutant(
        "edit_not_executed",
        "belay_core/engine/gate_call.py",
        ("text = approval.subject if approval.edited is None else approval.edited", "text = approval.subject"),
        by="edited_approval or approvers_subject",
        tests=_ENGINE,
    ),
)

STEPS: Final[tuple[Mutant, ...]] = (
    mutant(
        "no_record_before_the_effect",
        "belay_core/engine/step_call.py",
        ("            if not self._step.idempotent:\n                await self._record(self._running(begun))\n", ""),
        by="goes_to_review_when_its_owner_dies",
        tests=_ENGINE,
    ),
    mutant(
        "orphan_executed_again",
        "belay_core/engine/step_call.py",
        ('        if self._step.idempotent and not _meta(last).get("unencodable"):\n', "        if True:\n"),
        by="goes_to_review_when_its_owner_dies or other_than_review or never_retried",
        tests=_ENGINE,
    ),
    mutant(
        "result_before_its_commit",
        "belay_core/engine/step_call.py",
        (
            "            try:\n                await execution.handle.record(ended)\n",
            "            try:\n                execution.working(lambda: execution.handle.record(ended))\n",
        ),
        by="only_after_their_commit",
        tests=_ENGINE,
    ),
    mutant(
        "neighbours_share_a_refusal",
        "belay_core/engine/lease.py",
        (
            "            self._queue.put_back(others)\n            return await self._stored(attempts)\n",
            "            pass\n",
        ),
        by="neighbours or conflict_of_one",
        tests=_ENGINE,
    ),
    mutant(
        "turn_lost_with_who_waited",
        "belay_core/engine/lease.py",
        ("            if waiting.has_turn:\n                self.pass_on()\n", ""),
        by="goes_to_the_next",
        tests=_ENGINE,
    ),
    mutant(
        "one_try_too_few",
        "belay_core/engine/retry.py",
        ("if failed >= rules.retries or", "if failed + 1 >= rules.retries or"),
        by="tried_again or out_of_tries",
        tests=_ENGINE,
    ),
    mutant(
        "every_error_tried_again",
        "belay_core/engine/retry.py",
        (" or not rules.may_mend(error)", ""),
        by="which_errors_are_tried_again",
        tests=_ENGINE,
    ),
    mutant(
        "poison_never_stopped",
        "belay_core/engine/run_executor.py",
        (
            "if self._run.takeovers >= TAKEOVERS_WITHOUT_PROGRESS:",
            "if self._run.takeovers > TAKEOVERS_WITHOUT_PROGRESS:",
        ),
        by="kills_its_owners",
        tests=_ENGINE,
    ),
    mutant(
        "cancel_runs_the_body",
        "belay_core/engine/run_executor.py",
        ("        if history is None or self.handle.cancel_requested:\n", "        if history is None:\n"),
        by="never_runs_its_body",
        tests=_ENGINE,
    ),
    mutant(
        "deadline_bound_to_the_pulse",
        "belay_core/engine/lease.py",
        ("        both.create_task(keeper.watch_for_ever())\n", ""),
        by="renewal_that_hangs",
        tests=_ENGINE,
    ),
    mutant(
        "confirmed_when_answered",
        "belay_core/engine/lease.py",
        (
            "            handle.renewed(sent_at, answer)\n",
            "            handle.renewed(self._stores.clock.elapsed(), answer)\n",
        ),
        by="counts_from_when_it_was_sent",
        tests=_ENGINE,
    ),
    mutant(
        "orphan_at_the_end_forgotten",
        "belay_core/engine/completion.py",
        (
            "        if orphan is not None:\n            await self._orphaned(orphan)\n",
            "        if False:\n            await self._orphaned(orphan)\n",
        ),
        by="keeps_the_run_from_completing or beside_an_orphan",
        tests=_ENGINE,
    ),
    mutant(
        "lapse_found_by_the_pulse_alone",
        "belay_core/ownership/heartbeat_loop.py",
        (
            "both = {self._create_task(self._send_heartbeats()), self._create_task(self._enforce_deadline())}",
            "both = {self._create_task(self._send_heartbeats())}",
        ),
        by="heartbeat_that_hangs or tolerance",
        tests=("tests/ownership",),
    ),
    mutant(
        "places_free_and_nobody_looks",
        "belay_core/engine/dispatcher.py",
        ("if self._more and self._room > 0:\n", "if False:\n"),
        by="goes_on_taking",
        tests=_ENGINE,
    ),
    mutant(
        "failure_taken_back_and_what_followed_expected",
        "belay_core/engine/recorded_order.py",
        ("            if self._is_taken_back(asked):\n", "            if False:\n"),
        by="need_not_happen_again",
        tests=_ENGINE,
    ),
    mutant(
        "given_up_orphan_executed_after_a_retry",
        "belay_drivers/sql/stores/runs/retry.py",
        ('{"resolved_by": None, "resolved_at": None}', '{"resolved_by": row["resolved_by"]}'),
        by="orphan_with_which_the_run_was_given_up",
        tests=_ENGINE,
    ),
    mutant(
        "answer_with_another_input_stands_after_a_retry",
        "belay_core/engine/step_call.py",
        ("(ended and last.input_digest != self._digest)", "False"),
        by="stands_for_none_with_another_input",
        tests=_ENGINE,
    ),
    mutant(
        "renamed_step_executed_again",
        "belay_core/engine/step_call.py",
        ("if not self._step.idempotent and (known := execution.untaken(self._call.key)):", "if False:"),
        by="not_executed_again or no_item_of_a_renamed_map",
        tests=_ENGINE,
    ),
    mutant(
        "retried_rename_takes_the_old_record",
        "belay_core/engine/recorded_steps.py",
        ('if _is_word(each, "happened")', "if True"),
        by="asked_about_again",
        tests=_ENGINE,
    ),
)

CALLERS: Final[tuple[Mutant, ...]] = (
    mutant(
        "connections_kept_over_a_fork",
        "belay_integrations/loop_thread.py",
        ("    for each in list(_EVERY):\n        each.forget()\n", "    return\n"),
        by="forked_process",
        tests=("tests/integrations",),
    ),
    mutant(
        "a_call_ends_the_loop_of_all",
        "belay_integrations/loop_thread.py",
        ("except (KeyboardInterrupt, SystemExit) as error:", "except ArithmeticError as error:"),
        by="ends_no_other_call",
        tests=("tests/integrations",),
    ),
    mutant(
        "edit_read_leniently",
        "belay_core/engine/gate_call.py",
        ("self._codec.decode_written(approval.edited)", "self._codec.decode(approval.edited)"),
        by="checked_before_it_is_used",
        tests=_ENGINE,
    ),
    mutant(
        "edit_not_checked_when_it_is_written",
        "belay_core/client/decisions.py",
        (
            "        if edited is not None:\n            await self._check_edit(",
            "        if False:\n            await self._check_edit(",
        ),
        by="not_of_the_subjects_type",
        tests=_ENGINE,
    ),
    mutant(
        "operators_result_read_leniently",
        "belay_core/engine/step_call.py",
        (
            'self._step.codec.decode_written(orphan.outcome or "null")',
            'self._step.codec.decode(orphan.outcome or "null")',
        ),
        by="stored_without_a_check",
        tests=_ENGINE,
    ),
    mutant(
        "refused_content_sent_again_for_ever",
        "belay_core/engine/lease.py",
        (" or refuses_content(error):", ":"),
        by="test_a_result_of_a_run_fails_it or goes_to_review",
        tests=("tests/engine/test_refused_content.py",),
    ),
)
